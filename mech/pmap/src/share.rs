//! Pages in common, and pages that move: single pages only.

use addr::{Gfn, Mfn};
use frames::{Clean, Dirty, DyingList, Frame, MachineMemory, Pool};

use crate::{Actions, Event, PageState, Pmap, PmapError, PopulateError, step};

impl Pmap {
    /// Replaces whatever backs `gfn` by a page that others have (a disk read answered from the cache). The old page, if
    /// any, goes into `dying`; the caller carries out `leaves` of the actions.
    ///
    /// # Errors
    /// If a device is using the old page, `gfn` lies in a large page, or `mfn` cannot be shared.
    pub fn map_shared<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        gfn: Gfn,
        mfn: Mfn,
        dying: &mut DyingList,
    ) -> Result<Actions, PmapError> {
        step(self.lookup(pool.memory, gfn)?.state, Event::MapShared { mfn })?;
        self.ensure_table(pool, gfn)?;
        if let Err(error) = pool.frames.attach_shared(mfn, self.owner(gfn)) {
            self.drop_empty_table(pool.frames, gfn)?;
            return Err(error.into());
        }
        let (_, actions) = self.advance(pool.frames, pool.memory, gfn, Event::MapShared { mfn })?;
        self.detach(pool, gfn, actions, dying)?;
        Ok(actions)
    }

    /// Others may map the page behind `gfn` from now on; returns it. The caller weakens the leaves, and then calls
    /// [`frames::Frames::attach_shared`] for the other side, which makes the row say so.
    ///
    /// # Errors
    /// If it is not a private single page, or a device is using it.
    pub fn share<M: MachineMemory>(&mut self, pool: &Pool<'_, M>, gfn: Gfn) -> Result<Mfn, PmapError> {
        let (state, _) = self.advance(pool.frames, pool.memory, gfn, Event::Share)?;
        state.mfn().ok_or(PmapError::NotRam { gfn })
    }

    /// The guest writes to a shared page: a page of its own with the same contents. If nobody else refers to the shared
    /// one, `make_copy` is not called and the page is kept. The caller carries out `leaves` of the actions.
    ///
    /// # Errors
    /// If the page is not shared, a device is using it, or `make_copy` finds no page ([`PmapError::OutOfTables`]).
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
        let copy = make_copy().ok_or(PmapError::OutOfTables)?;
        let copy = copied(pool, copy, source)?;
        self.replace(pool, gfn, copy, dying, |copy| Event::BreakSharing { copy }).map_err(|e| give_back(pool, e))
    }

    /// The contents behind `gfn` move to `to`, which was allocated for it. The caller has removed the leaves and waited
    /// for that shootdown *before*, or the guest could still write the old page while it is copied.
    ///
    /// # Errors
    /// With the new frame back in the allocator: if the page is not a private single one, or a device is using it.
    pub fn migrate<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        gfn: Gfn,
        to: Frame<Dirty>,
        dying: &mut DyingList,
    ) -> Result<Actions, PmapError> {
        let source = match self.lookup(pool.memory, gfn)?.state {
            PageState::Private { mfn, .. } => mfn,
            other => {
                pool.frames.free(to);
                return Err(PmapError::Refused(crate::Refused::Impossible { state: other.kind() }));
            }
        };
        let copy = copied(pool, to, source)?;
        self.replace(pool, gfn, copy, dying, |to| Event::Migrate { to }).map_err(|e| give_back(pool, e))
    }

    fn replace<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        gfn: Gfn,
        frame: Frame<Clean>,
        dying: &mut DyingList,
        event: impl FnOnce(Mfn) -> Event,
    ) -> Result<Actions, PopulateError> {
        let fits = self.check_owner(pool.frames, &frame, gfn);
        let stepped = fits.and_then(|()| self.advance(pool.frames, pool.memory, gfn, event(frame.mfn())));
        let actions = match stepped {
            Ok((_, actions)) => actions,
            Err(error) => return Err(PopulateError { error, frame }),
        };
        let _ = frame.settle();
        // The new page is in place; a row that contradicts the old one is a bug that must not hide.
        self.detach(pool, gfn, actions, dying).expect("the row of a mapped page names its guest page");
        Ok(actions)
    }

    fn detach<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        gfn: Gfn,
        actions: Actions,
        dying: &mut DyingList,
    ) -> Result<(), PmapError> {
        if let Some(old) = actions.detach {
            pool.frames.drop_mapping(dying, old, 0, self.owner(gfn))?;
        }
        Ok(())
    }
}

fn copied<M: MachineMemory>(pool: &Pool<'_, M>, frame: Frame<Dirty>, source: Mfn) -> Result<Frame<Clean>, PmapError> {
    frame.copy_from(pool.memory, source).map_err(|frame| {
        pool.frames.free(frame);
        PmapError::Memmap(frames::FrameError::NoSuchPage(source))
    })
}

fn give_back<M: MachineMemory>(pool: &Pool<'_, M>, failed: PopulateError) -> PmapError {
    pool.frames.free(failed.frame);
    failed.error
}
