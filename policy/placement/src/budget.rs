//! How often a VM's pages are tried again.

use crate::Thresholds;

/// What a VM may spend on pages that were tried before, each of which counts one.
///
/// A page's first try is always allowed: it costs less than what made it hot, and memory bounds how many there are. That a page
/// is wanted elsewhere soon again tells of users whom no place will please; so a VM has a part of its pages' number for such
/// tries, and it fills up again over the time in which a try is forgiven. A VM some of whose pages change users has enough of
/// it; one that makes all of them do so has soon spent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    most: u32,
    left: u32,
    /// What was refilled last, and when.
    refilled: u32,
    since: u16,
}

impl Budget {
    /// All of it, for a VM of so many pages.
    #[must_use]
    pub const fn new(pages: u32, now: u16, thresholds: &Thresholds) -> Self {
        let most = pages / thresholds.retry_part;
        Self { most, left: most, refilled: 0, since: now }
    }

    /// Whether a page may be tried once more at `now`. What has come back since the last call is added first.
    pub fn allows(&mut self, now: u16, thresholds: &Thresholds) -> bool {
        let age = u32::from(now.wrapping_sub(self.since));
        let ticks = u32::from(thresholds.forgive_ticks).max(1);
        let due = u32::try_from(u64::from(self.most) * u64::from(age) / u64::from(ticks)).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(due.saturating_sub(self.refilled)).min(self.most);
        (self.since, self.refilled) = if age >= ticks { (now, 0) } else { (self.since, due.max(self.refilled)) };
        self.left > 0
    }

    /// So many pages are tried again.
    pub const fn spend(&mut self, pages: u32) {
        self.left = self.left.saturating_sub(pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Thresholds = Thresholds { retry_part: 10, forgive_ticks: 100, ..Thresholds::for_misses() };

    #[test]
    fn it_is_spent_and_comes_back_evenly() {
        let mut budget = Budget::new(1000, 7, &T);
        assert!(budget.allows(7, &T));
        budget.spend(99);
        assert!(budget.allows(7, &T));
        budget.spend(512);
        assert!(!budget.allows(7, &T), "all is spent, and no debts are made");
        assert!(budget.allows(8, &T), "a hundredth has come back");
        budget.spend(1);
        assert!(!budget.allows(8, &T));
        // Asking often does not make it come back faster.
        let mut spent = 0;
        for now in 9..=107 {
            while budget.allows(now, &T) {
                budget.spend(1);
                spent += 1;
            }
        }
        assert_eq!(spent, 99);
    }

    #[test]
    fn there_is_never_more_than_all_of_it() {
        let mut budget = Budget::new(1000, u16::MAX, &T);
        assert!(budget.allows(5000, &T), "the clock has wrapped");
        (0..100).for_each(|_| budget.spend(1));
        assert!(!budget.allows(5000, &T));
        let mut none = Budget::new(9, 0, &T);
        assert!(!none.allows(50, &T), "a VM of nine pages has no tenth of them to spend");
    }
}
