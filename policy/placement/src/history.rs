//! How often a page was tried.

use crate::Thresholds;

/// What the caller remembers of a page between decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Tries that are not forgiven.
    pub tries: u8,
    /// The tick of the last one.
    pub last: u16,
}

impl History {
    /// The history at `now`: one try less for each [`Thresholds::forgive_ticks`] since the last one. The clock may wrap; a
    /// page that was left alone for a whole turn of it is forgiven late, never early.
    #[must_use]
    #[inline(always)]
    pub const fn at(self, now: u16, thresholds: &Thresholds) -> Self {
        let age = now.wrapping_sub(self.last);
        let forgiven = match age.checked_div(thresholds.forgive_ticks) {
            Some(turns) => turns,
            None => 0,
        };
        if forgiven == 0 {
            return self;
        }
        let tries = if forgiven >= self.tries as u16 { 0 } else { self.tries - forgiven as u8 };
        // What is left of the last turn counts for the next one.
        Self { tries, last: self.last.wrapping_add(forgiven * thresholds.forgive_ticks) }
    }

    /// Whether it may be tried once more at `now`, as far as its own tries go.
    #[must_use]
    #[inline(always)]
    pub const fn allows(self, now: u16, thresholds: &Thresholds) -> bool {
        self.at(now, thresholds).tries < thresholds.max_tries
    }

    /// Whether it may be tried at `now`; `may_retry`: the VM's [`Budget`](crate::Budget) has something left for pages
    /// that need it.
    #[must_use]
    #[inline(always)]
    pub const fn lets(self, may_retry: bool, now: u16, thresholds: &Thresholds) -> bool {
        self.allows(now, thresholds) && (may_retry || !self.needs_budget(now, thresholds))
    }

    /// Whether another try would count against the VM's [`Budget`](crate::Budget). The first one does not, nor does one
    /// after the page has been left alone for a while, which doubles with each try.
    #[must_use]
    #[inline(always)]
    pub const fn needs_budget(self, now: u16, thresholds: &Thresholds) -> bool {
        let History { tries, last } = self.at(now, thresholds);
        if tries == 0 {
            return false;
        }
        let doublings = if tries > 16 { 15 } else { tries as u32 - 1 };
        (now.wrapping_sub(last) as u64) < (thresholds.patience_ticks as u64) << doublings
    }

    /// With one more try at `now`.
    #[must_use]
    #[inline(always)]
    pub const fn tried(self, now: u16, thresholds: &Thresholds) -> Self {
        Self { tries: self.at(now, thresholds).tries.saturating_add(1), last: now }
    }
}
