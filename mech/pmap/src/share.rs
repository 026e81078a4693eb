//! Pages in common: single pages only.

use addr::{Gfn, Mfn, PAGES_PER_LARGE, PageSize};
use frames::{Clean, Dirty, DyingList, Frame, MachineMemory, Pool};

use crate::pmap::slot_addr;
use crate::slot::Slot;
use crate::{Actions, Event, PageState, Pmap, PmapError, PopulateError, step};

/// What came of [`Pmap::share_quickly`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// As [`Pmap::map_shared`] has done it; the leaves have to go, or change.
    Done,
    /// It is that page already.
    Same,
    /// Nothing: ask [`Pmap::map_shared`].
    Other,
}

impl Pmap {
    /// [`Pmap::map_shared`] where the block has a table and `gfn` a page that no device uses: a third of the instructions.
    #[inline(always)]
    pub fn share_quickly<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        gfn: Gfn,
        mfn: Mfn,
        dying: &mut DyingList,
    ) -> Swap {
        if !self.contains(gfn) {
            return Swap::Other;
        }
        let Some(table) = self.blocks.get(self.block_number(gfn)).and_then(|word| word.table()) else {
            return Swap::Other;
        };
        let at = slot_addr(table, gfn.index_in_large());
        let slot = Slot::from_word(pool.memory.read_u64(at));
        let Some((old, was_shared)) = slot.replaceable_page() else { return Swap::Other };
        if old == mfn {
            return Swap::Same;
        }
        let owner = self.owner(gfn);
        let Some(from) = pool.frames.map().node_of(old) else { return Swap::Other };
        let Ok(to) = pool.frames.attach_shared(pool.memory, mfn, owner) else { return Swap::Other };
        pool.memory.write_u64(at, Slot::shared(mfn).word());
        self.recent.forget(gfn);
        self.counts.share(from, was_shared, to);
        if was_shared {
            pool.frames.drop_shared(dying, old, owner);
        } else {
            // The new page is in place; a row that contradicts the old one is a bug that must not hide.
            pool.frames.drop_mapping(dying, old, 0, owner).expect("the row of a mapped page names its guest page");
        }
        Swap::Done
    }

    /// Replaces whatever backs `gfn` by a page that others have (a disk read answered from the cache). A large page is split
    /// for it. The old page, if any, goes into `dying`; the caller carries out `leaves` of the actions.
    ///
    /// # Errors
    /// [`Refused::SamePage`] if it is that page already. If a device is using the old page, no table is left, or `mfn`
    /// cannot be shared.
    pub fn map_shared<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        gfn: Gfn,
        mfn: Mfn,
        dying: &mut DyingList,
    ) -> Result<Actions, PmapError> {
        let at = self.lookup(pool.memory, gfn)?;
        step(at.state, Event::MapShared { mfn })?;
        if at.size == PageSize::Large && !at.is_absent() {
            self.split(pool, gfn)?;
        }
        self.ensure_table(pool, gfn)?;
        if let Err(error) = pool.frames.attach_shared(pool.memory, mfn, self.owner(gfn)) {
            self.drop_empty_table(pool.frames, gfn)?;
            return Err(error.into());
        }
        let (_, actions) = self.advance(pool.frames, pool.memory, gfn, Event::MapShared { mfn })?;
        self.detach(pool, gfn, actions, dying)?;
        Ok(actions)
    }

    /// The private page behind `gfn` is not written from now on without [`Pmap::note_write`]; returns it. A large page is
    /// split for it. The caller weakens the leaves, and waits for the shootdown.
    ///
    /// # Errors
    /// If it is not a private page, or no table is left.
    pub fn watch<M: MachineMemory>(&mut self, pool: &Pool<'_, M>, gfn: Gfn) -> Result<Mfn, PmapError> {
        self.split(pool, gfn)?;
        let (state, _) = self.advance_slowly(pool.frames, pool.memory, gfn, Event::Watch)?;
        state.mfn().ok_or(PmapError::NotRam { gfn })
    }

    /// The same for the block of `gfn` as it is: one large page. Returns its first machine page.
    ///
    /// # Errors
    /// [`PmapError::NotLarge`] if it is not a private large page, or a device is using it.
    pub fn watch_large<M: MachineMemory>(&mut self, pool: &Pool<'_, M>, gfn: Gfn) -> Result<Mfn, PmapError> {
        let mapping = self.lookup(pool.memory, gfn)?;
        let PageState::Private { mfn, pins: 0, .. } = mapping.state else { return Err(PmapError::NotLarge { gfn }) };
        if mapping.size != PageSize::Large {
            return Err(PmapError::NotLarge { gfn });
        }
        self.advance_slowly(pool.frames, pool.memory, gfn, Event::Watch)?;
        Ok(mfn)
    }

    /// The first machine page of a block whose 512 pages are shared and those of one machine block, in order, none pinned:
    /// one large leaf that does not allow writing says the same as 512 single ones.
    #[must_use]
    pub fn shared_block<M: MachineMemory>(&self, memory: &M, gfn: Gfn) -> Option<Mfn> {
        if !self.is_whole(gfn) {
            return None;
        }
        let table = self.blocks.get(self.block_number(gfn))?.table()?;
        let slot = |index: u64| Slot::from_word(memory.read_u64(slot_addr(table, index as usize)));
        let (first, _) = slot(0).replaceable_page().filter(|(first, _)| first.raw().is_multiple_of(PAGES_PER_LARGE))?;
        let is_next = |index| slot(index) == Slot::shared(Mfn::new(first.raw() + index));
        (0..PAGES_PER_LARGE).all(is_next).then_some(first)
    }

    /// Others may map the page behind `gfn` from now on; returns it. A large page is split for it. The caller weakens the
    /// leaves, and then, behind that shootdown, calls [`frames::Frames::hold`] or [`frames::Frames::attach_shared`] for the
    /// other side, which makes the row say so.
    ///
    /// # Errors
    /// If it is not a private page, a device is using it, or no table is left.
    pub fn share<M: MachineMemory>(&mut self, pool: &Pool<'_, M>, gfn: Gfn) -> Result<Mfn, PmapError> {
        self.split(pool, gfn)?;
        let (state, _) = self.advance_slowly(pool.frames, pool.memory, gfn, Event::Share)?;
        state.mfn().ok_or(PmapError::NotRam { gfn })
    }

    /// The guest writes to a shared page: a page of its own with the same contents. If nobody else refers to the shared
    /// one, `make_copy` is not called and the page is kept. The caller carries out `leaves` of the actions; a copy may be
    /// written when the shootdown of that has ended: [`Pmap::note_write`].
    ///
    /// # Errors
    /// If the page is not shared, a device is using it, or `make_copy` finds no page ([`PmapError::OutOfMemory`]).
    pub fn break_sharing<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        gfn: Gfn,
        dying: &mut DyingList,
        make_copy: impl FnOnce() -> Option<Frame<Dirty>>,
    ) -> Result<Actions, PmapError> {
        let state = self.lookup(pool.memory, gfn)?.state;
        let (_, sole) = step(state, Event::TakeSole)?;
        let source = state.mfn().ok_or(PmapError::NotRam { gfn })?;
        if pool.frames.make_private(source, self.owner(gfn))? {
            self.advance(pool.frames, pool.memory, gfn, Event::TakeSole)?;
            return Ok(sole);
        }
        let copy = make_copy().ok_or(PmapError::OutOfMemory)?;
        let copy = copied(pool, copy, source)?;
        self.replace(pool, gfn, copy, dying, |copy| Event::BreakSharing { copy }).map_err(|e| give_back(pool, e))
    }

    pub(crate) fn replace<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        gfn: Gfn,
        frame: Frame<Clean>,
        dying: &mut DyingList,
        event: impl FnOnce(Mfn) -> Event,
    ) -> Result<Actions, PopulateError> {
        let fits = self.check_owner(pool.frames, &frame, gfn);
        let stepped = fits.and_then(|()| self.advance_slowly(pool.frames, pool.memory, gfn, event(frame.mfn())));
        let actions = match stepped {
            Ok((_, actions)) => actions,
            Err(error) => return Err(PopulateError { error, frame }),
        };
        let _ = frame.settle();
        // The new page is in place; a row that contradicts the old one is a bug that must not hide.
        self.detach(pool, gfn, actions, dying).expect("the row of a mapped page names its guest page");
        Ok(actions)
    }

    /// Lets go of what the actions say: the replicas first, which are found through the master.
    pub(crate) fn detach<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        gfn: Gfn,
        actions: Actions,
        dying: &mut DyingList,
    ) -> Result<(), PmapError> {
        if actions.detach_replicas
            && let Some(master) = actions.detach
        {
            self.drop_replicas(pool, gfn, master, dying)?;
        }
        if let Some(old) = actions.detach {
            pool.frames.drop_mapping(dying, old, 0, self.owner(gfn))?;
        }
        Ok(())
    }
}

pub(crate) fn copied<M: MachineMemory>(
    pool: &Pool<'_, M>,
    frame: Frame<Dirty>,
    source: Mfn,
) -> Result<Frame<Clean>, PmapError> {
    frame.copy_from(pool.memory, source).map_err(|frame| {
        pool.frames.free(frame);
        PmapError::Memmap(frames::FrameError::NoSuchPage(source))
    })
}

pub(crate) fn give_back<M: MachineMemory>(pool: &Pool<'_, M>, failed: PopulateError) -> PmapError {
    pool.frames.free(failed.frame);
    failed.error
}
