//! A frame in motion.

use core::marker::PhantomData;

use addr::{BASE_PAGE, Mfn, NodeId, PageSize};

use crate::{MAX_ORDER, MachineMemory};

/// Contents unknown: possibly another guest's secrets.
#[derive(Debug)]
pub enum Dirty {}

/// Contents zeroed, or wholly overwritten for the new owner.
#[derive(Debug)]
pub enum Clean {}

/// A block of machine pages that is in nobody's table: exactly one value exists for it, from the allocator until it is
/// settled in a table or given back.
///
/// Dropping one loses the memory until the machine restarts; that is a bug that `Frames::census` shows, not a danger.
#[must_use = "a frame that is dropped is lost: settle it in a table or free it"]
#[derive(Debug)]
pub struct Frame<Contents> {
    mfn: Mfn,
    order: u8,
    node: NodeId,
    contents: PhantomData<Contents>,
}

impl<Contents> Frame<Contents> {
    #[inline(always)]
    pub(crate) const fn new(mfn: Mfn, order: u8, node: NodeId) -> Self {
        Self { mfn, order, node, contents: PhantomData }
    }

    /// Its first page.
    #[must_use]
    pub const fn mfn(&self) -> Mfn {
        self.mfn
    }

    /// log2 of its pages.
    #[must_use]
    pub const fn order(&self) -> u8 {
        self.order
    }

    /// Its home node.
    #[must_use]
    #[inline(always)]
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Its pages.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        1 << self.order
    }

    /// Its size, if it is one that guests get.
    #[must_use]
    pub const fn size(&self) -> Option<PageSize> {
        match self.order {
            0 => Some(PageSize::Base),
            MAX_ORDER => Some(PageSize::Large),
            _ => None,
        }
    }

    /// Ends the motion: a table names the block from now on, and its memmap row says whose it is.
    #[must_use = "the table needs the number"]
    pub fn settle(self) -> Mfn {
        self.mfn
    }
}

impl Frame<Dirty> {
    /// It comes from the pages zeroed ahead.
    #[inline(always)]
    pub(crate) const fn known_zero(self) -> Frame<Clean> {
        Frame::new(self.mfn, self.order, self.node)
    }

    /// Zeroes all of it.
    #[inline]
    pub fn zero(self, memory: &impl MachineMemory) -> Frame<Clean> {
        memory.zero_pages(self.mfn, self.pages());
        Frame::new(self.mfn, self.order, self.node)
    }

    /// Zeroes `pages` of its pages from page `at` on; the part beyond it is ignored. For large blocks, which are zeroed in steps:
    /// [`Frame::overwritten`] tells when all is done.
    pub fn zero_some(&mut self, memory: &impl MachineMemory, at: u64, pages: u64) {
        let end = at.saturating_add(pages).min(self.pages());
        if at < end {
            memory.zero_pages(Mfn::new(self.mfn.raw() + at), end - at);
        }
    }

    /// Overwrites all of it with as many pages from `source`; `None` if those would lie beyond the address space.
    pub fn copy_from(self, memory: &impl MachineMemory, source: Mfn) -> Result<Frame<Clean>, Self> {
        if source.checked_add(self.pages()).is_none() {
            return Err(self);
        }
        for page in 0..self.pages() {
            memory.copy_page(Mfn::new(source.raw() + page), Mfn::new(self.mfn.raw() + page));
        }
        Ok(Frame::new(self.mfn, self.order, self.node))
    }

    /// Overwrites `pages` of its pages from page `at` on with those from `source`; the part beyond it is ignored. For large
    /// blocks, which are filled in steps: [`Frame::overwritten`] tells when all is done.
    pub fn fill_some(&mut self, memory: &impl MachineMemory, source: Mfn, at: u64, pages: u64) {
        for page in at..at.saturating_add(pages).min(self.pages()) {
            if let Some(from) = source.checked_add(page) {
                memory.copy_page(from, Mfn::new(self.mfn.raw() + page));
            }
        }
    }

    /// The caller has overwritten all of it itself (a device's DMA of exactly this many bytes, say).
    pub fn overwritten(self, bytes: u64) -> Result<Frame<Clean>, Self> {
        if bytes == self.pages() * BASE_PAGE { Ok(Frame::new(self.mfn, self.order, self.node)) } else { Err(self) }
    }
}

impl Frame<Clean> {
    /// Forgets that it was cleaned.
    pub fn into_dirty(self) -> Frame<Dirty> {
        Frame::new(self.mfn, self.order, self.node)
    }
}
