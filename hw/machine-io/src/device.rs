//! What all virtio devices have in common: reset, features, queues, interrupts, and being given up.

use bitflags::bitflags;
use virtio_drivers::transport::{DeviceStatus, Transport};

use crate::{error::IoError, platform::Platform, ring::Ring};

/// How often a device's register or ring is read before it is declared dead. Only while it is being set up.
pub(crate) const PATIENCE: u32 = 50_000_000;

bitflags! {
    /// Features that belong to no kind of device.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Common: u64 {
        /// `VIRTIO_F_EVENT_IDX`
        const EVENT_INDEX = 1 << 29;
        /// `VIRTIO_F_VERSION_1`
        const VERSION_1 = 1 << 32;
    }
}

/// A device that has been reset and has agreed on features.
pub(crate) struct Device<T: Transport> {
    transport: T,
    features: u64,
}

impl<T: Transport> Device<T> {
    /// Resets the device and agrees on `wanted` features, as far as it has them, plus the common ones.
    pub(crate) fn begin(mut transport: T, wanted: u64) -> Result<Self, IoError> {
        transport.set_status(DeviceStatus::empty());
        wait(|| transport.get_status() == DeviceStatus::empty())?;
        transport.set_status(DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER);
        let features = transport.read_device_features() & (wanted | Common::all().bits());
        transport.write_driver_features(features);
        let agreed = DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER | DeviceStatus::FEATURES_OK;
        transport.set_status(agreed);
        // Devices before version 1 have neither this step nor this bit.
        if features & Common::VERSION_1.bits() != 0 && !transport.get_status().contains(DeviceStatus::FEATURES_OK) {
            transport.set_status(DeviceStatus::FAILED);
            return Err(IoError::FeaturesRefused);
        }
        transport.set_guest_page_size(4096);
        Ok(Self { transport, features })
    }

    pub(crate) fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Adds a queue, before [`Device::go`].
    pub(crate) fn queue<P: Platform>(&mut self, index: u16) -> Result<Ring<P>, IoError> {
        Ring::new(&mut self.transport, index, self.features & Common::EVENT_INDEX.bits() != 0)
    }

    /// From now on the device works.
    pub(crate) fn go(&mut self) {
        let status =
            DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER | DeviceStatus::FEATURES_OK | DeviceStatus::DRIVER_OK;
        self.transport.set_status(status);
    }

    /// A 32-bit field of the configuration space.
    pub(crate) fn config_u32(&self, offset: usize) -> Result<u32, IoError> {
        self.transport.read_config_space(offset).map_err(IoError::Config)
    }

    /// A byte of the configuration space.
    pub(crate) fn config_u8(&self, offset: usize) -> Result<u8, IoError> {
        self.transport.read_config_space(offset).map_err(IoError::Config)
    }

    /// A 64-bit field, read as two halves of one moment.
    pub(crate) fn config_u64(&self, offset: usize) -> Result<u64, IoError> {
        for _ in 0..16 {
            let before = self.transport.read_config_generation();
            let (low, high) = (self.config_u32(offset)?, self.config_u32(offset + 4)?);
            if self.transport.read_config_generation() == before {
                return Ok(u64::from(high) << 32 | u64::from(low));
            }
        }
        Err(IoError::Timeout)
    }

    pub(crate) fn notify<P: Platform>(&mut self, ring: &mut Ring<P>) {
        ring.notify(&mut self.transport);
    }

    /// Takes the interrupt back: the device's wire falls. True if it was up.
    pub(crate) fn acknowledge(&mut self) -> bool {
        !self.transport.ack_interrupt().is_empty()
    }

    /// Resets the device for good: it stops touching memory.
    pub(crate) fn reset(&mut self) {
        self.transport.set_status(DeviceStatus::empty());
        // Without an answer there is nothing more that can be done.
        let _ = wait(|| self.transport.get_status() == DeviceStatus::empty());
    }
}

/// A device without a driver must not go on working.
impl<T: Transport> Drop for Device<T> {
    fn drop(&mut self) {
        self.reset();
    }
}

/// Looks until `done`, or until the patience is over.
pub(crate) fn wait(mut done: impl FnMut() -> bool) -> Result<(), IoError> {
    for _ in 0..PATIENCE {
        if done() {
            return Ok(());
        }
        core::hint::spin_loop();
    }
    Err(IoError::Timeout)
}
