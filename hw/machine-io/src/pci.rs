//! A host bridge: finding virtio functions and miss counters on its root bus and giving their BARs addresses.
//!
//! Firmware such as OpenSBI leaves PCI as it came out of reset. Only those functions are set up; what firmware did
//! configure keeps its place. Buses behind bridges are not looked at.
//
// UNSAFETY: configuration space is mapped here, and the bus iterator of `virtio-drivers` wants a second handle on it.
#![expect(unsafe_code)]

use alloc::vec::Vec;

use addr::MachineAddr;
use intc::{MmioRegion, Registers};
use machine_tree::{AddressRange, PciSpace, PciWindow, PcieHost};
use virtio_drivers::transport::pci::{
    PciTransport, VirtioPciError,
    bus::{BarInfo, Command, ConfigurationAccess, DeviceFunction, DeviceFunctionInfo, MemoryBarType, PciRoot},
    virtio_device_type,
};

use crate::{
    Found, Place,
    counters::{CountersError, MissCounters},
    discover::{Discovered, Trouble},
    error::IoError,
    platform::{Platform, PlatformHal},
};

/// Configuration register with the interrupt line and pin.
const INTERRUPT_REGISTER: u8 = 0x3c;
/// Bytes of a function's configuration space, as a power of two.
const FUNCTION_SHIFT: usize = 12;

/// Configuration space of a host bridge.
#[derive(Clone, Copy)]
struct Ecam {
    registers: MmioRegion,
    first_bus: u8,
}

impl Ecam {
    fn offset(&self, function: DeviceFunction, register: u8) -> Option<usize> {
        let bus = usize::from(function.bus.checked_sub(self.first_bus)?);
        let number = bus << 8 | usize::from(function.device) << 3 | usize::from(function.function);
        let offset = number << FUNCTION_SHIFT | usize::from(register);
        (function.valid() && offset + 4 <= self.registers.bytes()).then_some(offset)
    }
}

impl ConfigurationAccess for Ecam {
    fn read_word(&self, function: DeviceFunction, register: u8) -> u32 {
        // All ones is what the bus answers for a function that is not there.
        self.offset(function, register).map_or(u32::MAX, |offset| self.registers.read(offset))
    }

    fn write_word(&mut self, function: DeviceFunction, register: u8, value: u32) {
        if let Some(offset) = self.offset(function, register) {
            self.registers.write(offset, value);
        }
    }

    unsafe fn unsafe_clone(&self) -> Self {
        *self
    }
}

/// Finds the functions of a host bridge that there are drivers for, and makes them ready.
pub(crate) fn discover<P: Platform>(host: &PcieHost, all: &mut Discovered) {
    let Some(base) = P::map_device(host.ecam) else {
        let error = IoError::NotMapped { address: host.ecam.start() };
        all.troubles.push(Trouble { place: Place::PciHost { ecam: host.ecam.start() }, error });
        return;
    };
    let bytes = usize::try_from(host.ecam.bytes()).unwrap_or(usize::MAX);
    // SAFETY: 1. `Platform::map_device` promises a mapping of the whole range for ever, page-aligned as the range is.
    // 2. Configuration registers make no device write to memory; bus mastering only lets a device do what its driver
    // tells it later.
    let registers = unsafe { MmioRegion::new(base.as_ptr().expose_provenance(), bytes) };
    let ecam = Ecam { registers, first_bus: host.first_bus };
    let mut root = PciRoot::new(ecam);
    let functions: Vec<_> = root.enumerate_bus(host.first_bus).collect();
    let mut windows = Windows::new(&host.windows);
    for (function, _) in &functions {
        windows.keep_configured(&mut root, *function);
    }
    for (function, info) in &functions {
        let place = Place::Pci { bus: function.bus, device: function.device, function: function.function };
        if is_counters(info) && all.counters.is_none() {
            match set_up_counters::<P>(&mut root, *function, &mut windows, place) {
                Ok(counters) => all.counters = Some(counters),
                Err(error) => all.troubles.push(Trouble { place, error }),
            }
        }
        if virtio_device_type(info).is_none() {
            continue;
        }
        match set_up::<P>(&mut root, *function, &mut windows) {
            Ok(transport) => {
                let pin = (ecam.read_word(*function, INTERRUPT_REGISTER) >> 8) as u8;
                let interrupt = host.interrupt(function.device, function.function, pin);
                all.virtio.push(Found::new(transport.into(), place, interrupt));
            }
            Err(error) => all.troubles.push(Trouble { place, error }),
        }
    }
}

fn is_counters(info: &DeviceFunctionInfo) -> bool {
    (info.vendor_id, info.device_id) == (model_file::PCI_VENDOR, model_file::PCI_DEVICE)
}

/// Makes a virtio function ready and wraps it up.
fn set_up<P: Platform>(
    root: &mut PciRoot<Ecam>,
    function: DeviceFunction,
    windows: &mut Windows,
) -> Result<PciTransport, IoError> {
    place_bars::<P>(root, function, windows)?;
    root.set_command(function, Command::MEMORY_SPACE | Command::BUS_MASTER);
    PciTransport::new::<PlatformHal<P>, _>(root, function).map_err(IoError::Pci)
}

/// Makes a function with shared memory ready and looks whether that holds miss counters.
fn set_up_counters<P: Platform>(
    root: &mut PciRoot<Ecam>,
    function: DeviceFunction,
    windows: &mut Windows,
    place: Place,
) -> Result<MissCounters, IoError> {
    place_bars::<P>(root, function, windows)?;
    let bar = model_file::PCI_BAR;
    let found = root.bar_info(function, bar).map_err(pci_error)?.and_then(|info| info.memory_address_size());
    let missing = IoError::Counters(CountersError::TooSmall { bytes: 0 });
    let (address, bytes) = found.filter(|(_, bytes)| *bytes > 0).ok_or(missing)?;
    let range = AddressRange::new(MachineAddr::new(address), bytes);
    let base = range.and_then(P::map_device).ok_or(IoError::NotMapped { address: MachineAddr::new(address) })?;
    root.set_command(function, Command::MEMORY_SPACE);
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    // SAFETY: 1. `Platform::map_device` promises a mapping of the whole range for ever; a BAR's address is aligned to its
    // size. 2. The function is no bus master, so it writes no memory at all.
    let memory = unsafe { MmioRegion::new(base.as_ptr().expose_provenance(), bytes) };
    MissCounters::new(memory, place).map_err(|why| {
        root.set_command(function, Command::empty());
        IoError::Counters(why)
    })
}

/// Gives a function's memory BARs addresses.
fn place_bars<P: Platform>(
    root: &mut PciRoot<Ecam>,
    function: DeviceFunction,
    windows: &mut Windows,
) -> Result<(), IoError> {
    root.set_command(function, Command::empty());
    let bars = root.bars(function).map_err(pci_error)?;
    for (bar, info) in (0..).zip(bars) {
        let Some(BarInfo::Memory { address_type, prefetchable, size, .. }) = info else { continue };
        let wide = address_type == MemoryBarType::Width64;
        let address = windows.take(size, wide, prefetchable).ok_or(IoError::NoRoomForBar { bar, bytes: size })?;
        // The PCI transport maps BARs through a function that cannot refuse.
        let mappable = AddressRange::new(MachineAddr::new(address), size).and_then(P::map_device);
        mappable.ok_or(IoError::NotMapped { address: MachineAddr::new(address) })?;
        match u32::try_from(address) {
            Ok(low) if !wide => root.set_bar_32(function, bar, low),
            _ => root.set_bar_64(function, bar, address),
        }
    }
    Ok(())
}

fn pci_error(error: virtio_drivers::transport::pci::bus::PciError) -> IoError {
    IoError::Pci(VirtioPciError::Pci(error))
}

/// What is left of the host bridge's windows for memory BARs.
struct Windows {
    free: Vec<FreeWindow>,
}

struct FreeWindow {
    space: PciSpace,
    is_prefetchable: bool,
    next: u64,
    end: u64,
}

impl Windows {
    /// Windows whose bus addresses differ from machine addresses are left alone: the PCI transport takes what stands
    /// in a BAR for a machine address.
    fn new(windows: &[PciWindow]) -> Self {
        let usable =
            |window: &&PciWindow| window.space != PciSpace::Io && window.bus_address == window.range.start().raw();
        let free = windows.iter().filter(usable).map(|window| FreeWindow {
            space: window.space,
            is_prefetchable: window.is_prefetchable,
            // A BAR at address 0 is one without an address.
            next: window.bus_address.max(0x1000),
            end: window.range.end().raw(),
        });
        Self { free: free.collect() }
    }

    /// Addresses for a BAR: its size is its alignment. 64-bit BARs prefer high windows and leave low ones to those that
    /// need them; a BAR that must not be read ahead does not go where reading ahead is allowed.
    fn take(&mut self, bytes: u64, wide: bool, prefetchable: bool) -> Option<u64> {
        let fits = |window: &FreeWindow| (prefetchable || !window.is_prefetchable) && window.place(bytes).is_some();
        let find = |space| self.free.iter().position(|window| window.space == space && fits(window));
        let high = if wide { find(PciSpace::Memory64) } else { None };
        let position = high.or_else(|| find(PciSpace::Memory32))?;
        let window = self.free.get_mut(position)?;
        let start = window.place(bytes)?;
        window.next = start.checked_add(bytes)?;
        Some(start)
    }

    /// Keeps clear of what firmware has configured and switched on.
    fn keep_configured(&mut self, root: &mut PciRoot<Ecam>, function: DeviceFunction) {
        let (_, command) = root.get_status_command(function);
        if !command.contains(Command::MEMORY_SPACE) {
            return;
        }
        let Ok(bars) = root.bars(function) else { return };
        for (address, size) in bars.iter().flatten().filter_map(BarInfo::memory_address_size) {
            let end = address.saturating_add(size);
            for window in self.free.iter_mut().filter(|window| window.next < end && address < window.end) {
                window.next = end;
            }
        }
    }
}

impl FreeWindow {
    fn place(&self, bytes: u64) -> Option<u64> {
        let start = self.next.checked_next_multiple_of(bytes.max(4096))?;
        start.checked_add(bytes).filter(|&end| end <= self.end).map(|_| start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows() -> Windows {
        let window = |space, start, bytes| PciWindow {
            space,
            is_prefetchable: false,
            bus_address: start,
            range: AddressRange::new(MachineAddr::new(start), bytes).expect("no wrap"),
        };
        Windows::new(&[
            window(PciSpace::Io, 0, 0x1_0000),
            window(PciSpace::Memory32, 0x4000_0000, 0x1_0000),
            window(PciSpace::Memory64, 0x4_0000_0000, 0x10_0000),
        ])
    }

    #[test]
    fn bars_are_aligned_to_their_size_and_disjoint() {
        let mut windows = windows();
        assert_eq!(windows.take(0x20, false, false), Some(0x4000_0000));
        assert_eq!(windows.take(0x4000, false, false), Some(0x4000_4000));
        assert_eq!(windows.take(0x4000, true, true), Some(0x4_0000_0000));
        assert_eq!(windows.take(0x8_0000, true, false), Some(0x4_0008_0000));
    }

    #[test]
    fn full_windows_say_so() {
        let mut windows = windows();
        assert_eq!(windows.take(0x2_0000, false, false), None, "32-bit BARs cannot use the high window");
        assert_eq!(windows.take(0x10_0000, true, false), Some(0x4_0000_0000));
        assert_eq!(windows.take(0x1000, true, false), Some(0x4000_0000), "64-bit BARs fall back to the low window");
    }

    #[test]
    fn nothing_goes_where_reading_ahead_is_allowed_unless_it_may() {
        let mut windows = windows();
        windows.free.iter_mut().for_each(|window| window.is_prefetchable = true);
        assert_eq!(windows.take(0x1000, true, false), None);
        assert_eq!(windows.take(0x1000, true, true), Some(0x4_0000_0000));
    }
}
