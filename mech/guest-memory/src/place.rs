//! Pages that go where they are used (Disco, section 4.2.3): what becomes of the policy's proposals. The truth about each step is in the
//! crate `pmap`; here are the leaves and shootdowns that go with it.
//!
//! A page that moves is *held* from the first look to the last: its users may read it all the time, and whoever wants to
//! write it faults and tries again until it is there. So a page that is written all the time can move, too.

use crate::{
    GuestRam, Inner, Machine, PlacedCounts, has_reserve,
    locate::{Tries, set_tries, tries_of},
    placed::reason_of,
};
use addr::{BASE_PAGE, Gfn, Mfn, NodeId, PageSize};
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use control::PlacementReason;
use core::sync::atomic::Ordering::Relaxed;
use frames::{Clean, DyingList, Frame, MachineMemory, PendingShootdown, Pool};
use gstage::NodeTable;
use pmap::{PageState, PmapError};
use rv_pte::PteFlags;
use tlb::TlbGeneration;

/// Pages that migrate with the VM's lock held, 0.2 ms where 128 bytes take 300 ns here and 900 ns there (FLASH): so long a fault of the
/// VM may wait. Fewer make each page dearer.
const CHUNK: usize = 4;

/// How often a job that moves pages, or gives them copies, comes back later because others watch pages.
const PATIENCE: u32 = 64;

/// Pages that are on their way to another node.
#[derive(Debug)]
pub struct Migration {
    moved: Vec<Gfn>,
    /// So many of them are there.
    done: usize,
    has_more: bool,
    /// What they were before.
    dying: DyingList,
    to: NodeId,
    counts: PlacedCounts,
    patience: u32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Nobody can write the pages when all harts have passed this generation.
    Watched(TlbGeneration),
    /// They are there; nobody sees the old ones when all have passed this one.
    Moved(TlbGeneration),
}

/// Pages that are to get copies on a node.
#[derive(Debug)]
pub struct Replication {
    gfns: Vec<Gfn>,
    on: NodeId,
    counts: PlacedCounts,
    patience: u32,
    has_more: bool,
}

impl Migration {
    /// Whether it can go on at once. If not, it waits for other harts.
    #[must_use]
    pub const fn has_more(&self) -> bool {
        self.has_more
    }
}

impl Replication {
    /// Of these pages, on `on`.
    #[must_use]
    pub fn new(gfns: Vec<Gfn>, on: NodeId) -> Self {
        Self { gfns, on, counts: PlacedCounts::default(), patience: PATIENCE, has_more: false }
    }

    /// Whether it can go on at once. If not, it waits for other harts.
    #[must_use]
    pub const fn has_more(&self) -> bool {
        self.has_more
    }
}

/// Where pages go.
pub(super) struct Way<'a, M, F> {
    /// For tables: any node, the nearest first.
    pub(super) tables: Pool<'a, M>,
    /// For pages: this node, or none.
    pub(super) pages: Pool<'a, M>,
    pub(super) to: NodeId,
    /// A page's tries with one more.
    pub(super) tried: F,
}

impl<M: MachineMemory, F> Way<'_, M, F> {
    /// `master`, which is what is at `gfn`, and a copy of it.
    fn copy(&self, gfn: Gfn, master: Mfn) -> Option<(Mfn, Frame<Clean>)> {
        let copy = self.pages.replica_to_fill(gfn)?;
        self.pages.memory.copy_page(master, copy.mfn());
        copy.overwritten(BASE_PAGE).map_err(|copy| self.pages.frames.free(copy)).ok().map(|copy| (master, copy))
    }
}

impl<M: Machine> GuestRam<M> {
    /// Lets writes to these pages be noticed from now on; those where that cannot be are dropped.
    pub fn watch_pages(&self, gfns: &mut Vec<Gfn>, node: NodeId) {
        let pool = self.pool(self.nearest(node));
        let mut inner = self.inner.lock();
        gfns.retain(|gfn| inner.watch(&pool, *gfn).is_ok());
        self.placing.watched.fetch_add(gfns.len() as u64, Relaxed);
        let token = self.tlb.retire();
        inner.last_watched = token.generation();
        drop(inner);
        self.call_out_of(token);
    }

    /// Begins to move these pages to `to`: nobody writes them from soon on.
    pub fn begin_migration(&self, gfns: &[Gfn], to: NodeId) -> Migration {
        let only = [to];
        let pool = self.pool(&only);
        let mut counts = PlacedCounts::default();
        let mut moved = Vec::with_capacity(gfns.len()); // Bounded: pages of one step.
        let mut inner = self.inner.lock();
        for gfn in gfns {
            match inner.watch(&pool, *gfn) {
                Ok(()) => moved.push(*gfn),
                Err(why) => counts.note(Err(why)),
            }
        }
        inner.held.extend_from_slice(&moved);
        let token = self.tlb.retire();
        inner.last_watched = token.generation();
        drop(inner);
        let watched = self.call_out_of(token);
        Migration {
            moved,
            done: 0,
            has_more: false,
            dying: DyingList::new(),
            to,
            counts,
            patience: PATIENCE,
            stage: Stage::Watched(watched),
        }
    }

    /// Goes on with it, by a page, and by more as long as `may_go_on` says so. What came of it once it has ended.
    pub fn step_migration(
        &self,
        migration: &mut Migration,
        tried: impl Fn(Tries) -> Tries,
        mut may_go_on: impl FnMut() -> bool,
    ) -> Option<PlacedCounts> {
        let Migration { moved, done, has_more, dying, to, counts, patience, stage } = migration;
        let only = [*to];
        let way = Way { tables: self.pool(self.nearest(*to)), pages: self.pool(&only), to: *to, tried };
        if let Stage::Watched(watched) = *stage {
            if !self.tlb.all_passed(watched) {
                return None;
            }
            while let Some(rest @ [_, ..]) = moved.get(*done..) {
                let some = rest.get(..CHUNK).unwrap_or(rest);
                *has_more = false;
                *done += match self.migrate_some(some, &way, counts, dying, &mut may_go_on) {
                    Some(pages) => pages,
                    None if *patience > 0 => {
                        *patience -= 1;
                        return None;
                    }
                    None => {
                        // Others watch pages all the time, perhaps one of these. They will be hot again.
                        some.iter().for_each(|_| counts.note(Err(PlacementReason::Raced)));
                        some.len()
                    }
                };
                *has_more = *done < moved.len();
                if *has_more && !may_go_on() {
                    return None;
                }
            }
            // Whoever has passed this one has passed those of all parts.
            let token = self.tlb.retire();
            *stage = Stage::Moved(token.generation());
            self.defer(PendingShootdown::new(token, core::mem::take(dying)));
        }
        if let Stage::Moved(replaced) = *stage
            && !self.tlb.all_passed(replaced)
        {
            return None;
        }
        let mut inner = self.inner.lock();
        inner.let_go(moved);
        // Unless somebody has replaced a page since: it could be one of these. Writes fault then, and are allowed one by one.
        if self.tlb.all_passed(inner.last_replaced) {
            moved.iter().for_each(|gfn| inner.allow_writes(&way.tables, *gfn));
        }
        drop(inner);
        self.placing.migrated.fetch_add(counts.placed, Relaxed);
        Some(*counts)
    }

    /// The VM ends before it is done.
    pub fn abandon_migration(&self, migration: &mut Migration) {
        self.hold_back(PendingShootdown::new(self.tlb.retire(), core::mem::take(&mut migration.dying)));
    }

    /// A part of it, with the lock held: nobody may write these pages before a shootdown. How many of them it did, at least one; `None` if
    /// some hart can write unseen what is watched: a device may have written one of these pages, the guest after it, and somebody has
    /// watched it anew since.
    fn migrate_some(
        &self,
        gfns: &[Gfn],
        way: &Way<'_, M::Memory, impl Fn(Tries) -> Tries>,
        counts: &mut PlacedCounts,
        dying: &mut DyingList,
        may_go_on: &mut impl FnMut() -> bool,
    ) -> Option<usize> {
        let mut inner = self.inner.lock();
        if !self.tlb.all_passed(inner.last_watched) {
            return None;
        }
        let mut done = 0;
        for gfn in gfns {
            if done > 0 && !may_go_on() {
                break;
            }
            counts.note(inner.migrate(way, *gfn, dying));
            done += 1;
        }
        inner.last_replaced = self.tlb.retire().generation();
        Some(done)
    }

    /// Gives these pages, which are watched or have copies already, a copy on their node: one, and more as long as `may_go_on` says so. What
    /// came of it once it has ended.
    pub fn step_replication(
        &self,
        replication: &mut Replication,
        tried: impl Fn(Tries) -> Tries,
        mut may_go_on: impl FnMut() -> bool,
    ) -> Option<PlacedCounts> {
        let Replication { gfns, on, counts, patience, has_more } = replication;
        let only = [*on];
        let way = Way { tables: self.pool(self.nearest(*on)), pages: self.pool(&only), to: *on, tried };
        if !has_reserve(self.frames(), *on) {
            gfns.drain(..).for_each(|_| counts.note(Err(PlacementReason::NoMemory)));
            return Some(*counts);
        }
        while !gfns.is_empty() {
            let some: ArrayVec<Gfn, CHUNK> = gfns.iter().rev().take(CHUNK).copied().collect();
            *has_more = false;
            let done = match self.replicate_some(&some, &way, counts, &mut may_go_on) {
                Some(pages) => pages,
                None if *patience > 0 => {
                    *patience -= 1;
                    return None;
                }
                None => {
                    // Others watch pages all the time, perhaps one of these. They will be hot again.
                    some.iter().for_each(|_| counts.note(Err(PlacementReason::Raced)));
                    some.len()
                }
            };
            gfns.truncate(gfns.len() - done);
            *has_more = !gfns.is_empty();
            if *has_more && !may_go_on() {
                return None;
            }
        }
        // Nothing is freed by it: it is enough that they fence soon.
        let _ = self.begin_generation();
        self.placing.replicated.fetch_add(counts.placed, Relaxed);
        Some(*counts)
    }

    /// A part of it. The copies are made without the lock: who faults meanwhile does not wait for them, nor does who copies other
    /// pages. How many of them it did, at least one; `None` if some hart can write unseen what is watched, or somebody watched pages
    /// meanwhile.
    fn replicate_some(
        &self,
        gfns: &[Gfn],
        way: &Way<'_, M::Memory, impl Fn(Tries) -> Tries>,
        counts: &mut PlacedCounts,
        may_go_on: &mut impl FnMut() -> bool,
    ) -> Option<usize> {
        let inner = self.inner.lock();
        let watched = inner.last_watched;
        if !self.tlb.all_passed(watched) {
            return None;
        }
        // What is in them is moved one by one: the arrays never are.
        let mut masters = ArrayVec::<_, CHUNK>::new();
        let mut copies = ArrayVec::<_, CHUNK>::new();
        for gfn in gfns {
            masters.push(inner.pmap.master_for_copy(&way.pages, *gfn));
        }
        drop(inner);
        for (gfn, master) in gfns.iter().zip(masters.drain(..)) {
            if !copies.is_empty() && !may_go_on() {
                break;
            }
            copies.push(master.and_then(|master| way.copy(*gfn, master)));
        }
        let done = copies.len();
        let mut inner = self.inner.lock();
        // One of the pages that were watched since could be one of these: written, and then watched anew.
        if inner.last_watched == watched {
            for (gfn, copy) in gfns.iter().zip(copies.drain(..)) {
                counts.note(inner.replicate(way, *gfn, copy));
            }
            return Some(done);
        }
        drop(inner);
        copies.drain(..).flatten().for_each(|(_, copy)| self.frames().free(copy));
        None
    }

    /// The pages of a block go different ways from now on.
    pub fn split_block(&self, gfn: Gfn) -> bool {
        let mut inner = self.inner.lock();
        let Some(page) = inner.pmap.lookup(self.memory(), gfn).ok().and_then(|mapping| mapping.state.mfn()) else {
            return false;
        };
        let pool = self.pool(self.nearest(self.frames().map().node_of(page).unwrap_or(NodeId(0))));
        if inner.pmap.split(&pool, gfn).is_err() {
            return false;
        }
        for (node, table) in inner.tables.iter_mut().enumerate() {
            // Where there is no page for a table, a leaf that changes later goes as a whole.
            let _ = table.split(&self.pool(self.nearest(NodeId(node as u8))), gfn);
        }
        self.placing.split.fetch_add(1, Relaxed);
        self.keep_apart();
        true
    }
}

impl<M: Machine> Inner<M> {
    /// Whether somebody is moving the page at `gfn`, or its block.
    pub(super) fn is_held(&self, gfn: Gfn) -> bool {
        self.held.contains(&gfn) || self.is_moving_block(gfn)
    }

    fn let_go(&mut self, gfns: &[Gfn]) {
        // Who holds pages takes them off the end where it put them, unless somebody else holds some, too.
        let kept = self.held.len().saturating_sub(gfns.len());
        if self.held.get(kept..) == Some(gfns) {
            self.held.truncate(kept);
        } else {
            self.held.retain(|held| !gfns.contains(held));
        }
    }

    /// Watches a private single page that no device uses.
    #[inline(always)]
    fn watch(&mut self, pool: &Pool<'_, M::Memory>, gfn: Gfn) -> Result<(), PlacementReason> {
        if self.pmap.watch_quickly(self.machine.memory(), gfn).is_none() {
            return self.watch_slowly(pool, gfn);
        }
        self.weaken_single(gfn);
        Ok(())
    }

    /// A page of a large one, or one that a device uses, is not watched: it is judged with its block, or stays.
    #[cold]
    fn watch_slowly(&mut self, pool: &Pool<'_, M::Memory>, gfn: Gfn) -> Result<(), PlacementReason> {
        let mapping = self.pmap.lookup(self.machine.memory(), gfn).map_err(|why| reason_of(&why))?;
        match mapping.state {
            PageState::Private { pins: 1.., .. } => return Err(PlacementReason::Pinned),
            PageState::Private { .. } if mapping.size == PageSize::Base => {}
            _ => return Err(PlacementReason::Raced),
        }
        self.pmap.watch(pool, gfn).map_err(|why| reason_of(&why))?;
        self.weaken_single(gfn);
        Ok(())
    }

    /// No table lets the page be written.
    #[inline(always)]
    fn weaken_single(&mut self, gfn: Gfn) {
        for table in &mut self.tables {
            if table.weaken_quickly(self.machine.memory(), gfn, PteFlags::RX).is_none() {
                weaken_slowly(table, self.machine.memory(), gfn);
            }
        }
    }

    /// All tables that have a leaf for a single page let it name `page` from now on.
    #[inline(always)]
    fn exchange_single(&mut self, tables: &Pool<'_, M::Memory>, gfn: Gfn, page: Mfn, rights: PteFlags) {
        for table in &mut self.tables {
            if table.exchange_if_there(self.machine.memory(), gfn, page, rights).is_none() {
                exchange_slowly(table, tables, gfn, page, rights);
            }
        }
    }

    fn migrate(
        &mut self,
        way: &Way<'_, M::Memory, impl Fn(Tries) -> Tries>,
        gfn: Gfn,
        dying: &mut DyingList,
    ) -> Result<(), PlacementReason> {
        let Some(to) = self.pmap.migrate_quickly(&way.pages, gfn, dying, &way.tried) else {
            return Err(self.why_not(gfn, way.to));
        };
        self.exchange_single(&way.tables, gfn, to, PteFlags::RX);
        Ok(())
    }

    /// Why a page that was watched neither moves to `node` nor gets a copy there.
    #[cold]
    fn why_not(&self, gfn: Gfn, node: NodeId) -> PlacementReason {
        match self.pmap.lookup(self.machine.memory(), gfn).map(|mapping| mapping.state) {
            Ok(PageState::Private { pins: 1.., .. }) => PlacementReason::Pinned,
            Ok(PageState::Private { watched: false, .. }) => PlacementReason::WriteShared,
            // Somebody else was faster.
            Ok(PageState::Private { mfn, .. }) if self.machine.frames().map().node_of(mfn) == Some(node) => {
                PlacementReason::Raced
            }
            Ok(PageState::Replicated { nodes, .. }) if nodes & 1 << (node.0 % 8) != 0 => PlacementReason::Raced,
            Ok(PageState::Private { .. } | PageState::Replicated { .. }) => PlacementReason::NoMemory,
            _ => PlacementReason::Raced,
        }
    }

    /// The shootdowns of all pages that were replaced have ended.
    fn allow_writes(&mut self, tables: &Pool<'_, M::Memory>, gfn: Gfn) {
        if let Some(page) = self.pmap.note_write_quickly(self.machine.memory(), gfn) {
            self.watched_writes += 1;
            self.exchange_single(tables, gfn, page, PteFlags::RWX);
        }
    }

    fn replicate(
        &mut self,
        way: &Way<'_, M::Memory, impl Fn(Tries) -> Tries>,
        gfn: Gfn,
        copy: Option<(Mfn, Frame<Clean>)>,
    ) -> Result<(), PlacementReason> {
        let placed = copy.map(|copy| self.pmap.replicate_quickly(&way.pages, gfn, copy, &way.tried));
        let copy = match placed {
            Some(Ok(copy)) => copy,
            other => {
                if let Some(Err(copy)) = other {
                    self.machine.frames().free(copy);
                }
                if let Some(page) = self.pmap.sole_page(self.machine.memory(), gfn) {
                    let frames = self.machine.frames();
                    set_tries(frames, page, (way.tried)(tries_of(frames, page)));
                }
                return Err(self.why_not(gfn, way.to));
            }
        };
        if let Some(table) = self.tables.get_mut(way.to.index())
            && table.exchange(&way.tables, gfn, copy, PteFlags::RX, true).is_err()
        {
            table.remove(self.machine.memory(), gfn, 1);
        }
        Ok(())
    }

    /// Only the master is left, for all nodes, and it may only be read before the shootdown has ended.
    pub(super) fn collapse_replicas(
        &mut self,
        pool: &Pool<'_, M::Memory>,
        gfn: Gfn,
        dying: &mut DyingList,
    ) -> Result<(), PmapError> {
        self.pmap.collapse_replicas(pool, gfn, dying)?;
        if let Some(master) = self.pmap.lookup(self.machine.memory(), gfn)?.state.mfn() {
            self.exchange_leaves(pool, gfn, master, PteFlags::RX, None);
        }
        Ok(())
    }
}

#[cold]
fn weaken_slowly(table: &mut NodeTable, memory: &impl MachineMemory, gfn: Gfn) {
    table.weaken(memory, gfn, 1, PteFlags::RX);
}

#[cold]
fn exchange_slowly<M: MachineMemory>(
    table: &mut NodeTable,
    tables: &Pool<'_, M>,
    gfn: Gfn,
    page: Mfn,
    rights: PteFlags,
) {
    if table.exchange(tables, gfn, page, rights, false).is_err() {
        // No page to split a large leaf: it goes as a whole, and faults bring it back.
        table.remove(tables.memory, gfn, 1);
    }
}
