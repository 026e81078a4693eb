//! One request's buffers, validated and consumed from the front.

use addr::GuestPhysAddr;
use alloc::vec::Vec;
use device::GuestMemory;

use super::walk;
use crate::error::{ProtocolError, RingError};

/// Most descriptors in a chain. Also the largest queue, so that no direct chain of a correct driver is refused.
pub const MAX_SEGMENTS: usize = 256;

/// A piece of guest memory, checked to lie in RAM when its chain was taken from the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestSegment {
    /// First byte.
    pub addr: GuestPhysAddr,
    /// Bytes, never 0.
    pub len: u32,
}

impl GuestSegment {
    /// Drops the first `bytes` bytes (at most `len`).
    fn advance(&mut self, bytes: u32) {
        // Cannot wrap: the whole segment lies in RAM.
        self.addr = GuestPhysAddr::new(self.addr.raw().wrapping_add(u64::from(bytes)));
        self.len -= bytes;
    }
}

/// A descriptor chain: device-readable segments, then device-writable ones.
///
/// Reads and writes consume it from the front of either part, wherever the driver has cut it: a device must not
/// depend on the framing ("Message Framing", 2.7.4). A `Chain` is scratch space that is loaded again and again, so it
/// allocates only when it is made.
///
/// Invariants: `read_next <= split <= write_next <= segments.len()`, no remaining segment is empty, `readable` and
/// `writable` are the sums of the remaining lengths of their part.
#[derive(Debug)]
pub struct Chain {
    head: u16,
    segments: Vec<GuestSegment>,
    read_next: usize,
    split: usize,
    write_next: usize,
    readable: u32,
    writable: u32,
    written: u32,
    /// All bytes, and the device-readable ones, while the chain is being loaded.
    total: u64,
    total_readable: u64,
    window: walk::Window,
}

impl Default for Chain {
    fn default() -> Self {
        Self::new()
    }
}

impl Chain {
    /// An empty chain with room for [`MAX_SEGMENTS`] segments.
    #[must_use]
    pub fn new() -> Self {
        Self {
            head: 0,
            segments: Vec::with_capacity(MAX_SEGMENTS),
            read_next: 0,
            split: 0,
            write_next: 0,
            readable: 0,
            writable: 0,
            written: 0,
            total: 0,
            total_readable: 0,
            window: walk::Window::new(),
        }
    }

    /// The descriptor that names the chain in the rings.
    #[must_use]
    pub const fn head(&self) -> u16 {
        self.head
    }

    /// Device-readable bytes not yet consumed.
    #[must_use]
    pub const fn readable_len(&self) -> u32 {
        self.readable
    }

    /// Device-writable bytes not yet consumed.
    #[must_use]
    pub const fn writable_len(&self) -> u32 {
        self.writable
    }

    /// Bytes written through this chain: the length for the used ring.
    #[must_use]
    pub const fn written(&self) -> u32 {
        self.written
    }

    /// The device-readable segments not yet consumed.
    #[must_use]
    pub fn readable(&self) -> &[GuestSegment] {
        self.segments.get(self.read_next..self.split).unwrap_or(&[])
    }

    /// The device-writable segments not yet consumed.
    #[must_use]
    pub fn writable(&self) -> &[GuestSegment] {
        self.segments.get(self.write_next..).unwrap_or(&[])
    }

    /// Descriptors that were walked to load it, those that name tables not counted.
    #[must_use]
    pub const fn descriptors(&self) -> u32 {
        // At most MAX_SEGMENTS.
        self.segments.len() as u32
    }

    /// Consumes exactly `buf.len()` readable bytes.
    ///
    /// # Errors
    /// [`ReadError::Short`] when there are fewer; nothing is consumed then.
    pub fn read_exact(&mut self, memory: &dyn GuestMemory, buf: &mut [u8]) -> Result<(), ReadError> {
        if (self.readable as usize) < buf.len() {
            return Err(ReadError::Short);
        }
        self.read_some(memory, buf)?;
        Ok(())
    }

    /// Consumes 16 readable bytes: two words, as many headers are.
    ///
    /// # Errors
    /// [`ReadError::Short`] when there are fewer; nothing is consumed then.
    #[inline]
    pub fn read_u64_pair(&mut self, memory: &dyn GuestMemory) -> Result<[u64; 2], ReadError> {
        const BYTES: u32 = 16;
        // The usual framing: the header has a segment of its own.
        if let Some(segment) = self.segments.get(self.read_next)
            && segment.len == BYTES
            && self.read_next < self.split
        {
            let words = memory.read_u64_pair(segment.addr).map_err(RingError::from)?;
            self.read_next += 1;
            self.readable -= BYTES;
            return Ok(words);
        }
        let mut raw = [0; BYTES as usize];
        self.read_exact(memory, &mut raw)?;
        let value = u128::from_le_bytes(raw);
        Ok([value as u64, (value >> 64) as u64])
    }

    /// Consumes up to `buf.len()` readable bytes and says how many there were.
    ///
    /// # Errors
    /// [`RingError::Memory`] when guest RAM refuses.
    pub fn read_some(&mut self, memory: &dyn GuestMemory, buf: &mut [u8]) -> Result<usize, RingError> {
        let mut done = 0;
        while done < buf.len() && self.read_next < self.split {
            let Some(segment) = self.segments.get_mut(self.read_next) else { break };
            let take = (buf.len() - done).min(segment.len as usize);
            let Some(part) = buf.get_mut(done..done + take) else { break };
            memory.read(segment.addr, part)?;
            segment.advance(take as u32);
            if segment.len == 0 {
                self.read_next += 1;
            }
            self.readable -= take as u32;
            done += take;
        }
        Ok(done)
    }

    /// Consumes up to `count` readable bytes unread.
    pub fn skip_readable(&mut self, count: u32) {
        let mut left = count.min(self.readable);
        self.readable -= left;
        while left > 0 && self.read_next < self.split {
            let Some(segment) = self.segments.get_mut(self.read_next) else { break };
            let take = left.min(segment.len);
            segment.advance(take);
            if segment.len == 0 {
                self.read_next += 1;
            }
            left -= take;
        }
    }

    /// Writes as much of `data` as fits and says how much that was.
    ///
    /// # Errors
    /// [`RingError::Memory`] when guest RAM refuses.
    pub fn write_some(&mut self, memory: &dyn GuestMemory, data: &[u8]) -> Result<usize, RingError> {
        let mut done = 0;
        while done < data.len() {
            let Some(segment) = self.segments.get_mut(self.write_next) else { break };
            let take = (data.len() - done).min(segment.len as usize);
            let Some(part) = data.get(done..done + take) else { break };
            memory.write(segment.addr, part)?;
            segment.advance(take as u32);
            if segment.len == 0 {
                self.write_next += 1;
            }
            self.writable -= take as u32;
            self.written += take as u32;
            done += take;
        }
        Ok(done)
    }

    /// Cuts the last writable byte off (where some protocols put their status) and gives its address.
    pub fn take_last_byte(&mut self) -> Option<GuestPhysAddr> {
        if self.write_next >= self.segments.len() {
            return None;
        }
        let last = self.segments.last_mut()?;
        last.len -= 1;
        let addr = GuestPhysAddr::new(last.addr.raw().wrapping_add(u64::from(last.len)));
        if last.len == 0 {
            self.segments.pop();
        }
        self.writable -= 1;
        Some(addr)
    }

    /// The address of the writable byte `offset` bytes on.
    #[must_use]
    pub fn writable_addr(&self, offset: u32) -> Option<GuestPhysAddr> {
        let mut left = offset;
        for segment in self.writable() {
            if left < segment.len {
                return segment.addr.checked_add(u64::from(left));
            }
            left -= segment.len;
        }
        None
    }

    /// Loads the chain that starts at `head` of `table`.
    pub(super) fn load(
        &mut self,
        memory: &dyn GuestMemory,
        table: walk::Table,
        head: u16,
        allow_indirect: bool,
    ) -> Result<(), RingError> {
        self.head = head;
        self.segments.clear();
        self.read_next = 0;
        self.split = 0;
        self.readable = 0;
        self.writable = 0;
        self.total_readable = 0;
        self.total = 0;
        self.written = 0;
        walk::walk(self, memory, table, head, allow_indirect)?;
        self.write_next = self.split;
        self.finish_load()
    }

    /// Checks the total length once all segments are known.
    pub(super) fn finish_load(&mut self) -> Result<(), RingError> {
        if self.total > u64::from(u32::MAX) {
            return Err(RingError::TotalTooLong(self.total));
        }
        self.readable = self.total_readable as u32;
        self.writable = (self.total - self.total_readable) as u32;
        Ok(())
    }

    /// Scratch space for the walk.
    pub(super) const fn window(&mut self) -> &mut walk::Window {
        &mut self.window
    }

    /// Appends a validated segment of the device-readable or the device-writable part; `index` is for the complaint.
    pub(super) fn append(&mut self, segment: GuestSegment, is_writable: bool, index: u16) -> Result<(), RingError> {
        let count = self.segments.len();
        if count >= MAX_SEGMENTS {
            return Err(RingError::ChainTooLong(MAX_SEGMENTS as u32));
        }
        if !is_writable {
            if count != self.split {
                return Err(RingError::ReadableAfterWritable(index));
            }
            self.split = count + 1;
            self.total_readable += u64::from(segment.len);
        }
        // Cannot overflow: at most 256 lengths of 32 bits.
        self.total += u64::from(segment.len);
        self.segments.push(segment);
        Ok(())
    }
}

/// Why a read from a chain failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// Fewer bytes than asked for; nothing was consumed.
    Short,
    /// Guest RAM refused.
    Ring(RingError),
}

impl From<RingError> for ReadError {
    fn from(error: RingError) -> Self {
        Self::Ring(error)
    }
}

impl From<ReadError> for crate::DeviceError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Short => ProtocolError::HeaderTooShort.into(),
            ReadError::Ring(error) => error.into(),
        }
    }
}
