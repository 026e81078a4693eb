//! What is free on one node.

use addr::Mfn;

use crate::backmap::Chains;
use crate::buddy::{Buddy, NIL};
use crate::{MAX_ORDER, MemMap, MemMapEntry, Sharing};

/// Single pages kept in front of the buddy lists: enough that a page taken and given back by turns never splits and
/// merges blocks.
const CACHE_PAGES: u32 = 32;
/// log2 of the pages that refill it at once.
const REFILL_ORDER: u8 = 4;
/// Single pages that idle harts keep zeroed.
const ZEROED_BASE_PAGES: u32 = 128;

/// A stack of free blocks of one size, linked through their rows, outside the buddy lists.
#[derive(Debug)]
struct Stack {
    head: u64,
    len: u32,
    order: u8,
}

impl Stack {
    const fn new(order: u8) -> Self {
        Self { head: NIL, len: 0, order }
    }

    #[inline]
    fn push(&mut self, map: &MemMap, block: Mfn) {
        let entry = map.known(block);
        entry.set_free(self.order, true);
        entry.set_next(self.head);
        self.head = block.raw();
        self.len += 1;
    }

    /// The pages behind `first`, with their rows, so that the first of them is on top. Their rows are of one run.
    fn push_run(&mut self, first: Mfn, entries: &[MemMapEntry]) {
        let pages = first.raw() + 1..;
        for (entry, page) in entries.iter().zip(pages.clone()) {
            entry.set_free(self.order, true);
            entry.set_next(page + 1);
        }
        if let Some(last) = entries.last() {
            last.set_next(self.head);
            self.head = pages.start;
            self.len += entries.len() as u32;
        }
    }

    #[inline(always)]
    fn pop<'m>(&mut self, map: &'m MemMap) -> Option<(Mfn, &'m MemMapEntry)> {
        if self.head == NIL {
            return None;
        }
        let block = Mfn::new(self.head);
        let entry = map.known(block);
        self.head = entry.next();
        self.len -= 1;
        Some((block, entry))
    }
}

/// A large block that is being zeroed piece by piece.
#[derive(Debug)]
pub(crate) struct HalfZeroed {
    pub(crate) block: Mfn,
    /// Pages from the start that are zero already.
    pub(crate) done: u64,
}

/// What an idle hart got done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleWork {
    /// So many pages were zeroed; there may be more to do.
    Zeroed(u64),
    /// Nothing to do.
    Nothing,
}

/// Work for an idle hart: the block is out of all lists until it is handed back.
pub(crate) enum IdleJob {
    Base(Mfn),
    Large(HalfZeroed),
}

/// A block just taken.
pub(crate) struct Taken<'m> {
    pub(crate) mfn: Mfn,
    pub(crate) entry: &'m MemMapEntry,
    /// Whether all its contents are zero.
    pub(crate) is_zero: bool,
}

impl<'m> Taken<'m> {
    #[inline(always)]
    fn pooled((mfn, entry): (Mfn, &'m MemMapEntry), is_zero: bool) -> Self {
        Self { mfn, entry, is_zero }
    }

    fn listed(map: &'m MemMap, mfn: Mfn) -> Self {
        Self { mfn, entry: map.known(mfn), is_zero: false }
    }
}

/// The free memory of a node and the back-maps of its shared pages. Guarded by the node's lock.
#[derive(Debug)]
pub(crate) struct NodeMemory {
    buddy: Buddy,
    cache: Stack,
    zeroed_base: Stack,
    zeroed_large: Stack,
    /// Large blocks to keep zeroed.
    zeroed_large_target: u32,
    half_zeroed: Option<HalfZeroed>,
    /// Whether some hart is zeroing a large block now.
    is_zeroing: bool,
    pub(crate) chains: Chains,
    pub(crate) sharing: Sharing,
}

impl NodeMemory {
    pub(crate) const fn new() -> Self {
        Self {
            buddy: Buddy::new(),
            cache: Stack::new(0),
            zeroed_base: Stack::new(0),
            zeroed_large: Stack::new(MAX_ORDER),
            zeroed_large_target: 16,
            half_zeroed: None,
            is_zeroing: false,
            chains: Chains::new(),
            sharing: Sharing { mapped_pages: 0, guest_pages: 0 },
        }
    }

    pub(crate) fn set_zeroed_target(&mut self, large_blocks: u32) {
        self.zeroed_large_target = large_blocks;
    }

    pub(crate) const fn zeroed(&self) -> (u32, u32) {
        (self.zeroed_base.len, self.zeroed_large.len)
    }

    /// Whole free blocks of the largest size, zeroed ahead or not.
    pub(crate) const fn large_blocks(&self) -> u64 {
        let being_zeroed = (self.half_zeroed.is_some() || self.is_zeroing) as u64;
        self.buddy.large_blocks() + self.zeroed_large.len as u64 + being_zeroed
    }

    /// Takes a block. `want_zeroed` prefers one that was zeroed ahead; else those are spared.
    #[inline(always)]
    pub(crate) fn take<'m>(&mut self, map: &'m MemMap, order: u8, want_zeroed: bool) -> Option<Taken<'m>> {
        let quick = match order {
            0 => self.take_base(map, want_zeroed),
            MAX_ORDER => self.take_large(map, want_zeroed),
            _ => self.buddy.take(map, order).map(|block| Taken::listed(map, block)),
        };
        quick.or_else(|| self.take_reserve(map, order))
    }

    #[inline(always)]
    fn take_base<'m>(&mut self, map: &'m MemMap, want_zeroed: bool) -> Option<Taken<'m>> {
        if want_zeroed && let Some(page) = self.zeroed_base.pop(map) {
            return Some(Taken::pooled(page, true));
        }
        if let Some(page) = self.cache.pop(map) {
            return Some(Taken::pooled(page, false));
        }
        self.refill(map)
    }

    /// Takes a page, and leaves some more from the same block in the cache: splitting page by page costs more.
    #[inline(never)]
    fn refill<'m>(&mut self, map: &'m MemMap) -> Option<Taken<'m>> {
        let (block, order) = self.buddy.take_small(map, REFILL_ORDER)?;
        let entries = map.entries(block, 1 << order);
        self.cache.push_run(block, entries.get(1..)?);
        Some(Taken { mfn: block, entry: entries.first()?, is_zero: false })
    }

    #[inline(never)]
    fn take_large<'m>(&mut self, map: &'m MemMap, want_zeroed: bool) -> Option<Taken<'m>> {
        if want_zeroed && let Some(block) = self.zeroed_large.pop(map) {
            return Some(Taken::pooled(block, true));
        }
        self.buddy.take(map, MAX_ORDER).map(|block| Taken::listed(map, block))
    }

    /// The lists are empty: gives up what was set aside, until a block of `order` exists.
    #[cold]
    fn take_reserve<'m>(&mut self, map: &'m MemMap, order: u8) -> Option<Taken<'m>> {
        while let Some((page, _)) = self.cache.pop(map).or_else(|| self.zeroed_base.pop(map)) {
            self.buddy.put(map, page, 0);
        }
        if let Some(block) = self.buddy.take(map, order) {
            return Some(Taken::listed(map, block));
        }
        if order == MAX_ORDER
            && let Some(block) = self.zeroed_large.pop(map)
        {
            return Some(Taken::pooled(block, true));
        }
        let zeroed = self.zeroed_large.pop(map).map(|(block, _)| block);
        let block = zeroed.or_else(|| self.half_zeroed.take().map(|half| half.block))?;
        self.buddy.put(map, block, MAX_ORDER);
        self.buddy.take(map, order).map(|block| Taken::listed(map, block))
    }

    /// Takes a block back.
    #[inline]
    pub(crate) fn put(&mut self, map: &MemMap, block: Mfn, order: u8) {
        if order == 0 && self.cache.len < CACHE_PAGES {
            self.cache.push(map, block);
        } else {
            self.buddy.put(map, block, order);
        }
    }

    /// Adds memory that was not in the allocator: the largest aligned blocks that cover it.
    pub(crate) fn donate(&mut self, map: &MemMap, start: Mfn, pages: u64) {
        let (mut at, end) = (start.raw(), start.raw() + pages);
        while at < end {
            let aligned = at.trailing_zeros().min(u32::from(MAX_ORDER));
            let fitting = (end - at).ilog2();
            let order = aligned.min(fitting) as u8;
            self.buddy.put(map, Mfn::new(at), order);
            at += 1 << order;
        }
    }

    /// Something worth zeroing, if anything is.
    pub(crate) fn begin_idle(&mut self, map: &MemMap) -> Option<IdleJob> {
        if self.zeroed_base.len < ZEROED_BASE_PAGES
            && let Some(page) = self.buddy.take(map, 0)
        {
            map.known(page).set_free(0, true);
            return Some(IdleJob::Base(page));
        }
        if self.is_zeroing {
            return None;
        }
        let half = self.half_zeroed.take().or_else(|| self.begin_large(map))?;
        self.is_zeroing = true;
        Some(IdleJob::Large(half))
    }

    fn begin_large(&mut self, map: &MemMap) -> Option<HalfZeroed> {
        if self.zeroed_large.len >= self.zeroed_large_target {
            return None;
        }
        let block = self.buddy.take(map, MAX_ORDER)?;
        map.known(block).set_free(MAX_ORDER, true);
        Some(HalfZeroed { block, done: 0 })
    }

    /// A job is back, its pages zeroed as it says.
    pub(crate) fn end_idle(&mut self, map: &MemMap, job: IdleJob) {
        match job {
            IdleJob::Base(page) => self.zeroed_base.push(map, page),
            IdleJob::Large(half) => {
                self.is_zeroing = false;
                if half.done == 1 << MAX_ORDER {
                    self.zeroed_large.push(map, half.block);
                } else {
                    self.half_zeroed = Some(half);
                }
            }
        }
    }
}
