//! The virtio devices of a VM, one per slot.

use super::{
    VmEnv,
    backends::{BalloonPort, ConsolePort, HostPorts},
    disk::DiskPort,
    net::NetSlot,
};
use crate::{machine::entropy, vm::Vm};
use ::platform::map;
use alloc::{sync::Weak, vec::Vec};
use control::{ControlError, VmSpec};
use device::{Device as _, Env, GuestFault, Width};
use spin::Mutex;
use virtio::{
    Trigger, VirtioMmio, VirtioModel,
    balloon::Balloon,
    block::{Block, BlockTag},
    console::{Console, PortConfig},
    rng::Rng,
};

/// A locked device.
type Locked<M> = Mutex<VirtioMmio<M>>;
/// The console device with the named ports.
pub type ConsoleSlot = Locked<Console<ConsolePort>>;

/// A virtio device.
pub enum Slot {
    /// Disk.
    Block(Locked<Block<DiskPort>>),
    /// Network interface.
    Net(NetSlot),
    /// Console and named ports.
    Console(ConsoleSlot),
    /// Entropy.
    Rng(Locked<Rng<entropy::Stream>>),
    /// Memory given back.
    Balloon(Locked<Balloon<BalloonPort>>),
}

/// What went through disks and network.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    /// Sectors of 512 bytes read.
    pub disk_read_sectors: u64,
    /// Sectors of 512 bytes written.
    pub disk_written_sectors: u64,
    /// Bytes that the guest sent.
    pub net_sent_bytes: u64,
    /// Bytes that the guest received.
    pub net_received_bytes: u64,
}

impl Traffic {
    /// The sum of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            disk_read_sectors: self.disk_read_sectors + other.disk_read_sectors,
            disk_written_sectors: self.disk_written_sectors + other.disk_written_sectors,
            net_sent_bytes: self.net_sent_bytes + other.net_sent_bytes,
            net_received_bytes: self.net_received_bytes + other.net_received_bytes,
        }
    }
}

macro_rules! each {
    ($slot:expr, $device:ident => $body:expr) => {
        match $slot {
            Slot::Block($device) => $body,
            Slot::Net($device) => $body,
            Slot::Console($device) => $body,
            Slot::Rng($device) => $body,
            Slot::Balloon($device) => $body,
        }
    };
}

impl Slot {
    /// The guest reads a register.
    ///
    /// # Errors
    /// As [`device::Device::read`].
    #[inline]
    pub fn read(&self, offset: u64, width: Width, env: &dyn Env) -> Result<u64, GuestFault> {
        each!(self, device => device.lock().read(offset, width, env))
    }

    /// The guest writes a register. The device's lock is free again for what follows from it.
    ///
    /// # Errors
    /// As [`device::Device::write`].
    #[inline]
    pub fn write(&self, vm: &Vm, offset: u64, width: Width, value: u64, env: &dyn Env) -> Result<(), GuestFault> {
        match self {
            Self::Block(device) => {
                let mut device = device.lock();
                write_and_finish(&mut device, offset, width, value, env)?;
                let due = device.model_mut().backend_mut().take_pump_due();
                drop(device);
                due.into_iter().for_each(crate::machine::disks::Due::run);
            }
            Self::Net(net) => {
                // What it cannot do at once goes on between deliveries.
                net.lock().write(offset, width, value, env)?;
                net.after_access(vm);
            }
            Self::Console(device) => {
                write_and_finish(&mut device.lock(), offset, width, value, env)?;
                crate::machine::duties::wake_control();
            }
            Self::Rng(device) => write_and_finish(&mut device.lock(), offset, width, value, env)?,
            Self::Balloon(device) => write_and_finish(&mut device.lock(), offset, width, value, env)?,
        }
        Ok(())
    }

    /// A request that could not be finished at once has ended.
    pub fn complete_block(&self, vm: &Vm, tag: BlockTag, status: storage::Status) {
        if let Self::Block(device) = self {
            let mut device = device.lock();
            let status = device.model_mut().backend_mut().end_status(status);
            let outcome = device.complete(tag, status, &VmEnv::new(vm));
            drop(device);
            vm.note_fault(outcome);
        }
    }

    /// Machine pages of modified disk blocks.
    #[must_use]
    pub fn disk_pages(&self) -> u64 {
        match self {
            Self::Block(device) => device.lock().model().backend().private_pages(),
            _ => 0,
        }
    }

    /// Is nothing under way that names guest memory?
    #[must_use]
    pub fn is_idle(&self) -> bool {
        if let Self::Net(net) = self {
            net.settle();
        }
        true
    }

    /// Unplugs a network interface.
    pub fn disconnect(&self) {
        if let Self::Net(net) = self {
            net.disconnect();
        }
    }

    /// What went through.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        match self {
            Self::Block(device) => device.lock().model().backend().traffic(),
            Self::Net(net) => net.traffic(),
            _ => Traffic::default(),
        }
    }
}

/// A write; a spent budget goes on here, in the time of the vCPU that asked.
#[inline]
fn write_and_finish<M: VirtioModel>(
    device: &mut VirtioMmio<M>,
    offset: u64,
    width: Width,
    value: u64,
    env: &dyn Env,
) -> Result<(), GuestFault> {
    device.write(offset, width, value, env)?;
    while device.has_backlog() {
        device.poll(env)?;
    }
    Ok(())
}

/// The devices of a description, in the order of their slots: disks, networks, console, entropy, balloon.
///
/// # Errors
/// A disk or subnet that does not exist or is not free.
pub fn make_devices(
    id: addr::VmId,
    spec: &VmSpec,
    ports: &HostPorts,
    has_imsic: bool,
    vm: &Weak<Vm>,
) -> Result<Vec<Slot>, ControlError> {
    // A PLIC's gateway forwards nothing between claim and completion, so an edge could be lost there.
    let trigger = if has_imsic { Trigger::Edge } else { Trigger::Level };
    let mut devices: Vec<Slot> = Vec::new();
    for disk in &spec.disks {
        let view = crate::machine::disks::mount(disk, (&spec.name, id), vm, devices.len())?;
        let model = Block::new(DiskPort::new(view, disk.name.as_str()));
        devices.push(Slot::Block(Mutex::new(VirtioMmio::new(model, line_of(devices.len()), trigger))));
    }
    for interface in spec.nets.iter().enumerate() {
        let slot = devices.len();
        devices.push(Slot::Net(NetSlot::new(interface, spec, vm, slot, (line_of(slot), trigger))?));
    }
    if !spec.ports.is_empty() {
        let mut configs = alloc::vec![PortConfig { name: None, is_console: true, is_open: true }];
        let named = spec.ports.iter();
        configs.extend(named.map(|name| PortConfig { name: Some(name.as_str()), is_console: false, is_open: false }));
        let backend = ConsolePort { ports: ports.clone(), vm: vm.clone() };
        let line = line_of(devices.len());
        devices.push(Slot::Console(Mutex::new(VirtioMmio::new(Console::new(backend, &configs), line, trigger))));
    }
    if spec.rng {
        let source = entropy::stream();
        devices.push(Slot::Rng(Mutex::new(VirtioMmio::new(Rng::new(source), line_of(devices.len()), trigger))));
    }
    if spec.balloon {
        let backend = BalloonPort { vm: vm.clone() };
        let line = line_of(devices.len());
        devices.push(Slot::Balloon(Mutex::new(VirtioMmio::new(Balloon::new(backend), line, trigger))));
    }
    Ok(devices)
}

/// The interrupt line of a slot. The description was validated: there are no more devices than slots.
fn line_of(slot: usize) -> device::IrqLine {
    map::virtio_irq(slot as u8).unwrap_or(device::IrqLine(0))
}
