//! The machine's subnets: a switch each, between VMs; one of them has a gateway to the machine's network interface.
//!
//! A frame crosses in two steps. *Sending* ([`Port::send`]), with the sender's device locked, queues it in the switch
//! and notes the ports that have something now. *Delivering* ([`Network::deliver`]), with no device locked, moves
//! queued frames into the devices of those ports; it is done by the hart that sent, or by the control hart
//! ([`step`]), whoever takes the note. So no hart ever holds the locks of two devices.
//!
//! # Locking
//! A VM's network device before its subnet. The subnet's lock is held for one frame at a time, and neither a copy nor
//! another lock is under it.

mod trunk;

pub use trunk::{Departure, arrive, begin_look, depart, is_leaving, set_joined};

use super::{DeviceOwner, at_cost_of, gateway::Gateway};
use crate::machine::{self, agenda, cell, devices, heap_reserve};
use ::cell::CellId;
use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use control::{ControlError, MacAddress, Name, SubnetSpec, VmSpec};
use core::sync::atomic::{AtomicUsize, Ordering};
use rv::csr;
use spin::{Mutex, Once};
use subnet::{
    AttachError, Frame, FrameAllocator, FrameBuf, FrameRefused, PortId, PortKind, PortSpec, QueueLimits, ReadySet,
    Subnet,
};
use trunk::Trunks;
use virtio::net::NetHeader;

/// What may wait for a port: a burst of a sender (its device looks up after 1 MiB) that finds the queue half full.
const LIMITS: QueueLimits = QueueLimits { frames: 512, bytes: 2 << 20 };
/// Addresses learned from the gateway are forgotten after so long (IEEE 802.1Q, Table 8-6).
const AGEING_S: u64 = 300;

static NETWORKS: Once<Vec<Network>> = Once::new();

/// A subnet.
pub struct Network {
    name: Name,
    allocator: FrameAllocator,
    inner: Mutex<Inner>,
    ready: ReadySet,
    /// The port with which the control hart begins to deliver. Of the control hart only.
    turn: AtomicUsize,
    /// Made when the machine's network interface is this cell's.
    gateway: Once<Gateway>,
    trunks: Trunks,
    has_gateway: bool,
}

struct Inner {
    switch: Subnet<NetHeader>,
    /// Who is behind the ports; the position is a port's cookie in the switch.
    plugs: Vec<Option<Plug>>,
}

#[derive(Clone)]
struct Plug {
    port: PortId,
    end: End,
}

/// Whose time the delivery of frames is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Payer {
    /// Of the vCPU whose turn it is.
    Caller,
    /// It is the control hart's duty: of who has sent them, or gets them if they come from outside.
    Sender,
}

#[derive(Clone)]
enum End {
    Gateway,
    /// The subnet goes on in another cell.
    Cell,
    Device {
        vm: Weak<dyn DeviceOwner>,
        slot: usize,
    },
}

/// Makes the subnets of the configuration, and the gateways of those that are to have one where this cell drives the machine's network
/// interface. Called after the devices: at boot, and when this cell becomes the leader.
pub fn init() {
    let networks = NETWORKS.call_once(|| machine::config().subnets.iter().map(Network::new).collect());
    networks.iter().filter(|network| network.has_gateway).for_each(Network::open_gateway);
}

fn all() -> &'static [Network] {
    NETWORKS.get().map_or(&[], |networks| networks)
}

/// The subnet called `name`.
///
/// # Errors
/// [`ControlError::NoSuchSubnet`].
pub fn find(name: &Name) -> Result<&'static Network, ControlError> {
    all().iter().find(|network| network.name == *name).ok_or_else(|| ControlError::NoSuchSubnet { name: name.clone() })
}

/// Refuses a description that names subnets that do not exist.
///
/// # Errors
/// [`ControlError::NoSuchSubnet`].
pub fn check(spec: &VmSpec) -> Result<(), ControlError> {
    spec.nets.iter().try_for_each(|net| find(&net.subnet).map(|_| ()))
}

/// One bounded step of the control hart: the gateway, and frames that senders had no time to deliver, as long as it may go on after each
/// port. `true` while there is more to do at once.
pub fn step(mut may_go_on: impl FnMut() -> bool) -> bool {
    let mut is_busy = false;
    for network in all() {
        if let (Some(gateway), Some(nic)) = (network.gateway.get(), &devices::all().nic) {
            is_busy |= gateway.step(network, nic);
        }
        network.deliver_in_turn(&mut may_go_on);
        is_busy |= !network.ready.is_empty();
    }
    is_busy
}

impl Network {
    fn new(spec: &SubnetSpec) -> Self {
        let switch = Subnet::new(AGEING_S * machine::capabilities().timebase_hz);
        let allocator = switch.allocator();
        let mut inner = Inner { switch, plugs: Vec::new() };
        let others = CellId::all().take(cell::count()).filter(|other| other.index() != cell::index());
        let trunks = Trunks::new(&mut inner, others);
        Self {
            name: spec.name.clone(),
            allocator,
            inner: Mutex::new(inner),
            ready: ReadySet::new(),
            turn: AtomicUsize::new(0),
            gateway: Once::new(),
            trunks,
            has_gateway: spec.gateway,
        }
    }

    /// Connects it with the machine's network interface, if that is this cell's.
    fn open_gateway(&self) {
        if devices::all().nic.is_some() {
            let uplink = self.inner.lock().attach(PortKind::Uplink, End::Gateway);
            uplink.into_iter().for_each(|(port, _)| {
                self.gateway.call_once(|| Gateway::new(port));
            });
        } else if cell::is_first() {
            log::warn!("subnet {}: no gateway, the machine has no network interface", self.name);
        }
    }

    /// Connects the network device in `slot` of a VM: it may send from `mac` and no other address.
    ///
    /// # Errors
    /// The address is in use, or the subnet is full.
    pub fn attach(
        &'static self,
        mac: MacAddress,
        vm: Weak<dyn DeviceOwner>,
        slot: usize,
    ) -> Result<Port, ControlError> {
        let end = End::Device { vm, slot };
        let attached = self.inner.lock().attach(PortKind::Nic(mac), end);
        let (id, number) = attached.map_err(|why| self.refusal(why))?;
        Ok(Port { network: self, id, number })
    }

    fn refusal(&self, why: AttachError) -> ControlError {
        let what = alloc::format!("subnet {:?}: {why}", self.name).into();
        match why {
            AttachError::NotAnInterface { .. } => ControlError::Unsupported { what },
            AttachError::TooManyPorts | AttachError::AddressInUse { .. } => ControlError::Busy { what },
        }
    }

    /// Memory for a frame; none while the machine has nothing left but what the heap keeps back, which guests must not drain.
    ///
    /// # Errors
    /// [`FrameRefused`].
    pub fn frame(&self, len: usize) -> Result<FrameBuf, FrameRefused> {
        if heap_reserve::is_short() { Err(FrameRefused::NoMemory) } else { self.allocator.frame(len) }
    }

    /// Queues a frame where it should go; [`Network::deliver`] has to follow when no device is locked. What is wrong
    /// with a frame, or finds no room, is dropped and counted by the switch.
    pub fn send(&self, from: PortId, header: NetHeader, frame: FrameBuf) {
        let now = csr::time::read();
        let mut note = |cookie: u64| self.ready.insert(cookie as usize);
        // The reason is in the port's metrics.
        let _ = self.inner.lock().switch.send(from, header, frame, now, &mut note);
    }

    /// Takes the next frame for a port.
    #[must_use]
    pub fn take(&self, port: PortId) -> Option<Frame<NetHeader>> {
        self.inner.lock().switch.take(port)
    }

    /// Moves frames to those who have some waiting, a bounded number each. No device may be locked.
    pub fn deliver(&self) {
        self.ready.drain(|number| self.deliver_at(number, Payer::Caller));
    }

    /// The same by the control hart, as long as it may go on after each port. Then the next call begins with the next port.
    fn deliver_in_turn(&self, may_go_on: &mut dyn FnMut() -> bool) {
        let first = self.turn.swap(0, Ordering::Relaxed);
        let mut goes_on = true;
        self.ready.drain(|number| {
            if number < first || !goes_on {
                return self.ready.insert(number);
            }
            self.deliver_at(number, Payer::Sender);
            goes_on = may_go_on();
            if !goes_on {
                self.turn.store(number + 1, Ordering::Relaxed);
            }
        });
    }

    fn deliver_at(&self, number: usize, payer: Payer) {
        let plug = self.inner.lock().plugs.get(number).cloned().flatten();
        match plug {
            None => {}
            Some(Plug { end: End::Gateway, .. }) => agenda::wake_control(),
            Some(Plug { end: End::Cell, .. }) => {
                trunk::note_leaving();
                agenda::wake_control();
            }
            Some(Plug { port, end: End::Device { vm, slot } }) => {
                let vm = vm.upgrade();
                let payer = if payer == Payer::Sender { self.sender(port).or_else(|| vm.clone()) } else { None };
                at_cost_of(payer.as_deref(), || self.deliver_to(number, port, vm.as_deref(), slot));
            }
        }
    }

    /// Who has sent what `port` gets next, if it was a VM. The next few frames are taken for its, too.
    fn sender(&self, port: PortId) -> Option<Arc<dyn DeviceOwner>> {
        let inner = self.inner.lock();
        let sender = inner.switch.peek(port)?.sender();
        let plug = inner.plugs.iter().flatten().find(|plug| plug.port == sender)?;
        let End::Device { vm, .. } = &plug.end else { return None };
        vm.upgrade()
    }

    fn deliver_to(&self, number: usize, port: PortId, vm: Option<&dyn DeviceOwner>, slot: usize) {
        match vm.and_then(|vm| vm.receive(slot)) {
            Some(true) => {
                self.ready.insert(number);
                agenda::wake_control();
            }
            Some(false) => {}
            // It is not there yet, or not any more. Its queue must become empty, or the next frame is not noted.
            None => self.clear(port),
        }
    }

    fn clear(&self, port: PortId) {
        let mut inner = self.inner.lock();
        // As many as a port's queue holds (`LIMITS`): nobody adds to it while it is locked.
        while inner.switch.take(port).is_some() {}
    }
}

impl Inner {
    /// The port and its number.
    fn attach(&mut self, kind: PortKind, end: End) -> Result<(PortId, usize), AttachError> {
        let number = self.plugs.iter().position(Option::is_none).unwrap_or(self.plugs.len());
        let port = self.switch.attach(&PortSpec { kind, limits: LIMITS, cookie: number as u64 })?;
        let plug = Some(Plug { port, end });
        match self.plugs.get_mut(number) {
            Some(place) => *place = plug,
            None => self.plugs.push(plug),
        }
        Ok((port, number))
    }
}

/// A VM's port of a subnet; disconnected when it is dropped, at the latest.
pub struct Port {
    network: &'static Network,
    id: PortId,
    number: usize,
}

/// A port that two sides of a device share.
pub type SharedPort = Arc<Port>;

impl Port {
    /// The subnet.
    #[must_use]
    pub const fn network(&self) -> &'static Network {
        self.network
    }

    /// Queues a frame from this port, as [`Network::send`].
    pub fn send(&self, header: NetHeader, frame: FrameBuf) {
        self.network.send(self.id, header, frame);
    }

    /// The next frame for this port, which stays in the queue.
    #[must_use]
    pub fn peek(&self) -> Option<Frame<NetHeader>> {
        self.network.inner.lock().switch.peek(self.id)
    }

    /// The frame that [`Port::peek`] gave has arrived.
    pub fn advance(&self) {
        // Its memory comes back outside the lock.
        let _frame = self.network.take(self.id);
    }

    /// Drops what waits for this port.
    pub fn clear(&self) {
        self.network.clear(self.id);
    }

    /// Notes that this port can take frames again.
    pub fn set_ready(&self) {
        self.network.ready.insert(self.number);
    }

    /// Unplugs it: its address is free for another one.
    pub fn disconnect(&self) {
        let mut inner = self.network.inner.lock();
        inner.switch.detach(self.id);
        // The number may belong to another port by now.
        if let Some(place) = inner.plugs.get_mut(self.number)
            && place.as_ref().is_some_and(|plug| plug.port == self.id)
        {
            *place = None;
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.disconnect();
    }
}
