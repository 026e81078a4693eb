//! The switch.

use control::MacAddress;
use slotmap::SlotMap;
use thiserror::Error;

use crate::addresses::AddressTable;
use crate::ethernet::{Addresses, MAX_FRAME, is_link_local, is_station};
use crate::frame::{Frame, FrameAllocator, FrameBuf};
use crate::port::{Port, PortId, PortKind, PortMetrics, PortSpec};

/// Most ports of a subnet.
pub const MAX_PORTS: usize = 256;
/// Frame memory for each port beyond its queue: a frame that it is about to send and one that it is about to take.
const SLACK_BYTES: usize = 2 * (MAX_FRAME + 1_024);

/// A learning switch. `H` goes with each frame, unread.
#[derive(Debug)]
pub struct Subnet<H> {
    ports: SlotMap<PortId, Port<H>>,
    addresses: AddressTable,
    allocator: FrameAllocator,
}

/// Why a port cannot be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AttachError {
    /// There are [`MAX_PORTS`] already.
    #[error("the subnet has {MAX_PORTS} ports")]
    TooManyPorts,
    /// The address is a group's or nobody's.
    #[error("{mac} is not the address of an interface")]
    NotAnInterface {
        /// The address.
        mac: MacAddress,
    },
    /// The address belongs to another port.
    #[error("{mac} is in use")]
    AddressInUse {
        /// The address.
        mac: MacAddress,
    },
}

/// Why a frame went nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DropReason {
    /// No such port, or its link is down.
    #[error("the port is not connected")]
    NotConnected,
    /// It comes from a group address or from nobody.
    #[error("not a frame of an interface")]
    Malformed,
    /// It comes from an address that is not the port's to use.
    #[error("somebody else's address")]
    Spoofed,
    /// It is for a bridge, or for the port that sent it.
    #[error("not to be forwarded")]
    Filtered,
}

impl<H> Subnet<H> {
    /// A switch without ports. Learned addresses are forgotten when not heard for `ageing_ticks`, in whatever unit
    /// [`Subnet::send`] is told the time.
    #[must_use]
    pub fn new(ageing_ticks: u64) -> Self {
        Self {
            ports: SlotMap::with_key(),
            addresses: AddressTable::new(ageing_ticks),
            allocator: FrameAllocator::new(),
        }
    }

    /// Where senders get their frames from.
    #[must_use]
    pub fn allocator(&self) -> FrameAllocator {
        self.allocator.clone()
    }

    /// Connects somebody.
    ///
    /// # Errors
    /// [`AttachError`]
    pub fn attach(&mut self, spec: &PortSpec) -> Result<PortId, AttachError> {
        if self.ports.len() >= MAX_PORTS {
            return Err(AttachError::TooManyPorts);
        }
        let mac = spec.kind.own_mac();
        if let Some(mac) = mac {
            if !is_station(mac) {
                return Err(AttachError::NotAnInterface { mac });
            }
            if self.addresses.owner(mac).is_some() {
                return Err(AttachError::AddressInUse { mac });
            }
        }
        let port = self.ports.insert(Port::new(spec));
        if let Some(mac) = mac {
            self.addresses.assign(mac, port);
        }
        self.update_limit();
        Ok(port)
    }

    /// Disconnects somebody; what waits for it is dropped.
    pub fn detach(&mut self, port: PortId) {
        if self.ports.remove(port).is_some() {
            self.addresses.remove_port(port);
            self.update_limit();
        }
    }

    /// Sets a port's link. Down: it neither sends nor gets anything, and what waits is dropped.
    pub fn set_link(&mut self, port: PortId, is_up: bool) {
        if let Some(port) = self.ports.get_mut(port) {
            port.is_up = is_up;
            if !is_up {
                port.clear();
            }
        }
    }

    /// Switches a frame that `from` sends. `notify` is called with the cookie of each port whose queue was empty and
    /// has a frame now; whoever takes frames goes on until there is none, so that one call is enough.
    ///
    /// # Errors
    /// [`DropReason`] when it went nowhere because of what it is. A full queue of a receiver is no error.
    pub fn send(
        &mut self,
        from: PortId,
        header: H,
        frame: FrameBuf,
        now: u64,
        notify: &mut dyn FnMut(u64),
    ) -> Result<(), DropReason> {
        let port = self.ports.get(from).filter(|port| port.is_up).ok_or(DropReason::NotConnected)?;
        let checked = self.check(from, port.kind, &frame);
        let port = self.ports.get_mut(from).ok_or(DropReason::NotConnected)?;
        let addresses = checked.inspect_err(|reason| port.count_drop(*reason))?;
        let kind = port.kind;
        let target = self.addresses.port_of(addresses.destination, now);
        if target == Some(from) {
            self.count_drop(from, DropReason::Filtered);
            return Err(DropReason::Filtered);
        }
        if kind.is_open() && self.addresses.owner(addresses.source).is_none() {
            self.addresses.hear(addresses.source, from, now);
        }
        if let Some(port) = self.ports.get_mut(from) {
            port.metrics.sent_frames += 1;
            port.metrics.sent_bytes += frame.bytes().len() as u64;
        }
        let frame = frame.seal(from, header);
        match target {
            Some(target) => self.offer(target, &frame, notify),
            None => self.flood(from, addresses.destination, &frame, notify),
        }
        Ok(())
    }

    /// The frame that `port` gets next. It stays in the queue: for a receiver that may find no room for it.
    #[must_use]
    pub fn peek(&self, port: PortId) -> Option<Frame<H>> {
        self.ports.get(port)?.front().cloned()
    }

    /// Takes the next frame for `port`.
    pub fn take(&mut self, port: PortId) -> Option<Frame<H>> {
        self.ports.get_mut(port)?.take()
    }

    /// Frames that wait for `port`.
    #[must_use]
    pub fn waiting(&self, port: PortId) -> usize {
        self.ports.get(port).map_or(0, Port::len)
    }

    /// What went through `port`.
    #[must_use]
    pub fn metrics(&self, port: PortId) -> PortMetrics {
        self.ports.get(port).map(|port| port.metrics).unwrap_or_default()
    }

    /// Addresses learned at `port`.
    #[must_use]
    pub fn learned(&self, port: PortId) -> usize {
        self.addresses.learned(port)
    }

    /// The addresses of a frame that `from` may send, or why it may not.
    fn check(&self, from: PortId, kind: PortKind, frame: &FrameBuf) -> Result<Addresses, DropReason> {
        let addresses = Addresses::of(frame.bytes()).ok_or(DropReason::Malformed)?;
        if !is_station(addresses.source) {
            return Err(DropReason::Malformed);
        }
        let may_use = match self.addresses.owner(addresses.source) {
            Some(owner) => owner == from,
            None => kind.is_open(),
        };
        if !may_use {
            return Err(DropReason::Spoofed);
        }
        if is_link_local(addresses.destination) {
            return Err(DropReason::Filtered);
        }
        Ok(addresses)
    }

    fn flood(&mut self, from: PortId, to: MacAddress, frame: &Frame<H>, notify: &mut dyn FnMut(u64)) {
        let others = self.ports.iter_mut().filter(|(id, _)| *id != from);
        for (_, port) in others.filter(|(_, port)| to.is_multicast() || port.kind.is_open()) {
            if port.offer(frame) {
                notify(port.cookie);
            }
        }
    }

    fn offer(&mut self, to: PortId, frame: &Frame<H>, notify: &mut dyn FnMut(u64)) {
        if let Some(port) = self.ports.get_mut(to)
            && port.offer(frame)
        {
            notify(port.cookie);
        }
    }

    fn count_drop(&mut self, port: PortId, reason: DropReason) {
        if let Some(port) = self.ports.get_mut(port) {
            port.count_drop(reason);
        }
    }

    /// As much memory as all queues together may hold: then no queue can take another's.
    fn update_limit(&self) {
        let of_port = |port: &Port<H>| port.limits.bytes.saturating_add(SLACK_BYTES);
        self.allocator.set_limit(self.ports.values().map(of_port).fold(0, usize::saturating_add));
    }
}

impl<H> Port<H> {
    const fn count_drop(&mut self, reason: DropReason) {
        match reason {
            DropReason::NotConnected => {}
            DropReason::Malformed => self.metrics.dropped_malformed += 1,
            DropReason::Spoofed => self.metrics.dropped_spoofed += 1,
            DropReason::Filtered => self.metrics.dropped_filtered += 1,
        }
    }
}
