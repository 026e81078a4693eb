//! Quick answers: a fault or an access by a device asks these first, and [`Pmap::lookup`] only when they do not help.

use addr::{Gfn, Mfn, PAGES_PER_LARGE, PageSize};
use frames::{MachineMemory, Pool};

use crate::pmap::{slot_addr, write_slot};
use crate::slot::Slot;
use crate::{PageState, Pmap};

/// Pages that devices used last. Only what [`Pmap::private_run`] would find; whatever changes a page or a block makes it
/// forgotten first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecentPages([(u64, Mfn); RECENT]);

const RECENT: usize = 4;
/// No guest page has this number.
const NO_PAGE: u64 = u64::MAX;

impl RecentPages {
    pub(crate) const NONE: Self = Self([(NO_PAGE, Mfn::new(0)); RECENT]);

    #[inline(always)]
    pub(crate) const fn forget(&mut self, gfn: Gfn) {
        self.0[gfn.raw() as usize % RECENT].0 = NO_PAGE;
    }
}

/// What backs a guest page, at a glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glance {
    /// A private single page that may be read and written.
    Page(Mfn),
    /// The same in a large page, which begins here.
    Large(Mfn),
    /// Nothing, and the block has a table: [`Pmap::populate_vacant`].
    Vacant,
    /// Anything else: ask [`Pmap::lookup`].
    Other,
}

impl Pmap {
    /// What backs `gfn`, in a dozen instructions.
    #[inline(always)]
    pub fn glance<M: MachineMemory>(&self, memory: &M, gfn: Gfn) -> Glance {
        if !self.contains(gfn) {
            return Glance::Other;
        }
        let Some(word) = self.blocks.get(self.block_number(gfn)) else { return Glance::Other };
        match word.table() {
            Some(table) => {
                let slot = Slot::from_word(memory.read_u64(slot_addr(table, gfn.index_in_large())));
                match slot.private_page() {
                    Some(mfn) => Glance::Page(mfn),
                    None if slot.is_absent() => Glance::Vacant,
                    None => Glance::Other,
                }
            }
            None => word.whole().private_page().map_or(Glance::Other, Glance::Large),
        }
    }

    /// The machine page behind `gfn`, and how many follow on it in the same backing, if it is a private one that may be read
    /// and written without further ado; else ask [`Pmap::lookup`]. For the many small accesses of devices: a dozen
    /// instructions.
    #[inline(always)]
    pub fn private_run<M: MachineMemory>(&self, memory: &M, gfn: Gfn) -> Option<(Mfn, u64)> {
        match self.glance(memory, gfn) {
            Glance::Page(mfn) => Some((mfn, 1)),
            Glance::Large(first) => {
                let index = gfn.index_in_large() as u64;
                Some((Mfn::new(first.raw() + index), PAGES_PER_LARGE - index))
            }
            Glance::Vacant | Glance::Other => None,
        }
    }

    /// The machine page behind `gfn`, if [`Pmap::private_run`] finds one. Rings and indices are read over and over: a few
    /// instructions for one of the pages asked for last.
    #[inline(always)]
    pub fn private_page<M: MachineMemory>(&mut self, memory: &M, gfn: Gfn) -> Option<Mfn> {
        let (recent, page) = self.recent.0[gfn.raw() as usize % RECENT];
        if recent == gfn.raw() {
            return Some(page);
        }
        let (page, _) = self.private_run(memory, gfn)?;
        self.recent.0[gfn.raw() as usize % RECENT] = (gfn.raw(), page);
        Some(page)
    }

    /// Takes a zeroed page for `gfn`, which is [`Glance::Vacant`]: what allocating it and [`Pmap::populate_base`] would do,
    /// in one go. Returns it, and whether the block has all its pages now ([`Pmap::collapse`] may do then).
    ///
    /// `None`, with nothing changed, if the page is not vacant, the pool is another VM's, or no memory is left.
    #[inline(always)]
    pub fn populate_vacant<M: MachineMemory>(&mut self, pool: &Pool<'_, M>, gfn: Gfn) -> Option<(Mfn, bool)> {
        if pool.vm != self.vm() || self.glance(pool.memory, gfn) != Glance::Vacant {
            return None;
        }
        let number = self.block_number(gfn);
        let table = self.blocks.get(number)?.table()?;
        let frame = pool.guest_page(PageSize::Base, gfn)?;
        self.counts.add_private(frame.node());
        let page = frame.settle();
        write_slot(pool.memory, table, gfn.index_in_large(), PageState::private(page));
        let word = self.blocks.get_mut(number)?;
        *word = word.with_one_more();
        Some((page, u64::from(word.used()) == PAGES_PER_LARGE))
    }
}
