//! virtio-net.
//!
//! One pair of queues and a control queue. Frames cross with their [`NetHeader`], so that a large segment passes whole
//! from guest to guest; only a receiver that did not negotiate the offload gets plain frames, made in software by
//! [`crate::offload`]. Receive buffers may be merged.
//!
//! The control queue accepts the receive modes and the filter table without filtering: the switch sends a port only
//! what it has learnt belongs there, and a driver must cope with more than it asked for. The hardware address is
//! given; changing it is refused.
//!
//! # Cost
//! Sending: available index, entry, descriptor, indirect table, header, the data (once per segment, by the backend),
//! used entry; per batch: used index, event indices. Receiving: the same without the table, and two bytes for the
//! buffer count.

mod backend;
mod control;
mod metrics;
mod receive;
mod spec;
#[cfg(test)]
mod tests;

pub use crate::offload::{Gso, NET_HEADER_BYTES, NetHeader, PartialChecksum};
pub use backend::{NetBackend, Transmit, TransmitFrame};
pub use metrics::NetMetrics;
pub use receive::Received;

use device::GuestMemory;

use crate::error::DeviceError;
use crate::model::{Budget, Io, VirtioModel, read_config};
use crate::queue::{Chain, MAX_SEGMENTS, Queue};
use crate::spec::DeviceId;

/// Device to guest.
pub const RECEIVE_QUEUE: u16 = 0;
/// Guest to device.
pub const TRANSMIT_QUEUE: u16 = 1;
/// Commands.
pub const CONTROL_QUEUE: u16 = 2;

/// Largest frame: MTU 65,535, Ethernet header, one VLAN tag.
pub const MAX_FRAME: u32 = 65_535 + 14 + 4;
/// Smallest frame: an Ethernet header.
pub const MIN_FRAME: u32 = 14;

/// A frame may be 64 KiB long. The first one of a call may overdraw the budget, others wait for the next call.
const BUDGET: Budget = Budget::new(16, 16 << 10);
const CONTROL_BUDGET: Budget = Budget::new(16, 1 << 16);

/// How a port looks to its guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetConfig {
    /// Hardware address.
    pub mac: [u8; 6],
    /// Largest payload that the subnet carries: 68..=65,535.
    pub mtu: u16,
}

/// The network device model.
pub struct Net<B> {
    backend: B,
    config: NetConfig,
    is_link_up: bool,
    features: u64,
    chain: Chain,
    scratch: receive::Scratch,
    /// A frame of which the guest has some parts, which are in `scratch`.
    begun: Option<receive::Begun>,
    /// A frame found no buffers: tell the backend when there are some.
    is_starved: bool,
    metrics: NetMetrics,
}

impl<B: NetBackend> Net<B> {
    /// A device on the port behind `backend`, link up.
    #[must_use]
    pub fn new(backend: B, config: NetConfig) -> Self {
        Self {
            backend,
            config,
            is_link_up: true,
            features: 0,
            chain: Chain::new(),
            scratch: receive::Scratch::new(),
            begun: None,
            is_starved: false,
            metrics: NetMetrics::default(),
        }
    }

    /// The port.
    #[must_use]
    pub const fn backend(&self) -> &B {
        &self.backend
    }

    /// The port.
    pub const fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }

    /// What the device has done.
    #[must_use]
    pub const fn metrics(&self) -> &NetMetrics {
        &self.metrics
    }

    /// Whether the link is up.
    #[must_use]
    pub const fn is_link_up(&self) -> bool {
        self.is_link_up
    }

    /// Sends what the guest has put into the transmit queue.
    fn transmit_all(&mut self, io: &mut Io<'_>) -> Result<(), DeviceError> {
        let memory = io.memory();
        let Some(queue) = io.queue(TRANSMIT_QUEUE) else { return Ok(()) };
        let (mut budget, mut is_first) = (BUDGET, true);
        loop {
            let checkpoint = queue.checkpoint();
            if !queue.next_or_arm(memory, &mut self.chain)? {
                return Ok(());
            }
            let bytes = self.chain.readable_len();
            if !core::mem::take(&mut is_first) && budget.would_overdraw(u64::from(bytes)) {
                queue.rewind(checkpoint);
                io.defer(TRANSMIT_QUEUE);
                return Ok(());
            }
            match self.transmit_one(memory)? {
                Transmit::Taken => queue.push(memory, self.chain.head(), 0)?,
                Transmit::Busy => {
                    queue.rewind(checkpoint);
                    return Ok(());
                }
            }
            if budget.charge(&self.chain, u64::from(bytes)) {
                io.defer(TRANSMIT_QUEUE);
                return Ok(());
            }
        }
    }

    /// Sends the frame in `self.chain`, or drops it if it makes no sense.
    fn transmit_one(&mut self, memory: &dyn GuestMemory) -> Result<Transmit, DeviceError> {
        let mut raw = [0; NET_HEADER_BYTES];
        self.chain.read_exact(memory, &mut raw)?;
        let len = self.chain.readable_len();
        let header = NetHeader::decode(&raw, len).ok().filter(|header| may_send(header, self.features));
        let Some(header) = header.filter(|_| (MIN_FRAME..=MAX_FRAME).contains(&len)) else {
            self.metrics.transmit_refused += 1;
            return Ok(Transmit::Taken);
        };
        if !self.is_link_up {
            return Ok(Transmit::Taken);
        }
        let outcome = self.backend.transmit(&header, &TransmitFrame { segments: self.chain.readable(), memory, len });
        if outcome == Transmit::Taken {
            self.metrics.transmitted += 1;
            self.metrics.bytes_transmitted += u64::from(len);
        }
        Ok(outcome)
    }

    /// Answers what the guest has put into the control queue.
    fn control_all(&mut self, io: &mut Io<'_>) -> Result<(), DeviceError> {
        let memory = io.memory();
        let Some(queue) = io.queue(CONTROL_QUEUE) else { return Ok(()) };
        let mut budget = CONTROL_BUDGET;
        while queue.next_or_arm(memory, &mut self.chain)? {
            let bytes = self.chain.readable_len();
            self.control_one(queue, memory)?;
            if budget.charge(&self.chain, u64::from(bytes)) {
                io.defer(CONTROL_QUEUE);
                break;
            }
        }
        Ok(())
    }

    fn control_one(&mut self, queue: &mut Queue, memory: &dyn GuestMemory) -> Result<(), DeviceError> {
        control::answer(&mut self.chain, memory)?;
        Ok(queue.push(memory, self.chain.head(), self.chain.written())?)
    }
}

impl<B: NetBackend> VirtioModel for Net<B> {
    fn name(&self) -> &'static str {
        "virtio-net"
    }

    fn device_id(&self) -> DeviceId {
        DeviceId::Net
    }

    fn features(&self) -> u64 {
        spec::F_CSUM
            | spec::F_GUEST_CSUM
            | spec::F_MTU
            | spec::F_MAC
            | spec::F_GUEST_TSO4
            | spec::F_GUEST_TSO6
            | spec::F_HOST_TSO4
            | spec::F_HOST_TSO6
            | spec::F_MRG_RXBUF
            | spec::F_STATUS
            | spec::F_CTRL_VQ
            | spec::F_CTRL_RX
            | spec::F_GUEST_USO4
            | spec::F_GUEST_USO6
            | spec::F_HOST_USO
    }

    fn queue_count(&self) -> u16 {
        3
    }

    fn queue_max_size(&self, index: u16) -> u16 {
        if index == CONTROL_QUEUE { 64 } else { MAX_SEGMENTS as u16 }
    }

    fn config_read(&self, offset: u64, buf: &mut [u8]) {
        let mut config = [0; spec::CFG_BYTES];
        let fields: [(usize, &[u8]); 4] = [
            (spec::CFG_MAC, &self.config.mac),
            (spec::CFG_STATUS, &(if self.is_link_up { spec::S_LINK_UP } else { 0 }).to_le_bytes()),
            (spec::CFG_MAX_PAIRS, &1_u16.to_le_bytes()),
            (spec::CFG_MTU, &self.config.mtu.to_le_bytes()),
        ];
        for (at, bytes) in fields {
            if let Some(field) = config.get_mut(at..at + bytes.len()) {
                field.copy_from_slice(bytes);
            }
        }
        read_config(&config, offset, buf);
    }

    fn activate(&mut self, features: u64) {
        self.features = features;
    }

    fn notify(&mut self, index: u16, io: &mut Io<'_>) -> Result<(), DeviceError> {
        match index {
            TRANSMIT_QUEUE => self.transmit_all(io),
            CONTROL_QUEUE => self.control_all(io),
            _ => {
                if core::mem::take(&mut self.is_starved) {
                    self.backend.receive_ready();
                }
                Ok(())
            }
        }
    }

    fn reset(&mut self) {
        self.features = 0;
        self.is_starved = false;
        self.begun = None;
    }
}

/// Whether a driver with these features may ask for what `header` asks.
const fn may_send(header: &NetHeader, features: u64) -> bool {
    let needed = match header.gso {
        Gso::None if header.checksum.is_none() => 0,
        Gso::None => spec::F_CSUM,
        Gso::TcpV4 => spec::F_CSUM | spec::F_HOST_TSO4,
        Gso::TcpV6 => spec::F_CSUM | spec::F_HOST_TSO6,
        Gso::Udp => spec::F_CSUM | spec::F_HOST_USO,
    };
    features & needed == needed
}
