//! A split virtqueue, driver's side (Virtual I/O Device 1.2, section "Split Virtqueues").
//!
//! Buffers are named by machine address, so that pages which belong to nobody's Rust object (a disk-cache page, a
//! guest's page) go to the device without ever becoming a slice. Nothing is allocated after set-up. What the device
//! writes is checked: a descriptor that it was not given is a [`DeviceFault`].
//!
//! The three parts lie one after the other as the legacy layout wants them, which is one of the layouts that the
//! modern interface allows.

use alloc::{boxed::Box, vec, vec::Vec};

use addr::MachineAddr;
use virtio_drivers::transport::Transport;

use crate::{
    dma::{DmaArea, fence_before_notify, fence_memory},
    error::{DeviceFault, IoError},
    platform::Platform,
};

/// Greatest queue that is used; devices may offer more.
const MAX_SIZE: u16 = 256;
/// Smallest queue that is worth having.
const MIN_SIZE: u16 = 4;
/// Bytes of a descriptor: address, length, flags, next.
const DESCRIPTOR_BYTES: usize = 16;
/// The buffer goes on in descriptor `next`.
const NEXT: u16 = 1;
/// The device writes this buffer.
const WRITE: u16 = 2;
/// Flag of the used ring: the device polls and wants no notifications (without event indices).
const NO_NOTIFY: u16 = 1;
/// End of the free list.
const END: u16 = u16::MAX;

/// One contiguous piece of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) address: MachineAddr,
    pub(crate) bytes: u32,
    /// The device writes it; pieces that it reads come first in a request.
    pub(crate) is_written: bool,
}

/// A request that the device has handed back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    /// What the request was added with.
    pub(crate) cookie: u16,
    /// Bytes that the device says it wrote.
    pub(crate) written: u32,
}

/// Whether the caller waits for what is not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alert {
    Yes,
    No,
}

/// A queue of a device.
pub(crate) struct Ring<P: Platform> {
    area: DmaArea<P>,
    index: u16,
    size: u16,
    has_event_index: bool,
    /// Next descriptor of each descriptor's chain, or of the free list. Ours, so that the device cannot change it.
    next: Box<[u16]>,
    free_head: u16,
    free_count: u16,
    /// By head descriptor: the cookie of the request in flight.
    in_flight: Box<[Option<u16>]>,
    avail_index: u16,
    used_index: u16,
    /// `avail_index` at the time of the last decision whether to notify.
    notified_index: u16,
}

impl<P: Platform> Ring<P> {
    /// Makes queue `index` of a device that is being set up.
    pub(crate) fn new<T: Transport>(transport: &mut T, index: u16, has_event_index: bool) -> Result<Self, IoError> {
        let offered = transport.max_queue_size(index);
        let size = u16::try_from(offered).unwrap_or(MAX_SIZE).min(MAX_SIZE);
        if size < MIN_SIZE {
            return Err(IoError::NoQueue { queue: index, size: offered });
        }
        // Sizes are powers of two; a device may offer any number and takes every smaller power.
        let size = 1 << size.ilog2();
        let area = DmaArea::new(used_offset(size) + 6 + 8 * usize::from(size))?;
        let (avail, used) = (area.address(avail_offset(size)), area.address(used_offset(size)));
        transport.queue_set(index, u32::from(size), area.address(0).raw(), avail.raw(), used.raw());
        let mut next: Vec<u16> = (1..=size).collect();
        next[usize::from(size) - 1] = END;
        Ok(Self {
            area,
            index,
            size,
            has_event_index,
            next: next.into(),
            free_head: 0,
            free_count: size,
            in_flight: vec![None; usize::from(size)].into(),
            avail_index: 0,
            used_index: 0,
            notified_index: 0,
        })
    }

    /// Free descriptors.
    pub(crate) fn free(&self) -> usize {
        usize::from(self.free_count)
    }

    /// Size of the queue.
    pub(crate) fn size(&self) -> usize {
        usize::from(self.size)
    }

    /// Puts a request into the queue; the device may start on it at once, but is only told by [`Ring::notify`].
    pub(crate) fn add(
        &mut self,
        pieces: impl ExactSizeIterator<Item = Piece> + Clone,
        cookie: u16,
    ) -> Result<(), IoError> {
        let count = pieces.len();
        if let Some(piece) = pieces.clone().find(|piece| piece.bytes == 0) {
            return Err(IoError::WrongLength { bytes: u64::from(piece.bytes) });
        }
        if count == 0 || count > self.free() {
            return Err(if count > self.size() {
                IoError::TooManySegments { got: count, limit: self.size() }
            } else {
                IoError::QueueFull
            });
        }
        let head = self.free_head;
        for (position, piece) in pieces.enumerate() {
            self.write_descriptor(piece, position + 1 == count);
        }
        self.in_flight[usize::from(head)] = Some(cookie);
        let slot = usize::from(self.avail_index % self.size);
        self.area.write_u16(avail_offset(self.size) + 4 + 2 * slot, head);
        self.avail_index = self.avail_index.wrapping_add(1);
        self.area.store_index(avail_offset(self.size) + 2, self.avail_index);
        Ok(())
    }

    /// Takes the free list's head for `piece`.
    fn write_descriptor(&mut self, piece: Piece, is_last: bool) {
        let at = usize::from(self.free_head);
        let next = self.next[at];
        let flags = if piece.is_written { WRITE } else { 0 } | if is_last { 0 } else { NEXT };
        self.area.write_u64(DESCRIPTOR_BYTES * at, piece.address.raw());
        self.area.write_u32(DESCRIPTOR_BYTES * at + 8, piece.bytes);
        self.area.write_u16(DESCRIPTOR_BYTES * at + 12, flags);
        self.area.write_u16(DESCRIPTOR_BYTES * at + 14, if is_last { 0 } else { next });
        if is_last {
            self.next[at] = END;
        }
        self.free_head = next;
        self.free_count -= 1;
    }

    /// Tells the device about new requests, unless it does not want to know.
    pub(crate) fn notify<T: Transport>(&mut self, transport: &mut T) {
        if self.notified_index == self.avail_index {
            return;
        }
        // The device must see the new index before it is asked whether it sleeps, and it publishes that it sleeps
        // before it looks at the index a last time: with both orders nobody waits for the other.
        fence_memory();
        let wants = if self.has_event_index {
            let event = self.area.load_index(used_offset(self.size) + 4 + 8 * usize::from(self.size));
            has_passed(event, self.avail_index, self.notified_index)
        } else {
            self.area.load_index(used_offset(self.size)) & NO_NOTIFY == 0
        };
        self.notified_index = self.avail_index;
        if wants {
            fence_before_notify();
            transport.notify(self.index);
        }
    }

    /// The next request that the device has handed back. When there is none, an interrupt announces the next one if
    /// `alert` says so; otherwise there may be one or not.
    pub(crate) fn pop(&mut self, alert: Alert) -> Result<Option<Used>, DeviceFault> {
        if self.device_index() == self.used_index {
            if !self.has_event_index || alert == Alert::No {
                return Ok(None);
            }
            self.area.store_index(avail_offset(self.size) + 4 + 2 * usize::from(self.size), self.used_index);
            // It may have used one before it saw that.
            fence_memory();
            if self.device_index() == self.used_index {
                return Ok(None);
            }
        }
        let ahead = self.device_index().wrapping_sub(self.used_index);
        if usize::from(ahead) > self.size() {
            return Err(DeviceFault::TooManyUsed { ahead });
        }
        let slot = used_offset(self.size) + 4 + 8 * usize::from(self.used_index % self.size);
        let (id, written) = (self.area.read_u32(slot), self.area.read_u32(slot + 4));
        let head = u16::try_from(id).ok().filter(|&head| head < self.size);
        let cookie = head.and_then(|head| self.in_flight[usize::from(head)].take());
        let (Some(head), Some(cookie)) = (head, cookie) else {
            return Err(DeviceFault::UnknownDescriptor { id });
        };
        self.free_chain(head);
        self.used_index = self.used_index.wrapping_add(1);
        Ok(Some(Used { cookie, written }))
    }

    fn device_index(&self) -> u16 {
        self.area.load_index(used_offset(self.size) + 2)
    }

    /// Puts a chain in front of the free list.
    fn free_chain(&mut self, head: u16) {
        let mut last = head;
        self.free_count += 1;
        while self.next[usize::from(last)] != END {
            last = self.next[usize::from(last)];
            self.free_count += 1;
        }
        self.next[usize::from(last)] = self.free_head;
        self.free_head = head;
    }
}

fn avail_offset(size: u16) -> usize {
    DESCRIPTOR_BYTES * usize::from(size)
}

fn used_offset(size: u16) -> usize {
    (avail_offset(size) + 6 + 2 * usize::from(size)).next_multiple_of(4096)
}

/// Whether the index stepped over `event` on its way from `old` to `new` (Virtual I/O Device 1.2, `vring_need_event`).
const fn has_passed(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

#[cfg(test)]
mod tests {
    use super::has_passed;

    #[test]
    fn event_index_survives_the_wrap() {
        assert!(has_passed(5, 6, 5));
        assert!(!has_passed(6, 6, 5));
        assert!(has_passed(u16::MAX, 0, u16::MAX));
        assert!(has_passed(u16::MAX, 2, u16::MAX - 1));
        assert!(!has_passed(3, 2, u16::MAX));
    }
}
