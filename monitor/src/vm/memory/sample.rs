//! Which nodes use a page, where nobody counts misses: its leaves are taken away for a moment, and who needs them brings
//! them back.
//!
//! Nothing waits for that: a hart that still knows an old leaf is asked to forget it, and until then its use is not seen.

use super::{GuestRam, Inner};
use crate::machine::memory::DirectMemory;
use addr::{Gfn, Mfn, PAGES_PER_LARGE, PageSize};
use frames::{DyingList, PendingShootdown};
use placement::{Found, Sample, Samples};
use pmap::{Mapping, PageState};

impl GuestRam {
    /// One look at the pages of the round: who has used them since the last one. Returns how many faults brought leaves back meanwhile.
    pub fn look_at(&self, samples: &mut Samples) -> u64 {
        let mut inner = self.inner.lock();
        let mut faults = 0;
        samples.look(|sample| {
            let users = inner.look(sample);
            faults += u64::from(users.unwrap_or(0).count_ones());
            users.is_some()
        });
        self.forget_leaves(inner);
        faults
    }

    /// Begins a round.
    pub fn begin_samples(&self, samples: &mut Samples) {
        let mut inner = self.inner.lock();
        samples.begin(|gfn| {
            let found = inner.find(gfn);
            if let Found::Page { gfn, size, .. } = found {
                inner.remove_leaves(gfn, size.base_pages());
            }
            found
        });
        self.forget_leaves(inner);
    }

    fn forget_leaves(&self, inner: spin::MutexGuard<'_, Inner>) {
        let token = self.tlb.retire();
        drop(inner);
        self.call_out(&PendingShootdown::new(token, DyingList::new()));
    }

    /// A block that was split is one large page again, if its pages are as they were then.
    pub fn join_block(&self, gfn: Gfn) -> bool {
        let pool = self.pool(crate::machine::memory::nearest(addr::NodeId(0)));
        let mut inner = self.inner.lock();
        if !self.large_allowed || inner.is_held(gfn) || inner.pmap.collapse(&pool, gfn).is_err() {
            return false;
        }
        self.install_large(inner, &pool, gfn);
        self.placing.note_join();
        true
    }
}

impl Inner {
    /// Notes who has used the page, and returns these nodes by bit; `None` if it is not what it was.
    fn look(&mut self, sample: &mut Sample) -> Option<u8> {
        let Found::Page { gfn, page, size } = self.find(sample.gfn) else { return None };
        if (gfn, page, size) != (sample.gfn, sample.page, sample.size) {
            return None;
        }
        let tables = self.tables.iter().enumerate();
        let users = tables.filter(|(_, table)| table.lookup(&DirectMemory, gfn).is_some());
        let users = users.fold(0, |users, (node, _)| users | 1u8.checked_shl(node as u32).unwrap_or(0));
        sample.note(users);
        self.remove_leaves(gfn, size.base_pages());
        Some(users)
    }

    fn find(&self, gfn: Gfn) -> Found {
        let Ok(mapping) = self.pmap.lookup(&DirectMemory, gfn) else { return Found::Nothing { pages: 1 } };
        let first = match mapping.size {
            PageSize::Base => gfn,
            PageSize::Large => gfn.large_base(),
        };
        let rest_of_block = Found::Nothing { pages: PAGES_PER_LARGE - gfn.index_in_large() as u64 };
        match sampled_page(&mapping).filter(|_| !self.is_held(gfn)) {
            // To take such a leaf away would cost a fault for each page of the block.
            Some(_) if mapping.size == PageSize::Base && self.is_under_large_leaf(gfn) => rest_of_block,
            Some(page) => Found::Page { gfn: first, page, size: mapping.size },
            None if mapping.size == PageSize::Large => rest_of_block,
            None => Found::Nothing { pages: 1 },
        }
    }

    /// Does one leaf stand for a block that the pmap knows as single pages, as it may for shared ones?
    fn is_under_large_leaf(&self, gfn: Gfn) -> bool {
        let leaves = self.tables.iter().filter_map(|table| table.lookup(&DirectMemory, gfn));
        leaves.into_iter().any(|leaf| leaf.size == PageSize::Large)
    }
}

/// The (first) machine page behind it, if it is one that could go somewhere.
fn sampled_page(mapping: &Mapping) -> Option<Mfn> {
    match mapping.state {
        PageState::Private { mfn, pins: 0, .. } => Some(mfn),
        PageState::Replicated { .. } | PageState::Shared { .. } => mapping.state.mfn(),
        _ => None,
    }
}
