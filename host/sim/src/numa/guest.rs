//! A guest's pages: single ones and blocks of 2 MiB, with copies, watches and ways to other nodes.

use std::collections::BTreeMap;

use addr::{Gfn, Mfn, NodeId, PAGES_PER_LARGE, PageSize, VmId};
use placement::{Guest, History, NodeBits, Switches};

use super::memory::{Memory, node_of};

/// Where a guest's memory begins.
pub(super) const BASE: u64 = 0x8_0000;

/// A page of a guest.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// What backs it, or the first of its copies.
    pub master: Mfn,
    /// Copies on other nodes.
    pub copies: BTreeMap<NodeId, Mfn>,
    /// The next write is noticed.
    pub is_watched: bool,
    pub history: History,
    /// Times that it went somewhere or got its first copy.
    pub moves: u32,
    /// Nodes that have used it since somebody looked.
    pub used: NodeBits,
}

/// Where a block goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub to: NodeId,
    pub frame: Mfn,
    pub copied: u64,
}

/// A block of a guest's pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    /// One large page.
    pub is_large: bool,
    /// The next write is noticed.
    pub is_watched: bool,
    /// Where it goes, if anywhere.
    pub moving: Option<Way>,
    /// Copies of it that are being made.
    pub copying: Vec<Way>,
}

/// A guest.
#[derive(Clone, Debug)]
pub(super) struct GuestMemory {
    pub pages: Vec<Page>,
    pub blocks: Vec<Block>,
    /// Jobs under way that take lanes.
    pub jobs: usize,
}

impl GuestMemory {
    /// So many pages, each where `home` says; in blocks where a whole one is asked for on one node.
    pub fn new<const N: usize>(
        memory: &mut Memory<N>,
        guest: usize,
        pages: u64,
        is_large: bool,
        home: impl Fn(u64) -> NodeId,
    ) -> Option<Self> {
        let mut made = Self {
            pages: Vec::new(),
            blocks: vec![Block::default(); pages.div_ceil(PAGES_PER_LARGE) as usize],
            jobs: 0,
        };
        for block in 0..pages.div_ceil(PAGES_PER_LARGE) {
            let first = block * PAGES_PER_LARGE;
            let end = pages.min(first + PAGES_PER_LARGE);
            let is_large = is_large && end - first == PAGES_PER_LARGE;
            if is_large {
                let frame = memory.take_block(home(first), (guest, first))?;
                made.pages.extend((0..PAGES_PER_LARGE).map(|at| Page::new(Mfn::new(frame.raw() + at))));
            } else {
                for page in first..end {
                    made.pages.push(Page::new(memory.take(home(page), (guest, page))?));
                }
            }
            made.blocks[block as usize].is_large = is_large;
        }
        Some(made)
    }

    /// What the planner is told of it.
    pub fn facts(&self, vm: VmId, switches: Switches) -> Guest {
        Guest {
            vm,
            switches,
            base: Gfn::new(BASE),
            pages: self.pages.len() as u64,
            node_change_at: 0,
            is_ending: false,
            jobs: self.jobs,
        }
    }

    pub fn page(&self, gfn: Gfn) -> Option<&Page> {
        self.pages.get(usize::try_from(gfn.raw().checked_sub(BASE)?).ok()?)
    }

    pub fn page_mut(&mut self, gfn: Gfn) -> Option<&mut Page> {
        self.pages.get_mut(usize::try_from(gfn.raw().checked_sub(BASE)?).ok()?)
    }

    pub fn block(&self, gfn: Gfn) -> Option<&Block> {
        self.blocks.get(block_index(gfn)?)
    }

    pub fn block_mut(&mut self, gfn: Gfn) -> Option<&mut Block> {
        self.blocks.get_mut(block_index(gfn)?)
    }

    pub fn size_of(&self, gfn: Gfn) -> PageSize {
        if self.block(gfn).is_some_and(|block| block.is_large) { PageSize::Large } else { PageSize::Base }
    }

    /// The first page of what `gfn` is part of.
    pub fn head_of(&self, gfn: Gfn) -> Gfn {
        match self.size_of(gfn) {
            PageSize::Large => gfn.large_base(),
            PageSize::Base => gfn,
        }
    }

    /// A thread of `by` uses the page: from which machine page, and how many copies a write has ended.
    pub fn touch<const N: usize>(
        &mut self,
        memory: &mut Memory<N>,
        page: u64,
        by: NodeId,
        is_write: bool,
    ) -> Option<(Mfn, u64)> {
        let gfn = Gfn::new(BASE + page);
        let mut ended = 0;
        if is_write {
            self.block_mut(gfn)?.is_watched = false;
            let page = self.page_mut(gfn)?;
            page.is_watched = false;
            for copy in std::mem::take(&mut page.copies).into_values() {
                memory.free(copy);
                ended += 1;
            }
        }
        let head = self.head_of(gfn);
        self.page_mut(head)?.used |= 1 << by.0;
        let page = self.page_mut(gfn)?;
        Some((page.copies.get(&by).copied().unwrap_or(page.master), ended))
    }

    /// Nodes of a page's copies, by bit.
    pub fn copies_of(page: &Page) -> NodeBits {
        page.copies.keys().fold(0, |nodes, node| nodes | 1 << node.0)
    }
}

impl Page {
    const fn new(master: Mfn) -> Self {
        let history = History { tries: 0, last: 0 };
        Self { master, copies: BTreeMap::new(), is_watched: false, history, moves: 0, used: 0 }
    }

    pub const fn home(&self) -> NodeId {
        node_of(self.master)
    }
}

fn block_index(gfn: Gfn) -> Option<usize> {
    usize::try_from(gfn.raw().checked_sub(BASE)? / PAGES_PER_LARGE).ok()
}
