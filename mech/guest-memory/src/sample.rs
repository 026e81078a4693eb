//! Which nodes use a page, where nobody counts misses: its leaves are taken away for a moment, and who needs them brings
//! them back.
//!
//! Nothing waits for that: a hart that still knows an old leaf is asked to forget it, and until then its use is not seen.

use crate::{GuestRam, Inner, Machine};
use addr::{Gfn, Mfn, NodeId, PAGES_PER_LARGE, PageSize};
use frames::{DyingList, PendingShootdown};
use pmap::{Mapping, PageState};

/// What is at a guest page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Something that can be looked at.
    Page {
        /// Its first guest page.
        gfn: Gfn,
        /// The (first) machine page behind it; the master of replicas.
        page: Mfn,
        /// How much it is.
        size: PageSize,
    },
    /// Nothing, for so many pages from there on.
    Nothing {
        /// How many, at least one.
        pages: u64,
    },
}

/// A VM's leaves while somebody takes samples.
pub struct Leaves<'a, M: Machine>(&'a mut Inner<M>);

impl<M: Machine> GuestRam<M> {
    /// Lets `look` look at leaves and take some away: harts that know them are asked to forget them afterwards.
    pub fn sample<T>(&self, look: impl FnOnce(&mut Leaves<'_, M>) -> T) -> T {
        let mut inner = self.inner.lock();
        let seen = look(&mut Leaves(&mut inner));
        let token = self.tlb.retire();
        drop(inner);
        self.call_out(&PendingShootdown::new(token, DyingList::new()));
        seen
    }

    /// A block that was split is one large page again, if its pages are as they were then.
    pub fn join_block(&self, gfn: Gfn) -> bool {
        let pool = self.pool(self.nearest(NodeId(0)));
        let mut inner = self.inner.lock();
        if !self.large_allowed || inner.is_held(gfn) || inner.pmap.collapse(&pool, gfn).is_err() {
            return false;
        }
        self.install_large(inner, &pool, gfn);
        self.placing.note_join();
        true
    }
}

impl<M: Machine> Leaves<'_, M> {
    /// What is at `gfn`.
    #[must_use]
    pub fn find(&self, gfn: Gfn) -> Found {
        let Self(inner) = self;
        let Ok(mapping) = inner.pmap.lookup(inner.machine.memory(), gfn) else { return Found::Nothing { pages: 1 } };
        let first = match mapping.size {
            PageSize::Base => gfn,
            PageSize::Large => gfn.large_base(),
        };
        let rest_of_block = Found::Nothing { pages: PAGES_PER_LARGE - gfn.index_in_large() as u64 };
        match sampled_page(&mapping).filter(|_| !inner.is_held(gfn)) {
            // To take such a leaf away would cost a fault for each page of the block.
            Some(_) if mapping.size == PageSize::Base && inner.is_under_large_leaf(gfn) => rest_of_block,
            Some(page) => Found::Page { gfn: first, page, size: mapping.size },
            None if mapping.size == PageSize::Large => rest_of_block,
            None => Found::Nothing { pages: 1 },
        }
    }

    /// The nodes that have a leaf for what begins at `gfn`, by bit.
    #[must_use]
    pub fn users(&self, gfn: Gfn) -> u8 {
        let Self(inner) = self;
        let tables = inner.tables.iter().enumerate();
        let users = tables.filter(|(_, table)| table.lookup(inner.machine.memory(), gfn).is_some());
        users.fold(0, |users, (node, _)| users | 1u8.checked_shl(node as u32).unwrap_or(0))
    }

    /// Takes the leaves of what begins at `gfn` away: whoever uses it brings his node's back.
    pub fn take(&mut self, gfn: Gfn, size: PageSize) {
        self.0.remove_leaves(gfn, size.base_pages());
    }
}

impl<M: Machine> Inner<M> {
    /// Whether one leaf stands for the whole block of `gfn`. It may though the pmap knows single pages, where they are
    /// shared.
    fn is_under_large_leaf(&self, gfn: Gfn) -> bool {
        let leaves = self.tables.iter().filter_map(|table| table.lookup(self.machine.memory(), gfn));
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
