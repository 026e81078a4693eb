//! Shared pages that harts of another node read from a copy (crate `frames`, module `spread`). The pmap says which page it is,
//! and nothing of copies: they are for all VMs that have it.

use crate::{GuestRam, Inner, Machine, PlacedCounts, has_reserve, placed::reason_of};
use addr::{BASE_PAGE, Gfn, Mfn, NodeId, PageSize};
use control::PlacementReason;
use core::sync::atomic::Ordering::Relaxed;
use frames::{MachineMemory, PageUse, Pool};
use pmap::PageState;
use rv_pte::PteFlags;

/// Pages that are copied with the VM's lock held: on FLASH some 0.3 ms.
const CHUNK: usize = 8;

impl<M: Machine> GuestRam<M> {
    /// How much the leaf of `gfn` covers, if it is backed by the shared page `page` and harts of `node` see that very page.
    #[must_use]
    pub fn shared_leaf(&self, gfn: Gfn, page: Mfn, node: NodeId) -> Option<PageSize> {
        let inner = self.inner.lock();
        let mapping = inner.pmap.lookup(self.memory(), gfn).ok()?;
        if !matches!(mapping.state, PageState::Shared { mfn, .. } if mfn == page) {
            return None;
        }
        let leaf = inner.tables.get(node.index())?.lookup(self.memory(), gfn)?;
        (leaf.size == PageSize::Large || leaf.mfn == page).then_some(leaf.size)
    }

    /// Lets harts of `on` read these shared pages from copies on their node.
    #[cold]
    #[inline(never)]
    pub fn spread_pages(&self, gfns: &[Gfn], on: NodeId) -> PlacedCounts {
        let only = [on];
        let (tables, pages) = (self.pool(self.nearest(on)), self.pool(&only));
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

impl<M: Machine> Inner<M> {
    fn spread(
        &mut self,
        tables: &Pool<'_, M::Memory>,
        pages: &Pool<'_, M::Memory>,
        gfn: Gfn,
        on: NodeId,
    ) -> Result<(), PlacementReason> {
        let mapping = self.pmap.lookup(self.machine.memory(), gfn).map_err(|why| reason_of(&why))?;
        // The VM's own reference keeps the page as it is, and that does not end while its memory is locked.
        let PageState::Shared { mfn, .. } = mapping.state else { return Err(PlacementReason::Raced) };
        let copy = self.machine.frames().spread_on(mfn, on).map_or_else(|| copy_of(pages, mfn, on), Ok)?;
        if let Some(table) = self.tables.get_mut(on.index())
            && table.exchange(tables, gfn, copy, PteFlags::RX, false).is_err()
        {
            // No page to split a large leaf: it goes as a whole, and faults bring it back.
            table.remove(self.machine.memory(), gfn, 1);
        }
        Ok(())
    }
}

/// A new copy of a shared page for all VMs that have it.
fn copy_of<M: MachineMemory>(pool: &Pool<'_, M>, page: Mfn, on: NodeId) -> Result<Mfn, PlacementReason> {
    if !has_reserve(pool.frames, on) {
        return Err(PlacementReason::NoMemory);
    }
    let copy = pool.frames.alloc_page(on, PageUse::Shared).ok_or(PlacementReason::NoMemory)?;
    pool.memory.copy_page(page, copy.mfn());
    let copy = copy.overwritten(BASE_PAGE).map_err(|copy| pool.frames.free(copy)).or(Err(PlacementReason::NoMemory))?;
    pool.frames.attach_spread(page, copy).map_err(|(_, copy)| {
        pool.frames.free(copy);
        PlacementReason::Raced
    })
}
