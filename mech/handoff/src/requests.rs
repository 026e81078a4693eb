//! Requests to a vCPU.

use crate::sync::{AtomicBool, AtomicU32, Ordering};

/// What others want of a vCPU, as bits, and whether its state is in its hart's registers.
///
/// Who adds a request calls the owner's hart afterwards. The owner takes requests before each entry into the guest. Who wants a fence adds the
/// bit, then asks whether the vCPU [owes](Requests::owes) it; the owner says that the vCPU is loaded, then looks for bits. So one of the two
/// sees the other.
#[derive(Debug, Default)]
pub struct Requests {
    bits: AtomicU32,
    is_loaded: AtomicBool,
}

impl Requests {
    /// None, of a vCPU that is not loaded.
    #[must_use]
    #[allow(clippy::missing_const_for_fn, reason = "not under the model checker")]
    pub fn new() -> Self {
        Self { bits: AtomicU32::new(0), is_loaded: AtomicBool::new(false) }
    }

    /// Adds requests.
    #[inline]
    pub fn add(&self, bits: u32) {
        self.bits.fetch_or(bits, Ordering::SeqCst);
    }

    /// Whether there are some.
    #[inline]
    #[must_use]
    pub fn are_there(&self) -> bool {
        self.bits.load(Ordering::SeqCst) != 0
    }

    /// Owner: takes all.
    #[inline]
    pub fn take(&self) -> u32 {
        self.bits.swap(0, Ordering::SeqCst)
    }

    /// Owner: these are not to be done any more.
    #[inline]
    pub fn withdraw(&self, bits: u32) {
        self.bits.fetch_and(!bits, Ordering::SeqCst);
    }

    /// Those of `bits` that are still to be done.
    #[inline]
    #[must_use]
    pub fn outstanding(&self, bits: u32) -> u32 {
        self.bits.load(Ordering::SeqCst) & bits
    }

    /// Owner: the vCPU's state is (not) in the hart's registers.
    #[inline]
    pub fn set_loaded(&self, is_loaded: bool) {
        self.is_loaded.store(is_loaded, Ordering::SeqCst);
    }

    /// Whether the vCPU's state is in its hart's registers.
    #[inline]
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.is_loaded.load(Ordering::SeqCst)
    }

    /// Whether who has asked for `bits` has to wait for them: a vCPU that is not loaded does them before its next instruction.
    #[inline]
    #[must_use]
    pub fn owes(&self, bits: u32) -> bool {
        self.is_loaded() && self.outstanding(bits) != 0
    }
}
