//! What two guests have at the same places of their RAM, block by block.
//!
//! Which pages are equal is looked up first, so that a large page is given up only for enough of them.

use super::{LOOKS, SEARCH, WORTH_A_SPLIT, alive};
use crate::vm::memory::{self, Candidates, GuestRam};
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
    /// Is it known which pages of the block are equal?
    is_known: bool,
}

impl Places {
    /// So many pages of both, from `first` on; whole blocks only.
    pub(super) fn new(original: VmId, copy: VmId, first: Gfn, pages: u64) -> Option<Self> {
        let block = first.raw().checked_next_multiple_of(PAGES_PER_LARGE)?;
        let end = first.raw().checked_add(pages)?;
        Some(Self { original, copy, block, end, equal: Marks::new(), is_known: false })
    }

    /// Does it need this guest?
    pub(super) fn concerns(&self, vm: VmId) -> bool {
        [self.original, self.copy].contains(&vm)
    }

    /// A bounded piece of it: pages merged; `None` when it has ended.
    pub(super) fn step(&mut self) -> Option<u64> {
        if self.block + PAGES_PER_LARGE > self.end {
            return None;
        }
        let (original, copy) = (alive(self.original)?, alive(self.copy)?);
        let (theirs, own) = (original.memory(), copy.memory());
        if self.is_known { Some(self.merge(theirs, own)) } else { Some(self.look(theirs, own)) }
    }

    fn look(&mut self, original: &GuestRam, copy: &GuestRam) -> u64 {
        let block = Gfn::new(self.block);
        // Most pages are told apart by their first words; those that are equal take all of a step.
        for _ in 0..LOOKS {
            let bits = memory::equal_places(original, copy, Gfn::new(self.block + self.equal.done()), SEARCH);
            self.equal.add(bits, SEARCH);
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
            if bits != 0 {
                break;
            }
        }
        0
    }

    fn merge(&mut self, original: &GuestRam, copy: &GuestRam) -> u64 {
        let pages = self.equal.next_portion(Gfn::new(self.block));
        let candidates: Candidates = pages.into_iter().map(|page| (page, page)).collect();
        if self.equal.is_done() {
            self.next_block();
        }
        memory::merge(original, copy, &candidates)
    }

    const fn next_block(&mut self) {
        self.block += PAGES_PER_LARGE;
        (self.equal, self.is_known) = (Marks::new(), false);
    }
}
