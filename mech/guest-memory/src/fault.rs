//! The fault path: what a touch of RAM finds or makes, down to the leaf.

use crate::{Access, GuestRam, Inner, Machine, Touch};
use addr::{Gfn, GuestPhysAddr, NodeId, PageSize};
use frames::{DyingList, PendingShootdown, Pool};
use gstage::{Installed, TableError};
use pmap::{Glance, Mapping, Rights};
use rv_pte::PteFlags;
use spin::MutexGuard;

impl<M: Machine> GuestRam<M> {
    /// A vCPU on `node` touched `addr`: makes sure that its node's table has a leaf that allows it.
    ///
    /// The common cases, a page that another node has and a fresh page in a block that has some, take one look at the
    /// pmap, one page from the node's stack and one store into the table used last.
    #[inline(always)]
    pub fn touch(&self, addr: GuestPhysAddr, access: Access, node: NodeId) -> Touch {
        let pool = self.pool(self.nearest(node));
        let gfn = addr.gfn();
        let mut inner = self.inner.lock();
        let (page, is_full) = match inner.pmap.glance(self.memory(), gfn) {
            Glance::Page(page) => (page, false),
            Glance::Vacant => match inner.pmap.populate_vacant(&pool, gfn) {
                Some(populated) => populated,
                None => return Touch::OutOfMemory,
            },
            Glance::Large(_) | Glance::Other => return self.touch_slowly(inner, &pool, gfn, access, node),
        };
        let Some(table) = inner.tables.get_mut(node.index()) else { return Touch::OutOfMemory };
        let outcome = table.install(&pool, gfn, page, PageSize::Base, PteFlags::RWX);
        match outcome {
            Ok(Installed::New) if !is_full => Touch::Mapped,
            Ok(Installed::New) => self.collapse(inner, &pool, gfn),
            other => self.mend(inner, &pool, gfn, other),
        }
    }

    #[inline(never)]
    fn touch_slowly(
        &self,
        inner: MutexGuard<'_, Inner<M>>,
        pool: &Pool<'_, M::Memory>,
        gfn: Gfn,
        access: Access,
        node: NodeId,
    ) -> Touch {
        let mut inner = match self.with_block(inner, pool, gfn) {
            Ok(inner) => inner,
            Err(touch) => return touch,
        };
        let Some(mapping) = inner.populated(pool, gfn, self.large_allowed) else { return Touch::OutOfMemory };
        if access == Access::Write && mapping.is_read_only() {
            return self.break_for_guest(inner, pool, gfn, node);
        }
        let Some(mfn) = inner.pmap.page_for(pool.frames, &mapping, node) else { return Touch::OutOfMemory };
        let rights = match mapping.rights() {
            Rights::ReadWrite => PteFlags::RWX,
            Rights::Read | Rights::None => PteFlags::RX,
        };
        let Some(table) = inner.tables.get_mut(node.index()) else { return Touch::OutOfMemory };
        match table.install(pool, mapping.gfn, mfn, mapping.size, rights) {
            Ok(Installed::New) => Touch::Mapped,
            other => self.mend(inner, pool, mapping.gfn, other),
        }
    }

    /// What an installation that is not simply done asks for. Tables are caches: what contradicts the pmap goes, and the
    /// next fault brings it back right.
    #[cold]
    pub(super) fn mend(
        &self,
        mut inner: MutexGuard<'_, Inner<M>>,
        pool: &Pool<'_, M::Memory>,
        gfn: Gfn,
        outcome: Result<Installed, TableError>,
    ) -> Touch {
        match outcome {
            Ok(Installed::New) => Touch::Mapped,
            Ok(Installed::Same | Installed::Strengthened) => Touch::Repeated,
            Err(TableError::HasTable { .. }) => self.install_large(inner, pool, gfn),
            Err(TableError::Occupied { .. }) => {
                inner.remove_leaves(gfn, 1);
                drop(inner);
                // The frame that a stale leaf names is freed behind a shootdown of its own.
                let _ = self.begin_generation();
                Touch::Mapped
            }
            Err(TableError::OutOfTables) => Touch::OutOfMemory,
            Err(why @ (TableError::OutOfRange { .. } | TableError::BadLeaf { .. } | TableError::Memmap(_))) => {
                log::error!("G-stage table of VM {:?}: {why:?} at {gfn:?}", self.vm);
                Touch::OutOfMemory
            }
        }
    }

    /// The block has all its pages: if they are those of one machine block (a few were given back and came again), it
    /// is one large page again.
    #[cold]
    fn collapse(&self, mut inner: MutexGuard<'_, Inner<M>>, pool: &Pool<'_, M::Memory>, gfn: Gfn) -> Touch {
        if !self.large_allowed || inner.pmap.collapse(pool, gfn).is_err() {
            return Touch::Mapped;
        }
        self.install_large(inner, pool, gfn)
    }

    /// The block of `gfn` is a large page of the pmap: large leaves take the place of tables of single ones.
    pub(super) fn install_large(
        &self,
        mut inner: MutexGuard<'_, Inner<M>>,
        pool: &Pool<'_, M::Memory>,
        gfn: Gfn,
    ) -> Touch {
        let Ok(mapping) = inner.pmap.lookup(self.memory(), gfn) else { return Touch::OutOfMemory };
        let Some(mfn) = mapping.state.mfn().filter(|_| mapping.size == PageSize::Large) else { return Touch::Mapped };
        let rights = if mapping.rights() == Rights::ReadWrite { PteFlags::RWX } else { PteFlags::RX };
        let mut dying = DyingList::new();
        for table in &mut inner.tables {
            if table.collapse(pool, mapping.gfn, mfn, rights, &mut dying).is_err() {
                table.remove(self.memory(), mapping.gfn, addr::PAGES_PER_LARGE);
            }
        }
        let token = self.tlb.retire();
        drop(inner);
        self.defer(PendingShootdown::new(token, dying));
        Touch::Mapped
    }
}

impl<M: Machine> Inner<M> {
    /// Whether the guest's whole block of 2 MiB has nothing behind it.
    pub(super) fn is_vacant_block(&self, gfn: Gfn) -> bool {
        let mapping = self.pmap.lookup(self.machine.memory(), gfn);
        mapping.is_ok_and(|mapping| mapping.is_absent() && mapping.size == PageSize::Large)
    }

    /// What backs `gfn`, after populating it on the first of `pool.nodes` that has memory.
    #[inline(never)]
    pub(super) fn populated(&mut self, pool: &Pool<'_, M::Memory>, gfn: Gfn, large_allowed: bool) -> Option<Mapping> {
        let mapping = self.pmap.lookup(self.machine.memory(), gfn).ok()?;
        if !mapping.is_absent() {
            return Some(mapping);
        }
        if self.is_closed {
            return None;
        }
        if !self.zeroing.is_empty() {
            self.stop_zeroing(pool.frames, gfn);
        }
        let put = if large_allowed
            && mapping.size == PageSize::Large
            && let Some(frame) = pool.guest_page(PageSize::Large, gfn.large_base())
        {
            self.pmap.populate_large(pool.frames, gfn, frame)
        } else {
            let frame = pool.guest_page(PageSize::Base, gfn)?;
            self.pmap.populate_base(pool, gfn, frame)
        };
        put.map_err(|refused| self.machine.frames().free(refused.frame)).ok()
    }

    /// Removes what touches the range from all tables.
    pub(super) fn remove_leaves(&mut self, start: Gfn, pages: u64) {
        for table in &mut self.tables {
            table.remove(self.machine.memory(), start, pages);
        }
    }
}
