//! What was sent lately, and what is to be looked for when: see [`crate::wire`].

use addr::{Mfn, VmId};
use alloc::vec::Vec;
use scarce::Grow;

/// Ranges of pages that are remembered at most; of more, those that were sent last.
pub const MOST_RANGES: usize = 32_768;
/// Rounds after the wire has become quiet, each after twice the time of the one before: 1, 2, 4 and 8 seconds.
pub const LATE_ROUNDS: u32 = 4;
/// Pages sent between two rounds, with fewer of which the wire is quiet: what guests say to each other anyway.
pub const QUIET_PAGES: u64 = 16;

/// Machine pages that follow each other, in one word: a page cache is rarely in one piece, and many of them are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range(u64);

impl Range {
    const PAGES_SHIFT: u32 = 48;
    const MOST_PAGES: u64 = 1023;

    /// So many pages. What is too much for one range is left out.
    #[must_use]
    pub fn new(first: Mfn, pages: u64) -> Self {
        let first = first.raw() & ((1 << Self::PAGES_SHIFT) - 1);
        Self(pages.min(Self::MOST_PAGES) << Self::PAGES_SHIFT | first)
    }

    /// Its first page.
    #[must_use]
    pub const fn first(self) -> Mfn {
        Mfn::new(self.0 & ((1 << Self::PAGES_SHIFT) - 1))
    }

    /// How many.
    #[must_use]
    pub const fn pages(self) -> u64 {
        self.0 >> Self::PAGES_SHIFT
    }

    /// Both in one, if `other` follows on this one or overlaps its end.
    fn joined(self, other: Self) -> Option<Self> {
        let ahead = other.first().raw().checked_sub(self.first().raw())?;
        let pages = self.pages().max(ahead + other.pages());
        (ahead <= self.pages() && pages <= Self::MOST_PAGES).then(|| Self::new(self.first(), pages))
    }
}

/// Pages that were sent, the last [`MOST_RANGES`] ranges of them. No memory is taken before something is.
#[derive(Debug, Default)]
pub struct Sent {
    ranges: Vec<Range>,
    /// Where the oldest is, once all places are taken.
    oldest: usize,
    /// Whose they were.
    senders: Vec<VmId>,
}

impl Sent {
    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { ranges: Vec::new(), oldest: 0, senders: Vec::new() }
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Remembers what a VM has sent. What follows on the last range, or overlaps its end, is added to that.
    pub fn push(&mut self, sender: VmId, range: Range) {
        note_vm(&mut self.senders, sender);
        self.add(range);
    }

    fn add(&mut self, range: Range) {
        let last = if self.oldest == 0 { self.ranges.len() } else { self.oldest }.checked_sub(1);
        if let Some(last) = last.and_then(|last| self.ranges.get_mut(last))
            && let Some(joined) = last.joined(range)
        {
            *last = joined;
            return;
        }
        if self.ranges.len() < MOST_RANGES {
            // Without memory for it the hint is lost.
            if self.ranges.grow(1).is_ok() {
                self.ranges.push(range);
            }
        } else if let Some(place) = self.ranges.get_mut(self.oldest) {
            *place = range;
            self.oldest = (self.oldest + 1) % MOST_RANGES;
        }
    }

    /// All ranges, those that were sent first in front.
    fn in_order(&self) -> impl Iterator<Item = Range> + Clone {
        let (late, early) = self.ranges.split_at_checked(self.oldest).unwrap_or_default();
        early.iter().chain(late).copied()
    }

    /// All of it; nothing is remembered afterwards.
    #[must_use]
    pub fn take(&mut self) -> Self {
        core::mem::take(self)
    }
}

/// One more VM, once. Without memory for it, it is left out.
fn note_vm(vms: &mut Vec<VmId>, vm: VmId) {
    if !vms.contains(&vm) && vms.grow(1).is_ok() {
        vms.push(vm);
    }
}

/// All of them; none without memory for it.
fn gathered(ranges: impl Iterator<Item = Range> + Clone) -> Vec<Range> {
    let mut all = Vec::new();
    if all.grow_exact(ranges.clone().count()).is_ok() {
        all.extend(ranges);
    }
    all
}

/// What went over the wire since it was last quiet.
#[derive(Debug, Default)]
pub struct Recent {
    /// All of it, with its senders.
    all: Sent,
    /// What the last round has searched for: once more in the next one, for what its receiver had not stored yet.
    last: Vec<Range>,
    /// Who has received, in the last round's time and in all.
    last_receivers: Vec<VmId>,
    receivers: Vec<VmId>,
    /// Rounds since it became quiet.
    quiet: u32,
}

/// What a round is to search for, and where.
#[derive(Debug, PartialEq, Eq)]
pub struct Search {
    /// What was sent.
    pub ranges: Vec<Range>,
    /// Who may have it twice.
    pub vms: Vec<VmId>,
    /// Seconds until the next round.
    pub next_s: u64,
}

impl Recent {
    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { all: Sent::new(), last: Vec::new(), last_receivers: Vec::new(), receivers: Vec::new(), quiet: 0 }
    }

    /// Time for a round: this was sent since the one before, and these have received something. `None` when all that was sent has
    /// been looked for often enough; nothing is remembered then.
    pub fn round(&mut self, fresh: &Sent, receivers: Vec<VmId>) -> Option<Search> {
        let pages: u64 = fresh.in_order().map(Range::pages).sum();
        fresh.in_order().for_each(|range| self.all.add(range));
        fresh.senders.iter().for_each(|vm| note_vm(&mut self.all.senders, *vm));
        receivers.iter().for_each(|vm| note_vm(&mut self.receivers, *vm));
        if pages >= QUIET_PAGES {
            self.quiet = 0;
            let last = core::mem::replace(&mut self.last, gathered(fresh.in_order()));
            let ranges = gathered(last.iter().chain(&self.last).copied());
            let mut vms = core::mem::replace(&mut self.last_receivers, receivers);
            self.last_receivers.iter().for_each(|vm| note_vm(&mut vms, *vm));
            return Some(Search { ranges, vms, next_s: 1 });
        }
        self.quiet += 1;
        if self.quiet > LATE_ROUNDS {
            *self = Self::new();
            return None;
        }
        let mut vms = self.receivers.clone();
        self.all.senders.iter().for_each(|vm| note_vm(&mut vms, *vm));
        Some(Search { ranges: gathered(self.all.in_order()), vms, next_s: 1 << self.quiet })
    }

    /// A VM has ended.
    pub fn forget(&mut self, vm: VmId) {
        for vms in [&mut self.all.senders, &mut self.last_receivers, &mut self.receivers] {
            vms.retain(|known| *known != vm);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    const SENDER: VmId = VmId(1);

    fn range(first: u64, pages: u64) -> Range {
        Range::new(Mfn::new(first), pages)
    }

    fn ranges(sent: &Sent) -> Vec<Range> {
        sent.in_order().collect()
    }

    #[test]
    fn what_follows_is_one_range() {
        let mut sent = Sent::new();
        assert!(sent.is_empty());
        for (first, pages) in [(10, 2), (11, 4), (12, 1), (16, 1), (17, 1), (18, 1022)] {
            sent.push(SENDER, range(first, pages));
        }
        let all = sent.take();
        assert_eq!(ranges(&all), [range(10, 5), range(16, 2), range(18, 1022)]);
        assert_eq!(all.senders, [SENDER]);
        assert!(sent.is_empty());
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut sent = Sent::new();
        for n in 0..MOST_RANGES as u64 + 3 {
            sent.push(SENDER, range(2 * n, 1));
        }
        // Also in the places that were taken again, neighbours become one.
        sent.push(SENDER, range(2 * (MOST_RANGES as u64 + 2) + 1, 1));
        let all = ranges(&sent);
        assert_eq!(all.len(), MOST_RANGES);
        assert!(all.is_sorted_by_key(|range| range.first()), "those that were sent first are in front");
        assert_eq!(all.first(), Some(&range(6, 1)));
        assert_eq!(all.iter().map(|range| range.pages()).sum::<u64>(), MOST_RANGES as u64 + 1);
    }

    #[test]
    fn while_much_is_sent_the_last_two_rounds_count_and_later_all_at_both_ends() {
        let mut recent = Recent::new();
        let sent = |first| {
            let mut sent = Sent::new();
            sent.push(SENDER, range(first, QUIET_PAGES));
            sent
        };
        let search = |ranges: &[Range], vms: &[u16], next_s| {
            let vms = vms.iter().map(|vm| VmId(*vm)).collect();
            Some(Search { ranges: ranges.to_vec(), vms, next_s })
        };
        let [one, two, three] = [100, 200, 300].map(|first| range(first, QUIET_PAGES));
        assert_eq!(recent.round(&sent(100), vec![VmId(2)]), search(&[one], &[2], 1));
        assert_eq!(recent.round(&sent(200), vec![VmId(3)]), search(&[one, two], &[2, 3], 1));
        assert_eq!(recent.round(&sent(300), Vec::new()), search(&[two, three], &[3], 1));
        // A little talk does not keep the wire from being quiet, and is not lost.
        let mut talk = Sent::new();
        talk.push(VmId(5), range(900, QUIET_PAGES - 1));
        let all = [one, two, three, range(900, QUIET_PAGES - 1)];
        assert_eq!(recent.round(&talk, Vec::new()), search(&all, &[2, 3, 1, 5], 2));
        recent.forget(VmId(3));
        for quiet in 2..=LATE_ROUNDS {
            assert_eq!(recent.round(&Sent::new(), Vec::new()), search(&all, &[2, 1, 5], 1 << quiet));
        }
        assert_eq!(recent.round(&Sent::new(), Vec::new()), None);
        assert_eq!(recent.round(&sent(300), Vec::new()), search(&[three], &[], 1), "nothing else is remembered");
    }
}
