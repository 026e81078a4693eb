//! The split virtqueue, device side.

mod chain;
mod spec;
#[cfg(test)]
mod tests;
mod walk;

pub use chain::{Chain, GuestSegment, MAX_SEGMENTS, ReadError};

use addr::GuestPhysAddr;
use device::GuestMemory;

use crate::error::RingError;

/// One virtqueue.
///
/// The device takes chains with [`Queue::next_or_arm`], gives them back with [`Queue::push`] and makes them visible
/// with `publish`; the transport publishes and decides on the interrupt at the end of every call, so that a
/// batch costs one index update and one interrupt.
///
/// Indices run freely modulo 65,536, as in the rings. Invariant while ready: `size` is a power of two, the three
/// rings are aligned and lie in RAM, and `next_used <= next_avail <= avail_end <= next_used + size` (modulo wrap).
#[derive(Debug)]
pub struct Queue {
    max_size: u16,
    size: u32,
    is_ready: bool,
    desc: u64,
    avail: u64,
    used: u64,
    has_indirect: bool,
    has_event_idx: bool,
    /// Next available entry to take.
    next_avail: u16,
    /// The driver's available index as last read.
    avail_end: u16,
    /// Next used entry to fill.
    next_used: u16,
    /// `used.idx` as the driver sees it.
    published: u16,
    /// `used.idx` when an interrupt was last considered.
    signalled: u16,
    /// `avail_event` as last written.
    armed: Option<u16>,
}

/// Which of a queue's ring addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ring {
    /// Descriptor table.
    Desc,
    /// Available ring.
    Avail,
    /// Used ring.
    Used,
}

/// A place in the rings to come back to, see [`Queue::rewind`].
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint {
    next_avail: u16,
    next_used: u16,
}

impl Queue {
    /// A queue that the driver has not set up yet.
    #[must_use]
    pub(crate) const fn new(max_size: u16) -> Self {
        Self {
            max_size,
            size: 0,
            is_ready: false,
            desc: 0,
            avail: 0,
            used: 0,
            has_indirect: false,
            has_event_idx: false,
            next_avail: 0,
            avail_end: 0,
            next_used: 0,
            published: 0,
            signalled: 0,
            armed: None,
        }
    }

    /// Whether the driver has set the queue up.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// The largest size that the driver may choose.
    #[must_use]
    pub const fn max_size(&self) -> u16 {
        self.max_size
    }

    /// Chains taken and not given back.
    #[must_use]
    pub const fn in_flight(&self) -> u16 {
        self.next_avail.wrapping_sub(self.next_used)
    }

    /// Whether the driver has made as many chains available as the queue holds, and the device has taken none of them.
    #[must_use]
    pub fn is_all_available(&self) -> bool {
        u32::from(self.avail_end.wrapping_sub(self.next_avail)) == self.size
    }

    /// Takes the next chain into `chain`. When the ring is empty, asks the driver to notify the next buffer and
    /// returns false; a buffer that arrives meanwhile is not missed.
    ///
    /// # Errors
    /// [`RingError`] for anything that a correct driver does not do.
    // Inlined, so that the last look at an empty ring does not pay for the registers that a walk needs.
    #[inline]
    pub fn next_or_arm(&mut self, memory: &dyn GuestMemory, chain: &mut Chain) -> Result<bool, RingError> {
        if self.next_avail == self.avail_end && !self.refill(memory)? {
            return Ok(false);
        }
        self.take(memory, chain)?;
        Ok(true)
    }

    /// Takes the next chain, which there is.
    fn take(&mut self, memory: &dyn GuestMemory, chain: &mut Chain) -> Result<(), RingError> {
        let slot = u64::from(u32::from(self.next_avail) & (self.size - 1));
        let head = memory.read_u16(ring(self.avail, spec::RING_ENTRIES + spec::AVAIL_ENTRY * slot))?;
        let table = walk::Table { base: GuestPhysAddr::new(self.desc), count: self.size };
        chain.load(memory, table, head, self.has_indirect)?;
        self.next_avail = self.next_avail.wrapping_add(1);
        Ok(())
    }

    /// Gives a chain back with `len` bytes written. The driver sees it when the call ends.
    ///
    /// # Errors
    /// [`RingError::Memory`] when guest RAM refuses.
    pub fn push(&mut self, memory: &dyn GuestMemory, head: u16, len: u32) -> Result<(), RingError> {
        let slot = u64::from(u32::from(self.next_used) & (self.size - 1));
        let addr = ring(self.used, spec::RING_ENTRIES + spec::USED_ENTRY * slot);
        memory.write_u32_pair(addr, [u32::from(head), len])?;
        self.next_used = self.next_used.wrapping_add(1);
        Ok(())
    }

    /// Remembers the rings' state for [`Queue::rewind`].
    #[must_use]
    pub const fn checkpoint(&self) -> Checkpoint {
        Checkpoint { next_avail: self.next_avail, next_used: self.next_used }
    }

    /// Puts back every chain taken since `checkpoint`, pushed or not. They must not have been published.
    pub const fn rewind(&mut self, checkpoint: Checkpoint) {
        self.next_avail = checkpoint.next_avail;
        self.next_used = checkpoint.next_used;
    }

    /// Shows the driver everything pushed so far. Returns whether it wants an interrupt for that.
    ///
    /// # Errors
    /// [`RingError::Memory`] when guest RAM refuses.
    pub(crate) fn publish(&mut self, memory: &dyn GuestMemory) -> Result<bool, RingError> {
        if self.published == self.next_used {
            return Ok(false);
        }
        // Entries and buffers before the index.
        memory.fence();
        memory.write_u16(ring(self.used, spec::RING_IDX), self.next_used)?;
        self.published = self.next_used;
        // The index before the look at the driver's wish: pairs with the driver's own write-then-check.
        memory.fence();
        let before = core::mem::replace(&mut self.signalled, self.next_used);
        if !self.has_event_idx {
            let flags = memory.read_u16(ring(self.avail, 0))?;
            return Ok(flags & spec::AVAIL_F_NO_INTERRUPT == 0);
        }
        let offset = spec::RING_ENTRIES + spec::AVAIL_ENTRY * u64::from(self.size);
        let used_event = memory.read_u16(ring(self.avail, offset))?;
        Ok(self.next_used.wrapping_sub(used_event).wrapping_sub(1) < self.next_used.wrapping_sub(before))
    }

    /// Reads the driver's index again, with notifications enabled first. True when there are chains to take.
    fn refill(&mut self, memory: &dyn GuestMemory) -> Result<bool, RingError> {
        if self.has_event_idx && self.armed != Some(self.next_avail) {
            let offset = spec::RING_ENTRIES + spec::USED_ENTRY * u64::from(self.size);
            memory.write_u16(ring(self.used, offset), self.next_avail)?;
            self.armed = Some(self.next_avail);
            // The event index before the look at the available index: pairs with the driver's write-then-check.
            memory.fence();
        }
        let end = memory.read_u16(ring(self.avail, spec::RING_IDX))?;
        if u32::from(end.wrapping_sub(self.next_used)) > self.size
            || end.wrapping_sub(self.next_used) < self.in_flight()
        {
            return Err(RingError::AvailJump(end));
        }
        self.avail_end = end;
        // The index before the entries and descriptors that it covers.
        memory.fence();
        Ok(self.next_avail != end)
    }

    /// `QueueNum`. Ignored while ready; judged when the queue becomes ready.
    pub(crate) const fn set_size(&mut self, size: u32) {
        if !self.is_ready {
            self.size = size;
        }
    }

    /// Half of a ring address. Ignored while ready.
    pub(crate) const fn set_ring(&mut self, which: Ring, is_high: bool, value: u32) {
        if self.is_ready {
            return;
        }
        let addr = match which {
            Ring::Desc => &mut self.desc,
            Ring::Avail => &mut self.avail,
            Ring::Used => &mut self.used,
        };
        *addr = if is_high { *addr & 0xffff_ffff | (value as u64) << 32 } else { *addr & !0xffff_ffff | value as u64 };
    }

    /// `QueueReady` = 1: checks what the driver has set up and starts from index 0.
    pub(crate) fn start(
        &mut self,
        memory: &dyn GuestMemory,
        has_indirect: bool,
        has_event_idx: bool,
    ) -> Result<(), RingError> {
        if !self.size.is_power_of_two() || self.size > u32::from(self.max_size) {
            return Err(RingError::QueueSize(self.size));
        }
        // Fits: at most `max_size`.
        let size = self.size as u16;
        let rings = [
            (self.desc, spec::DESC_ALIGN, spec::DESC_SIZE * u64::from(size)),
            (self.avail, spec::AVAIL_ALIGN, spec::avail_bytes(size)),
            (self.used, spec::USED_ALIGN, spec::used_bytes(size)),
        ];
        for (addr, align, len) in rings {
            if addr % align != 0 {
                return Err(RingError::RingMisaligned(addr));
            }
            if !walk::lies_in_ram(memory, GuestPhysAddr::new(addr), len) {
                return Err(RingError::RingOutsideRam(addr));
            }
        }
        let Self { max_size, size, desc, avail, used, .. } = *self;
        *self = Self { size, desc, avail, used, is_ready: true, has_indirect, has_event_idx, ..Self::new(max_size) };
        Ok(())
    }

    /// `QueueReady` = 0: the rings are the driver's again.
    pub(crate) const fn stop(&mut self) {
        self.is_ready = false;
    }

    /// Back to power-on.
    pub(crate) const fn reset(&mut self) {
        *self = Self::new(self.max_size);
    }
}

/// `base + offset` inside a ring that lies in RAM, so it cannot wrap.
const fn ring(base: u64, offset: u64) -> GuestPhysAddr {
    GuestPhysAddr::new(base.wrapping_add(offset))
}
