//! The virtio devices of a VM, one per slot.

use super::{
    VmEnv,
    backends::{BalloonPort, ConsolePort, HostPorts},
    disk::DiskPort,
    net::NetSlot,
};
use crate::{
    io::{DeviceOwner, disks},
    machine::{agenda, capabilities, entropy},
    vm::Vm,
};
use ::platform::map;
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use control::{ControlError, VmSpec};
use device::{Device, Env, GuestFault, GuestMemory as _, Width};
use rv::csr;
use spin::mutex::{TicketMutex as Mutex, TicketMutexGuard as MutexGuard};
use virtio::{
    Trigger, VirtioMmio, VirtioModel,
    balloon::Balloon,
    block::{Block, BlockTag},
    console::{Console, PortConfig},
    rng::Rng,
};

/// A vCPU waits for a device for one part of a second in so many, and then tries again: its hart looks meanwhile whether anybody calls.
const PATIENCE_HZ: u64 = 10_000;

/// A locked device. The lock is fair: a vCPU that does a long request in pieces takes it again and again, and would keep others out.
/// vCPUs wait for it briefly only ([`lock_briefly`]): else one would stay in the monitor for as long as all others together.
type Locked<M> = Mutex<VirtioMmio<M>>;
/// The console device with the named ports.
pub type ConsoleSlot = Locked<Console<ConsolePort>>;

/// A virtio device.
pub enum Slot {
    /// Disk, and its view of the machine's disk: what it has is asked without the lock.
    Block(Locked<Block<DiskPort>>, Arc<disks::View>),
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
            Slot::Block($device, _) => $body,
            Slot::Net(net) => {
                let $device = net.device();
                $body
            }
            Slot::Console($device) => $body,
            Slot::Rng($device) => $body,
            Slot::Balloon($device) => $body,
        }
    };
}

/// The device, locked; if others keep it busy the function that asks returns what is said.
macro_rules! briefly {
    ($device:expr, $busy:expr) => {
        match lock_briefly($device) {
            Some(device) => device,
            None => return Ok($busy),
        }
    };
}

/// Tries to lock a device for about as long as a piece of work on it takes.
#[inline]
pub(super) fn lock_briefly<T>(device: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    device.try_lock().or_else(|| wait_briefly(device))
}

#[cold]
#[inline(never)]
fn wait_briefly<T>(device: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let until = csr::time::read() + capabilities().timebase_hz / PATIENCE_HZ;
    // Ends: time goes on.
    while csr::time::read() < until {
        if let Some(locked) = device.try_lock() {
            return Some(locked);
        }
        core::hint::spin_loop();
    }
    None
}

/// Some more of what a device has been asked for.
fn poll<M: VirtioModel>(device: &Locked<M>, env: &dyn Env) -> Result<bool, GuestFault> {
    let mut device = briefly!(device, true);
    device.poll(env)?;
    Ok(device.has_backlog())
}

impl Slot {
    /// The guest reads a register; `None` if others keep the device busy.
    ///
    /// # Errors
    /// As [`device::Device::read`].
    #[inline]
    pub fn read(&self, offset: u64, width: Width, env: &dyn Env) -> Result<Option<u64>, GuestFault> {
        each!(self, device => briefly!(device, None).read(offset, width, env).map(Some))
    }

    /// The guest writes a register. The device's lock is free again for what follows from it. `true` if the guest has asked for more
    /// than is done at once: then [`Slot::go_on`] is to be called. `None` if others keep the device busy: nothing has been written.
    ///
    /// # Errors
    /// As [`device::Device::write`].
    #[inline]
    pub fn write(
        &self,
        vm: &Vm,
        offset: u64,
        width: Width,
        value: u64,
        env: &dyn Env,
    ) -> Result<Option<bool>, GuestFault> {
        let write = |device: &mut dyn Device| device.write(offset, width, value, env);
        match self {
            Self::Block(device, _) => {
                let mut device = briefly!(device, None);
                device.write(offset, width, value, env)?;
                Ok(Some(after_block(device, vm)))
            }
            Self::Net(net) => {
                let mut device = briefly!(net.device(), None);
                let before = device.model().metrics().bytes_transmitted;
                device.write(offset, width, value, env)?;
                Ok(Some(net.after_access(device, before)))
            }
            Self::Console(device) => {
                let mut device = briefly!(device, None);
                write(&mut *device)?;
                agenda::call_soon();
                Ok(Some(device.has_backlog()))
            }
            Self::Rng(device) => {
                let mut device = briefly!(device, None);
                write(&mut *device)?;
                Ok(Some(device.has_backlog()))
            }
            Self::Balloon(device) => {
                let mut device = briefly!(device, None);
                write(&mut *device)?;
                Ok(Some(device.has_backlog()))
            }
        }
    }

    /// Does some more of what the guest has asked for; `true` if there is still more.
    ///
    /// # Errors
    /// As [`device::Device::write`].
    #[cold]
    pub fn go_on(&self, vm: &Vm, env: &dyn Env) -> Result<bool, GuestFault> {
        match self {
            Self::Block(device, _) => {
                let mut device = briefly!(device, true);
                device.poll(env)?;
                Ok(after_block(device, vm))
            }
            Self::Net(net) => {
                if net.deliver_owed() {
                    return Ok(true);
                }
                let mut device = briefly!(net.device(), true);
                let before = device.model().metrics().bytes_transmitted;
                device.poll(env)?;
                Ok(net.after_access(device, before))
            }
            Self::Console(device) => poll(device, env),
            Self::Rng(device) => poll(device, env),
            Self::Balloon(device) => poll(device, env),
        }
    }

    /// A request that could not be finished at once has ended.
    pub fn complete_block(&self, vm: &Vm, tag: BlockTag, status: storage::Status) {
        if let Self::Block(device, _) = self {
            let mut device = device.lock();
            if vm.is_ending() {
                return;
            }
            let Some(status) = device.model_mut().backend_mut().end_status(tag, status, vm.memory()) else {
                drop(device);
                return vm.note_late_requests();
            };
            let outcome = device.complete(tag, status, &VmEnv::new(vm));
            drop(device);
            vm.note_fault(outcome);
        }
    }

    /// The guest hears of requests that had ended before all vCPUs saw what they read. `true` while there are more.
    pub fn complete_late(&self, vm: &Vm) -> bool {
        let Self::Block(device, _) = self else { return false };
        let mut device = device.lock();
        if vm.is_ending() {
            return false;
        }
        // One that came meanwhile may wait for another shootdown.
        while vm.memory().is_settled()
            && let Some((tag, status)) = device.model_mut().backend_mut().next_late()
        {
            let outcome = device.complete(tag, status, &VmEnv::new(vm));
            vm.note_fault(outcome);
        }
        device.model().backend().is_late()
    }

    /// Machine pages of modified disk blocks. Waits for no lock.
    #[must_use]
    pub fn disk_pages(&self) -> u64 {
        match self {
            Self::Block(_, view) => view.private_pages(),
            _ => 0,
        }
    }

    /// Bytes that count towards a disk's limit of modified blocks. Waits for no lock.
    #[must_use]
    pub fn disk_used_bytes(&self) -> u64 {
        match self {
            Self::Block(_, view) => view.used_bytes(),
            _ => 0,
        }
    }

    /// Waits until nobody writes to the guest's memory for a disk or network interface. Once the VM is ending nobody begins again.
    pub fn settle(&self) {
        match self {
            Self::Net(net) => net.settle(),
            Self::Block(device, _) => drop(device.lock()),
            _ => {}
        }
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
            Self::Block(device, _) => device.lock().model().backend().traffic(),
            Self::Net(net) => net.traffic(),
            _ => Traffic::default(),
        }
    }
}

/// What follows from an access to a disk, once it is unlocked; `true` if the guest has asked for more than was done.
#[inline]
fn after_block(mut device: MutexGuard<'_, VirtioMmio<Block<DiskPort>>>, vm: &Vm) -> bool {
    let has_more = device.has_backlog();
    let backend = device.model_mut().backend_mut();
    let (due, is_late) = (backend.take_pump_due(), backend.is_late());
    drop(device);
    if is_late {
        vm.note_late_requests();
    }
    due.into_iter().for_each(disks::Due::run);
    has_more
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
    let owner: Weak<dyn DeviceOwner> = vm.clone();
    for disk in &spec.disks {
        let view = Arc::new(disks::mount(disk, (spec, id), &owner, devices.len())?);
        let model = Block::new(DiskPort::new(Arc::clone(&view), disk.name.as_str()));
        let device = Mutex::new(VirtioMmio::new(model, line_of(devices.len()), trigger));
        devices.push(Slot::Block(device, view));
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
