//! Pages of a 2 MiB block, by bit.

use addr::{Gfn, PAGES_PER_LARGE};
use arrayvec::ArrayVec;

use crate::PORTION;

/// Which pages of a block are something, as far as they have been looked at, and how many of those have been dealt with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks {
    bits: [u64; (PAGES_PER_LARGE / 64) as usize],
    /// Pages done at the present stage.
    done: u64,
}

impl Marks {
    /// None so far.
    #[must_use]
    pub const fn new() -> Self {
        Self { bits: [0; (PAGES_PER_LARGE / 64) as usize], done: 0 }
    }

    /// Pages done.
    #[must_use]
    pub const fn done(&self) -> u64 {
        self.done
    }

    /// Whether all pages of the block are done.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.done >= PAGES_PER_LARGE
    }

    /// The next `pages` pages are done; those whose bits are set are marked. `pages` divides 64.
    pub fn add(&mut self, bits: u64, pages: u64) {
        if let Some(all) = self.bits.get_mut((self.done / 64) as usize) {
            *all |= bits << (self.done % 64);
        }
        self.done += pages;
    }

    /// From the first page on again, marks kept.
    #[must_use]
    pub const fn again(self) -> Self {
        Self { done: 0, ..self }
    }

    /// Marked pages.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.bits.iter().map(|bits| u64::from(bits.count_ones())).sum()
    }

    /// The next marked pages of the block of `first`, which are done then.
    pub fn next_portion(&mut self, first: Gfn) -> ArrayVec<Gfn, { PORTION as usize }> {
        let mut portion = ArrayVec::new();
        while !self.is_done() && !portion.is_full() {
            let bits = self.bits.get((self.done / 64) as usize).copied().unwrap_or(0);
            if bits >> (self.done % 64) & 1 != 0 {
                portion.push(Gfn::new(first.raw() + self.done));
            }
            self.done += 1;
        }
        portion
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn marked_pages_come_out_once_and_in_order(words in prop::collection::vec(any::<u32>(), 16), sparse: bool) {
            let words: Vec<_> = words.into_iter().map(|word| if sparse { word & word >> 3 & word >> 7 } else { word }).collect();
            let mut marks = Marks::new();
            for word in &words {
                prop_assert!(!marks.is_done());
                marks.add(u64::from(*word), 32);
            }
            prop_assert!(marks.is_done());
            let first = Gfn::new(7 * PAGES_PER_LARGE);
            let is_marked = |page: &u64| words[(*page / 32) as usize] >> (page % 32) & 1 != 0;
            let wanted: Vec<_> = (0..PAGES_PER_LARGE).filter(is_marked).map(|page| Gfn::new(first.raw() + page)).collect();
            prop_assert_eq!(marks.count(), wanted.len() as u64);
            let mut marks = marks.again();
            let mut got = Vec::new();
            while !marks.is_done() {
                got.extend(marks.next_portion(first));
            }
            prop_assert_eq!(got, wanted);
            prop_assert!(marks.next_portion(first).is_empty());
        }
    }

    #[test]
    fn more_than_a_block_changes_nothing() {
        let mut marks = Marks::new();
        for _ in 0..PAGES_PER_LARGE / 32 {
            marks.add(0, 32);
        }
        marks.add(u64::MAX, 32);
        assert_eq!((marks.count(), marks.done()), (0, PAGES_PER_LARGE + 32));
    }
}
