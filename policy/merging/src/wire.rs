//! What went from one guest to another over the wire: the receiver has it twice over, once in its own memory and once, as
//! equal bytes, in the sender's.
//!
//! A guest that sends a file hands whole aligned pages of its page cache to its network device, and the receiver copies them into
//! whole pages of its own, which nobody tells. So the machine pages that were sent are remembered ([`crate::sent`]), and in a [`Round`]
//! the receivers' pages are looked up among them by a fingerprint of a few words. What
//! is not found is not looked at any further, and nobody else's memory is looked at: work is bounded by what was sent and by
//! the memory of who received it.
//!
//! Machine pages, not the sender's: a kernel that is short of memory moves its page cache about (compaction) while it serves. So
//! does the receiver's. When the wire has become quiet, a few later rounds look for what was copied so, at both ends.

use addr::{Gfn, Mfn, VmId};
use alloc::vec::Vec;
use scarce::Grow;

use crate::sent::Range;

/// Pages of one round.
pub const MOST_PAGES: u64 = 32_768;
/// Pages of a receiver that one page sent is worth looking through: 1 MiB sent, for a receiver of 256 MiB.
pub const SEARCHED_FOR_ONE: u64 = 256;
/// Pages of a receiver in one portion of a search.
pub const SEARCH_PORTION: u64 = 32;
/// A guest that may have twice what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// Which.
    pub vm: VmId,
    /// First page of its RAM.
    pub base: Gfn,
    /// Pages of RAM.
    pub pages: u64,
}

/// One search of guests for what was sent: first all that was sent is told apart by fingerprints
/// ([`Round::next_to_index`], [`Round::indexed`]), then portions of the guests are looked up ([`Round::next_to_search`],
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
    preparation: Preparation,
}

/// What is left to be done before a round begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Preparation {
    /// Of the ranges from this one on it is known how many pages they have, and that these are not too many.
    Counting { first: usize, pages: u64 },
    /// The table gets so many places.
    Filling { places: usize },
    /// Nothing.
    Done,
}

impl Default for Preparation {
    fn default() -> Self {
        Self::Counting { first: 0, pages: 0 }
    }
}

/// A fingerprint, and which page has it. A fingerprint of 0 is a free place.
#[derive(Clone, Copy, Debug)]
struct Place {
    fingerprint: u64,
    page: Mfn,
}

impl Place {
    const FREE: Self = Self { fingerprint: 0, page: Mfn::new(0) };
}

impl Round {
    /// A round, to be prepared ([`Round::prepare`]). With more pages than [`MOST_PAGES`] the first ones are left out; so are receivers
    /// that have more memory than what was sent is worth ([`SEARCHED_FOR_ONE`]).
    #[must_use]
    pub const fn new(ranges: Vec<Range>, receivers: Vec<Receiver>) -> Self {
        let preparation = Preparation::Counting { first: ranges.len(), pages: 0 };
        Self { ranges, at: (0, 0), indexed: 0, table: Vec::new(), receivers, searched: 0, preparation }
    }

    /// A step before the round begins, over at most so many ranges or places; `true` when it is prepared.
    pub fn prepare(&mut self, most: usize) -> bool {
        match self.preparation {
            Preparation::Counting { first, pages } => self.count(first, pages, most),
            Preparation::Filling { places } => {
                let filled = self.table.len().saturating_add(most).min(places);
                // Bounded: reserved before.
                self.table.resize(filled, Place::FREE);
                if filled == places {
                    self.preparation = Preparation::Done;
                }
            }
            Preparation::Done => {}
        }
        self.preparation == Preparation::Done
    }

    /// Counts pages, the last first, until they are too many.
    fn count(&mut self, mut first: usize, mut pages: u64, most: usize) {
        for _ in 0..most {
            let before = first.checked_sub(1).and_then(|before| self.ranges.get(before));
            let Some(more) = before.map(|range| range.pages()).filter(|more| pages + more <= MOST_PAGES) else {
                return self.counted(first, pages);
            };
            (first, pages) = (first - 1, pages + more);
        }
        self.preparation = Preparation::Counting { first, pages };
    }

    fn counted(&mut self, first: usize, pages: u64) {
        self.at = (first, 0);
        self.receivers.retain(|receiver| receiver.pages <= pages.saturating_mul(SEARCHED_FOR_ONE));
        let places = usize::try_from((2 * pages).next_power_of_two()).unwrap_or(1);
        // Without memory for it nothing is found.
        if pages != 0 && !self.receivers.is_empty() && self.table.grow_exact(places).is_ok() {
            self.preparation = Preparation::Filling { places };
        } else {
            self.ranges.clear();
            self.receivers.clear();
            self.preparation = Preparation::Done;
        }
    }

    /// Pages with a fingerprint so far.
    #[must_use]
    pub const fn indexed_pages(&self) -> u64 {
        self.indexed
    }

    /// The next page that was sent and has no fingerprint yet.
    pub fn next_to_index(&mut self) -> Option<Mfn> {
        loop {
            let range = self.ranges.get(self.at.0)?;
            if self.at.1 < range.pages() {
                let page = range.first().raw() + self.at.1;
                self.at.1 += 1;
                return Some(Mfn::new(page));
            }
            self.at = (self.at.0 + 1, 0);
        }
    }

    /// The fingerprint of a page; 0 says nothing. Of pages with the same one the last is kept.
    pub fn indexed(&mut self, page: Mfn, fingerprint: u64) {
        if fingerprint == 0 {
            return;
        }
        let is_full = self.indexed >= self.table.len() as u64 / 2;
        if let Some(place) = self.place_of(fingerprint)
            && let Some(entry) = self.table.get_mut(place)
            && (entry.fingerprint != 0 || !is_full)
        {
            self.indexed += u64::from(entry.fingerprint == 0);
            *entry = Place { fingerprint, page };
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

    /// The page that was sent and has this fingerprint.
    #[must_use]
    pub fn find(&self, fingerprint: u64) -> Option<Mfn> {
        let entry = self.table.get(self.place_of(fingerprint)?)?;
        (fingerprint != 0 && entry.fingerprint == fingerprint).then_some(entry.page)
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

    fn range(first: u64, pages: u64) -> Range {
        Range::new(Mfn::new(first), pages)
    }

    /// Someone to search, however little was sent.
    fn somebody() -> Vec<Receiver> {
        vec![Receiver { vm: VmId(7), base: Gfn::new(0), pages: 1 }]
    }

    /// A round that is ready, prepared in small steps.
    fn prepared(ranges: Vec<Range>, receivers: Vec<Receiver>) -> Round {
        const MOST: usize = 9;
        let mut round = Round::new(ranges, receivers);
        loop {
            let before = (round.table.len(), round.preparation);
            let is_ready = round.prepare(MOST);
            assert!(round.table.len() - before.0 <= MOST);
            if let (Preparation::Counting { first, .. }, Preparation::Counting { first: now, .. }) =
                (before.1, round.preparation)
            {
                assert!(first - now <= MOST);
            }
            if is_ready {
                return round;
            }
        }
    }

    #[test]
    fn nothing_sent_finds_nothing() {
        let mut round = prepared(Vec::new(), somebody());
        assert_eq!((round.next_to_index(), round.next_to_search(), round.find(7)), (None, None, None));
        round.indexed(Mfn::new(3), 7);
        assert_eq!((round.indexed_pages(), round.find(7)), (0, None));
    }

    #[test]
    fn nobody_to_search_costs_nothing() {
        let mut round = prepared(vec![range(0, 100)], Vec::new());
        assert_eq!((round.next_to_index(), round.next_to_search()), (None, None));
    }

    #[test]
    fn a_round_is_bounded() {
        let many: Vec<_> = (0..200).map(|n| range(n * 1_000, 300)).collect();
        let mut round = prepared(many, somebody());
        let pages: Vec<_> = core::iter::from_fn(|| round.next_to_index()).collect();
        assert_eq!(pages.len() as u64, MOST_PAGES / 300 * 300);
        assert_eq!(pages.last(), Some(&Mfn::new(199_299)), "the last are kept");
    }

    #[test]
    fn receivers_are_searched_whole_and_once() {
        let receivers =
            [(1, 700), (2, 0), (3, 128)].map(|(vm, pages)| Receiver { vm: VmId(vm), base: Gfn::new(50), pages });
        let small = Receiver { vm: VmId(4), base: Gfn::new(0), pages: SEARCHED_FOR_ONE * 3 + 1 };
        let receivers = receivers.into_iter().chain([small]).collect();
        let mut round = prepared(vec![range(0, 3)], receivers);
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
        fn all_that_was_sent_is_found(prints in prop::collection::vec(0u64..40, 1..60)) {
            // Few, alike fingerprints: places collide.
            let prints: Vec<_> = prints.into_iter().map(|print| print << 40).collect();
            let mut round = prepared(vec![range(100, prints.len() as u64)], somebody());
            let mut last = BTreeMap::new();
            for print in &prints {
                let page = round.next_to_index().expect("as many as were sent");
                round.indexed(page, *print);
                last.insert(*print, page);
            }
            prop_assert_eq!(round.next_to_index(), None);
            prop_assert_eq!(round.indexed_pages(), last.keys().filter(|print| **print != 0).count() as u64);
            for print in (0..50).map(|print| print << 40) {
                let wanted = last.get(&print).filter(|_| print != 0).copied();
                prop_assert_eq!(round.find(print), wanted);
            }
            // Another page in the place of one that is not there any more.
            if let Some((print, _)) = last.iter().find(|(print, _)| **print != 0) {
                round.indexed(Mfn::new(7), *print);
                prop_assert_eq!(round.find(*print), Some(Mfn::new(7)));
            }
        }
    }
}
