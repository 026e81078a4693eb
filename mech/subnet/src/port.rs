//! Ports and their queues.

use alloc::collections::VecDeque;
use control::MacAddress;
use slotmap::new_key_type;

use crate::frame::Frame;

new_key_type! {
    /// Names a port of a [`crate::Subnet`]. Not used again for another one.
    pub struct PortId;
}

/// A port to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// Who is behind it.
    pub kind: PortKind,
    /// How much may wait in it.
    pub limits: QueueLimits,
    /// The caller's own name for it, given back when it has something to take.
    pub cookie: u64,
}

/// Who is behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// An interface of a VM: sends from this address and no other.
    Nic(MacAddress),
    /// An interface of a VM that is a bridge itself: may send from any address that belongs to nobody, and gets frames
    /// to unknown addresses.
    Promiscuous(MacAddress),
    /// The machine's network.
    Uplink,
}

impl PortKind {
    /// The address that belongs to it.
    pub(crate) const fn own_mac(self) -> Option<MacAddress> {
        match self {
            Self::Nic(mac) | Self::Promiscuous(mac) => Some(mac),
            Self::Uplink => None,
        }
    }

    /// Whether others than its own address may be behind it.
    pub(crate) const fn is_open(self) -> bool {
        !matches!(self, Self::Nic(_))
    }
}

/// Bounds of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Most frames.
    pub frames: usize,
    /// Most memory of frames. A frame for several ports counts at each.
    pub bytes: usize,
}

impl Default for QueueLimits {
    /// 256 frames, 1 MiB: sixteen of the largest.
    fn default() -> Self {
        Self { frames: 256, bytes: 1 << 20 }
    }
}

/// What went through a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortMetrics {
    /// Frames that it sent and that were switched.
    pub sent_frames: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames that were queued for it.
    pub queued_frames: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// Frames for it that found its queue full, or its link down.
    pub dropped_full: u64,
    /// Frames that it sent from somebody else's address.
    pub dropped_spoofed: u64,
    /// Frames that it sent and that make no sense on a wire.
    pub dropped_malformed: u64,
    /// Frames that it sent to an address of its own, or one that bridges do not forward.
    pub dropped_filtered: u64,
}

/// A port.
#[derive(Debug)]
pub(crate) struct Port<H> {
    pub kind: PortKind,
    pub cookie: u64,
    pub limits: QueueLimits,
    pub is_up: bool,
    pub metrics: PortMetrics,
    queue: VecDeque<Frame<H>>,
    /// Sum over `queue`; at most `limits.bytes`.
    queued: usize,
}

impl<H> Port<H> {
    pub fn new(spec: &PortSpec) -> Self {
        Self {
            kind: spec.kind,
            cookie: spec.cookie,
            limits: spec.limits,
            is_up: true,
            metrics: PortMetrics::default(),
            // Bounded: a constant of the switch's user.
            queue: VecDeque::with_capacity(spec.limits.frames),
            queued: 0,
        }
    }

    /// Queues a frame, or drops it. `true`: the queue was empty and is not any more.
    pub fn offer(&mut self, frame: &Frame<H>) -> bool {
        let queued = self.queued.saturating_add(frame.charged_bytes());
        if !self.is_up || self.queue.len() >= self.limits.frames || queued > self.limits.bytes {
            self.metrics.dropped_full += 1;
            return false;
        }
        self.queued = queued;
        self.queue.push_back(frame.clone());
        self.metrics.queued_frames += 1;
        self.metrics.queued_bytes += frame.bytes().len() as u64;
        self.queue.len() == 1
    }

    pub fn front(&self) -> Option<&Frame<H>> {
        self.queue.front()
    }

    pub fn take(&mut self) -> Option<Frame<H>> {
        let frame = self.queue.pop_front()?;
        self.queued -= frame.charged_bytes();
        Some(frame)
    }

    pub fn clear(&mut self) {
        self.queue.clear();
        self.queued = 0;
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }
}
