//! A hart's doorbell.

use crate::sync::{AtomicBool, Ordering};

/// Whether somebody has called a hart since it looked last.
///
/// Who calls leaves what it wants first. The hart silences the ring first, then [takes](Doorbell::take) the call, then looks. So what a
/// look has missed has a ring of its own behind it.
#[derive(Debug, Default)]
pub struct Doorbell {
    is_called: AtomicBool,
}

impl Doorbell {
    /// Nobody has called.
    #[must_use]
    #[allow(clippy::missing_const_for_fn, reason = "not under the model checker")]
    pub fn new() -> Self {
        Self { is_called: AtomicBool::new(false) }
    }

    /// Makes the hart look, with `ring` as of an interrupt; one ring is enough until it has.
    #[inline]
    pub fn call(&self, ring: impl FnOnce()) {
        if !self.is_called.swap(true, Ordering::SeqCst) {
            ring();
        }
    }

    /// Whether there is anything to look at (its hart only). A call that is missed here rings, and is seen after that.
    #[inline]
    #[must_use]
    pub fn is_called(&self) -> bool {
        self.is_called.load(Ordering::Acquire)
    }

    /// The hart is about to look, and has silenced the ring; whether somebody has called since it looked last.
    #[inline]
    pub fn take(&self) -> bool {
        self.is_called.swap(false, Ordering::SeqCst)
    }
}
