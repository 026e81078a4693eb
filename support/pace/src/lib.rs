//! How often background work goes on, by what it costs.
//!
//! Work in bounded steps has a [`Share`] of a hart's time. It says what each step has cost, itself and by what it made
//! others do, and [`Pace`] says when the next one is due: where steps are dear they come seldom. A pause never ends
//! work for good: it has a longest length, and what was not paid for by then makes later pauses longer.
//!
//! Time is in ticks of any clock that does not go back. No locks, no clock of its own; tested here.
#![no_std]
#![forbid(unsafe_code)]

/// A share of one hart's time, in thousandths: 1 to 1,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u16);

/// Most thousandths of all harts' time that one kind of work for the whole machine takes.
const OF_MACHINE: u64 = 3;
/// Thousandths of one hart's time that it may take in any case: it would never end on a small machine else.
const LEAST: u64 = 25;
/// Most thousandths of one hart's time, a twelfth: all of the work lies on that hart, and its guests feel it.
const MOST: u64 = 83;

impl Share {
    /// So many thousandths; 0 counts as 1.
    #[must_use]
    pub const fn permille(permille: u16) -> Self {
        match permille {
            0 => Self(1),
            1..=1_000 => Self(permille),
            _ => Self(1_000),
        }
    }

    /// What work that one hart does for a machine of `harts` harts may take of that hart's time.
    #[must_use]
    pub const fn of_machine(harts: usize) -> Self {
        match OF_MACHINE.saturating_mul(harts as u64) {
            ..=LEAST => Self(LEAST as u16),
            share @ ..MOST => Self(share as u16),
            _ => Self(MOST as u16),
        }
    }

    /// Ticks of rest that make up for `ticks` of work.
    #[must_use]
    pub const fn rest(self, ticks: u64) -> u64 {
        let share = self.0 as u64;
        // In this order nothing overflows that would not be too long anyway.
        ticks.saturating_mul(1_000 - share) / share
    }
}

/// When a piece of work goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// When what was spent so far is made up for.
    even_at: u64,
}

impl Pace {
    /// Nothing spent.
    #[must_use]
    pub const fn new() -> Self {
        Self { even_at: 0 }
    }

    /// The work has cost `ticks` until `now`.
    pub fn spent(&mut self, ticks: u64, share: Share, now: u64) {
        self.even_at = self.even_at.max(now).saturating_add(share.rest(ticks));
    }

    /// When the next step is due: when all is made up for, but `least_ticks` from `now` at the earliest and `most_ticks` at the
    /// latest (the earliest counts where that is later).
    #[must_use]
    pub fn next(&self, least_ticks: u64, most_ticks: u64, now: u64) -> u64 {
        self.even_at.min(now.saturating_add(most_ticks)).max(now.saturating_add(least_ticks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shares_grow_with_the_machine_within_bounds() {
        let rests = [1, 2, 8, 10, 20, 64, usize::MAX].map(|harts| Share::of_machine(harts).rest(1_000));
        assert_eq!(rests, [39_000, 39_000, 39_000, 32_333, 15_666, 11_048, 11_048]);
        assert_eq!(Share::permille(0), Share::permille(1));
        assert_eq!(Share::permille(2_000).rest(5), 0);
    }

    #[test]
    fn cheap_steps_come_as_often_as_they_may() {
        let mut pace = Pace::new();
        assert_eq!(pace.next(50, 1_000, 7), 57);
        pace.spent(1, Share::permille(100), 100);
        assert_eq!(pace.next(50, 1_000, 100), 150);
    }

    #[test]
    fn dear_steps_are_made_up_for_later_if_not_at_once() {
        let mut pace = Pace::new();
        pace.spent(1_000, Share::permille(100), 1_000);
        assert_eq!(pace.next(50, 4_000, 1_000), 5_000, "the longest pause");
        pace.spent(100, Share::permille(100), 5_000);
        assert_eq!(pace.next(50, 100_000, 5_000), 10_900);
        // Who had nothing to do for long owes nothing and has saved nothing.
        pace.spent(100, Share::permille(100), 50_000);
        assert_eq!(pace.next(50, 100_000, 50_000), 50_900);
    }

    proptest! {
        /// Over a long time no more than its share is spent, give or take the last step; nothing overflows.
        #[test]
        fn the_share_is_kept(steps in prop::collection::vec(1..1_000_u64, 1..200), permille in 1..500_u16) {
            let (mut pace, mut now, share) = (Pace::new(), 0, Share::permille(permille));
            for ticks in &steps {
                now += ticks;
                pace.spent(*ticks, share, now);
                now = pace.next(0, u64::MAX, now);
            }
            let spent: u64 = steps.iter().sum();
            // Each rest is rounded down.
            prop_assert!(spent * 1_000 <= (now + steps.len() as u64) * u64::from(permille));
        }

        #[test]
        fn any_numbers_do(ticks: u64, permille: u16, now: u64, least: u64, most: u64) {
            let mut pace = Pace::new();
            pace.spent(ticks, Share::permille(permille), now);
            pace.spent(ticks, Share::permille(permille), now);
            let next = pace.next(least, most, now);
            prop_assert!(next >= now && (next <= now.saturating_add(most.max(least))));
        }
    }
}
