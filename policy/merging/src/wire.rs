//! What went from one guest to another over the wire: the receiver has it twice over, once in its own memory and once, as
//! equal bytes, in the sender's.
//!
//! A guest that sends a file hands whole aligned pages of its page cache to its network device, and the receiver copies them into
//! whole pages of its own, which nobody tells. So the sender's pages are remembered ([`Sent`]), and when the wire has been
//! quiet for a while, in a [`Round`], the receivers' pages are looked up among them by a fingerprint of a few words. What
//! is not found is not looked at any further, and nobody else's memory is looked at: work is bounded by what was sent and by
//! the memory of who received it.

use addr::{Gfn, VmId};
use alloc::vec::Vec;

/// Ranges of pages that are remembered at most; of more, those that were sent last.
pub const MOST_RANGES: usize = 32_768;
/// Pages of one round.
pub const MOST_PAGES: u64 = 32_768;
/// Pages of a receiver that one page sent is worth looking through: 1 MiB sent, for a receiver of 256 MiB.
pub const SEARCHED_FOR_ONE: u64 = 256;
/// Pages of a receiver in one portion of a search.
pub const SEARCH_PORTION: u64 = 128;

/// Whole pages that a guest has sent, in one word: a page cache is rarely in one piece, and many of them are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range(u64);

impl Range {
    const PAGES_SHIFT: u32 = 38;
    const VM_SHIFT: u32 = 48;
    const MOST_PAGES: u64 = (1 << (Self::VM_SHIFT - Self::PAGES_SHIFT)) - 1;

    /// So many pages of a sender. What is too much for one range is left out.
    #[must_use]
    pub fn new(vm: VmId, first: Gfn, pages: u64) -> Self {
        let first = first.raw() & ((1 << Self::PAGES_SHIFT) - 1);
        Self(u64::from(vm.0) << Self::VM_SHIFT | pages.min(Self::MOST_PAGES) << Self::PAGES_SHIFT | first)
    }

    /// The sender.
    #[must_use]
    pub const fn vm(self) -> VmId {
        VmId((self.0 >> Self::VM_SHIFT) as u16)
    }

    /// Its first page.
    #[must_use]
    pub const fn first(self) -> Gfn {
        Gfn::new(self.0 & ((1 << Self::PAGES_SHIFT) - 1))
    }

    /// How many.
    #[must_use]
    pub const fn pages(self) -> u64 {
        self.0 >> Self::PAGES_SHIFT & Self::MOST_PAGES
    }

    /// Both in one, if `other` follows on this one or overlaps its end.
    fn joined(self, other: Self) -> Option<Self> {
        let ahead = other.first().raw().checked_sub(self.first().raw())?;
        let pages = self.pages().max(ahead + other.pages());
        let fits = self.vm() == other.vm() && ahead <= self.pages() && pages <= Self::MOST_PAGES;
        fits.then(|| Self::new(self.vm(), self.first(), pages))
    }
}

/// What was sent lately. No memory is taken before something is.
#[derive(Debug, Default)]
pub struct Sent {
    ranges: Vec<Range>,
    /// Where the oldest is, once all places are taken.
    oldest: usize,
}

impl Sent {
    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { ranges: Vec::new(), oldest: 0 }
    }

    /// Is nothing remembered?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Remembers a range. What follows on the last one, or overlaps its end, is added to that.
    pub fn push(&mut self, range: Range) {
        let last = if self.oldest == 0 { self.ranges.len() } else { self.oldest }.checked_sub(1);
        if let Some(last) = last.and_then(|last| self.ranges.get_mut(last))
            && let Some(joined) = last.joined(range)
        {
            *last = joined;
            return;
        }
        if self.ranges.len() < MOST_RANGES {
            // Without memory for it the hint is lost.
            if self.ranges.try_reserve(1).is_ok() {
                self.ranges.push(range);
            }
        } else if let Some(place) = self.ranges.get_mut(self.oldest) {
            *place = range;
            self.oldest = (self.oldest + 1) % MOST_RANGES;
        }
    }

    /// All of it; nothing is remembered afterwards.
    #[must_use]
    pub fn take(&mut self) -> Vec<Range> {
        self.oldest = 0;
        core::mem::take(&mut self.ranges)
    }
}

/// A guest that something came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// Which.
    pub vm: VmId,
    /// First page of its RAM.
    pub base: Gfn,
    /// Pages of RAM.
    pub pages: u64,
}

/// One search of the receivers for what was sent: first all that was sent is told apart by fingerprints
/// ([`Round::next_to_index`], [`Round::indexed`]), then portions of the receivers are looked up ([`Round::next_to_search`],
/// [`Round::find`]).
#[derive(Debug, Default)]
pub struct Round {
    ranges: Vec<Range>,
    /// The next range to index, and pages of it that are done.
    at: (usize, u64),
    indexed: u64,
    /// Open addressing, a power of two of places.
    table: Vec<Place>,
    receivers: Vec<Receiver>,
    /// Pages of the last receiver that are searched.
    searched: u64,
}

/// A fingerprint, and whose which page has it: the VM above, the page below. A fingerprint of 0 is a free place.
#[derive(Clone, Copy, Debug)]
struct Place {
    fingerprint: u64,
    page: u64,
}

impl Place {
    const FREE: Self = Self { fingerprint: 0, page: 0 };
    const VM_SHIFT: u32 = 48;

    const fn new(fingerprint: u64, vm: VmId, page: Gfn) -> Self {
        Self { fingerprint, page: (vm.0 as u64) << Self::VM_SHIFT | page.raw() & ((1 << Self::VM_SHIFT) - 1) }
    }

    const fn page(self) -> (VmId, Gfn) {
        (VmId((self.page >> Self::VM_SHIFT) as u16), Gfn::new(self.page & ((1 << Self::VM_SHIFT) - 1)))
    }
}

impl Round {
    /// A round. With more pages than [`MOST_PAGES`] the first ones are left out; so are receivers that have more memory than
    /// what was sent is worth ([`SEARCHED_FOR_ONE`]).
    #[must_use]
    pub fn new(mut ranges: Vec<Range>, mut receivers: Vec<Receiver>) -> Self {
        let mut pages = 0;
        let fits = |range: &&Range| {
            pages += range.pages();
            pages <= MOST_PAGES
        };
        let kept = ranges.iter().rev().take_while(fits).count();
        ranges.drain(..ranges.len() - kept);
        let pages: u64 = ranges.iter().map(|range| range.pages()).sum();
        receivers.retain(|receiver| receiver.pages <= pages.saturating_mul(SEARCHED_FOR_ONE));
        let places = usize::try_from((2 * pages).next_power_of_two()).unwrap_or(1);
        let mut table = Vec::new();
        // Without memory for it nothing is found.
        if pages != 0 && table.try_reserve_exact(places).is_ok() {
            table.resize(places, Place::FREE);
        }
        Self { ranges, at: (0, 0), indexed: 0, table, receivers, searched: 0 }
    }

    /// Pages with a fingerprint so far.
    #[must_use]
    pub const fn indexed_pages(&self) -> u64 {
        self.indexed
    }

    /// The next page that was sent and has no fingerprint yet.
    pub fn next_to_index(&mut self) -> Option<(VmId, Gfn)> {
        loop {
            let range = self.ranges.get(self.at.0)?;
            if self.at.1 < range.pages() {
                let page = range.first().checked_add(self.at.1);
                self.at.1 += 1;
                return page.map(|page| (range.vm(), page));
            }
            self.at = (self.at.0 + 1, 0);
        }
    }

    /// The fingerprint of a page that was sent; 0 says nothing. Of pages with the same one the last is kept.
    pub fn indexed(&mut self, vm: VmId, page: Gfn, fingerprint: u64) {
        if fingerprint == 0 {
            return;
        }
        if let Some(place) = self.place_of(fingerprint)
            && let Some(entry) = self.table.get_mut(place)
        {
            self.indexed += u64::from(entry.fingerprint == 0);
            *entry = Place::new(fingerprint, vm, page);
        }
    }

    /// The next pages of a receiver to look up; `None` when all are done.
    pub fn next_to_search(&mut self) -> Option<(VmId, Gfn, u64)> {
        loop {
            let receiver = self.receivers.last()?;
            let first = receiver.base.checked_add(self.searched).filter(|_| self.searched < receiver.pages);
            match first {
                Some(first) => {
                    let pages = (receiver.pages - self.searched).min(SEARCH_PORTION);
                    let vm = receiver.vm;
                    self.searched += pages;
                    return Some((vm, first, pages));
                }
                None => {
                    self.receivers.pop();
                    self.searched = 0;
                }
            }
        }
    }

    /// The page of another guest than `vm` that was sent and has this fingerprint.
    #[must_use]
    pub fn find(&self, vm: VmId, fingerprint: u64) -> Option<(VmId, Gfn)> {
        let entry = self.table.get(self.place_of(fingerprint)?)?;
        let page = Some(entry.page()).filter(|(sender, _)| *sender != vm)?;
        (fingerprint != 0 && entry.fingerprint == fingerprint).then_some(page)
    }

    /// Where a fingerprint is, or would be. At most half of the places are taken, so there is one.
    fn place_of(&self, fingerprint: u64) -> Option<usize> {
        let mask = self.table.len().checked_sub(1)?;
        let start = (fingerprint >> 32 ^ fingerprint) as usize & mask;
        let mut places = (start..=mask).chain(0..start);
        places.find(|place| self.table.get(*place).is_some_and(|entry| [0, fingerprint].contains(&entry.fingerprint)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::vec;

    use proptest::prelude::*;

    use super::*;

    fn range(vm: u16, first: u64, pages: u64) -> Range {
        Range::new(VmId(vm), Gfn::new(first), pages)
    }

    #[test]
    fn what_follows_is_one_range() {
        let mut sent = Sent::new();
        assert!(sent.is_empty());
        for (vm, first, pages) in [(1, 10, 2), (1, 11, 4), (1, 12, 1), (1, 16, 1), (2, 17, 1), (2, 18, 1023)] {
            sent.push(range(vm, first, pages));
        }
        assert_eq!(sent.take(), [range(1, 10, 5), range(1, 16, 1), range(2, 17, 1), range(2, 18, 1023)]);
        assert!(sent.is_empty());
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut sent = Sent::new();
        for n in 0..MOST_RANGES as u64 + 3 {
            sent.push(range(1, 2 * n, 1));
        }
        // Also in the places that were taken again, neighbours become one.
        sent.push(range(1, 2 * (MOST_RANGES as u64 + 2) + 1, 1));
        let all = sent.take();
        assert_eq!(all.len(), MOST_RANGES);
        assert!(all.iter().all(|range| range.first().raw() >= 6));
        assert_eq!(all.iter().map(|range| range.pages()).sum::<u64>(), MOST_RANGES as u64 + 1);
    }

    #[test]
    fn nothing_sent_finds_nothing() {
        let mut round = Round::new(Vec::new(), Vec::new());
        assert_eq!((round.next_to_index(), round.next_to_search(), round.find(VmId(1), 7)), (None, None, None));
        round.indexed(VmId(1), Gfn::new(3), 7);
        assert_eq!((round.indexed_pages(), round.find(VmId(2), 7)), (0, None));
    }

    #[test]
    fn a_round_is_bounded() {
        let many: Vec<_> = (0..200).map(|n| range(1, n * 1_000, 300)).collect();
        let mut round = Round::new(many, Vec::new());
        let pages: Vec<_> = core::iter::from_fn(|| round.next_to_index()).collect();
        assert_eq!(pages.len() as u64, MOST_PAGES / 300 * 300);
        assert_eq!(pages.last(), Some(&(VmId(1), Gfn::new(199_299))), "the last are kept");
    }

    #[test]
    fn receivers_are_searched_whole_and_once() {
        let receivers =
            [(1, 700), (2, 0), (3, 128)].map(|(vm, pages)| Receiver { vm: VmId(vm), base: Gfn::new(50), pages });
        let small = Receiver { vm: VmId(4), base: Gfn::new(0), pages: SEARCHED_FOR_ONE * 3 + 1 };
        let receivers = receivers.into_iter().chain([small]).collect();
        let mut round = Round::new(vec![range(9, 0, 3)], receivers);
        let mut seen = BTreeMap::<u16, u64>::new();
        while let Some((vm, first, pages)) = round.next_to_search() {
            let done = seen.entry(vm.0).or_default();
            assert_eq!(first.raw(), 50 + *done);
            assert!(pages <= SEARCH_PORTION);
            *done += pages;
        }
        assert_eq!(seen, BTreeMap::from([(1, 700), (3, 128)]));
    }

    proptest! {
        #[test]
        fn all_that_was_sent_is_found_by_others(prints in prop::collection::vec(0u64..40, 1..60)) {
            // Few, alike fingerprints: places collide.
            let prints: Vec<_> = prints.into_iter().map(|print| print << 40).collect();
            let mut round = Round::new(vec![range(1, 100, prints.len() as u64)], Vec::new());
            let mut last = BTreeMap::new();
            for print in &prints {
                let (vm, page) = round.next_to_index().expect("as many as were sent");
                round.indexed(vm, page, *print);
                last.insert(*print, page);
            }
            prop_assert_eq!(round.next_to_index(), None);
            prop_assert_eq!(round.indexed_pages(), last.keys().filter(|print| **print != 0).count() as u64);
            for print in (0..50).map(|print| print << 40) {
                let wanted = last.get(&print).filter(|_| print != 0).map(|page| (VmId(1), *page));
                prop_assert_eq!(round.find(VmId(2), print), wanted);
                prop_assert_eq!(round.find(VmId(1), print), None);
            }
        }
    }
}
