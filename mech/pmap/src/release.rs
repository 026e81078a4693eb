//! Giving memory back.

use addr::{Gfn, PAGES_PER_LARGE};
use frames::{DyingList, MachineMemory, Pool};

use crate::slot::Block;
use crate::{Event, PageState, Pmap, PmapError, Refused};

/// Entries looked at in one call: bounded work.
const STEP: u32 = 512;

/// How far a release got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Where to go on; `None` when the range is done.
    pub next: Option<Gfn>,
    /// Pages and whole blocks that were looked at: what it took.
    pub looked_at: u32,
    /// Guest pages that are absent now and were not before.
    pub pages: u64,
    /// Guest pages that stay for now, because a device is using them.
    pub pinned: u64,
    /// Paging slots that nobody needs any more are not kept here: how many pages were on disk.
    pub paged_out: u64,
}

impl Pmap {
    /// Makes `pages` guest pages from `start` absent; the part outside the RAM is ignored. Frames that nobody else refers
    /// to go into `dying`.
    ///
    /// The caller removes the leaves of `[start, next)` from all tables *after* this, and frees `dying` behind that
    /// shootdown. Bounded: go on at [`Released::next`]. It ends early when `dying` is full. Large pages that are covered in
    /// part are split first.
    ///
    /// # Errors
    /// [`PmapError::OutOfTables`] when a large page has to be split and no table is left. What was released before stays
    /// released, and is in `dying`; so shoot down even then.
    pub fn release<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        start: Gfn,
        pages: u64,
        dying: &mut DyingList,
    ) -> Result<Released, PmapError> {
        self.release_some(pool, start, pages, dying, STEP)
    }

    /// The same in shorter steps: a call looks at `most` entries, each of which tells of a page or of a block.
    ///
    /// # Errors
    /// As for [`Pmap::release`].
    pub fn release_some<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        start: Gfn,
        pages: u64,
        dying: &mut DyingList,
        most: u32,
    ) -> Result<Released, PmapError> {
        let end = start.raw().saturating_add(pages).min(self.base().raw() + self.pages());
        let mut at = start.max(self.base());
        let mut done = Released { next: None, looked_at: 0, pages: 0, pinned: 0, paged_out: 0 };
        for _ in 0..most.min(STEP) {
            if at.raw() >= end {
                return Ok(done);
            }
            if dying.is_full() {
                break;
            }
            done.looked_at += 1;
            let step = self.release_at(pool, at, end, dying, &mut done)?;
            at = Gfn::new(at.raw() + step);
        }
        done.next = (at.raw() < end).then_some(at);
        Ok(done)
    }

    /// Releases what starts at `at`; returns how many guest pages were dealt with.
    fn release_at<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        at: Gfn,
        end: u64,
        dying: &mut DyingList,
        done: &mut Released,
    ) -> Result<u64, PmapError> {
        let rest = PAGES_PER_LARGE - at.index_in_large() as u64;
        match self.block(at)? {
            Block::Whole(PageState::Absent) => Ok(rest),
            Block::Whole(state) if rest == PAGES_PER_LARGE && at.raw() + rest <= end => {
                self.release_large(pool, at, state, dying, done)?;
                Ok(rest)
            }
            Block::Whole(_) => {
                self.split(pool, at)?;
                self.release_page(pool, at, dying, done)?;
                Ok(1)
            }
            Block::Table { .. } => {
                self.release_page(pool, at, dying, done)?;
                Ok(1)
            }
        }
    }

    fn release_large<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        at: Gfn,
        state: PageState,
        dying: &mut DyingList,
        done: &mut Released,
    ) -> Result<(), PmapError> {
        let actions = match crate::step(state, Event::Release) {
            Ok((_, actions)) => actions,
            Err(Refused::Pinned) => {
                done.pinned += PAGES_PER_LARGE;
                return Ok(());
            }
            Err(why) => return Err(why.into()),
        };
        if let Some(mfn) = actions.detach {
            pool.frames.drop_mapping(dying, mfn, frames::MAX_ORDER, self.owner(at))?;
        }
        self.counts.change(pool.frames, state, PageState::Absent, PAGES_PER_LARGE);
        self.counts.change_large(-1);
        self.set_block(at, Block::Whole(PageState::Absent));
        done.pages += PAGES_PER_LARGE;
        Ok(())
    }

    fn release_page<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        at: Gfn,
        dying: &mut DyingList,
        done: &mut Released,
    ) -> Result<(), PmapError> {
        let old = self.lookup(pool.memory, at)?.state;
        if matches!(old, PageState::Absent) {
            return Ok(());
        }
        let actions = match self.advance(pool.frames, pool.memory, at, Event::Release) {
            Ok((_, actions)) => actions,
            Err(PmapError::Refused(Refused::Pinned)) => {
                done.pinned += 1;
                return Ok(());
            }
            Err(why) => return Err(why),
        };
        self.detach(pool, at, actions, dying)?;
        done.pages += 1;
        done.paged_out += u64::from(actions.free_slot.is_some());
        self.drop_empty_table(pool.frames, at)
    }
}
