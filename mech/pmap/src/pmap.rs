//! The table.

use alloc::vec::Vec;

use addr::{Gfn, MachineAddr, Mfn, PAGES_PER_LARGE, PageSize, VmId};
use frames::{Clean, Frame, FrameError, Frames, MachineMemory, PageOwner, Pool};

use crate::glance::RecentPages;
use crate::slot::{Block, BlockWord, Slot};
use crate::{Event, Mapping, PageState, PmapCounts, Refused, step};

/// Why an operation on a pmap fails. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PmapError {
    /// The guest has no RAM there.
    NotRam {
        /// The guest page named.
        gfn: Gfn,
    },
    /// The page cannot go that way.
    Refused(Refused),
    /// No page for a table of slots, or no memory for the table of blocks.
    OutOfTables,
    /// No page for a copy.
    OutOfMemory,
    /// The block is one large page: split it first.
    IsLarge {
        /// Its first guest page.
        gfn: Gfn,
    },
    /// The block cannot take a large page: it reaches beyond the RAM, is in use, or the frame has another size.
    NotLarge {
        /// The guest page named.
        gfn: Gfn,
    },
    /// The memmap says otherwise: a bug of the monitor.
    Memmap(FrameError),
    /// A RAM range without pages, or that leaves the address space.
    BadRange,
}

impl From<Refused> for PmapError {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<FrameError> for PmapError {
    fn from(error: FrameError) -> Self {
        Self::Memmap(error)
    }
}

/// A page could not be put into the pmap; here it is again.
#[derive(Debug)]
pub struct PopulateError {
    /// Why.
    pub error: PmapError,
    /// The frame, to be freed or used elsewhere.
    pub frame: Frame<Clean>,
}

/// What backs each guest page of one VM. See the crate's documentation.
pub struct Pmap {
    vm: VmId,
    base: Gfn,
    pages: u64,
    /// Guest page of the first block: `base` rounded down.
    first_block: u64,
    pub(crate) blocks: Vec<BlockWord>,
    pub(crate) counts: PmapCounts,
    pub(crate) recent: RecentPages,
}

impl Pmap {
    /// All absent: `pages` guest pages from `base`.
    ///
    /// # Errors
    /// [`PmapError::BadRange`]; [`PmapError::OutOfTables`] when there is no memory for eight bytes per block.
    pub fn new(vm: VmId, base: Gfn, pages: u64) -> Result<Self, PmapError> {
        let last = pages.checked_sub(1).and_then(|more| base.checked_add(more)).ok_or(PmapError::BadRange)?;
        let first_block = base.large_base().raw();
        let blocks = (last.large_base().raw() - first_block) / PAGES_PER_LARGE + 1;
        let count = usize::try_from(blocks).map_err(|_| PmapError::BadRange)?;
        // A client chose how many.
        let mut blocks = scarce::room(count).map_err(|_| PmapError::OutOfTables)?;
        // Bounded: reserved above.
        blocks.resize(count, BlockWord::ABSENT);
        let (counts, recent) = (PmapCounts::new(pages), RecentPages::NONE);
        Ok(Self { vm, base, pages, first_block, blocks, counts, recent })
    }

    /// Whose it is.
    #[must_use]
    pub const fn vm(&self) -> VmId {
        self.vm
    }

    /// First guest page of the RAM.
    #[must_use]
    pub const fn base(&self) -> Gfn {
        self.base
    }

    /// Guest pages of the RAM.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// Whether `gfn` is RAM.
    #[must_use]
    #[inline]
    pub const fn contains(&self, gfn: Gfn) -> bool {
        // Below the base this wraps to more than any RAM has.
        gfn.raw().wrapping_sub(self.base.raw()) < self.pages
    }

    /// Statistics.
    #[must_use]
    pub const fn counts(&self) -> &PmapCounts {
        &self.counts
    }

    /// What backs `gfn`.
    ///
    /// # Errors
    /// [`PmapError::NotRam`].
    #[inline]
    pub fn lookup<M: MachineMemory>(&self, memory: &M, gfn: Gfn) -> Result<Mapping, PmapError> {
        Ok(match self.block(gfn)? {
            Block::Whole(PageState::Absent) if !self.is_whole(gfn) => absent_page(gfn),
            Block::Whole(state) => Mapping { gfn: gfn.large_base(), size: PageSize::Large, state },
            Block::Table { mfn, .. } => {
                Mapping { gfn, size: PageSize::Base, state: read_slot(memory, mfn, gfn.index_in_large()) }
            }
        })
    }

    /// Whether one large page can back the block that `gfn` lies in. Nothing of it may be in use, and it must be RAM
    /// throughout.
    #[must_use]
    pub fn can_be_large(&self, gfn: Gfn) -> bool {
        self.is_whole(gfn) && matches!(self.block(gfn), Ok(Block::Whole(PageState::Absent)))
    }

    /// A private large page backs the block of `gfn` from now on. The frame must have been allocated for the block's first
    /// guest page.
    ///
    /// # Errors
    /// With the frame, if the block is in use, not RAM throughout, or the frame is not a large one made for it.
    pub fn populate_large(&mut self, frames: &Frames, gfn: Gfn, frame: Frame<Clean>) -> Result<Mapping, PopulateError> {
        let first = gfn.large_base();
        if frame.size() != Some(PageSize::Large) || !self.can_be_large(gfn) {
            return Err(PopulateError { error: PmapError::NotLarge { gfn }, frame });
        }
        if let Err(error) = self.check_owner(frames, &frame, first) {
            return Err(PopulateError { error, frame });
        }
        let state = PageState::private(frame.settle());
        self.counts.change(frames, PageState::Absent, state, PAGES_PER_LARGE);
        self.counts.change_large(1);
        self.set_block(first, Block::Whole(state));
        Ok(Mapping { gfn: first, size: PageSize::Large, state })
    }

    /// A private page backs `gfn` from now on. The frame must have been allocated for it. If the zero page stood in for it,
    /// its leaves must be shot down before the new one is used ([`Mapping`] of the lookup before says so).
    ///
    /// # Errors
    /// With the frame, if the page has a backing already, is not RAM, or no page for a table of slots is left.
    #[inline]
    pub fn populate_base<M: MachineMemory>(
        &mut self,
        pool: &Pool<'_, M>,
        gfn: Gfn,
        frame: Frame<Clean>,
    ) -> Result<Mapping, PopulateError> {
        let put = |pmap: &mut Self, frame: &Frame<Clean>| {
            if frame.size() != Some(PageSize::Base) {
                return Err(PmapError::NotLarge { gfn });
            }
            pmap.check_owner(pool.frames, frame, gfn)?;
            pmap.ensure_table(pool, gfn)?;
            pmap.advance(pool.frames, pool.memory, gfn, Event::Populate { mfn: frame.mfn() })
        };
        match put(self, &frame) {
            Ok((state, _)) => {
                let _ = frame.settle();
                Ok(Mapping { gfn, size: PageSize::Base, state })
            }
            Err(error) => Err(PopulateError { error, frame }),
        }
    }

    /// A block backed by one large page is backed by 512 single ones from now on: the same machine pages. The G-stage
    /// leaves may stay as they are.
    ///
    /// # Errors
    /// If `gfn` is not RAM, or no page for a table is left. A block that has a table already is fine.
    pub fn split<M: MachineMemory>(&mut self, pool: &Pool<'_, M>, gfn: Gfn) -> Result<(), PmapError> {
        let Block::Whole(state) = self.block(gfn)? else { return Ok(()) };
        let PageState::Private { mfn, pins, watched } = state else { return Ok(()) };
        let table = pool.table().ok_or(PmapError::OutOfTables)?;
        if let Err(error) = pool.frames.split_private(mfn, self.vm) {
            pool.frames.free(table);
            return Err(error.into());
        }
        let table = table.settle();
        for index in 0..PAGES_PER_LARGE {
            let page = PageState::Private { mfn: Mfn::new(mfn.raw() + index), pins, watched };
            write_slot(pool.memory, table, index as usize, page);
        }
        self.counts.change_large(-1);
        self.counts.change_tables(1);
        self.set_block(gfn, Block::Table { mfn: table, used: PAGES_PER_LARGE as u16 });
        Ok(())
    }

    /// The opposite of [`Pmap::split`]: a block whose 512 pages are those of one machine block, in order, none pinned and
    /// all watched or none, is one large page from now on. The G-stage leaves may stay as they are.
    ///
    /// # Errors
    /// [`PmapError::NotLarge`] if the block is not that; usual, and nothing has changed.
    pub fn collapse<M: MachineMemory>(&mut self, pool: &Pool<'_, M>, gfn: Gfn) -> Result<Mapping, PmapError> {
        let not_large = PmapError::NotLarge { gfn };
        let Block::Table { mfn: table, used } = self.block(gfn)? else { return Err(not_large) };
        let gfn = gfn.large_base();
        if u64::from(used) != PAGES_PER_LARGE || !self.is_whole(gfn) {
            return Err(not_large);
        }
        let state = read_slot(pool.memory, table, 0);
        let PageState::Private { mfn, pins: 0, watched } = state else { return Err(not_large) };
        if !mfn.raw().is_multiple_of(PAGES_PER_LARGE) {
            return Err(not_large);
        }
        for index in 1..PAGES_PER_LARGE {
            let wanted = PageState::Private { mfn: Mfn::new(mfn.raw() + index), pins: 0, watched };
            if pool.memory.read_u64(slot_addr(table, index as usize)) != Slot::pack(wanted).word() {
                return Err(not_large);
            }
        }
        let table = pool.frames.retake_monitor(table, 0)?;
        if let Err(error) = pool.frames.merge_private(mfn, self.owner(gfn)) {
            let _ = table.settle();
            return Err(error.into());
        }
        pool.frames.free(table);
        self.counts.change_large(1);
        self.counts.change_tables(-1);
        self.set_block(gfn, Block::Whole(state));
        Ok(Mapping { gfn, size: PageSize::Large, state })
    }

    /// Whether [`Pmap::collapse`] would do for the block of `gfn`, if none of its pages were watched.
    #[must_use]
    pub fn is_one_block<M: MachineMemory>(&self, memory: &M, gfn: Gfn) -> bool {
        let Ok(Block::Table { mfn: table, used }) = self.block(gfn) else { return false };
        let page = |index: u64| Slot::from_word(memory.read_u64(slot_addr(table, index as usize))).sole_page();
        let Some((first, _)) = page(0).filter(|(first, _)| first.raw().is_multiple_of(PAGES_PER_LARGE)) else {
            return false;
        };
        let is_next = |index| page(index).is_some_and(|(mfn, _)| mfn.raw() == first.raw() + index);
        u64::from(used) == PAGES_PER_LARGE && self.is_whole(gfn) && (1..PAGES_PER_LARGE).all(is_next)
    }

    /// A device starts (or, `false`, stops) using the memory behind `gfn`: it is not moved or taken away until all have
    /// stopped. For a large page all of it is pinned. Returns what is pinned.
    ///
    /// # Errors
    /// If nothing backs the page, or the count would overflow or go below zero.
    pub fn pin<M: MachineMemory>(&mut self, pool: &Pool<'_, M>, gfn: Gfn, on: bool) -> Result<Mapping, PmapError> {
        let event = if on { Event::Pin } else { Event::Unpin };
        self.advance(pool.frames, pool.memory, gfn, event)?;
        self.lookup(pool.memory, gfn)
    }

    /// The guest writes to a watched page (or large page): its leaf may be strengthened. `false` if it was not watched.
    ///
    /// # Errors
    /// [`PmapError::NotRam`].
    pub fn note_write<M: MachineMemory>(&mut self, pool: &Pool<'_, M>, gfn: Gfn) -> Result<bool, PmapError> {
        match self.advance(pool.frames, pool.memory, gfn, Event::Write) {
            Ok(_) => Ok(true),
            Err(PmapError::Refused(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Calls `see` for everything in use, in ascending order.
    pub fn for_each<M: MachineMemory>(&self, memory: &M, mut see: impl FnMut(Mapping)) {
        for (number, word) in self.blocks.iter().enumerate() {
            let first = Gfn::new(self.first_block + number as u64 * PAGES_PER_LARGE);
            match word.unpack() {
                Block::Whole(PageState::Absent) => {}
                Block::Whole(state) => see(Mapping { gfn: first, size: PageSize::Large, state }),
                Block::Table { mfn, .. } => {
                    for index in 0..PAGES_PER_LARGE {
                        let state = read_slot(memory, mfn, index as usize);
                        let gfn = Gfn::new(first.raw() + index);
                        Some(Mapping { gfn, size: PageSize::Base, state }).filter(|m| !m.is_absent()).map(&mut see);
                    }
                }
            }
        }
    }

    /// Steps one page (or a whole large page, which knows pins and watching only) along its life.
    #[inline]
    pub(crate) fn advance<M: MachineMemory>(
        &mut self,
        frames: &Frames,
        memory: &M,
        gfn: Gfn,
        event: Event,
    ) -> Result<(PageState, crate::Actions), PmapError> {
        match self.block(gfn)? {
            Block::Table { mfn, used } => {
                let index = gfn.index_in_large();
                let old = read_slot(memory, mfn, index);
                let (new, actions) = step(old, event)?;
                write_slot(memory, mfn, index, new);
                self.recent.forget(gfn);
                self.counts.change(frames, old, new, 1);
                let used = used + u16::from(!is_absent(new)) - u16::from(!is_absent(old));
                self.set_block(gfn, Block::Table { mfn, used });
                Ok((new, actions))
            }
            Block::Whole(old) => {
                let (new, actions) = step(old, event)?;
                if old.mfn() != new.mfn() || is_absent(old) {
                    return Err(PmapError::IsLarge { gfn: gfn.large_base() });
                }
                if old.kind() != new.kind() {
                    return Err(PmapError::IsLarge { gfn: gfn.large_base() });
                }
                self.set_block(gfn, Block::Whole(new));
                Ok((new, actions))
            }
        }
    }

    /// The same for what is rare: one copy of the code for all of it.
    #[cold]
    #[inline(never)]
    pub(crate) fn advance_slowly<M: MachineMemory>(
        &mut self,
        frames: &Frames,
        memory: &M,
        gfn: Gfn,
        event: Event,
    ) -> Result<(PageState, crate::Actions), PmapError> {
        self.advance(frames, memory, gfn, event)
    }

    /// Gives an absent block a table.
    #[inline]
    pub(crate) fn ensure_table<M: MachineMemory>(&mut self, pool: &Pool<'_, M>, gfn: Gfn) -> Result<(), PmapError> {
        match self.block(gfn)? {
            Block::Table { .. } => Ok(()),
            Block::Whole(PageState::Absent) => {
                let table = pool.table().ok_or(PmapError::OutOfTables)?.settle();
                self.counts.change_tables(1);
                self.set_block(gfn, Block::Table { mfn: table, used: 0 });
                Ok(())
            }
            Block::Whole(_) => Err(PmapError::IsLarge { gfn: gfn.large_base() }),
        }
    }

    /// Gives back the table of a block where all is absent: only the monitor ever read it.
    pub(crate) fn drop_empty_table(&mut self, frames: &Frames, gfn: Gfn) -> Result<(), PmapError> {
        if let Block::Table { mfn, used: 0 } = self.block(gfn)? {
            frames.free(frames.retake_monitor(mfn, 0)?);
            self.counts.change_tables(-1);
            self.set_block(gfn, Block::Whole(PageState::Absent));
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn block(&self, gfn: Gfn) -> Result<Block, PmapError> {
        if !self.contains(gfn) {
            return Err(PmapError::NotRam { gfn });
        }
        let number = self.block_number(gfn);
        self.blocks.get(number).map(|word| word.unpack()).ok_or(PmapError::NotRam { gfn })
    }

    /// Sets the block of a page that [`Pmap::block`] found.
    #[inline]
    pub(crate) fn set_block(&mut self, gfn: Gfn, block: Block) {
        self.recent = RecentPages::NONE;
        let number = self.block_number(gfn);
        if let Some(word) = self.blocks.get_mut(number) {
            *word = BlockWord::pack(block);
        }
    }

    /// The memmap's name for a guest page of this VM.
    #[inline]
    pub(crate) const fn owner(&self, gfn: Gfn) -> PageOwner {
        PageOwner { vm: self.vm, gfn }
    }

    /// Whether the block of `gfn` is RAM throughout.
    #[inline]
    pub(crate) fn is_whole(&self, gfn: Gfn) -> bool {
        let first = gfn.large_base();
        self.contains(first) && first.checked_add(PAGES_PER_LARGE - 1).is_some_and(|last| self.contains(last))
    }

    #[inline(always)]
    pub(crate) fn block_number(&self, gfn: Gfn) -> usize {
        ((gfn.raw() - self.first_block) / PAGES_PER_LARGE) as usize
    }

    /// Refuses a frame of which the memmap does not say that it was taken to back `gfn`.
    #[inline]
    pub(crate) fn check_owner(&self, frames: &Frames, frame: &Frame<Clean>, gfn: Gfn) -> Result<(), PmapError> {
        let owner = self.owner(gfn);
        if frames.is_private_of(frame, owner) {
            Ok(())
        } else {
            Err(PmapError::Memmap(FrameError::NotMapped { mfn: frame.mfn(), owner }))
        }
    }
}

const fn absent_page(gfn: Gfn) -> Mapping {
    Mapping { gfn, size: PageSize::Base, state: PageState::Absent }
}

#[inline]
const fn is_absent(state: PageState) -> bool {
    matches!(state, PageState::Absent)
}

#[inline(always)]
pub(crate) fn slot_addr(table: Mfn, index: usize) -> MachineAddr {
    MachineAddr::new(table.addr().raw() + index as u64 * 8)
}

#[inline]
pub(crate) fn read_slot<M: MachineMemory>(memory: &M, table: Mfn, index: usize) -> PageState {
    let word = memory.read_u64(slot_addr(table, index));
    Slot::from_word(word).unpack().expect("slots are written by `write_slot` only")
}

#[inline(always)]
pub(crate) fn write_slot<M: MachineMemory>(memory: &M, table: Mfn, index: usize, state: PageState) {
    memory.write_u64(slot_addr(table, index), Slot::pack(state).word());
}
