//! What a VM owes for work that others did for it.

use crate::sync::{AtomicU64, Ordering};

/// Ticks that harts spent on a VM outside the turns of its vCPUs. Whoever does such work [adds](Debt::add) to it; a hart whose turn
/// of one of the VM's vCPUs ends [takes](Debt::take) some, and charges that vCPU.
///
/// No tick is paid twice, and none that was added is lost. A count orders nothing else.
#[derive(Debug, Default)]
pub struct Debt(AtomicU64);

impl Debt {
    /// Nothing is owed.
    #[must_use]
    #[allow(clippy::missing_const_for_fn, reason = "not under the model checker")]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `ticks`, unless `most` or more are owed already: the excess over it is bounded by what each hart does in one step.
    pub fn add(&self, ticks: u64, most: u64) {
        if self.0.load(Ordering::Relaxed) < most {
            self.0.fetch_add(ticks.min(most), Ordering::Relaxed);
        }
    }

    /// Takes what is owed, as far as `most` ticks.
    #[inline]
    pub fn take(&self, most: u64) -> u64 {
        if self.0.load(Ordering::Relaxed) == 0 { 0 } else { self.take_some(most) }
    }

    #[cold]
    fn take_some(&self, most: u64) -> u64 {
        let pay = |owed: u64| owed.checked_sub(owed.min(most));
        let owed = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay);
        owed.map_or(0, |owed| owed.min(most))
    }
}
