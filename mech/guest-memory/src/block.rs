//! A 2 MiB block that moves to another node as a whole.
//!
//! That is too much to copy at once, so it goes in steps, without the VM's lock, with the block watched all the time: its users
//! read it where it is, and who wants to write it copies a little of it, beside whoever else does, and tries again. Whatever else
//! happens to the block in between (a device writes it, the guest gives it back, a part of it becomes shared) ends the watch or
//! the block, and the next step notices and gives up.

use crate::{
    GuestRam, Inner, Machine, Touch,
    locate::{Tries, set_tries, tries_of},
    placed::reason_of,
};
use addr::{Gfn, Mfn, NodeId, PAGES_PER_LARGE, PageSize};
use control::PlacementReason;
use core::sync::atomic::Ordering;
use frames::{Dirty, DyingList, Frame, MachineMemory as _, PendingShootdown, Pool};
use pmap::{Mapping, PageState};
use rv_pte::PteFlags;
use spin::MutexGuard;
use tlb::TlbGeneration;

/// Pages that a writer copies before it tries again.
const HELP_PAGES: u64 = 4;

/// Blocks of a VM that move to a node at a time: a vCPU that writes to one waits until it is there.
pub const BLOCK_MOVES: usize = 2;

/// A block on its way. Whoever copies takes the next pages for that, so several can.
pub(super) struct BlockMove {
    /// Its first guest page.
    gfn: Gfn,
    /// Where it comes from.
    source: Mfn,
    /// Where it goes.
    to: NodeId,
    /// What it goes to.
    frame: Frame<Dirty>,
    /// Pages that are there, or that somebody copies without the lock.
    taken: u64,
    /// How many do so: the frame is not given back before they have ended.
    copiers: u32,
    /// The shootdown of the watch: nothing is copied before it has ended.
    watched: TlbGeneration,
    /// What the block's row is to say then.
    tries: Tries,
    /// Somebody has touched it: it stays.
    stays: bool,
}

/// What a step of a block on its way came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveStep {
    /// There is more to do.
    More,
    /// Nobody has to be asked for more: it is there, or stays, or others copy the rest.
    Nothing,
    /// Some hart may still write it.
    Waits,
}

impl<M: Machine> GuestRam<M> {
    /// A large page may be written from now on: its leaf says so for `node`, the others fault once more.
    #[cold]
    pub(super) fn strengthen(
        &self,
        mut inner: MutexGuard<'_, Inner<M>>,
        pool: &Pool<'_, M::Memory>,
        mapping: &Mapping,
        node: NodeId,
    ) -> Touch {
        let Some(mfn) = mapping.state.mfn() else { return Touch::OutOfMemory };
        let Some(table) = inner.tables.get_mut(node.index()) else { return Touch::OutOfMemory };
        let outcome = table.install(pool, mapping.gfn, mfn, PageSize::Large, PteFlags::RWX);
        self.mend(inner, pool, mapping.gfn, outcome)
    }

    /// Begins to move the block of `gfn` to `to`, if not [`BLOCK_MOVES`] do.
    ///
    /// # Errors
    /// Why it stays.
    pub fn begin_block_move(
        &self,
        gfn: Gfn,
        to: NodeId,
        tried: impl FnOnce(Tries) -> Tries,
    ) -> Result<(), PlacementReason> {
        let target = [to];
        let pool = self.pool(&target);
        let gfn = gfn.large_base();
        let token = {
            let mut inner = self.inner.lock();
            let source = inner.own_block(gfn)?;
            if inner.is_moving_block(gfn) || inner.is_copying(gfn) || inner.block_moves(to) >= BLOCK_MOVES {
                return Err(PlacementReason::Raced);
            }
            let frame = pool.block_to_fill(gfn).ok_or(PlacementReason::NoMemory)?;
            if let Err(why) = inner.pmap.watch_large(&pool, gfn) {
                self.frames().free(frame);
                return Err(reason_of(&why));
            }
            inner.weaken_block(gfn);
            let token = self.tlb.retire();
            let watched = token.generation();
            inner.last_watched = watched;
            let tries = tried(tries_of(self.frames(), source));
            let (taken, copiers, stays) = (0, 0, false);
            inner.moving.push(BlockMove { gfn, source, to, frame, taken, copiers, watched, tries, stays });
            token
        };
        self.call_out_of(token);
        Ok(())
    }

    /// Moves up to `pages` pages of a block that is on its way to `node`, if one is.
    pub fn step_block_move(&self, node: NodeId, pages: u64) -> MoveStep {
        self.step_move(|block| block.to == node, pages)
    }

    fn step_move(&self, wanted: impl Fn(&BlockMove) -> bool, pages: u64) -> MoveStep {
        let mut dying = DyingList::new();
        let (gfn, node, token) = {
            let mut inner = self.inner.lock();
            let is_open = |block: &BlockMove| wanted(block) && !block.stays && block.taken < PAGES_PER_LARGE;
            let Some(block) = inner.moving.iter_mut().find(|block| is_open(block)) else {
                return MoveStep::Nothing;
            };
            if !self.tlb.all_passed(block.watched) {
                return MoveStep::Waits;
            }
            let (gfn, pages) = block.take(pages);
            // Who faults or copies other pages does not wait for it.
            drop(inner);
            pages.for_each(|(from, to)| self.memory().copy_page(from, to));
            inner = self.inner.lock();
            let Some(is_complete) = inner.has_copied(gfn) else { return MoveStep::More };
            let at = inner.moving.iter().position(|block| block.gfn == gfn);
            // It is not there any more where the VM ends.
            let Some(block) = at.map(|at| inner.moving.swap_remove(at)) else {
                return MoveStep::Nothing;
            };
            let to = block.to;
            if !is_complete {
                self.frames().free(block.frame);
                return MoveStep::Nothing;
            }
            if !inner.end_block_move(block, &mut dying) {
                return MoveStep::Nothing;
            }
            let token = self.tlb.retire();
            inner.last_replaced = token.generation();
            (gfn, to, token)
        };
        self.defer(PendingShootdown::new(token, dying));
        let pool = self.pool(self.nearest(NodeId(0)));
        let mut inner = self.inner.lock();
        // Else the next write faults, and is allowed when it may be. The leaves come back with the next faults anyway.
        if self.tlb.all_passed(inner.last_replaced) {
            inner.watched_writes += u64::from(inner.pmap.note_write(&pool, gfn) == Ok(true));
        }
        drop(inner);
        self.placing.block_on.store(node.0, Ordering::Relaxed);
        self.placing.blocks.fetch_add(1, Ordering::Relaxed);
        MoveStep::Nothing
    }

    /// Who waits for a block moves it on, if it can. Its vCPU tries again.
    #[cold]
    pub(super) fn help_block_move(&self, gfn: Gfn) -> Touch {
        match self.step_move(|block| block.gfn == gfn.large_base(), HELP_PAGES) {
            MoveStep::More => Touch::Mapped,
            MoveStep::Nothing | MoveStep::Waits => Touch::Busy,
        }
    }

    /// Blocks on their way to `node`.
    #[must_use]
    pub fn block_moves(&self, node: NodeId) -> usize {
        self.inner.lock().block_moves(node)
    }
}

impl<M: Machine> Inner<M> {
    /// The first machine page behind the block at `gfn`, if that is one large page of the VM's own; or why it can go nowhere.
    pub(super) fn own_block(&self, gfn: Gfn) -> Result<Mfn, PlacementReason> {
        let mapping = self.pmap.lookup(self.machine.memory(), gfn).map_err(|why| reason_of(&why))?;
        match mapping.state {
            PageState::Private { pins: 1.., .. } => Err(PlacementReason::Pinned),
            PageState::Private { mfn, .. } if mapping.size == PageSize::Large => Ok(mfn),
            _ => Err(PlacementReason::Raced),
        }
    }

    fn block_moves(&self, node: NodeId) -> usize {
        self.moving.iter().filter(|block| block.to == node).count()
    }

    pub(super) fn is_moving_block(&self, gfn: Gfn) -> bool {
        self.moving.iter().any(|block| block.gfn == gfn.large_base())
    }

    /// No table lets the block be written.
    pub(super) fn weaken_block(&mut self, gfn: Gfn) {
        for table in &mut self.tables {
            table.weaken(self.machine.memory(), gfn, PAGES_PER_LARGE, PteFlags::RX);
        }
    }

    /// The VM ends.
    pub(super) fn forget_block_move(&mut self) {
        self.moving.drain(..).for_each(|block| self.machine.frames().free(block.frame));
    }

    /// Whether nobody has touched the block since it was watched.
    fn is_still(&self, block: &BlockMove) -> bool {
        let same = PageState::Private { mfn: block.source, pins: 0, watched: true };
        let found = self.pmap.lookup(self.machine.memory(), block.gfn);
        found.is_ok_and(|mapping| mapping.size == PageSize::Large && mapping.state == same)
    }

    /// Somebody has copied what they took of the block. `true`: all of it is there now. `false`: the block stays where
    /// it was. `None` while there is more to copy, or others copy.
    fn has_copied(&mut self, gfn: Gfn) -> Option<bool> {
        let Some(at) = self.moving.iter().position(|block| block.gfn == gfn) else { return Some(false) };
        let is_touched = !self.moving.get(at).is_some_and(|block| self.is_still(block));
        let block = self.moving.get_mut(at)?;
        block.copiers -= 1;
        block.stays |= is_touched;
        let is_open = block.copiers > 0 || (!block.stays && block.taken < PAGES_PER_LARGE);
        (!is_open).then_some(!block.stays)
    }

    /// All is copied: the new block takes the old one's place.
    fn end_block_move(&mut self, block: BlockMove, dying: &mut DyingList) -> bool {
        let BlockMove { gfn, frame, tries, .. } = block;
        let first = frame.mfn();
        let frame = match frame.overwritten(PageSize::Large.bytes()) {
            Ok(frame) => frame,
            Err(frame) => {
                self.machine.frames().free(frame);
                return false;
            }
        };
        if let Err(refused) = self.pmap.migrate_large(self.machine.frames(), gfn, frame, dying) {
            self.machine.frames().free(refused.frame);
            return false;
        }
        set_tries(self.machine.frames(), first, tries);
        self.remove_leaves(gfn, PAGES_PER_LARGE);
        true
    }
}

impl BlockMove {
    /// Somebody copies the next pages, as many as `most`: where each comes from and goes.
    fn take(&mut self, most: u64) -> (Gfn, impl Iterator<Item = (Mfn, Mfn)> + use<>) {
        let pages = self.taken..(self.taken + most).min(PAGES_PER_LARGE);
        self.taken = pages.end;
        self.copiers += 1;
        let (source, target) = (self.source.raw(), self.frame.mfn().raw());
        (self.gfn, pages.map(move |page| (Mfn::new(source + page), Mfn::new(target + page))))
    }
}
