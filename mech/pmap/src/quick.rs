//! What moving and copying pages costs most of, in a third of the instructions: for single pages that no device uses, as nearly
//! all that move are. What these functions decline, the others of their names do, or refuse with a reason.
//!
//! Every change is the one that [`step`] makes: builds with assertions compare the two.

use addr::{Gfn, MachineAddr, Mfn, NodeId};
use frames::{Clean, DyingList, Frame, Frames, MachineMemory, PageUse, Pool};

use crate::pmap::slot_addr;
use crate::slot::Slot;
use crate::{Event, Pmap, step};

/// Where a page's state is, and what it says.
#[derive(Clone, Copy)]
struct Place {
    address: MachineAddr,
    slot: Slot,
}

impl Pmap {
    /// The state of `gfn`, if its block has a table.
    #[inline(always)]
    fn place_of<M: MachineMemory>(&self, memory: &M, gfn: Gfn) -> Option<Place> {
        if !self.contains(gfn) {
            return None;
        }
        let table = self.blocks.get(self.block_number(gfn))?.table()?;
        let address = slot_addr(table, gfn.index_in_large());
        Some(Place { address, slot: Slot::from_word(memory.read_u64(address)) })
    }

    #[inline(always)]
    fn change_place<M: MachineMemory>(&mut self, memory: &M, gfn: Gfn, place: Place, event: Event, new: Slot) {
        debug_assert_eq!(
            place.slot.unpack().and_then(|old| step(old, event).ok()).map(|(new, _)| Slot::pack(new)),
            Some(new)
        );
        memory.write_u64(place.address, new.word());
        self.recent.forget(gfn);
    }

    /// The machine page behind `gfn`, if that is a single page of the VM's own that no device uses.
    #[inline(always)]
    #[must_use]
    pub fn sole_page<M: MachineMemory>(&self, memory: &M, gfn: Gfn) -> Option<Mfn> {
        let (page, _) = self.place_of(memory, gfn)?.slot.sole_page()?;
        Some(page)
    }

    /// [`Pmap::watch`]: the page, or `None` with nothing changed.
    #[inline(always)]
    pub fn watch_quickly<M: MachineMemory>(&mut self, memory: &M, gfn: Gfn) -> Option<Mfn> {
        let place = self.place_of(memory, gfn)?;
        let (page, _) = place.slot.sole_page()?;
        self.change_place(memory, gfn, place, Event::Watch, Slot::private(page, true));
        Some(page)
    }

    /// [`Pmap::note_write`]: the page that may be written from now on, or `None` with nothing changed.
    #[inline(always)]
    pub fn note_write_quickly<M: MachineMemory>(&mut self, memory: &M, gfn: Gfn) -> Option<Mfn> {
        let place = self.place_of(memory, gfn)?;
        let (page, is_watched) = place.slot.sole_page()?;
        if !is_watched {
            return None;
        }
        self.change_place(memory, gfn, place, Event::Write, Slot::private(page, false));
        Some(page)
    }

    /// [`Pmap::migrate`] to a page of the pool's first node, where it is not yet: where it is, or `None` with nothing changed.
    /// `history` makes the history of the new page's row from that of the old one ([`frames::MemMapEntry::history`]).
    #[inline(always)]
    pub fn migrate_quickly<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        gfn: Gfn,
        dying: &mut DyingList,
        history: impl FnOnce((u8, u16)) -> (u8, u16),
    ) -> Option<Mfn> {
        let place = self.place_of(pool.memory, gfn).filter(|_| pool.vm == self.vm())?;
        let (from, _) = place.slot.sole_page().filter(|(_, is_watched)| *is_watched)?;
        let row = pool.frames.map().entry(from)?;
        let was_on = row.node();
        let to = *pool.nodes.first().filter(|to| **to != was_on)?;
        let frame = pool.frames.alloc_page(to, PageUse::Private { vm: pool.vm, gfn, spu: pool.spu })?;
        let node = frame.node();
        pool.memory.copy_page(from, frame.mfn());
        let to = frame.settle();
        if let Some(new) = pool.frames.map().entry(to) {
            let (moves, tick) = history(row.history());
            new.set_history(moves, tick);
        }
        self.change_place(pool.memory, gfn, place, Event::Migrate { to }, Slot::private(to, true));
        self.counts.migrate(was_on, node);
        // The new page is in place; a row that contradicts the old one is a bug that must not hide.
        let was_its = pool.frames.drop_private(dying, row, from, 0, self.owner(gfn));
        assert!(was_its, "the row of a mapped page names its guest page");
        Some(to)
    }

    /// The page that a copy of what is at `gfn`, for harts of the pool's first node, is to be made from. `None` if it cannot have
    /// one, or has one; that the page itself is there is found out later.
    #[inline(always)]
    #[must_use]
    pub fn master_for_copy<M: MachineMemory>(&self, pool: &Pool<'_, M>, gfn: Gfn) -> Option<Mfn> {
        let place = self.place_of(pool.memory, gfn).filter(|_| pool.vm == self.vm())?;
        let (master, nodes) = place.slot.replicable_page()?;
        let node = pool.nodes.first().filter(|node| node.0 < 8)?;
        (nodes & 1 << node.0 == 0).then_some(master)
    }

    /// [`Pmap::replicate`] to `copy`, which was taken for that from `pool` and made from `master`: the copy. Of the first copy
    /// `history` makes the history of the master's row anew. The caller knows that nobody has written the page since.
    ///
    /// # Errors
    /// The copy, with nothing changed, if the page is another one by now, or may not have copies any more.
    #[inline(always)]
    pub fn replicate_quickly<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        gfn: Gfn,
        (master, copy): (Mfn, Frame<Clean>),
        history: impl FnOnce((u8, u16)) -> (u8, u16),
    ) -> Result<Mfn, Frame<Clean>> {
        let (page, node) = (copy.mfn(), copy.node());
        let place = self.place_of(pool.memory, gfn).filter(|_| pool.vm == self.vm() && node.0 < 8);
        let found =
            place.and_then(|place| Some((place, place.slot.replicable_page()?, pool.frames.map().entry(master)?)));
        let Some((place, nodes, row)) = found
            .filter(|(_, (page, nodes), row)| *page == master && nodes & 1 << node.0 == 0 && row.node() != node)
            .map(|(place, (_, nodes), row)| (place, nodes, row))
        else {
            return Err(copy);
        };
        if let Err((_, copy)) = pool.frames.attach_replica(master, copy, self.owner(gfn)) {
            return Err(copy);
        }
        let new = Slot::replicated(master, nodes | 1 << node.0);
        self.change_place(pool.memory, gfn, place, Event::Replicate { node }, new);
        self.counts.replicate(node, nodes == 0);
        if nodes == 0 {
            let (moves, tick) = history(row.history());
            row.set_history(moves, tick);
        }
        Ok(page)
    }

    /// What [`Pmap::page_for`] says of a single page: its master or only page, and what harts of `node` should see. `None`
    /// for what is no single page that is the VM's own.
    #[inline(always)]
    #[must_use]
    pub fn own_page_for<M: MachineMemory>(
        &self,
        frames: &Frames,
        memory: &M,
        gfn: Gfn,
        node: NodeId,
    ) -> Option<(Mfn, Mfn, u8)> {
        let slot = self.place_of(memory, gfn)?.slot;
        if let Some((page, _)) = slot.sole_page() {
            return Some((page, page, 0));
        }
        let (master, nodes) = slot.replicable_page()?;
        let has_copy = node.0 < 8 && nodes & 1 << node.0 != 0;
        let seen = if has_copy { frames.replica_on(master, node).unwrap_or(master) } else { master };
        Some((master, seen, nodes))
    }
}
