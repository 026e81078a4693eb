//! Finding the machine's devices, wherever they are.
//
// UNSAFETY: a virtio-mmio slot is registers at an address that only the machine's description vouches for.
#![expect(unsafe_code)]

use alloc::vec::Vec;
use core::fmt;

use addr::MachineAddr;
use machine_tree::{InterruptSource, MachineDescription, VirtioMmio};
use virtio_drivers::transport::{
    DeviceType, DeviceTypeError, SomeTransport, Transport,
    mmio::{MmioError, MmioTransport},
};

use crate::{counters::MissCounters, error::IoError, pci, platform::Platform};

/// Where a device sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A virtio-mmio slot.
    Mmio {
        /// Its registers.
        address: MachineAddr,
    },
    /// A function on PCI Express.
    Pci {
        /// Bus number.
        bus: u8,
        /// Device number.
        device: u8,
        /// Function number.
        function: u8,
    },
    /// A whole host bridge.
    PciHost {
        /// Its configuration space.
        ecam: MachineAddr,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mmio { address } => write!(f, "mmio-{:x}", address.raw()),
            Self::Pci { bus, device, function } => write!(f, "pci-{bus:02x}:{device:02x}.{function}"),
            Self::PciHost { ecam } => write!(f, "pci-host-{:x}", ecam.raw()),
        }
    }
}

/// A virtio device that no driver has yet.
pub struct Found<T = SomeTransport<'static>> {
    transport: T,
    place: Place,
    interrupt: Option<InterruptSource>,
}

impl<T: Transport> Found<T> {
    /// A device behind a transport.
    pub const fn new(transport: T, place: Place, interrupt: Option<InterruptSource>) -> Self {
        Self { transport, place, interrupt }
    }

    /// What it is; `None` for kinds without a driver here.
    #[must_use]
    pub fn kind(&self) -> Option<DeviceType> {
        let kind = self.transport.device_type();
        let has_driver =
            matches!(kind, DeviceType::Block | DeviceType::Network | DeviceType::Console | DeviceType::EntropySource);
        has_driver.then_some(kind)
    }

    /// Where it sits.
    #[must_use]
    pub const fn place(&self) -> Place {
        self.place
    }

    /// Its interrupt. Devices on one PCI pin share it.
    #[must_use]
    pub const fn interrupt(&self) -> Option<InterruptSource> {
        self.interrupt
    }

    pub(crate) fn into_parts(self) -> (T, Place, Option<InterruptSource>) {
        (self.transport, self.place, self.interrupt)
    }
}

/// A device that could not be made ready. The others are not affected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Where.
    pub place: Place,
    /// Why.
    pub error: IoError,
}

/// What there is.
#[derive(Default)]
pub struct Discovered {
    /// Virtio devices, on MMIO by address, then on PCI Express by number.
    pub virtio: Vec<Found>,
    /// The machine's miss counters.
    pub counters: Option<MissCounters>,
    /// Devices that cannot be used.
    pub troubles: Vec<Trouble>,
}

/// Finds all devices of the machine and makes them ready for drivers. Call once: a second driver for a device would
/// disturb the first.
#[must_use]
pub fn discover<P: Platform>(machine: &MachineDescription) -> Discovered {
    let mut all = Discovered::default();
    for slot in &machine.virtio_mmio {
        let place = Place::Mmio { address: slot.registers.start() };
        match open_slot::<P>(slot) {
            Ok(transport) => all.virtio.extend(transport.map(|transport| Found::new(transport, place, slot.interrupt))),
            Err(error) => all.troubles.push(Trouble { place, error }),
        }
    }
    for host in &machine.pcie {
        pci::discover::<P>(host, &mut all);
    }
    all
}

/// The device in a slot; `None` if the slot is empty.
fn open_slot<P: Platform>(slot: &VirtioMmio) -> Result<Option<SomeTransport<'static>>, IoError> {
    let range = slot.registers;
    let base = P::map_device(range).ok_or(IoError::NotMapped { address: range.start() })?;
    let bytes = usize::try_from(range.bytes()).unwrap_or(usize::MAX);
    if !range.start().raw().is_multiple_of(4) {
        return Err(IoError::NotMapped { address: range.start() });
    }
    // SAFETY: `Platform::map_device` promises that the whole range is mapped for ever, as device memory; the tree says
    // that it is a virtio-mmio slot; it is aligned as checked above (mapping keeps the offset in the page).
    match unsafe { MmioTransport::new(base.cast(), bytes) } {
        Ok(transport) => Ok(Some(transport.into())),
        Err(MmioError::InvalidDeviceID(DeviceTypeError::InvalidDeviceType(0))) => Ok(None),
        Err(error) => Err(IoError::Mmio(error)),
    }
}
