//! The table, and the leaves that faults bring.

use addr::{Gfn, MachineAddr, Mfn, PAGES_PER_LARGE, PageSize};
use frames::{DyingList, FrameError, Frames, MachineMemory, Pool};
use rv_pte::{Hgatp, Level, Mode, Pbmt, Pte, PteFlags, RootError};

/// What every leaf of the G-stage has: its accesses count as user accesses, and hardware never has to write A and D.
const LEAF: PteFlags = PteFlags::U.union(PteFlags::AD);
/// No block has this number.
const NO_BLOCK: u64 = u64::MAX;

/// What an installation found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// There was no leaf.
    New,
    /// There was a leaf that allows less: the hart that faults must not find it in its TLB again, the others only fault
    /// once more.
    Strengthened,
    /// This very leaf was there: another hart was faster, or the faulting one remembers that there was none.
    Same,
}

/// Why a table cannot be changed so. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableError {
    /// No page for a table was left.
    OutOfTables,
    /// The mode does not translate this guest page.
    OutOfRange {
        /// The guest page.
        gfn: Gfn,
    },
    /// Another machine page is mapped there, or more is allowed there than the new leaf would: remove or weaken first.
    Occupied {
        /// The guest page.
        gfn: Gfn,
    },
    /// A table of single pages is where a large leaf should go: collapse it.
    HasTable {
        /// First guest page of the block.
        gfn: Gfn,
    },
    /// What does not make a leaf: a misaligned frame, or rights that are reserved.
    BadLeaf {
        /// The machine page.
        mfn: Mfn,
    },
    /// The memmap says otherwise: a bug of the monitor.
    Memmap(FrameError),
}

/// A leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafFound {
    /// First guest page that it maps.
    pub gfn: Gfn,
    /// First machine page.
    pub mfn: Mfn,
    /// How much it maps.
    pub size: PageSize,
    /// What it allows: R, W and X only.
    pub rights: PteFlags,
}

/// The G-stage table of one VM for the harts of one node. See the crate's documentation.
#[derive(Debug)]
pub struct NodeTable {
    mode: Mode,
    root: Mfn,
    /// Number of the 2 MiB block whose table of single pages was used last, and that table.
    recent_block: u64,
    recent_table: Mfn,
    pages: u64,
}

impl NodeTable {
    /// An empty table; `None` when there is no memory for its root.
    pub fn new<M: MachineMemory>(pool: &Pool<'_, M>, mode: Mode) -> Option<Self> {
        let root = pool.table_block(mode.root_order())?.settle();
        let pages = 1 << mode.root_order();
        Some(Self { mode, root, recent_block: NO_BLOCK, recent_table: root, pages })
    }

    /// Gives the table back, which is as [`NodeTable::new`] made it: no hart has ever entered with it, and nothing is installed.
    pub fn discard(self, frames: &Frames) {
        // A memmap that contradicts this is a bug of the monitor; then the root is lost, and not used twice.
        if let Ok(root) = frames.retake_monitor(self.root, self.mode.root_order()) {
            frames.free(root);
        }
    }

    /// The word for `hgatp`, with VMID 0.
    ///
    /// # Errors
    /// The mode is not one of the G-stage.
    pub const fn hgatp(&self) -> Result<u64, RootError> {
        Hgatp { mode: self.mode, vmid: addr::Vmid(0), root: self.root }.encode()
    }

    /// Machine pages that it takes, its root included.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// Installs a leaf, or strengthens the one that is there.
    ///
    /// # Errors
    /// [`TableError`]; a large leaf in the way of a base page is split.
    #[inline(always)]
    pub fn install<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        gfn: Gfn,
        mfn: Mfn,
        size: PageSize,
        rights: PteFlags,
    ) -> Result<Installed, TableError> {
        let slot = match size {
            PageSize::Base => slot_at(self.base_table(pool, gfn)?, gfn.index_in_large()),
            PageSize::Large => self.large_slot_made(pool, gfn)?,
        };
        let leaf = leaf(mfn, Level::of(size), rights)?;
        let old = Pte::from_raw(pool.memory.read_u64(slot));
        if !old.is_valid() {
            pool.memory.write_u64(slot, leaf.raw());
            return Ok(Installed::New);
        }
        replace(pool.memory, slot, gfn, old, leaf)
    }

    /// The leaf that maps `gfn`.
    #[must_use]
    pub fn lookup<M: MachineMemory>(&self, memory: &M, gfn: Gfn) -> Option<LeafFound> {
        let entry = Pte::from_raw(memory.read_u64(self.large_slot(memory, gfn)?));
        if entry.is_leaf() {
            return Some(found(gfn.large_base(), entry, PageSize::Large));
        }
        let table = Some(entry).filter(|entry| entry.is_table())?.frame();
        let entry = Pte::from_raw(memory.read_u64(slot_at(table, gfn.index_in_large())));
        entry.is_leaf().then(|| found(gfn, entry, PageSize::Base))
    }

    /// Calls `see` for every leaf, in ascending order.
    pub fn for_each_leaf<M: MachineMemory>(&self, memory: &M, mut see: impl FnMut(LeafFound)) {
        self.leaves_below(memory, self.root, self.mode.root_level(), 0, &mut see);
    }

    fn leaves_below<M: MachineMemory>(
        &self,
        memory: &M,
        table: Mfn,
        level: Level,
        first: u64,
        see: &mut impl FnMut(LeafFound),
    ) {
        for index in 0..self.mode.entries(level) {
            let entry = Pte::from_raw(memory.read_u64(slot_at(table, index)));
            let gfn = first + index as u64 * level.entry_pages();
            if entry.is_leaf() {
                let size = if level == Level::BASE { PageSize::Base } else { PageSize::Large };
                see(found(Gfn::new(gfn), entry, size));
            } else if entry.is_table()
                && let Some(below) = level.down()
            {
                self.leaves_below(memory, entry.frame(), below, gfn, see);
            }
        }
    }

    pub(crate) const fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) const fn root(&self) -> Mfn {
        self.root
    }

    /// The table of single pages for the block of `gfn`, if that was used last.
    #[inline(always)]
    pub(crate) fn recent_table_of(&self, gfn: Gfn) -> Option<Mfn> {
        (gfn.raw() / PAGES_PER_LARGE == self.recent_block).then_some(self.recent_table)
    }

    /// The table of single pages for the block of `gfn`, made if need be.
    #[inline(always)]
    pub(crate) fn base_table<M: MachineMemory>(&mut self, pool: &Pool<'_, M>, gfn: Gfn) -> Result<Mfn, TableError> {
        if gfn.raw() / PAGES_PER_LARGE == self.recent_block {
            return Ok(self.recent_table);
        }
        self.find_base_table(pool, gfn)
    }

    #[inline(never)]
    fn find_base_table<M: MachineMemory>(&mut self, pool: &Pool<'_, M>, gfn: Gfn) -> Result<Mfn, TableError> {
        let slot = self.large_slot_made(pool, gfn)?;
        let table = self.table_at(pool, slot)?;
        self.remember_table(gfn, table);
        Ok(table)
    }

    pub(crate) fn remember_table(&mut self, gfn: Gfn, table: Mfn) {
        self.recent_block = gfn.raw() / PAGES_PER_LARGE;
        self.recent_table = table;
    }

    /// The table that the slot of a block points to, made if need be: empty, or of the parts of the large leaf there.
    pub(crate) fn table_at<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        slot: MachineAddr,
    ) -> Result<Mfn, TableError> {
        let entry = Pte::from_raw(pool.memory.read_u64(slot));
        if entry.is_table() {
            return Ok(entry.frame());
        }
        let table = self.new_table(pool)?;
        if entry.is_leaf() {
            for index in 0..PAGES_PER_LARGE {
                let part = Mfn::new(entry.frame().raw() + index);
                pool.memory.write_u64(slot_at(table, index as usize), leaf(part, Level::BASE, entry.flags())?.raw());
            }
        }
        point(pool.memory, slot, table)?;
        Ok(table)
    }

    fn new_table<M: MachineMemory>(&mut self, pool: &Pool<'_, M>) -> Result<Mfn, TableError> {
        let table = pool.table().ok_or(TableError::OutOfTables)?.settle();
        self.pages += 1;
        Ok(table)
    }

    /// The slot for the block of `gfn`; tables on the way are made.
    #[inline(never)]
    fn large_slot_made<M: MachineMemory>(&mut self, pool: &Pool<'_, M>, gfn: Gfn) -> Result<MachineAddr, TableError> {
        if !self.mode.accepts(gfn.addr().raw()) {
            return Err(TableError::OutOfRange { gfn });
        }
        let (mut table, mut level) = (self.root, self.mode.root_level());
        while level > Level::LARGE {
            let slot = self.slot(table, level, gfn);
            let entry = Pte::from_raw(pool.memory.read_u64(slot));
            table = if entry.is_table() {
                entry.frame()
            } else {
                let below = self.new_table(pool)?;
                point(pool.memory, slot, below)?;
                below
            };
            level = level.down().ok_or(TableError::OutOfRange { gfn })?;
        }
        Ok(self.slot(table, level, gfn))
    }

    /// The slot for the block of `gfn`, if the tables on the way exist.
    fn large_slot<M: MachineMemory>(&self, memory: &M, gfn: Gfn) -> Option<MachineAddr> {
        self.find_large_slot(memory, gfn).ok()
    }

    /// The same; else the first guest page behind the gap that `gfn` lies in.
    pub(crate) fn find_large_slot<M: MachineMemory>(&self, memory: &M, gfn: Gfn) -> Result<MachineAddr, u64> {
        if !self.mode.accepts(gfn.addr().raw()) {
            return Err(u64::MAX);
        }
        let (mut table, mut level) = (self.root, self.mode.root_level());
        while level > Level::LARGE {
            let entry = Pte::from_raw(memory.read_u64(self.slot(table, level, gfn)));
            if !entry.is_table() {
                return Err((gfn.raw() | (level.entry_pages() - 1)) + 1);
            }
            table = entry.frame();
            level = level.down().ok_or(u64::MAX)?;
        }
        Ok(self.slot(table, level, gfn))
    }

    const fn slot(&self, table: Mfn, level: Level, gfn: Gfn) -> MachineAddr {
        slot_at(table, self.mode.index(level, gfn.addr().raw()))
    }

    /// A table of single pages left the tree.
    pub(crate) fn forget_table<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        dying: &mut DyingList,
        table: Mfn,
    ) -> Result<(), TableError> {
        if self.recent_table == table {
            self.recent_block = NO_BLOCK;
        }
        self.pages -= 1;
        pool.frames.drop_table(dying, table, 0).map_err(TableError::Memmap)
    }
}

/// The slot `index` of a table.
#[inline(always)]
pub(crate) const fn slot_at(table: Mfn, index: usize) -> MachineAddr {
    MachineAddr::new(table.addr().raw() + 8 * index as u64)
}

/// A leaf of the G-stage with the permissions among `rights`.
#[inline(always)]
pub(crate) fn leaf(mfn: Mfn, level: Level, rights: PteFlags) -> Result<Pte, TableError> {
    let flags = rights.intersection(PteFlags::PERMISSIONS) | LEAF;
    Pte::leaf(mfn, level, flags, Pbmt::Pma).map_err(|_| TableError::BadLeaf { mfn })
}

fn point<M: MachineMemory>(memory: &M, slot: MachineAddr, table: Mfn) -> Result<(), TableError> {
    let pointer = Pte::table(table).map_err(|_| TableError::BadLeaf { mfn: table })?;
    memory.write_u64(slot, pointer.raw());
    Ok(())
}

/// A leaf over a valid entry.
#[cold]
fn replace<M: MachineMemory>(
    memory: &M,
    slot: MachineAddr,
    gfn: Gfn,
    old: Pte,
    new: Pte,
) -> Result<Installed, TableError> {
    if old == new {
        return Ok(Installed::Same);
    }
    if old.is_table() {
        return Err(TableError::HasTable { gfn: gfn.large_base() });
    }
    if old.frame() != new.frame() || !new.flags().contains(old.flags()) {
        return Err(TableError::Occupied { gfn });
    }
    memory.write_u64(slot, new.raw());
    Ok(Installed::Strengthened)
}

pub(crate) fn found(gfn: Gfn, entry: Pte, size: PageSize) -> LeafFound {
    let rights = entry.flags().intersection(PteFlags::PERMISSIONS);
    LeafFound { gfn, mfn: entry.frame(), size, rights }
}
