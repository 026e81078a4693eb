//! A G-stage table for the harts of one node: a cache of the pmap.

use crate::machine::memory::DirectMemory;
use addr::{Gfn, MachineAddr, Mfn, PAGES_PER_LARGE, PageSize};
use frames::{DyingList, MachineMemory as _, Pool};
use rv_pte::{Level, Mode, Pbmt, Pte, PteFlags};

/// The table.
#[derive(Debug)]
pub struct NodeTable {
    mode: Mode,
    root: Mfn,
}

const LEAF: PteFlags = PteFlags::U.union(PteFlags::AD);

impl NodeTable {
    /// An empty table.
    pub fn new(pool: &Pool<'_, DirectMemory>, mode: Mode) -> Option<Self> {
        let root = pool.table_block(mode.root_order())?.settle();
        Some(Self { mode, root })
    }

    /// Its root.
    pub const fn root(&self) -> Mfn {
        self.root
    }

    fn slot(&self, table: Mfn, level: Level, gfn: Gfn) -> MachineAddr {
        MachineAddr::new(table.addr().raw() + 8 * self.mode.index(level, gfn.addr().raw()) as u64)
    }

    /// The slot of the entry for `gfn` at `level`; tables on the way are made when `pool` is given.
    fn walk(&self, pool: Option<&Pool<'_, DirectMemory>>, gfn: Gfn, wanted: Level) -> Option<MachineAddr> {
        let mut table = self.root;
        let mut level = self.mode.root_level();
        while level != wanted {
            let slot = self.slot(table, level, gfn);
            let entry = Pte::from_raw(DirectMemory.read_u64(slot));
            table = if entry.is_table() {
                entry.frame()
            } else if entry.is_valid() {
                return None;
            } else {
                let below = pool?.table()?.settle();
                DirectMemory.write_u64(slot, Pte::table(below).ok()?.raw());
                below
            };
            level = level.down()?;
        }
        Some(self.slot(table, level, gfn))
    }

    /// Installs a leaf. `false` if no page for a table was left.
    #[inline]
    pub fn install(
        &mut self,
        pool: &Pool<'_, DirectMemory>,
        gfn: Gfn,
        mfn: Mfn,
        size: PageSize,
        rights: PteFlags,
    ) -> bool {
        let level = Level::of(size);
        let Some(slot) = self.walk(Some(pool), gfn, level) else { return false };
        let Ok(leaf) = Pte::leaf(mfn, level, rights | LEAF, Pbmt::Pma) else { return false };
        DirectMemory.write_u64(slot, leaf.raw());
        true
    }

    /// Removes every leaf that touches `[start, start + pages)`. A large leaf goes as a whole: faults bring back what is
    /// still backed.
    pub fn remove(&mut self, start: Gfn, pages: u64) {
        let mut at = start.raw();
        let end = start.raw() + pages;
        while at < end {
            let gfn = Gfn::new(at);
            let next_block = gfn.large_base().raw() + PAGES_PER_LARGE;
            let Some(slot) = self.walk(None, gfn, Level::LARGE) else {
                at = next_block;
                continue;
            };
            let entry = Pte::from_raw(DirectMemory.read_u64(slot));
            if entry.is_leaf() {
                DirectMemory.write_u64(slot, 0);
            } else if entry.is_table() {
                for page in at..end.min(next_block) {
                    DirectMemory.write_u64(self.slot(entry.frame(), Level::BASE, Gfn::new(page)), 0);
                }
            }
            at = next_block;
        }
    }

    /// Takes the whole table apart; no hart uses it any more.
    pub fn dismantle(&mut self, pool: &Pool<'_, DirectMemory>, dying: &mut DyingList) {
        self.drop_below(pool, dying, self.root, self.mode.root_level());
        let _ = pool.frames.drop_table(dying, self.root, self.mode.root_order());
    }

    fn drop_below(&self, pool: &Pool<'_, DirectMemory>, dying: &mut DyingList, table: Mfn, level: Level) {
        let Some(below) = level.down() else { return };
        for index in 0..self.mode.entries(level) {
            let slot = MachineAddr::new(table.addr().raw() + 8 * index as u64);
            let entry = Pte::from_raw(DirectMemory.read_u64(slot));
            if entry.is_table() {
                self.drop_below(pool, dying, entry.frame(), below);
                let _ = pool.frames.drop_table(dying, entry.frame(), 0);
            }
        }
    }
}
