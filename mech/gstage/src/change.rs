//! What happens to leaves later: they go, lose rights, are split and grow together again.

use addr::{Gfn, MachineAddr, Mfn, PAGES_PER_LARGE};
use frames::{DyingList, MachineMemory, Pool};
use rv_pte::{Level, Pte, PteFlags};

use crate::table::{leaf, slot_at};
use crate::{NodeTable, TableError};

impl NodeTable {
    /// Removes every leaf that touches `[start, start + pages)`; returns how many. A large leaf goes as a whole: faults
    /// bring back what is still backed. If it is not zero, nothing that they named may go on before a shootdown.
    pub fn remove<M: MachineMemory>(&mut self, memory: &M, start: Gfn, pages: u64) -> u64 {
        self.change(memory, start, pages, |_| Pte::INVALID)
    }

    /// Takes all rights but `rights` from every leaf that touches `[start, start + pages)`, and removes those that would
    /// keep none; returns how many changed. A large leaf changes as a whole. In force after a shootdown.
    pub fn weaken<M: MachineMemory>(&mut self, memory: &M, start: Gfn, pages: u64, rights: PteFlags) -> u64 {
        self.change(memory, start, pages, |entry| weakened(entry, rights))
    }

    /// Another machine page backs `gfn`: its leaf, if there is one, names that from now on; with `make` there is one in any
    /// case. A large leaf is split for it. `true` if a leaf changed: nobody may rely on it before a shootdown.
    ///
    /// # Errors
    /// [`TableError::OutOfTables`] and others of [`NodeTable::install`]; the leaf is as it was then, and wrong: remove it.
    #[inline]
    pub fn exchange<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        gfn: Gfn,
        mfn: Mfn,
        rights: PteFlags,
        make: bool,
    ) -> Result<bool, TableError> {
        let new = leaf(mfn, Level::BASE, rights)?;
        let Some(table) = self.table_if_needed(pool, gfn, make)? else { return Ok(false) };
        let slot = slot_at(table, gfn.index_in_large());
        let old = Pte::from_raw(pool.memory.read_u64(slot));
        if old != new && (make || old.is_valid()) {
            pool.memory.write_u64(slot, new.raw());
        }
        Ok(old.is_valid() && old != new)
    }

    /// [`NodeTable::exchange`] where the block's table is the one used last; else `None`, with nothing changed.
    #[inline(always)]
    pub fn exchange_quickly<M: MachineMemory>(
        &mut self,
        memory: &M,
        gfn: Gfn,
        mfn: Mfn,
        rights: PteFlags,
    ) -> Option<bool> {
        let table = self.recent_table_of(gfn)?;
        let new = leaf(mfn, Level::BASE, rights).ok()?;
        let slot = slot_at(table, gfn.index_in_large());
        let old = Pte::from_raw(memory.read_u64(slot));
        memory.write_u64(slot, new.raw());
        Some(old.is_valid() && old != new)
    }

    /// The slot of `gfn` in a table of single pages, if there is one: quick where neighbours are asked for one after another.
    #[inline(always)]
    fn single_slot<M: MachineMemory>(&mut self, memory: &M, gfn: Gfn) -> Option<MachineAddr> {
        let table = match self.recent_table_of(gfn) {
            Some(table) => table,
            None => self.find_single_table(memory, gfn)?,
        };
        Some(slot_at(table, gfn.index_in_large()))
    }

    #[inline(never)]
    fn find_single_table<M: MachineMemory>(&mut self, memory: &M, gfn: Gfn) -> Option<Mfn> {
        let slot = self.find_large_slot(memory, gfn).ok()?;
        let table = Some(Pte::from_raw(memory.read_u64(slot))).filter(|entry| entry.is_table())?.frame();
        self.remember_table(gfn, table);
        Some(table)
    }

    /// [`NodeTable::weaken`] of one page where its block has a table: whether it changed. `None`, with nothing changed, where
    /// it has none.
    #[inline(always)]
    pub fn weaken_quickly<M: MachineMemory>(&mut self, memory: &M, gfn: Gfn, rights: PteFlags) -> Option<bool> {
        let slot = self.single_slot(memory, gfn)?;
        Some(change_leaf(memory, slot, |entry| weakened(entry, rights)))
    }

    /// [`NodeTable::exchange`] without making a leaf where there is none, if the block has a table; `None`, with nothing
    /// changed, where it has none.
    #[inline(always)]
    pub fn exchange_if_there<M: MachineMemory>(
        &mut self,
        memory: &M,
        gfn: Gfn,
        mfn: Mfn,
        rights: PteFlags,
    ) -> Option<bool> {
        let slot = self.single_slot(memory, gfn)?;
        let new = leaf(mfn, Level::BASE, rights).ok()?;
        Some(change_leaf(memory, slot, |_| new))
    }

    /// The table of single pages for the block of `gfn`; without `make` only if there is one, or a large leaf.
    #[inline]
    fn table_if_needed<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        gfn: Gfn,
        make: bool,
    ) -> Result<Option<Mfn>, TableError> {
        let is_needed = || {
            let slot = self.find_large_slot(pool.memory, gfn);
            slot.is_ok_and(|slot| Pte::from_raw(pool.memory.read_u64(slot)).is_valid())
        };
        if make || is_needed() { self.base_table(pool, gfn).map(Some) } else { Ok(None) }
    }

    /// One large leaf becomes 512 single ones that say the same: no shootdown. Where there is no large leaf, nothing
    /// happens.
    ///
    /// # Errors
    /// [`TableError::OutOfTables`].
    pub fn split<M: MachineMemory>(&mut self, pool: &Pool<'_, M>, gfn: Gfn) -> Result<(), TableError> {
        let Ok(slot) = self.find_large_slot(pool.memory, gfn) else { return Ok(()) };
        if Pte::from_raw(pool.memory.read_u64(slot)).is_leaf() {
            self.table_at(pool, slot)?;
        }
        Ok(())
    }

    /// The block of `gfn` is one large page of the pmap (again), from machine page `mfn`: one large leaf takes the place
    /// of the table of single ones, which goes into `dying`. The single leaves may stay in TLBs: they say the same. Where
    /// there is no such table, nothing happens.
    ///
    /// # Errors
    /// [`TableError::Occupied`] if a single leaf names another machine page, or allows more than the large one will.
    pub fn collapse<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        gfn: Gfn,
        mfn: Mfn,
        rights: PteFlags,
        dying: &mut DyingList,
    ) -> Result<(), TableError> {
        let large = leaf(mfn, Level::LARGE, rights)?;
        let Ok(slot) = self.find_large_slot(pool.memory, gfn) else { return Ok(()) };
        let old = Pte::from_raw(pool.memory.read_u64(slot));
        if !old.is_table() {
            return Ok(());
        }
        for index in 0..PAGES_PER_LARGE {
            let single = Pte::from_raw(pool.memory.read_u64(slot_at(old.frame(), index as usize)));
            let says_same = single.frame().raw() == mfn.raw() + index && large.flags().contains(single.flags());
            if single.is_valid() && !says_same {
                return Err(TableError::Occupied { gfn: Gfn::new(gfn.large_base().raw() + index) });
            }
        }
        pool.memory.write_u64(slot, large.raw());
        self.forget_table(pool, dying, old.frame())
    }

    /// Writes what `change` makes of each leaf that touches the range; returns how many became something else.
    fn change<M: MachineMemory>(
        &mut self,
        memory: &M,
        start: Gfn,
        pages: u64,
        change: impl Fn(Pte) -> Pte + Copy,
    ) -> u64 {
        let (mut at, end) = (start.raw(), start.raw().saturating_add(pages));
        let mut changed = 0;
        while at < end {
            let slot = match self.find_large_slot(memory, Gfn::new(at)) {
                Ok(slot) => slot,
                Err(behind) => {
                    at = behind;
                    continue;
                }
            };
            let block = Gfn::new(at).large_base().raw();
            let next = block + PAGES_PER_LARGE;
            let entry = Pte::from_raw(memory.read_u64(slot));
            if entry.is_table() {
                let single = |page: u64| slot_at(entry.frame(), (page - block) as usize);
                let singles = (at..end.min(next)).map(|page| change_leaf(memory, single(page), change));
                changed += singles.map(u64::from).sum::<u64>();
            } else {
                changed += u64::from(change_leaf(memory, slot, change));
            }
            at = next;
        }
        changed
    }
}

/// The leaf with no rights but `rights`; none if it could not be read.
#[inline(always)]
fn weakened(entry: Pte, rights: PteFlags) -> Pte {
    let left = entry.flags().intersection(rights).intersection(PteFlags::PERMISSIONS);
    if left.contains(PteFlags::R) { entry.with_permissions(left) } else { Pte::INVALID }
}

/// `true` if there was a leaf and it is another one now.
#[inline]
fn change_leaf<M: MachineMemory>(memory: &M, slot: MachineAddr, change: impl Fn(Pte) -> Pte) -> bool {
    let old = Pte::from_raw(memory.read_u64(slot));
    let new = if old.is_leaf() { change(old) } else { old };
    if new != old {
        memory.write_u64(slot, new.raw());
    }
    new != old
}
