//! A whole table goes, a bounded part of it in each step.

use addr::Mfn;
use frames::{DyingList, MachineMemory, Pool};
use rv_pte::{Level, Mode, Pte};

use crate::table::slot_at;
use crate::{NodeTable, TableError};

/// Levels whose entries may be tables: all but the last of Sv57x4.
const LEVELS: usize = 4;

/// A table that no hart enters with any more, on its way to the allocator: see [`NodeTable::dismantle`].
#[derive(Debug)]
pub struct Dismantling {
    mode: Mode,
    /// The tables from the root down to the one that is being looked through, and the next entry of each.
    path: [(Mfn, usize); LEVELS],
    depth: usize,
    pages: u64,
}

impl NodeTable {
    /// Takes the whole table apart, in steps; no hart enters with it any more.
    #[must_use = "its pages are lost"]
    pub const fn dismantle(self) -> Dismantling {
        Dismantling { mode: self.mode(), path: [(self.root(), 0); LEVELS], depth: 1, pages: self.pages() }
    }
}

impl Dismantling {
    /// Machine pages that it still takes.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// Looks at `most` entries and tables. The pages of these tables go into `dying`. `true` while there are more.
    ///
    /// # Errors
    /// If the memmap contradicts the table. That page stays; the next step goes on with the rest.
    pub fn step<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        dying: &mut DyingList,
        most: u64,
    ) -> Result<bool, TableError> {
        for _ in 0..most {
            let Some(at) = self.depth.checked_sub(1) else { break };
            self.visit(pool, dying, at)?;
        }
        Ok(self.depth > 0)
    }

    /// The next entry of the table at `at` of the path, or the table itself when all are done.
    fn visit<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        dying: &mut DyingList,
        at: usize,
    ) -> Result<(), TableError> {
        let level = (0..at).try_fold(self.mode.root_level(), |level, _| level.down());
        let Some((level, (table, index))) = level.zip(self.path.get_mut(at)) else {
            self.depth = at;
            return Ok(());
        };
        if *index >= self.mode.entries(level) {
            let order = if at == 0 { self.mode.root_order() } else { 0 };
            let table = *table;
            self.depth = at;
            return self.drop_table(pool, dying, table, order);
        }
        let entry = Pte::from_raw(pool.memory.read_u64(slot_at(*table, *index)));
        *index += 1;
        if !entry.is_table() {
            return Ok(());
        }
        if level == Level::LARGE {
            return self.drop_table(pool, dying, entry.frame(), 0);
        }
        if let Some(below) = self.path.get_mut(at + 1) {
            *below = (entry.frame(), 0);
            self.depth = at + 2;
        }
        Ok(())
    }

    fn drop_table<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        dying: &mut DyingList,
        table: Mfn,
        order: u8,
    ) -> Result<(), TableError> {
        self.pages -= 1 << order;
        pool.frames.drop_table(dying, table, order).map_err(TableError::Memmap)
    }
}
