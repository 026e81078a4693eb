//! Frames and the memory they take.

use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};

use alloc::sync::Arc;
use alloc::vec::Vec;
use thiserror::Error;

use crate::PortId;
use crate::ethernet::{MAX_FRAME, MIN_FRAME};

/// What a frame takes besides its bytes, as a round number.
const OVERHEAD: usize = 128;

/// Memory for the frames of one subnet.
#[derive(Clone, Debug)]
pub struct FrameAllocator {
    budget: Arc<Budget>,
}

#[derive(Debug, Default)]
struct Budget {
    used: AtomicUsize,
    /// Changes with the ports.
    limit: AtomicUsize,
}

/// Why there is no frame to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameRefused {
    /// Shorter than an Ethernet header.
    #[error("a frame of {len} bytes has no Ethernet header")]
    TooShort {
        /// The length.
        len: usize,
    },
    /// Longer than [`MAX_FRAME`].
    #[error("a frame of {len} bytes is too long")]
    TooLong {
        /// The length.
        len: usize,
    },
    /// The subnet's frames take as much memory as they may, or there is none.
    #[error("no memory for a frame")]
    NoMemory,
}

impl FrameAllocator {
    pub(crate) fn new() -> Self {
        Self { budget: Arc::default() }
    }

    /// A frame of `len` zero bytes, for its sender to fill.
    ///
    /// # Errors
    /// [`FrameRefused`]
    pub fn frame(&self, len: usize) -> Result<FrameBuf, FrameRefused> {
        if len < MIN_FRAME {
            return Err(FrameRefused::TooShort { len });
        }
        if len > MAX_FRAME {
            return Err(FrameRefused::TooLong { len });
        }
        let charge = self.charge(len + OVERHEAD).ok_or(FrameRefused::NoMemory)?;
        let mut bytes = scarce::room(len).map_err(|_| FrameRefused::NoMemory)?;
        // Bounded: reserved above.
        bytes.resize(len, 0);
        Ok(FrameBuf { bytes, charge })
    }

    /// A frame with these bytes.
    ///
    /// # Errors
    /// [`FrameRefused`]
    pub fn copy_of(&self, bytes: &[u8]) -> Result<FrameBuf, FrameRefused> {
        let mut frame = self.frame(bytes.len())?;
        frame.bytes_mut().copy_from_slice(bytes);
        Ok(frame)
    }

    /// Memory that the subnet's frames take now, wherever they are.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.budget.used.load(Ordering::Relaxed)
    }

    pub(crate) fn set_limit(&self, limit: usize) {
        self.budget.limit.store(limit, Ordering::Relaxed);
    }

    /// A counter only: nothing else is ordered by it.
    fn charge(&self, bytes: usize) -> Option<Charge> {
        let limit = self.budget.limit.load(Ordering::Relaxed);
        let add = |used: usize| used.checked_add(bytes).filter(|used| *used <= limit);
        self.budget.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Charge { bytes, budget: self.budget.clone() })
    }
}

/// A part of the budget; comes back when dropped.
#[derive(Debug)]
struct Charge {
    bytes: usize,
    budget: Arc<Budget>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A frame that its sender fills.
#[derive(Debug)]
pub struct FrameBuf {
    bytes: Vec<u8>,
    charge: Charge,
}

impl FrameBuf {
    /// The frame, from the destination address on.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    pub(crate) fn seal<H>(self, sender: PortId, header: H) -> Frame<H> {
        Frame(Arc::new(Sealed { sender, header, buf: self }))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A frame under way. Cheap to clone; its memory comes back with the last clone.
pub struct Frame<H>(Arc<Sealed<H>>);

struct Sealed<H> {
    sender: PortId,
    header: H,
    buf: FrameBuf,
}

impl<H> Frame<H> {
    /// The port that it came from. It may be gone by now.
    #[must_use]
    pub fn sender(&self) -> PortId {
        self.0.sender
    }

    /// What the sender has left undone.
    #[must_use]
    pub fn header(&self) -> &H {
        &self.0.header
    }

    /// The frame, from the destination address on.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0.buf.bytes
    }

    /// What it counts in a queue.
    pub(crate) fn charged_bytes(&self) -> usize {
        self.0.buf.charge.bytes
    }
}

impl<H> Clone for Frame<H> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<H> fmt::Debug for Frame<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({} bytes)", self.bytes().len())
    }
}
