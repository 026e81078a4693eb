//! One VM's private modified blocks of a copy-on-write disk.

use alloc::collections::BTreeSet;

use addr::{BASE_PAGE, MachineAddr, Mfn, NodeId};

use crate::contract::{PageStore, SECTOR, SECTORS_PER_BLOCK};
use crate::index::{BlockIndex, RANGE_BLOCKS};

/// A set of sectors of one block, bit 0 the first.
pub type SectorMask = u8;

/// The sectors `[offset, offset + count)` of a block; both at most 8.
pub const fn mask(offset: u64, count: u64) -> SectorMask {
    (((1_u32 << count) - 1) << offset) as SectorMask
}

/// What the VM wrote. Sectors that it never wrote show the disk below, so a small write needs no read.
///
/// Invariant: a sector of a page that is not in its entry's `valid` is never shown to anybody.
#[derive(Debug)]
pub struct Overlay {
    blocks: BlockIndex<Private>,
    /// Ranges of [`RANGE_BLOCKS`] blocks that are zero where `blocks` has nothing.
    zeroed: BTreeSet<u64>,
    pages: u64,
    /// Most pages, see [`Overlay::charge`].
    limit: u64,
}

/// A private block: address of its page | [`Private::HAS_PAGE`] | valid sectors. A valid sector without a page is
/// zero. Never 0, so that an index entry takes eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Private(core::num::NonZeroU64);

/// What the overlay says of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Where the valid sectors are; zeroes if there is no page.
    pub page: Option<Mfn>,
    /// The sectors that are private.
    pub valid: SectorMask,
}

/// Why nothing more can be said of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The overlay may have no more, or hardly any memory is left for what finds pages.
    Refused,
    /// There is no page.
    NoPage,
}

impl Private {
    const HAS_PAGE: u64 = 1 << 8;

    fn new(view: View) -> Option<Self> {
        let page = view.page.map_or(0, |page| page.addr().raw() | Self::HAS_PAGE);
        core::num::NonZeroU64::new(page | u64::from(view.valid)).map(Self)
    }

    const fn view(self) -> View {
        let raw = self.0.get();
        let page = if raw & Self::HAS_PAGE == 0 { None } else { Some(MachineAddr::new(raw).mfn()) };
        View { page, valid: raw as SectorMask }
    }
}

impl Overlay {
    pub const fn new(limit: u64) -> Self {
        Self { blocks: BlockIndex::new(), zeroed: BTreeSet::new(), pages: 0, limit }
    }

    /// Whether nothing can be said of further blocks.
    pub fn is_full(&self) -> bool {
        self.charge() >= self.limit
    }

    /// Pages that it holds.
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    #[inline]
    pub fn view(&self, block: u64) -> View {
        let mut view = match self.blocks.is_empty() {
            true => View::default(),
            false => self.blocks.get(block).map_or(View::default(), |private| private.view()),
        };
        // With a page, the zeroes of the range are in it already.
        if view.page.is_none() && self.is_zeroed(block) {
            view.valid = SectorMask::MAX;
        }
        view
    }

    /// The page to write sectors `mask` of `block` to; becomes visible with [`Overlay::written`].
    ///
    /// # Errors
    /// [`NoRoom`]; nothing has changed then.
    pub fn page_for(
        &mut self,
        block: u64,
        mask: SectorMask,
        pages: &dyn PageStore,
        node: NodeId,
    ) -> Result<Mfn, NoRoom> {
        let view = self.view(block);
        if let Some(page) = view.page {
            return self.own_page(block, mask, page, pages, node);
        }
        self.check_growth(block, pages)?;
        let page = pages.alloc(node).ok_or(NoRoom::NoPage)?;
        let valid = if mask == SectorMask::MAX {
            // All will be written over; nothing may be shown if that fails half-way.
            0
        } else {
            // Sectors that read as zero so far have to be zero in the page.
            pages.zero(page.addr(), SECTORS_PER_BLOCK * SECTOR);
            view.valid
        };
        self.set(block, View { page: Some(page), valid });
        self.pages += 1;
        Ok(page)
    }

    /// `page`, of `block`, or another in its place if guests map it: they keep what they have read.
    fn own_page(
        &mut self,
        block: u64,
        mask: SectorMask,
        page: Mfn,
        pages: &dyn PageStore,
        node: NodeId,
    ) -> Result<Mfn, NoRoom> {
        if !pages.is_mapped(page) {
            return Ok(page);
        }
        let own = pages.alloc(node).ok_or(NoRoom::NoPage)?;
        let valid = if mask == SectorMask::MAX {
            0
        } else {
            pages.copy(own.addr(), page.addr(), SECTORS_PER_BLOCK * SECTOR);
            self.view(block).valid
        };
        pages.free(page);
        self.set(block, View { page: Some(own), valid });
        Ok(own)
    }

    /// Sectors `mask` of the page of `block` hold what was written.
    pub fn written(&mut self, block: u64, mask: SectorMask) {
        let view = self.view(block);
        self.set(block, View { valid: view.valid | mask, ..view });
    }

    /// Makes sectors `mask` of `block` zero.
    pub fn zero(&mut self, block: u64, mask: SectorMask, pages: &dyn PageStore) -> Result<(), NoRoom> {
        let view = self.view(block);
        if mask == SectorMask::MAX {
            self.forget(block, pages);
            return self.mark_zero(block, mask, pages);
        }
        match view.page {
            Some(page) => {
                let page = self.own_page(block, mask, page, pages, pages.node_of(page))?;
                for sector in (0..SECTORS_PER_BLOCK).filter(|sector| mask >> sector & 1 != 0) {
                    pages.zero(sector_addr(page, sector), SECTOR);
                }
                self.written(block, mask);
                Ok(())
            }
            None => self.mark_zero(block, view.valid | mask, pages),
        }
    }

    /// Makes the whole range that begins at `block` zero.
    pub fn zero_range(&mut self, block: u64, pages: &dyn PageStore) -> Result<(), NoRoom> {
        self.check_growth(block, pages)?;
        self.forget_range(block, pages);
        self.zeroed.insert(block / RANGE_BLOCKS);
        Ok(())
    }

    /// Gives the page of `block` back: the disk below shows through again.
    pub fn forget(&mut self, block: u64, pages: &dyn PageStore) {
        if let Some(page) = self.blocks.remove(block).and_then(|private| private.view().page) {
            pages.free(page);
            self.pages -= 1;
        }
    }

    /// Gives the pages of the whole range of `block` back.
    pub fn forget_range(&mut self, block: u64, pages: &dyn PageStore) {
        let mut freed = 0;
        self.blocks.remove_range(block, &mut |private: Private| {
            if let Some(page) = private.view().page {
                pages.free(page);
                freed += 1;
            }
        });
        self.pages -= freed;
        self.zeroed.remove(&(block / RANGE_BLOCKS));
    }

    /// The block of the first range in use that is not wholly before `block`, at least `block`.
    pub fn next_range(&self, block: u64) -> Option<u64> {
        self.blocks.next_range(block).map(|start| start.max(block))
    }

    /// Gives one range's pages back, whichever. `false` when there is nothing left.
    pub fn dismantle(&mut self, pages: &dyn PageStore) -> bool {
        match self.blocks.next_range(0) {
            Some(block) => {
                self.forget_range(block, pages);
                true
            }
            None => false,
        }
    }

    fn is_zeroed(&self, block: u64) -> bool {
        !self.zeroed.is_empty() && self.zeroed.contains(&(block / RANGE_BLOCKS))
    }

    fn mark_zero(&mut self, block: u64, valid: SectorMask, pages: &dyn PageStore) -> Result<(), NoRoom> {
        if self.is_zeroed(block) {
            return Ok(());
        }
        self.check_growth(block, pages)?;
        self.set(block, View { page: None, valid });
        Ok(())
    }

    /// Refuses to say anything of `block` where that would take a page or index memory that the overlay may not have.
    fn check_growth(&mut self, block: u64, pages: &dyn PageStore) -> Result<(), NoRoom> {
        let is_short = pages.is_short() && self.blocks.growth(block, 1) > 0;
        if is_short || self.is_full() || self.blocks.reach(block).is_err() { Err(NoRoom::Refused) } else { Ok(()) }
    }

    /// What counts towards the limit, in pages: those of blocks, and the memory that finds them.
    pub fn charge(&self) -> u64 {
        /// Of a number in a B-tree, about.
        const ZEROED_BYTES: u64 = 24;
        self.pages + (self.blocks.heap_bytes() + self.zeroed.len() as u64 * ZEROED_BYTES) / BASE_PAGE
    }

    fn set(&mut self, block: u64, view: View) {
        if let Some(private) = Private::new(view) {
            self.blocks.insert(block, private);
        }
    }
}

/// Address of a sector of a page.
pub const fn sector_addr(page: Mfn, sector: u64) -> MachineAddr {
    // Below the page's end, so this cannot wrap.
    MachineAddr::new(page.addr().raw() + sector * SECTOR)
}
