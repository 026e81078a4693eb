//! Pages that the VM has in common with others: mapped instead of copied (Disco, "Copy-on-Write Disks"), and made the VM's
//! own by the first write.
//!
//! A page is mapped in two steps: [`GuestRam::share`] changes pmap and leaves, under the disk's lock; then, without it,
//! [`GuestRam::settle_shares`] begins the shootdown, once for all pages of a request. Only when that has ended may the guest hear that
//! its request is done.

use crate::{Access, GuestRam, Inner, Machine, Touch};
use addr::{Gfn, GuestPhysAddr, Mfn, NodeId, PageSize};
use control::{EventKind, SharingRefusal};
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use frames::{DyingList, FrameError, PendingShootdown, Pool};
use guest_access::PageMap;
use pmap::{LeafChange, Mapping, PageState, PmapError, Refused, Rights, Swap};
use rv_pte::PteFlags;
use spin::MutexGuard;
use tlb::TlbGeneration;

/// What happened to a VM's shared pages.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Pages mapped instead of copied.
    mapped: AtomicU64,
    /// Pages that became its own again by a write.
    broken: AtomicU64,
    /// Pages merged with equal ones of other VMs.
    pub(super) merged: AtomicU64,
    /// Pages of zeroes that went back.
    pub(super) zeroes: AtomicU64,
    /// Reasons for that which an event has told, by bit.
    told: AtomicU8,
}

/// What backs a page that a device wants.
pub(super) enum Found {
    /// This machine page, and how many follow.
    Run(Mfn, u64),
    /// It was shared and is not any more, but some vCPU may not know until all have passed this generation: look again then.
    Waits(TlbGeneration),
    /// The machine has none left.
    NoMemory,
    /// The guest has no such memory.
    Nothing,
}

impl<M: Machine> GuestRam<M> {
    /// Lets the shared page `page` stand for guest page `gfn`.
    #[inline(always)]
    pub(super) fn share(&self, gfn: Gfn, page: Mfn) -> PageMap {
        let node = self.machine.here();
        let mut guard = self.inner.lock();
        let Inner { pmap, tables, replaced, is_closed, .. } = &mut *guard;
        if *is_closed || replaced.is_full() || self.has_room_later().is_err() {
            return PageMap::Refused;
        }
        self.sharing.mapped.fetch_add(1, Ordering::Relaxed);
        match pmap.share_quickly(&self.pool(&[]), gfn, page, replaced) {
            Swap::Done => {
                let quick = match &mut **tables {
                    [table] => table.exchange_quickly(self.memory(), gfn, page, PteFlags::RX),
                    _ => None,
                };
                if quick.is_none() {
                    self.exchange(guard, gfn, page, node);
                }
                PageMap::Unsettled
            }
            // The same block once more.
            Swap::Same => PageMap::Mapped,
            Swap::Other => self.share_slowly(guard, gfn, page, node),
        }
    }

    #[inline(never)]
    fn exchange(&self, mut inner: MutexGuard<'_, Inner<M>>, gfn: Gfn, page: Mfn, node: NodeId) {
        inner.exchange_leaves(&self.pool(self.nearest(node)), gfn, page, PteFlags::RX, Some(node));
    }

    #[cold]
    #[inline(never)]
    fn share_slowly(&self, mut guard: MutexGuard<'_, Inner<M>>, gfn: Gfn, page: Mfn, node: NodeId) -> PageMap {
        let pool = self.pool(self.nearest(node));
        let inner = &mut *guard;
        match inner.pmap.map_shared(&pool, gfn, page, &mut inner.replaced) {
            Ok(_) => {
                let is_stale = inner.exchange_leaves(&pool, gfn, page, PteFlags::RX, Some(node));
                if is_stale || !inner.replaced.is_empty() { PageMap::Unsettled } else { PageMap::Mapped }
            }
            Err(PmapError::Refused(Refused::SamePage)) => PageMap::Mapped,
            Err(why) => {
                drop(guard);
                self.note_refusal(why);
                PageMap::Refused
            }
        }
    }

    /// Calls vCPUs away from what shared pages have replaced.
    #[inline(always)]
    pub(super) fn settle_shares(&self) {
        let mut inner = self.inner.lock();
        // Even if another request has freed the list: its shootdown may not have covered this one's leaves.
        let token = self.tlb.retire();
        // The usual case of a guest with one vCPU: nobody else is in the VM.
        if inner.replaced.free_if_passed(&token, &self.tlb, self.frames(), self.memory()) {
            return;
        }
        inner.unsettled = token.generation();
        let dying = core::mem::take(&mut inner.replaced);
        drop(inner);
        self.settle_later(PendingShootdown::new(token, dying));
    }

    #[inline(never)]
    fn settle_later(&self, pending: PendingShootdown) {
        self.defer(pending);
    }

    /// Pages mapped instead of copied so far, and pages that became its own again by a write.
    #[must_use]
    pub fn pages_shared(&self) -> (u64, u64) {
        (self.sharing.mapped.load(Ordering::Relaxed), self.sharing.broken.load(Ordering::Relaxed))
    }

    /// An event tells each reason once: a guest can bring them about as often as it likes.
    #[cold]
    fn note_refusal(&self, why: PmapError) {
        self.sharing.mapped.fetch_sub(1, Ordering::Relaxed);
        let (bit, reason) = match why {
            PmapError::OutOfTables | PmapError::OutOfMemory => (1, SharingRefusal::NoMemory),
            PmapError::Memmap(FrameError::TooManyReferences(_)) => (2, SharingRefusal::TooManyReferences),
            PmapError::NotRam { .. } => (4, SharingRefusal::NotRam),
            _ => (8, SharingRefusal::InUse),
        };
        if self.sharing.told.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            self.machine.tell(self.vm, EventKind::SharingRefused { reason });
        }
    }

    /// The guest writes to a page that it may only read.
    #[cold]
    #[inline(never)]
    pub(super) fn break_for_guest(
        &self,
        mut inner: MutexGuard<'_, Inner<M>>,
        pool: &Pool<'_, M::Memory>,
        gfn: Gfn,
        node: NodeId,
    ) -> Touch {
        if inner.is_held(gfn) {
            // It is on its way, and can be written when it is there. Whoever moves it does bounded work; a block is
            // moved on by whoever waits for it.
            drop(inner);
            return self.help_block_move(gfn);
        }
        match self.make_writable(&mut inner, pool, gfn) {
            Break::Writable(mapping) if mapping.size == PageSize::Large => self.strengthen(inner, pool, &mapping, node),
            Break::Writable(mapping) => {
                let Some(page) = mapping.machine_page(gfn) else { return Touch::OutOfMemory };
                // A leaf that allows more than before needs no shootdown: the others fault once more.
                inner.exchange_leaves(pool, gfn, page, PteFlags::RWX, Some(node));
                Touch::Repeated
            }
            // The write faults again then, and finds the page ready.
            Break::Waits(generation) => Touch::Waits(generation),
            Break::NoMemory => Touch::OutOfMemory,
        }
    }

    /// Takes a page that may only be read on its way to one that may be written: from shared to a copy of its own, from
    /// replicated to one copy, and from that to writable once nobody can see the page before it any more (see
    /// [`pmap::PageState::Private`]).
    fn make_writable(&self, inner: &mut Inner<M>, pool: &Pool<'_, M::Memory>, gfn: Gfn) -> Break {
        let Ok(mapping) = inner.pmap.lookup(self.memory(), gfn) else { return Break::NoMemory };
        let mut dying = DyingList::new();
        let is_replaced = match mapping.state {
            PageState::Shared { .. } => {
                if let Err(generation) = self.has_room_later() {
                    return Break::Waits(generation);
                }
                let Ok(is_copy) = inner.break_sharing(pool, gfn, &mut dying) else { return Break::NoMemory };
                self.sharing.broken.fetch_add(1, Ordering::Relaxed);
                is_copy
            }
            PageState::Replicated { .. } => {
                if inner.collapse_replicas(pool, gfn, &mut dying).is_err() {
                    return Break::NoMemory;
                }
                self.placing.note_collapse(mapping.state.mfn().and_then(|page| self.frames().map().node_of(page)));
                true
            }
            _ if !self.tlb.all_passed(inner.last_replaced) => {
                // Whoever replaced pages calls when all of them are, and its next step may be this hart's own.
                self.tlb.behind(inner.last_replaced).iter().for_each(|cpu| self.machine.kick(cpu));
                return Break::Waits(inner.last_replaced);
            }
            _ => false,
        };
        if is_replaced {
            let token = self.tlb.retire();
            inner.last_replaced = token.generation();
            if !dying.free_if_passed(&token, &self.tlb, self.frames(), self.memory()) {
                self.defer(PendingShootdown::new(token, dying));
                return Break::Waits(inner.last_replaced);
            }
        }
        // `false` if it is writable already.
        match inner.pmap.note_write(pool, gfn) {
            Ok(was_watched) => inner.watched_writes += u64::from(was_watched),
            Err(_) => return Break::NoMemory,
        }
        match inner.pmap.lookup(self.memory(), gfn) {
            Ok(mapping) if mapping.rights() == Rights::ReadWrite => Break::Writable(mapping),
            _ => Break::NoMemory,
        }
    }

    /// What backs `addr`, after giving the guest a page if need be, or a block if one is ready: its own one to write to.
    #[cold]
    pub(super) fn find_for_device(&self, inner: &mut Inner<M>, addr: GuestPhysAddr, access: Access) -> Found {
        let node = self.machine.here();
        let pool = self.pool(self.nearest(node));
        let Some(gfn) = Some(addr.gfn()).filter(|_| self.is_ram(addr) && !inner.is_closed) else {
            return Found::Nothing;
        };
        if self.large_allowed && inner.is_vacant_block(gfn) {
            self.fill_for_device(inner, &pool, gfn);
        }
        let Some(mapping) = inner.populated(&pool, gfn, false) else { return Found::NoMemory };
        if access == Access::Write && mapping.is_read_only() {
            return match self.make_writable(inner, &pool, gfn) {
                Break::Writable(mapping) => match mapping.machine_page(gfn) {
                    Some(page) => Found::Run(page, 1),
                    None => Found::Nothing,
                },
                Break::Waits(generation) => Found::Waits(generation),
                Break::NoMemory => Found::NoMemory,
            };
        }
        let index = gfn.raw() - mapping.gfn.raw();
        match mapping.machine_page(gfn) {
            Some(page) => Found::Run(page, mapping.size.base_pages() - index),
            None => Found::Nothing,
        }
    }
}

/// How far a page is on its way to being writable.
enum Break {
    /// It is in this one.
    Writable(Mapping),
    /// When no hart is behind this generation: ask again then.
    Waits(TlbGeneration),
    /// No page for a copy.
    NoMemory,
}

impl<M: Machine> Inner<M> {
    /// Gives the VM a page of its own in the place of a shared one. `true` if it is a copy, which may only be read until the
    /// shootdown of the shared one has ended: retire, and finish `dying` behind that.
    fn break_sharing(
        &mut self,
        pool: &Pool<'_, M::Memory>,
        gfn: Gfn,
        dying: &mut DyingList,
    ) -> Result<bool, PmapError> {
        let actions = self.pmap.break_sharing(pool, gfn, dying, || pool.page_to_fill(gfn))?;
        if actions.leaves == LeafChange::Strengthen {
            return Ok(false);
        }
        if let Some(page) = self.pmap.lookup(self.machine.memory(), gfn)?.state.mfn() {
            self.exchange_leaves(pool, gfn, page, PteFlags::RX, None);
        }
        Ok(true)
    }

    /// `page` backs `gfn` from now on: the tables of all nodes that say otherwise change, and that of `node` says so in any
    /// case. `true` if a leaf was another one.
    pub(super) fn exchange_leaves(
        &mut self,
        pool: &Pool<'_, M::Memory>,
        gfn: Gfn,
        page: Mfn,
        rights: PteFlags,
        node: Option<NodeId>,
    ) -> bool {
        let mut is_stale = false;
        for (index, table) in self.tables.iter_mut().enumerate() {
            let make = node.is_some_and(|node| node.index() == index);
            // Harts of that node may have a copy of a shared page.
            let page = self.machine.frames().spread_on(page, NodeId(index as u8)).unwrap_or(page);
            is_stale |= match table.exchange(pool, gfn, page, rights, make) {
                Ok(changed) => changed,
                // No page to split a large leaf: it goes as a whole, and faults bring it back.
                Err(_) => table.remove(self.machine.memory(), gfn, 1) > 0,
            };
        }
        is_stale
    }
}
