//! Copies of a whole 2 MiB block for nodes that read it: each of them keeps a leaf of 2 MiB.
//!
//! As a block that moves it is copied in steps, without the VM's lock, and watched meanwhile; but a write does not wait: it ends
//! the watch, and the next step notices and gives up. When all nodes have their copies, these become replicas page by page, so
//! that a write ends those of its page alone, whatever block that was part of.
//!
//! A block of shared pages, as of a kernel that several VMs were started from, is copied in the same steps, for one node at a time and
//! for all VMs: its pages are held meanwhile, so nobody writes them.

use crate::{GuestRam, Inner, Machine, NODES, has_reserve, locate::Tries, place::Way};
use addr::{Gfn, Mfn, NodeId, PAGES_PER_LARGE, PageSize};
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use control::PlacementReason;
use core::sync::atomic::Ordering::Relaxed;
use frames::{Dirty, DyingList, Frame, Frames, MachineMemory, PageOwner, PendingShootdown, Pool};
use gstage::{NodeTable, TableError};
use pmap::PageState;
use rv_pte::PteFlags;
use tlb::TlbGeneration;

/// Blocks of a VM that are copied at a time; others are hot again.
const AT_ONCE: usize = 16;

/// Whose pages a block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The VM's own: one large page.
    Own,
    /// Shared ones, each of them held.
    Shared,
}

/// A copy that is being made.
pub(super) struct BlockCopy {
    kind: Kind,
    /// The block's first guest page, and the first machine page behind it.
    gfn: Gfn,
    source: Mfn,
    /// Whose copy.
    to: NodeId,
    /// Where it is: who copies without the lock finds out by this whether it still is this one.
    place: Mfn,
    /// Not here while somebody copies to it, without the lock.
    frame: Option<Frame<Dirty>>,
    /// Pages that are there.
    copied: u64,
    /// The shootdown of the watch: nothing is copied before it has ended.
    watched: TlbGeneration,
}

/// What a step came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyStep {
    /// There is more to do for this node.
    More,
    /// Nothing for this node.
    Nothing,
    /// These nodes have copies of so many pages.
    Done(ArrayVec<(NodeId, u64), NODES>),
}

impl<M: Machine> GuestRam<M> {
    /// Writes to the block of `gfn`, which is one large page, are noticed from soon on: see [`GuestRam::is_unwritten`].
    #[cold]
    #[inline(never)]
    pub fn watch_block_writes(&self, gfn: Gfn) -> bool {
        let pool = self.pool(self.nearest(NodeId(0)));
        let token = {
            let mut inner = self.inner.lock();
            if inner.is_held(gfn) || inner.is_copying(gfn) || !inner.watch_large(&pool, gfn.large_base()) {
                return false;
            }
            let token = self.tlb.retire();
            inner.last_watched = token.generation();
            token
        };
        self.call_out(&PendingShootdown::new(token, DyingList::new()));
        true
    }

    /// Whether nobody has written to the block, which `page` backs, since it was watched.
    #[must_use]
    pub fn is_unwritten(&self, gfn: Gfn, page: Mfn) -> bool {
        self.inner.lock().is_unwritten(gfn.large_base(), page)
    }

    /// Begins to copy the block of `gfn` for these nodes, by bit.
    ///
    /// # Errors
    /// Why there will be no copy.
    #[cold]
    #[inline(never)]
    pub fn begin_block_copies(&self, gfn: Gfn, nodes: u8) -> Result<(), PlacementReason> {
        let gfn = gfn.large_base();
        let pool = self.pool(self.nearest(NodeId(0)));
        let token = {
            let mut inner = self.inner.lock();
            let source = inner.own_block(gfn)?;
            let is_busy = inner.is_held(gfn) || inner.is_copying(gfn) || inner.copying.len() >= AT_ONCE * NODES;
            if is_busy || !inner.watch_large(&pool, gfn) {
                return Err(PlacementReason::Raced);
            }
            let token = self.tlb.retire();
            inner.last_watched = token.generation();
            let home = self.frames().map().node_of(source);
            let wanted = (0..NODES as u8).map(NodeId).filter(|node| nodes >> node.0 & 1 != 0 && Some(*node) != home);
            let copies: Vec<_> = wanted.filter_map(|to| self.block_copy(gfn, source, to, token.generation())).collect();
            if copies.is_empty() {
                return Err(PlacementReason::NoMemory);
            }
            inner.copying.extend(copies);
            token
        };
        self.call_out(&PendingShootdown::new(token, DyingList::new()));
        Ok(())
    }

    fn block_copy(&self, gfn: Gfn, source: Mfn, to: NodeId, watched: TlbGeneration) -> Option<BlockCopy> {
        if !has_reserve(self.frames(), to) {
            return None;
        }
        let frame = self.pool(&[to]).replica_block_to_fill(gfn)?;
        Some(BlockCopy::new(Kind::Own, gfn, source, frame, watched))
    }

    /// Harts of `on` are to have a copy of the block of `gfn`, whose pages are shared. `false` if it is not that, or there can be none;
    /// what comes of it is seen later.
    #[cold]
    #[inline(never)]
    pub fn begin_shared_copy(&self, gfn: Gfn, on: NodeId) -> bool {
        let gfn = gfn.large_base();
        let mut inner = self.inner.lock();
        let Some(source) = inner.pmap.shared_block(self.memory(), gfn) else { return false };
        if inner.is_copying(gfn) || inner.copying.len() >= AT_ONCE * NODES {
            return false;
        }
        if let Some(copy) = whole_copy(self.frames(), source, on) {
            let mut dying = DyingList::new();
            if let Some(table) = inner.tables.get_mut(on.index()) {
                show_block(table, &self.pool(self.nearest(on)), gfn, copy, &mut dying);
            }
            let token = self.tlb.retire();
            drop(inner);
            self.defer(PendingShootdown::new(token, dying));
            self.placing.replicated.fetch_add(PAGES_PER_LARGE, Relaxed);
            return true;
        }
        if !has_reserve(self.frames(), on) {
            return false;
        }
        let Some(frame) = self.pool(&[on]).shared_block_to_fill() else { return false };
        for index in 0..PAGES_PER_LARGE {
            let owner = PageOwner { vm: self.vm, gfn: Gfn::new(gfn.raw() + index) };
            // They are shared, this VM has them, and its memory is locked.
            self.frames()
                .hold(Mfn::new(source.raw() + index), owner)
                .expect("a shared page has room for one reference more");
        }
        inner.copying.push(BlockCopy::new(Kind::Shared, gfn, source, frame, TlbGeneration::NONE));
        true
    }

    /// Whether the block of `gfn` is being copied.
    #[must_use]
    pub fn is_copying_block(&self, gfn: Gfn) -> bool {
        self.inner.lock().is_copying(gfn)
    }

    /// Whether a block for `node` has pages left to copy, and no hart is at it.
    #[must_use]
    pub fn has_block_copy(&self, node: NodeId) -> bool {
        self.inner.lock().copying.iter().any(|copy| copy.is_open(node))
    }

    /// Copies up to `pages` pages of a block for `node`; who does the last step of a block lets all its nodes have their copies.
    #[cold]
    #[inline(never)]
    pub fn step_block_copy(&self, node: NodeId, pages: u64, tried: impl Fn(Tries) -> Tries) -> CopyStep {
        let mut inner = self.inner.lock();
        let Some(copy) = inner.copying.iter_mut().find(|copy| copy.is_open(node)) else { return CopyStep::Nothing };
        let Some(mut frame) = copy.frame.take() else { return CopyStep::Nothing };
        let BlockCopy { kind, gfn, source, copied, watched, .. } = *copy;
        let mut now = copied;
        if self.tlb.all_passed(watched) {
            drop(inner);
            frame.fill_some(self.memory(), source, copied, pages);
            now = (copied + pages).min(PAGES_PER_LARGE);
            inner = self.inner.lock();
        }
        let is_still = match kind {
            Kind::Own => inner.is_unwritten(gfn, source),
            // They are held, so they are the same at the end if they are there.
            Kind::Shared => now < PAGES_PER_LARGE || inner.pmap.shared_block(self.memory(), gfn) == Some(source),
        };
        let copy = inner.copying.iter_mut().find(|copy| copy.place == frame.mfn());
        let Some(copy) = copy.filter(|_| is_still) else {
            self.frames().free(frame);
            inner.drop_copies(gfn);
            return CopyStep::Nothing;
        };
        (copy.copied, copy.frame) = (now, Some(frame));
        if inner.copying.iter().any(|copy| copy.gfn == gfn && copy.copied < PAGES_PER_LARGE) {
            return if now < PAGES_PER_LARGE { CopyStep::More } else { CopyStep::Nothing };
        }
        let mut dying = DyingList::new();
        let way = Way { tables: self.pool(self.nearest(node)), pages: self.pool(&[]), to: node, tried };
        let done = match kind {
            Kind::Own => inner.end_block_copies(&way, gfn, source, &mut dying),
            Kind::Shared => inner.end_shared_copy(&way, gfn, &mut dying),
        };
        let token = self.tlb.retire();
        drop(inner);
        // Nothing but tables is freed by it, if anything: who reads the block itself reads the same.
        self.defer(PendingShootdown::new(token, dying));
        let pages = done.iter().map(|(_, pages)| *pages).sum();
        self.placing.replicated.fetch_add(pages, Relaxed);
        CopyStep::Done(done)
    }
}

impl BlockCopy {
    const fn new(kind: Kind, gfn: Gfn, source: Mfn, frame: Frame<Dirty>, watched: TlbGeneration) -> Self {
        Self { kind, gfn, source, to: frame.node(), place: frame.mfn(), frame: Some(frame), copied: 0, watched }
    }

    /// Nobody copies to it any more.
    fn give_up(self, frames: &Frames) {
        if let Some(frame) = self.frame {
            frames.free(frame);
        }
        if self.kind == Kind::Shared {
            for page in self.source.raw()..self.source.raw() + PAGES_PER_LARGE {
                let released = frames.release_hold(Mfn::new(page));
                debug_assert!(released.is_ok(), "{released:?}");
            }
        }
    }

    /// Whether it is for `node`, not complete, and nobody is at it.
    const fn is_open(&self, node: NodeId) -> bool {
        self.to.0 == node.0 && self.copied < PAGES_PER_LARGE && self.frame.is_some()
    }
}

impl<M: Machine> Inner<M> {
    pub(super) fn is_copying(&self, gfn: Gfn) -> bool {
        self.copying.iter().any(|copy| copy.gfn == gfn.large_base())
    }

    /// No table lets the block, one large page, be written.
    fn watch_large(&mut self, pool: &Pool<'_, M::Memory>, gfn: Gfn) -> bool {
        let is_watched = self.pmap.watch_large(pool, gfn).is_ok();
        if is_watched {
            self.weaken_block(gfn);
        }
        is_watched
    }

    fn is_unwritten(&self, gfn: Gfn, page: Mfn) -> bool {
        let same = PageState::Private { mfn: page, pins: 0, watched: true };
        let found = self.pmap.lookup(self.machine.memory(), gfn);
        found.is_ok_and(|mapping| mapping.size == PageSize::Large && mapping.state == same)
    }

    /// Copies of the block come to nothing. One that somebody copies to is freed by them.
    fn drop_copies(&mut self, gfn: Gfn) {
        self.copying.extract_if(.., |copy| copy.gfn == gfn).for_each(|copy| copy.give_up(self.machine.frames()));
    }

    /// The VM ends: one copy comes to nothing. `false` if there was none.
    pub(super) fn forget_block_copy(&mut self) -> bool {
        self.copying.pop().map(|copy| copy.give_up(self.machine.frames())).is_some()
    }

    /// The copy of a block of shared pages is complete: it is for all VMs that have these from now on.
    fn end_shared_copy(
        &mut self,
        way: &Way<'_, M::Memory, impl Fn(Tries) -> Tries>,
        gfn: Gfn,
        dying: &mut DyingList,
    ) -> ArrayVec<(NodeId, u64), NODES> {
        let mut done = ArrayVec::new();
        let at = self.copying.iter().position(|copy| copy.gfn == gfn);
        let Some(mut copy) = at.map(|at| self.copying.swap_remove(at)) else { return done };
        if let Some(Ok(frame)) = copy.frame.take().map(|frame| frame.overwritten(PageSize::Large.bytes())) {
            let first = frame.mfn();
            let mut attached = 0;
            for (index, page) in self.machine.frames().split_frame(frame).enumerate() {
                match self.machine.frames().attach_spread(Mfn::new(copy.source.raw() + index as u64), page) {
                    Ok(_) => attached += 1,
                    // Somebody else was faster, page by page.
                    Err((_, page)) => self.machine.frames().free(page),
                }
            }
            if attached == PAGES_PER_LARGE
                && let Some(table) = self.tables.get_mut(copy.to.index())
            {
                show_block(table, &way.tables, gfn, first, dying);
            }
            done.push((copy.to, attached));
        }
        copy.give_up(self.machine.frames());
        done
    }

    /// All copies of the block of `gfn` are complete, and nobody has written it: they are replicas from now on.
    #[cold]
    #[inline(never)]
    fn end_block_copies(
        &mut self,
        way: &Way<'_, M::Memory, impl Fn(Tries) -> Tries>,
        gfn: Gfn,
        source: Mfn,
        dying: &mut DyingList,
    ) -> ArrayVec<(NodeId, u64), NODES> {
        let mut done = ArrayVec::new();
        if self.pmap.split(&way.tables, gfn).is_err() {
            self.drop_copies(gfn);
            return done;
        }
        let complete: Vec<_> = self.copying.extract_if(.., |copy| copy.gfn == gfn).collect();
        for BlockCopy { to, frame, .. } in complete {
            let Some(frame) = frame else { continue };
            let first = frame.mfn();
            let copied = self.attach_block(way, gfn, source, to, frame);
            if copied == PAGES_PER_LARGE
                && let Some(table) = self.tables.get_mut(to.index())
            {
                show_block(table, &way.tables, gfn, first, dying);
            }
            // As many as there are bits for nodes, at most.
            done.push((to, copied));
        }
        done
    }

    /// Each page of `frame` is the replica of a page of the block; returns how many are.
    fn attach_block(
        &mut self,
        way: &Way<'_, M::Memory, impl Fn(Tries) -> Tries>,
        gfn: Gfn,
        source: Mfn,
        to: NodeId,
        frame: Frame<Dirty>,
    ) -> u64 {
        let frame = match frame.overwritten(PageSize::Large.bytes()) {
            Ok(frame) => frame,
            Err(frame) => {
                self.machine.frames().free(frame);
                return 0;
            }
        };
        let pool = Pool { nodes: &[to], ..way.pages };
        let mut attached = 0;
        for (index, page) in self.machine.frames().split_frame(frame).enumerate() {
            let (gfn, master) = (Gfn::new(gfn.raw() + index as u64), Mfn::new(source.raw() + index as u64));
            match self.pmap.replicate_quickly(&pool, gfn, (master, page), &way.tried) {
                Ok(_) => attached += 1,
                Err(page) => self.machine.frames().free(page),
            }
        }
        attached
    }
}

/// The copy of a block of shared pages on `node`, if there is one that a large leaf can show.
fn whole_copy(frames: &Frames, source: Mfn, node: NodeId) -> Option<Mfn> {
    let copy = |index: u64| frames.spread_on(Mfn::new(source.raw() + index), node);
    let first = copy(0).filter(|first| first.raw().is_multiple_of(PAGES_PER_LARGE))?;
    (1..PAGES_PER_LARGE).all(|index| copy(index) == Some(Mfn::new(first.raw() + index))).then_some(first)
}

/// One leaf for all of a block's copies.
fn show_block<M: MachineMemory>(
    table: &mut NodeTable,
    pool: &Pool<'_, M>,
    gfn: Gfn,
    first: Mfn,
    dying: &mut DyingList,
) {
    table.remove(pool.memory, gfn, PAGES_PER_LARGE);
    let installed = table.install(pool, gfn, first, PageSize::Large, PteFlags::RX);
    if let Err(TableError::HasTable { .. }) = installed {
        // Where it fails faults bring single leaves, which say the same.
        let _ = table.collapse(pool, gfn, first, PteFlags::RX, dying);
    }
}
