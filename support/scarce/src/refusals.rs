//! Saying no on request.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Who is refused memory that is there: nobody, until [`Refusals::arm`].
///
/// Harts that ask at the same time are counted in some order; nothing else is ordered by it.
#[derive(Debug, Default)]
pub struct Refusals {
    is_armed: AtomicBool,
    /// Who has asked since.
    asked: AtomicU64,
    first: AtomicU64,
    count: AtomicU64,
}

/// Refusals of the heap: everybody who asks through this crate.
pub static HEAP: Refusals = Refusals::new();

impl Refusals {
    /// Nobody is refused.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            is_armed: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            first: AtomicU64::new(0),
            count: AtomicU64::new(0),
        }
    }

    /// From now on `first` are served, and then `count` are refused. A count of 0 ends it.
    pub fn arm(&self, first: u64, count: u64) {
        self.is_armed.store(false, Relaxed);
        self.first.store(first, Relaxed);
        self.count.store(count, Relaxed);
        self.asked.store(0, Relaxed);
        self.is_armed.store(count != 0, Relaxed);
    }

    /// How many have asked since they were armed.
    pub fn asked(&self) -> u64 {
        self.asked.load(Relaxed)
    }

    /// Whether the one who asks now is refused.
    #[inline(always)]
    #[must_use]
    pub fn refuses(&self) -> bool {
        self.is_armed.load(Relaxed) && self.counts()
    }

    #[cold]
    fn counts(&self) -> bool {
        let number = self.asked.fetch_add(1, Relaxed);
        number.checked_sub(self.first.load(Relaxed)).is_some_and(|beyond| beyond < self.count.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_are_served_some_refused_and_the_rest_served() {
        let refusals = Refusals::new();
        assert!(!refusals.refuses());
        assert_eq!(refusals.asked(), 0);
        refusals.arm(1, 2);
        assert_eq!([(); 5].map(|()| refusals.refuses()), [false, true, true, false, false]);
        assert_eq!(refusals.asked(), 5);
        refusals.arm(0, 0);
        assert!(!refusals.refuses());
        refusals.arm(u64::MAX, u64::MAX);
        assert!(!refusals.refuses());
    }
}
