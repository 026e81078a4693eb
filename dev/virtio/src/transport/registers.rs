//! The register file: which access means what.

use device::{Device, Env, GuestFault, Width};

use super::{VirtioMmio, spec};
use crate::model::VirtioModel;
use crate::queue::{Queue, Ring};
use crate::spec::{F_EVENT_IDX, F_INDIRECT_DESC, F_VERSION_1, Status, TRANSPORT_FEATURES};

impl<M: VirtioModel> Device for VirtioMmio<M> {
    fn name(&self) -> &'static str {
        self.model.name()
    }

    fn read(&mut self, offset: u64, width: Width, _env: &dyn Env) -> Result<u64, GuestFault> {
        if offset >= spec::CONFIG {
            return Ok(self.read_config_space(offset - spec::CONFIG, width));
        }
        // Registers are 32 bits wide and accessed as such ("Driver Requirements: MMIO Device Register Layout").
        if width == Width::Word { Ok(u64::from(self.read_register(offset))) } else { Ok(0) }
    }

    fn write(&mut self, offset: u64, width: Width, value: u64, env: &dyn Env) -> Result<(), GuestFault> {
        let value = width.truncate(value);
        if offset >= spec::CONFIG {
            self.write_config_space(offset - spec::CONFIG, width, value);
            return Ok(());
        }
        if width != Width::Word {
            return Ok(());
        }
        // The two registers that running drivers write come first.
        match offset {
            spec::QUEUE_NOTIFY => self.notify(value, env),
            spec::INTERRUPT_ACK => {
                self.acknowledge(value as u32, env);
                Ok(())
            }
            spec::STATUS => self.write_status(value as u32, env),
            spec::QUEUE_READY => self.write_queue_ready(value as u32, env),
            _ => {
                self.write_setup(offset, value as u32);
                Ok(())
            }
        }
    }

    fn reset(&mut self) {
        self.reset_device();
    }
}

impl<M: VirtioModel> VirtioMmio<M> {
    fn read_register(&self, offset: u64) -> u32 {
        match offset {
            spec::INTERRUPT_STATUS => self.interrupt_status,
            spec::MAGIC_VALUE => spec::MAGIC,
            spec::VERSION_REG => spec::VERSION,
            spec::DEVICE_ID => self.model.device_id() as u32,
            spec::VENDOR_ID => spec::VENDOR,
            spec::DEVICE_FEATURES => half(self.offered(), self.device_features_sel),
            spec::QUEUE_NUM_MAX => self.selected().map_or(0, |queue| u32::from(queue.max_size())),
            spec::QUEUE_READY => self.selected().map_or(0, |queue| u32::from(queue.is_ready())),
            spec::STATUS => self.status.bits(),
            // No shared memory regions: length and base of each read as -1.
            spec::SHM_LEN_LOW | spec::SHM_LEN_HIGH | spec::SHM_BASE_LOW | spec::SHM_BASE_HIGH => u32::MAX,
            spec::CONFIG_GENERATION => self.config_generation,
            _ => 0,
        }
    }

    #[cold]
    fn write_setup(&mut self, offset: u64, value: u32) {
        match offset {
            spec::DEVICE_FEATURES_SEL => self.device_features_sel = value,
            spec::DRIVER_FEATURES_SEL => self.driver_features_sel = value,
            spec::DRIVER_FEATURES => self.write_driver_features(value),
            spec::QUEUE_SEL => self.queue_sel = value,
            spec::QUEUE_NUM => self.with_selected(|queue| queue.set_size(value)),
            spec::QUEUE_DESC_LOW => self.with_selected(|queue| queue.set_ring(Ring::Desc, false, value)),
            spec::QUEUE_DESC_HIGH => self.with_selected(|queue| queue.set_ring(Ring::Desc, true, value)),
            spec::QUEUE_DRIVER_LOW => self.with_selected(|queue| queue.set_ring(Ring::Avail, false, value)),
            spec::QUEUE_DRIVER_HIGH => self.with_selected(|queue| queue.set_ring(Ring::Avail, true, value)),
            spec::QUEUE_DEVICE_LOW => self.with_selected(|queue| queue.set_ring(Ring::Used, false, value)),
            spec::QUEUE_DEVICE_HIGH => self.with_selected(|queue| queue.set_ring(Ring::Used, true, value)),
            _ => {}
        }
    }

    /// Everything that the driver may accept.
    fn offered(&self) -> u64 {
        self.model.features() | TRANSPORT_FEATURES
    }

    fn selected(&self) -> Option<&Queue> {
        self.queues.get(self.queue_sel as usize)
    }

    /// Changes the selected queue. Ignored before feature negotiation is over, as queue rules depend on it.
    fn with_selected(&mut self, change: impl FnOnce(&mut Queue)) {
        if self.status.contains(Status::FEATURES_OK)
            && let Some(queue) = self.queues.get_mut(self.queue_sel as usize)
        {
            change(queue);
        }
    }

    fn write_driver_features(&mut self, value: u32) {
        if self.status.contains(Status::FEATURES_OK) {
            return;
        }
        match self.driver_features_sel {
            0 => self.driver_features = self.driver_features & !0xffff_ffff | u64::from(value),
            1 => self.driver_features = self.driver_features & 0xffff_ffff | u64::from(value) << 32,
            _ => {}
        }
    }

    #[cold]
    fn write_queue_ready(&mut self, value: u32, env: &dyn Env) -> Result<(), GuestFault> {
        if !self.status.contains(Status::FEATURES_OK) {
            return Ok(());
        }
        let (has_indirect, has_event_idx) = (self.features & F_INDIRECT_DESC != 0, self.features & F_EVENT_IDX != 0);
        let index = self.queue_sel;
        let Some(queue) = self.queues.get_mut(index as usize) else { return Ok(()) };
        match (value & 1 != 0, queue.is_ready()) {
            (true, false) => queue.start(env.memory(), has_indirect, has_event_idx).map_err(|error| self.fault(error)),
            (false, true) => {
                queue.stop();
                self.model.queue_stopped(index as u16);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The driver sets status bits one after the other and cannot clear one, but zero resets.
    #[cold]
    fn write_status(&mut self, value: u32, env: &dyn Env) -> Result<(), GuestFault> {
        if value == 0 {
            self.reset_device();
            self.release_line(env);
            return Ok(());
        }
        // DEVICE_NEEDS_RESET is the device's to set.
        let mut gained = Status::from_bits_truncate(value) - self.status - Status::DEVICE_NEEDS_RESET;
        if gained.contains(Status::FEATURES_OK) {
            if self.are_features_acceptable() {
                self.features = self.driver_features;
            } else {
                gained -= Status::FEATURES_OK;
            }
        }
        if gained.contains(Status::DRIVER_OK) && !(self.status | gained).contains(Status::FEATURES_OK) {
            gained -= Status::DRIVER_OK;
        }
        self.status |= gained;
        if !gained.contains(Status::DRIVER_OK) {
            return Ok(());
        }
        self.model.activate(self.features);
        // A driver may have filled and notified queues just before; that notification was not served.
        self.serve(u64::MAX, env)
    }

    fn are_features_acceptable(&self) -> bool {
        self.driver_features & !self.offered() == 0 && self.driver_features & F_VERSION_1 != 0
    }

    fn read_config_space(&self, offset: u64, width: Width) -> u64 {
        let mut raw = [0; 8];
        if let Some(buf) = raw.get_mut(..width.bytes() as usize) {
            self.model.config_read(offset, buf);
        }
        u64::from_le_bytes(raw)
    }

    fn write_config_space(&mut self, offset: u64, width: Width, value: u64) {
        let raw = value.to_le_bytes();
        if let Some(data) = raw.get(..width.bytes() as usize) {
            self.model.config_write(offset, data);
        }
    }
}

/// The 32-bit half of `features` that `select` names; zero beyond.
const fn half(features: u64, select: u32) -> u32 {
    match select {
        0 => features as u32,
        1 => (features >> 32) as u32,
        _ => 0,
    }
}
