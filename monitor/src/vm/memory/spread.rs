//! Shared pages that harts of another node read from a copy (crate `frames`, module `spread`). The pmap says which page it is,
//! and nothing of copies: they are for all VMs that have it.

use super::{GuestRam, Inner, PlacedCounts, place::reason_of};
use crate::machine::memory::{DirectMemory, frames, has_reserve, nearest};
use addr::{BASE_PAGE, Gfn, Mfn, NodeId, PageSize};
use control::PlacementReason;
use core::sync::atomic::Ordering::Relaxed;
use frames::{MachineMemory as _, PageUse, Pool};
use placement::Backing;
use pmap::PageState;
use rv_pte::PteFlags;

/// Pages that are copied with the VM's lock held: on FLASH some 0.3 ms.
const CHUNK: usize = 8;

impl GuestRam {
    /// What the policy is to know of `gfn`, if it is backed by the shared page `page` and harts of `node` see that very page.
    #[must_use]
    pub fn shared_leaf(&self, gfn: Gfn, page: Mfn, node: NodeId) -> Option<Backing> {
        let inner = self.inner.lock();
        let mapping = inner.pmap.lookup(&DirectMemory, gfn).ok()?;
        if !matches!(mapping.state, PageState::Shared { mfn, .. } if mfn == page) {
            return None;
        }
        let leaf = inner.tables.get(node.index())?.lookup(&DirectMemory, gfn)?;
        match leaf.size {
            PageSize::Large => Some(Backing::SharedBlock),
            PageSize::Base => (leaf.mfn == page).then_some(Backing::Shared),
        }
    }

    /// Lets harts of `on` read these shared pages from copies on their node.
    #[cold]
    #[inline(never)]
    pub fn spread_pages(&self, gfns: &[Gfn], on: NodeId) -> PlacedCounts {
        let only = [on];
        let (tables, pages) = (self.pool(nearest(on)), self.pool(&only));
        let mut counts = PlacedCounts::default();
        for gfns in gfns.chunks(CHUNK) {
            let mut inner = self.inner.lock();
            gfns.iter().for_each(|gfn| counts.note(inner.spread(&tables, &pages, *gfn, on)));
        }
        // Who still reads the page itself reads the same: nobody has to forget anything.
        self.placing.replicated.fetch_add(counts.placed, Relaxed);
        counts
    }
}

impl Inner {
    fn spread(
        &mut self,
        tables: &Pool<'_, DirectMemory>,
        pages: &Pool<'_, DirectMemory>,
        gfn: Gfn,
        on: NodeId,
    ) -> Result<(), PlacementReason> {
        let mapping = self.pmap.lookup(&DirectMemory, gfn).map_err(|why| reason_of(&why))?;
        // The VM's own reference keeps the page as it is, and that does not end while its memory is locked.
        let PageState::Shared { mfn, .. } = mapping.state else { return Err(PlacementReason::Raced) };
        let copy = frames().spread_on(mfn, on).map_or_else(|| copy_of(pages, mfn, on), Ok)?;
        if let Some(table) = self.tables.get_mut(on.index())
            && table.exchange(tables, gfn, copy, PteFlags::RX, false).is_err()
        {
            // No page to split a large leaf: it goes as a whole, and faults bring it back.
            table.remove(&DirectMemory, gfn, 1);
        }
        Ok(())
    }
}

/// A new copy of a shared page for all VMs that have it.
fn copy_of(pool: &Pool<'_, DirectMemory>, page: Mfn, on: NodeId) -> Result<Mfn, PlacementReason> {
    if !has_reserve(on) {
        return Err(PlacementReason::NoMemory);
    }
    let copy = pool.frames.alloc_page(on, PageUse::Shared).ok_or(PlacementReason::NoMemory)?;
    DirectMemory.copy_page(page, copy.mfn());
    let copy = copy.overwritten(BASE_PAGE).map_err(|copy| frames().free(copy)).or(Err(PlacementReason::NoMemory))?;
    frames().attach_spread(page, copy).map_err(|(_, copy)| {
        frames().free(copy);
        PlacementReason::Raced
    })
}
