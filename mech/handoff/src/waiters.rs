//! vCPUs that wait until harts have left a VM.

use crate::sync::{AtomicU64, Ordering, fence};

/// Who waits, by bit; each is told once.
///
/// Who waits [says so](Waiters::note) and then looks whether what it waits for has come. Who leaves says that it has left, passes a full
/// fence, and [takes](Waiters::take) those who wait. So one of the two sees the other.
#[derive(Debug, Default)]
pub struct Waiters(AtomicU64);

impl Waiters {
    /// Nobody waits.
    #[must_use]
    #[allow(clippy::missing_const_for_fn, reason = "not under the model checker")]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// `number` waits, and looks after this.
    pub fn note(&self, number: u16) {
        self.0.fetch_or(1 << (number % 64), Ordering::SeqCst);
        // Pairs with the fence of who leaves: that one sees the bit, or this hart sees what was done before it.
        fence(Ordering::SeqCst);
    }

    /// The caller has left behind a full fence: calls `tell` for each number that waits, and for those that share its bit.
    #[inline]
    pub fn take(&self, tell: impl FnMut(u16)) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.take_all(tell);
        }
    }

    #[cold]
    fn take_all(&self, mut tell: impl FnMut(u16)) {
        let mut rest = self.0.swap(0, Ordering::SeqCst);
        while rest != 0 {
            tell(rest.trailing_zeros() as u16);
            rest &= rest - 1;
        }
    }
}
