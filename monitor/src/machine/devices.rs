//! The machine's disks, network interface and control port, as the rest of the monitor uses them.

use super::{HOME_NODE, irq::Controllers, layout, memory};
use addr::{CpuIndex, MachineAddr, PageSize};
use alloc::vec::Vec;
use control::{DeviceInfo, DeviceKind};
use core::ptr::NonNull;
use machine_io::{
    ControlPort, DeviceType, Discovered, Found, IoError, MachineDisk, MachineNic, MissCounters, Platform,
};
use machine_tree::{AddressRange, InterruptSource, MachineDescription};
use spin::{Mutex, Once};

/// The hart that takes the devices' interrupts.
const IO_HART: CpuIndex = CpuIndex(0);

/// Looks per second at devices whose interrupts come to no hart of ours, as a PLIC's whose wires lead to another cell.
const POLL_HZ: u64 = 500;

/// Version of the miss counters' layout: the only one that is taken into use.
const LAYOUT: u32 = model_file::VERSION as u32;

/// Random bytes that make guests' random numbers unpredictable.
const GOOD_SEED_BYTES: usize = 32;

/// What the drivers need of the monitor.
#[derive(Debug)]
pub enum DirectPlatform {}

// UNSAFETY: the trait's contract is about memory that devices write.
#[expect(unsafe_code)]
// SAFETY: (1) frames are taken from the allocator for good, zeroed, and the direct map shows them for ever; (2) the
// direct map covers device registers below its end; (3) the monitor programs no IOMMU, and the machines that it runs on
// are cache-coherent for DMA (the RISC-V platform's default without non-coherent markings).
unsafe impl Platform for DirectPlatform {
    fn allocate(pages: usize) -> Option<(MachineAddr, NonNull<u8>)> {
        let first = memory::take_monitor_run(HOME_NODE, pages as u64)?;
        for page in 0..(pages as u64).next_power_of_two() {
            super::direct::zero(addr::Mfn::new(first.raw() + page), PageSize::Base);
        }
        let pointer = NonNull::new(layout::direct(first.addr()) as *mut u8)?;
        Some((first.addr(), pointer))
    }

    fn map_device(range: AddressRange) -> Option<NonNull<u8>> {
        let is_mapped = range.end().raw() <= layout::DIRECT_SIZE;
        NonNull::new(layout::direct(range.start()) as *mut u8).filter(|_| is_mapped)
    }
}

/// A disk of the machine.
pub type Disk = MachineDisk<DirectPlatform>;
/// Its network interface.
pub type Nic = MachineNic<DirectPlatform>;

/// Everything found.
pub struct Devices {
    /// Disks.
    pub disks: Vec<Mutex<Disk>>,
    /// The first network interface.
    pub nic: Option<Mutex<Nic>>,
    /// The control port.
    pub control: Option<Mutex<ControlPort<DirectPlatform>>>,
    /// Miss counters, where the machine has them: one source of what placement is decided on. Nothing else may need them.
    pub counters: Option<Mutex<MissCounters>>,
}

static DEVICES: Once<Devices> = Once::new();
/// What a cell has that does not drive the machine's devices.
static NONE: Devices = Devices { disks: Vec::new(), nic: None, control: None, counters: None };

/// All devices that this cell drives.
#[must_use]
pub fn all() -> &'static Devices {
    DEVICES.get().unwrap_or(&NONE)
}

/// Finds the devices and routes their interrupts. Whatever they were doing ends: each is reset first.
pub fn discover(description: &MachineDescription, controllers: &mut Controllers) {
    let Discovered { virtio: found, counters, troubles } = machine_io::discover::<DirectPlatform>(description);
    for trouble in troubles {
        log::warn!("device at {}: {}", trouble.place, trouble.error);
    }
    if let Some(counters) = &counters {
        log::info!("miss counters at {}: layout {}, {} pages", counters.place(), LAYOUT, counters.pages());
    }
    // They count for the machine's nodes and pages, and know nothing of cells.
    let counters = counters.filter(|_| super::cell::is_alone());
    let mut devices = Devices { disks: Vec::new(), nic: None, control: None, counters: counters.map(Mutex::new) };
    let mut entropy_bytes = description.chosen.rng_seed.len();
    for device in found {
        let (place, interrupt) = (device.place(), device.interrupt());
        if device.kind() == Some(DeviceType::EntropySource) {
            match super::entropy::draw_from(device) {
                Ok(given) => entropy_bytes += given,
                Err(why) => log::warn!("entropy device at {place}: {why}"),
            }
            continue;
        }
        if let Err(why) = devices.adopt(device) {
            log::warn!("device at {place}: {why}");
            continue;
        }
        if let Some(Err(why)) = interrupt.map(|source| controllers.attach(source, IO_HART)) {
            log::warn!("device at {place}: interrupt: {why}; it is asked {POLL_HZ} times a second");
            poll();
        }
    }
    let names: Vec<_> = devices.disks.iter().map(|disk| alloc::string::String::from(disk.lock().name())).collect();
    if entropy_bytes < GOOD_SEED_BYTES {
        log::warn!("the machine gave {entropy_bytes} random bytes: what guests draw can be guessed");
    }
    let (has_nic, has_port) = (devices.nic.is_some(), devices.control.is_some());
    log::info!("disks {names:?}, network {has_nic}, control port {has_port}, {entropy_bytes} random bytes");
    DEVICES.call_once(|| devices);
}

/// From now on the devices are asked, because their interrupts may not come.
pub fn poll() {
    super::agenda::poll_every(super::capabilities().timebase_hz / POLL_HZ);
}

impl Devices {
    fn adopt(&mut self, device: Found) -> Result<(), IoError> {
        match device.kind() {
            Some(DeviceType::Block) => self.disks.push(Mutex::new(Disk::new(device)?)),
            Some(DeviceType::Network) if self.nic.is_none() => self.nic = Some(Mutex::new(Nic::new(device)?)),
            Some(DeviceType::Console) if self.control.is_none() => {
                self.control = Some(Mutex::new(ControlPort::new(device)?));
            }
            _ => {}
        }
        Ok(())
    }

    /// Quiets every device on the wire of `source`; how many there are, and whether any had it up.
    fn acknowledge(&self, source: InterruptSource) -> (usize, bool) {
        let (mut sharers, mut wanted) = (0, false);
        let mut note = |has_risen: bool| {
            sharers += 1;
            wanted |= has_risen;
        };
        let is_its = |interrupt: Option<InterruptSource>| interrupt == Some(source);
        for mut disk in self.disks.iter().map(Mutex::lock) {
            if is_its(disk.interrupt()) {
                note(disk.acknowledge());
            }
        }
        if let Some(mut nic) = self.nic.as_ref().map(Mutex::lock)
            && is_its(nic.interrupt())
        {
            note(nic.acknowledge());
        }
        if let Some(mut port) = self.control.as_ref().map(Mutex::lock)
            && is_its(port.interrupt())
        {
            note(port.acknowledge());
        }
        (sharers, wanted)
    }

    /// For `ls`.
    #[must_use]
    pub fn list(&self) -> Vec<DeviceInfo> {
        let info =
            |kind, place: machine_io::Place| DeviceInfo { kind, location: alloc::format!("{place}"), node: None };
        let disks = self.disks.iter().map(|disk| info(DeviceKind::Disk, disk.lock().place()));
        let nic = self.nic.iter().map(|nic| info(DeviceKind::Network, nic.lock().place()));
        let port = self.control.iter().map(|port| info(DeviceKind::ControlPort, port.lock().place()));
        let counters = self.counters.iter().map(|counters| {
            let counters = counters.lock();
            info(DeviceKind::MissCounters { layout: LAYOUT, pages: counters.pages() }, counters.place())
        });
        disks.chain(nic).chain(port).chain(counters).collect()
    }
}

/// A device interrupts: quiets all that share its wire. Who has to look is the caller's business.
///
/// A controller may notice a wire that rises, but not one that another device keeps up. So where several devices share
/// one, they are asked again until none wants anything: then the wire was down, and the next interrupt raises it.
pub fn acknowledge(source: InterruptSource) {
    /// A device that never falls silent must not hold the hart; the wire stays up then, and so does the interrupt.
    const ROUNDS: usize = 8;
    let Some(devices) = DEVICES.get() else { return };
    for _ in 0..ROUNDS {
        let (sharers, wanted) = devices.acknowledge(source);
        if sharers < 2 || !wanted {
            return;
        }
    }
}
