//! What two guests have at the same places of their RAM, block by block.
//!
//! Which pages are equal is looked up first, so that a large page is given up only for enough of them.

use super::{Candidate, SEARCH, Searched, WORTH_A_SPLIT, alive};
use crate::{
    hart::PreemptionPoint,
    vm::memory::{self, Candidates, GuestRam},
};
use addr::{Gfn, PAGES_PER_LARGE, VmId};
use merging::marks::Marks;

/// A walk over the RAM of two guests.
#[derive(Debug)]
pub(super) struct Places {
    original: VmId,
    copy: VmId,
    /// First page of the block at hand, and the end.
    block: u64,
    end: u64,
    equal: Marks,
    /// Whether it is known which pages of the block are equal.
    is_known: bool,
}

impl Places {
    /// So many pages of both, from `first` on; whole blocks only.
    pub(super) fn new(original: VmId, copy: VmId, first: Gfn, pages: u64) -> Option<Self> {
        let block = first.raw().checked_next_multiple_of(PAGES_PER_LARGE)?;
        let end = first.raw().checked_add(pages)?;
        Some(Self { original, copy, block, end, equal: Marks::new(), is_known: false })
    }

    /// Whether it needs this guest.
    pub(super) fn concerns(&self, vm: VmId) -> bool {
        [self.original, self.copy].contains(&vm)
    }

    /// A bounded piece of it: what may be merged; `None` when it has ended.
    pub(super) fn step(&mut self, point: &mut PreemptionPoint<'_>) -> Option<Option<Candidate>> {
        if self.block + PAGES_PER_LARGE > self.end {
            return None;
        }
        let (original, copy) = (alive(self.original)?, alive(self.copy)?);
        if !self.is_known {
            self.look(original.memory(), copy.memory(), point);
            return Some(None);
        }
        let candidates = self.next_candidates();
        Some(Some((original, copy, candidates)))
    }

    fn look(&mut self, original: &GuestRam, copy: &GuestRam, point: &mut PreemptionPoint<'_>) {
        let block = Gfn::new(self.block);
        let mut searched = Searched::default();
        while searched.goes_on(point) {
            let bits = memory::equal_places(original, copy, Gfn::new(self.block + self.equal.done()), SEARCH);
            self.equal.add(bits, SEARCH);
            searched.add(bits);
            if self.equal.is_done() {
                let is_large = original.is_large(block) || copy.is_large(block);
                let worth = if is_large { WORTH_A_SPLIT } else { 1 };
                if self.equal.count() < worth {
                    self.next_block();
                } else {
                    (self.equal, self.is_known) = (self.equal.again(), true);
                }
                break;
            }
        }
    }

    fn next_candidates(&mut self) -> Candidates {
        let pages = self.equal.next_portion(Gfn::new(self.block));
        if self.equal.is_done() {
            self.next_block();
        }
        pages.into_iter().map(|page| (page, page)).collect()
    }

    const fn next_block(&mut self) {
        self.block += PAGES_PER_LARGE;
        (self.equal, self.is_known) = (Marks::new(), false);
    }
}
