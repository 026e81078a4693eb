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

    /// May it be tried once more?
    #[must_use]
    pub const fn allows(self, now: u16, thresholds: &Thresholds) -> bool {
        self.at(now, thresholds).tries < thresholds.max_tries
    }

    /// With one more try at `now`.
    #[must_use]
    pub const fn tried(self, now: u16, thresholds: &Thresholds) -> Self {
        let before = self.at(now, thresholds);
        let last = if before.tries == 0 { now } else { before.last };
        Self { tries: before.tries.saturating_add(1), last }
    }
}
