//! Pages that move, and pages with copies for their readers (Disco, section 4.2.3).
//!
//! Either way contents are copied while nobody writes them: the page is watched first ([`Pmap::watch`]), the shootdown of
//! that ends, and only then it is copied. A write that comes between ends the watch, and the copy is refused.

use addr::{Gfn, Mfn, NodeId, PAGES_PER_LARGE, PageSize};
use frames::{Clean, Dirty, DyingList, Frame, Frames, MachineMemory, Pool};

use crate::pmap::read_slot;
use crate::share::{copied, give_back};
use crate::slot::Block;
use crate::{Actions, Event, Mapping, PageState, Pmap, PmapError, PopulateError, Refused, StateKind, step};

impl Pmap {
    /// The contents behind `gfn` move to `to`, which was allocated for it. The page is watched, and the caller has waited for
    /// *that* shootdown before, or the guest could still write the old page while it is copied. The new page may be written
    /// when the shootdown of the old one has ended: [`Pmap::note_write`].
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

    /// The same for a large page. The caller has filled `to`, in steps if it likes; the page was watched all the time.
    ///
    /// # Errors
    /// With the frame: if the block is not one private large page that nobody writes or uses, or the frame not one for it.
    pub fn migrate_large(
        &mut self,
        frames: &Frames,
        gfn: Gfn,
        to: Frame<Clean>,
        dying: &mut DyingList,
    ) -> Result<Actions, PopulateError> {
        let first = gfn.large_base();
        let checked = self.block(gfn).and_then(|block| {
            let Block::Whole(old) = block else { return Err(PmapError::NotLarge { gfn }) };
            if to.size() != Some(PageSize::Large) {
                return Err(PmapError::NotLarge { gfn });
            }
            self.check_owner(frames, &to, first)?;
            Ok((old, step(old, Event::Migrate { to: to.mfn() })?))
        });
        let (old, (new, actions)) = match checked {
            Ok(found) => found,
            Err(error) => return Err(PopulateError { error, frame: to }),
        };
        let _ = to.settle();
        self.counts.change(frames, old, new, PAGES_PER_LARGE);
        self.set_block(first, Block::Whole(new));
        if let Some(mfn) = actions.detach {
            let dropped = frames.drop_mapping(dying, mfn, frames::MAX_ORDER, self.owner(first));
            // The new block is in place; a row that contradicts the old one is a bug that must not hide.
            dropped.expect("the row of a mapped block names its guest page");
        }
        Ok(actions)
    }

    /// A copy for the readers of one more node, in `copy`, which was taken for that ([`Pool::replica_to_fill`]). A private page
    /// is watched, and the shootdown of that has ended. The caller lets that node's leaf name the copy: [`Pmap::page_for`].
    /// The leaves of other nodes may stay, and stale ones do no harm: all copies say the same.
    ///
    /// # Errors
    /// With the copy back in the allocator: if the page is written, used by a device, shared, or has a copy there.
    pub fn replicate<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        gfn: Gfn,
        copy: Frame<Dirty>,
    ) -> Result<Actions, PmapError> {
        let node = copy.node();
        let master = self.lookup(pool.memory, gfn).and_then(|mapping| {
            step(mapping.state, Event::Replicate { node })?;
            let master = mapping.state.mfn().filter(|_| mapping.size == PageSize::Base);
            let master = master.ok_or(PmapError::IsLarge { gfn: gfn.large_base() })?;
            // A copy beside the master would help nobody.
            let is_elsewhere = pool.frames.map().node_of(master) != Some(node);
            is_elsewhere.then_some(master).ok_or(PmapError::Refused(Refused::BadNode))
        });
        let master = match master {
            Ok(master) => master,
            Err(why) => {
                pool.frames.free(copy);
                return Err(why);
            }
        };
        let copy = copied(pool, copy, master)?;
        if let Err((why, copy)) = pool.frames.attach_replica(master, copy, self.owner(gfn)) {
            pool.frames.free(copy);
            return Err(why.into());
        }
        let (_, actions) = self.advance_slowly(pool.frames, pool.memory, gfn, Event::Replicate { node })?;
        self.counts.change_replicas(node, 1);
        Ok(actions)
    }

    /// Only the master stays: somebody writes the page, or copies are not worth it any more. The caller lets all leaves name
    /// the master, read-only; it may be written when the shootdown of that has ended: [`Pmap::note_write`].
    ///
    /// # Errors
    /// If it has no replicas.
    pub fn collapse_replicas<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        gfn: Gfn,
        dying: &mut DyingList,
    ) -> Result<Actions, PmapError> {
        let state = self.lookup(pool.memory, gfn)?.state;
        let PageState::Replicated { master, .. } = state else {
            return Err(PmapError::Refused(Refused::Impossible { state: state.kind() }));
        };
        let (_, actions) = self.advance_slowly(pool.frames, pool.memory, gfn, Event::Collapse)?;
        self.drop_replicas(pool, gfn, master, dying)?;
        Ok(actions)
    }

    /// The machine page that the harts of `node` should see at `mapping`: their copy if there is one.
    #[must_use]
    #[inline]
    pub fn page_for(&self, frames: &Frames, mapping: &Mapping, node: NodeId) -> Option<Mfn> {
        match mapping.state {
            PageState::Replicated { master, nodes } if node.0 < 8 && nodes & 1 << node.0 != 0 => {
                frames.replica_on(master, node).or(Some(master))
            }
            PageState::Shared { mfn, .. } => frames.spread_on(mfn, node).or(Some(mfn)),
            state => state.mfn(),
        }
    }

    /// The first guest page from `start` on that has copies.
    #[must_use]
    pub fn next_replicated<M: MachineMemory>(&self, memory: &M, start: Gfn) -> Option<Gfn> {
        let start = start.max(self.base());
        let first = (start.large_base().raw() - self.base().large_base().raw()) / PAGES_PER_LARGE;
        let tables = (first..).zip(self.blocks.get(first as usize..)?).filter_map(|(number, word)| {
            let block = Gfn::new(self.base().large_base().raw() + number * PAGES_PER_LARGE);
            Some((block.max(start), word.table()?))
        });
        let mut pages = tables.flat_map(|(from, table)| {
            let singles = from.index_in_large()..PAGES_PER_LARGE as usize;
            singles
                .map(move |index| (Gfn::new(from.large_base().raw() + index as u64), read_slot(memory, table, index)))
        });
        pages.find(|(_, state)| state.kind() == StateKind::Replicated).map(|(gfn, _)| gfn)
    }

    /// Guest pages with copies.
    #[must_use]
    pub const fn replicated_pages(&self) -> u64 {
        self.counts().of(StateKind::Replicated)
    }

    pub(crate) fn drop_replicas<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        gfn: Gfn,
        master: Mfn,
        dying: &mut DyingList,
    ) -> Result<(), PmapError> {
        for replica in pool.frames.replicas(master) {
            if let Some(node) = pool.frames.map().node_of(replica) {
                self.counts.change_replicas(node, -1);
            }
        }
        pool.frames.drop_replicas(dying, master, self.owner(gfn))?;
        Ok(())
    }
}
