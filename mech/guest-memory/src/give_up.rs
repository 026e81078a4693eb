//! Memory is short: copies of pages on other nodes go, whose readers have to go farther then.

use crate::{GuestRam, Machine};
use addr::{Gfn, Mfn, NodeId};
use frames::{DyingList, PendingShootdown};
use pmap::PageState;
use rv_pte::PteFlags;
use tlb::TlbGeneration;

impl<M: Machine> GuestRam<M> {
    /// The copies of up to `most` of its own pages go. Returns how many pages are free by it, as soon as no hart knows them.
    #[cold]
    pub fn give_up_copies(&self, most: usize) -> u64 {
        let pool = self.pool(self.nearest(NodeId(0)));
        let (mut dying, mut pages, mut copies) = (DyingList::new(), 0, 0);
        let token = {
            let mut inner = self.inner.lock();
            let mut at = self.base;
            for _ in 0..most.min(inner.pmap.replicated_pages() as usize) {
                let Some(gfn) = inner.pmap.next_replicated(self.memory(), at) else { break };
                if let Ok(PageState::Replicated { nodes, .. }) =
                    inner.pmap.lookup(self.memory(), gfn).map(|at| at.state)
                    && inner.collapse_replicas(&pool, gfn, &mut dying).is_ok()
                {
                    pages += 1;
                    copies += u64::from(nodes.count_ones());
                }
                at = Gfn::new(gfn.raw() + 1);
            }
            if copies == 0 {
                return 0;
            }
            let token = self.tlb.retire();
            inner.last_replaced = token.generation();
            token
        };
        self.defer(PendingShootdown::new(token, dying));
        self.placing.note_given_up(pages);
        copies
    }

    /// Harts of `nodes` may see a copy of the shared page `page` at `gfn`, to which nobody is led any more: they see the page
    /// itself, from [`GuestRam::forgotten`] on.
    pub fn forget_spread(&self, gfn: Gfn, page: Mfn, nodes: &[NodeId]) {
        let mut inner = self.inner.lock();
        let found = inner.pmap.lookup(self.memory(), gfn);
        if !found.is_ok_and(|mapping| matches!(mapping.state, PageState::Shared { mfn, .. } if mfn == page)) {
            // It was replaced, and so were all leaves.
            return;
        }
        for node in nodes {
            let pool = self.pool(self.nearest(*node));
            // Newer copies may have come meanwhile.
            let page = self.frames().spread_on(page, *node).unwrap_or(page);
            if let Some(table) = inner.tables.get_mut(node.index())
                && table.exchange(&pool, gfn, page, PteFlags::RX, false).is_err()
            {
                // No page to split a large leaf: it goes as a whole, and faults bring it back.
                table.remove(self.memory(), gfn, 1);
            }
        }
    }

    /// No hart sees leaves as they were when all have passed the generation.
    #[must_use]
    pub fn forgotten(&self) -> TlbGeneration {
        self.begin_generation()
    }
}
