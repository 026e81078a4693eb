//! The allocator of the whole machine.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use addr::{Gfn, Mfn, NodeId, PageSize, SpuId, VmId};
use scarce::Refusals;
use spin::mutex::{TicketMutex, TicketMutexGuard};
use thiserror::Error;

use crate::entry::{NO_OWNER, pack_owner};
use crate::node::{IdleJob, IdleWork, NodeMemory};
use crate::spread::SpreadPages;
use crate::{
    Clean, Dirty, DyingList, Frame, MAX_ORDER, MachineMemory, MemMap, MemMapEntry, PageOwner, PageState, PageUse,
};

/// Why the memmap contradicts the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// No such memory is described.
    #[error("there is no page {0}")]
    NoSuchPage(Mfn),
    /// The page is in another state, or in a block of another size, than the operation needs.
    #[error("page {mfn} is {state:?} in a block of order {order}")]
    WrongState {
        /// The page.
        mfn: Mfn,
        /// Its state.
        state: PageState,
        /// Its block's order.
        order: u8,
    },
    /// The page does not back this guest page.
    #[error("page {mfn} does not back {owner:?}")]
    NotMapped {
        /// The page.
        mfn: Mfn,
        /// Who was said to map it.
        owner: PageOwner,
    },
    /// More references than can be counted.
    #[error("page {0} has more references than can be counted")]
    TooManyReferences(Mfn),
    /// The shared page has a copy there, is there itself, or too many pages have copies.
    #[error("page {mfn} can have no copy on {node:?}")]
    NoCopy {
        /// The page.
        mfn: Mfn,
        /// Where.
        node: NodeId,
    },
    /// The pages were reserved or donated before.
    #[error("{pages} pages from {start} are in use already")]
    AlreadyInUse {
        /// First page of the range.
        start: Mfn,
        /// Pages.
        pages: u64,
    },
}

/// A node's part, on cache lines of its own.
#[repr(align(64))]
struct Node {
    memory: TicketMutex<NodeMemory>,
    /// Pages by [`PageState`].
    counts: [AtomicU64; PageState::COUNT],
    /// Large blocks were taken since idle harts last had nothing to zero.
    wants_zeroing: AtomicBool,
}

/// Free memory of all nodes, and the rows of what is not free.
pub struct Frames {
    map: MemMap,
    nodes: Box<[Node]>,
    pub(crate) spread: SpreadPages,
    refusals: Refusals,
}

impl Frames {
    /// An allocator over `map`, with nothing to give yet: [`Frames::reserve`] what is in use, [`Frames::donate`] the rest.
    #[must_use]
    pub fn new(map: MemMap) -> Self {
        let count = map.spans().iter().map(|span| span.node.index() + 1).max().unwrap_or(0);
        let node = || Node {
            memory: TicketMutex::new(NodeMemory::new()),
            counts: [const { AtomicU64::new(0) }; PageState::COUNT],
            wants_zeroing: AtomicBool::new(true),
        };
        let nodes = (0..count).map(|_| node()).collect::<Vec<_>>().into_boxed_slice();
        Self { map, nodes, spread: SpreadPages::new(), refusals: Refusals::new() }
    }

    /// Whom it refuses pages that are there: nobody, but for those who try what comes then.
    #[must_use]
    pub const fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// The rows.
    #[must_use]
    pub fn map(&self) -> &MemMap {
        &self.map
    }

    /// Marks pages that the monitor occupies already (its image, the rows themselves).
    ///
    /// # Errors
    /// [`FrameError::AlreadyInUse`], also for pages that are not described.
    pub fn reserve(&self, start: Mfn, pages: u64) -> Result<(), FrameError> {
        self.check_unused(start, pages)?;
        for page in start.raw()..start.raw() + pages {
            let entry = self.map.known(Mfn::new(page));
            entry.set_used(PageState::Monitor, 0, SpuId(0), NO_OWNER, 1);
            self.count(entry.node(), PageState::Monitor, 1);
        }
        Ok(())
    }

    /// Hands pages to the allocator. They must lie in one node.
    ///
    /// # Errors
    /// [`FrameError::AlreadyInUse`], also for pages that are not described or of several nodes.
    pub fn donate(&self, start: Mfn, pages: u64) -> Result<(), FrameError> {
        self.check_unused(start, pages)?;
        if pages == 0 {
            return Ok(());
        }
        let node = self.map.known(start).node();
        if self.map.node_of(Mfn::new(start.raw() + pages - 1)) != Some(node) {
            return Err(FrameError::AlreadyInUse { start, pages });
        }
        self.nodes[node.index()].memory.lock().donate(&self.map, start, pages);
        self.count(node, PageState::Free, pages);
        Ok(())
    }

    /// Hands over a whole region but for some ranges `(start, pages)` in it, which become the monitor's. Ranges may
    /// come in any order, overlap, and reach beyond the region.
    ///
    /// # Errors
    /// As for [`Frames::donate`].
    pub fn donate_except(&self, start: Mfn, pages: u64, reserved: &[(Mfn, u64)]) -> Result<(), FrameError> {
        let end = start.raw() + pages;
        let clip = |&(at, len): &(Mfn, u64)| (at.raw().max(start.raw()), at.raw().saturating_add(len).min(end));
        let mut ranges: Vec<_> = reserved.iter().map(clip).filter(|(from, to)| from < to).collect();
        order::ascending(&mut ranges);
        let mut at = start.raw();
        for (from, to) in ranges {
            if from > at {
                self.donate(Mfn::new(at), from - at)?;
            }
            let from = from.max(at);
            if to > from {
                // Bounded: marks pages of the machine, and takes no memory.
                self.reserve(Mfn::new(from), to - from)?;
                at = to;
            }
        }
        self.donate(Mfn::new(at), end - at)
    }

    /// Takes a block of `1 << order` pages, naturally aligned, from `node`. `None` if that node has none (or does not
    /// exist): where to look next is the caller's policy.
    #[inline(never)]
    pub fn alloc(&self, node: NodeId, order: u8, to: PageUse) -> Option<Frame<Dirty>> {
        let (frame, _) = self.take(node, order, to, false)?;
        Some(frame)
    }

    /// [`Frames::alloc`] of a single page, for whoever takes many.
    #[inline(always)]
    pub fn alloc_page(&self, node: NodeId, to: PageUse) -> Option<Frame<Dirty>> {
        let (frame, _) = self.take(node, 0, to, false)?;
        Some(frame)
    }

    /// [`Frames::alloc`] with zeroed contents: from the pages zeroed ahead if there are any, else zeroed here.
    #[inline(always)]
    pub fn alloc_zeroed<M: MachineMemory>(
        &self,
        memory: &M,
        node: NodeId,
        order: u8,
        to: PageUse,
    ) -> Option<Frame<Clean>> {
        let (frame, is_zero) = self.take(node, order, to, true)?;
        Some(if is_zero { frame.known_zero() } else { frame.zero(memory) })
    }

    /// A large block, of those zeroed ahead if there are any; else the caller has to zero it, without anybody's lock.
    pub(crate) fn alloc_large(&self, node: NodeId, to: PageUse) -> Option<Result<Frame<Clean>, Frame<Dirty>>> {
        let (frame, is_zero) = self.take(node, MAX_ORDER, to, true)?;
        Some(if is_zero { Ok(frame.known_zero()) } else { Err(frame) })
    }

    /// Gives a frame back that no table and no TLB can name.
    ///
    /// # Panics
    /// If its row says that it is free: the monitor has lost count of its memory and must not go on.
    pub fn free<Contents>(&self, frame: Frame<Contents>) {
        self.put(frame.mfn(), frame.order());
    }

    /// Takes a settled frame of the monitor's own out of rest, to give it back.
    ///
    /// # Errors
    /// If the row does not say that it is a monitor's block of this order.
    pub fn retake_monitor(&self, mfn: Mfn, order: u8) -> Result<Frame<Dirty>, FrameError> {
        let entry = self.expect_block(mfn, order, PageState::Monitor)?;
        Ok(Frame::new(mfn, order, entry.node()))
    }

    /// A guest page no longer maps its machine page. A private block is added to `dying`, and `true` comes back; a shared page
    /// loses the reference behind the same shootdown, and may be free then.
    ///
    /// # Errors
    /// If the row does not say that `owner` maps a block of this order there; nothing is changed then.
    #[inline]
    pub fn drop_mapping(
        &self,
        dying: &mut DyingList,
        mfn: Mfn,
        order: u8,
        owner: PageOwner,
    ) -> Result<bool, FrameError> {
        let entry = self.map.entry(mfn).ok_or(FrameError::NoSuchPage(mfn))?;
        if !entry.is(PageState::Private, order) {
            return self.leave_shared(dying, entry, mfn, owner);
        }
        if self.drop_private(dying, entry, mfn, order, owner) {
            Ok(true)
        } else {
            Err(FrameError::NotMapped { mfn, owner })
        }
    }

    /// [`Frames::drop_mapping`] of a private block whose row `entry` is at hand; `false` with nothing changed if the row does
    /// not say that `owner` maps a block of this order there.
    #[inline(always)]
    pub fn drop_private(
        &self,
        dying: &mut DyingList,
        entry: &MemMapEntry,
        mfn: Mfn,
        order: u8,
        owner: PageOwner,
    ) -> bool {
        let is_owners = entry.is(PageState::Private, order) && Some(entry.back()) == pack_owner(owner);
        if is_owners {
            self.condemn(dying, entry, mfn, order);
        }
        is_owners
    }

    /// Whether this frame was taken to back `owner`'s guest page (and the ones behind it).
    #[must_use]
    #[inline]
    pub fn is_private_of<Contents>(&self, frame: &Frame<Contents>, owner: PageOwner) -> bool {
        let entry = self.map.known(frame.mfn());
        entry.is(PageState::Private, frame.order()) && Some(entry.back()) == pack_owner(owner)
    }

    /// A table page left its table: it is added to `dying`.
    ///
    /// # Errors
    /// If the row does not say that it is a monitor's block of this order.
    pub fn drop_table(&self, dying: &mut DyingList, mfn: Mfn, order: u8) -> Result<(), FrameError> {
        let entry = self.expect_block(mfn, order, PageState::Monitor)?;
        self.condemn(dying, entry, mfn, order);
        Ok(())
    }

    /// A private 2 MiB block is described page by page from now on.
    ///
    /// # Errors
    /// If it is not a private large block of `vm`.
    pub fn split_private(&self, mfn: Mfn, vm: VmId) -> Result<(), FrameError> {
        let entry = self.expect_block(mfn, MAX_ORDER, PageState::Private)?;
        if entry.info(0).owner.is_none_or(|owner| owner.vm != vm) {
            return Err(wrong_state(mfn, entry));
        }
        for index in (0..PageSize::Large.base_pages()).rev() {
            self.map.known(Mfn::new(mfn.raw() + index)).copy_for_page(entry, index);
        }
        Ok(())
    }

    /// A block in motion is as many single pages from now on, in order, each for what the block was taken for there.
    pub fn split_frame<Contents>(&self, frame: Frame<Contents>) -> impl Iterator<Item = Frame<Contents>> {
        let (first, pages, node) = (frame.mfn().raw(), frame.pages(), frame.node());
        let entry = self.map.known(frame.settle());
        for index in (0..pages).rev() {
            self.map.known(Mfn::new(first + index)).copy_for_page(entry, index);
        }
        (first..first + pages).map(move |page| Frame::new(Mfn::new(page), 0, node))
    }

    /// 512 private single pages that back one block of guest pages, in order, are described as one block again.
    ///
    /// # Errors
    /// If they are not that: misaligned, of another owner, shared, or already one block.
    pub fn merge_private(&self, mfn: Mfn, owner: PageOwner) -> Result<(), FrameError> {
        let first = self.map.entry(mfn).ok_or(FrameError::NoSuchPage(mfn))?;
        let back = pack_owner(owner).ok_or(FrameError::NotMapped { mfn, owner })?;
        let pages = PageSize::Large.base_pages();
        for index in 0..pages {
            let page = Mfn::new(mfn.raw() + index);
            let entry = self.map.entry(page).ok_or(FrameError::NoSuchPage(page))?;
            if !entry.is(PageState::Private, 0) || entry.references() != (1, 0) || entry.node() != first.node() {
                return Err(wrong_state(page, entry));
            }
            if entry.back() != back + index {
                return Err(FrameError::NotMapped { mfn: page, owner });
            }
        }
        if !mfn.raw().is_multiple_of(pages) {
            return Err(wrong_state(mfn, first));
        }
        first.set_order(MAX_ORDER);
        Ok(())
    }

    /// Lets an idle hart zero up to `max_pages` pages of its node ahead. The lock is not held while zeroing.
    pub fn idle_step<M: MachineMemory>(&self, memory: &M, node: NodeId, max_pages: u64) -> IdleWork {
        let Some(part) = self.nodes.get(node.index()) else { return IdleWork::Nothing };
        let Some(mut job) = part.memory.lock().begin_idle(&self.map) else {
            part.wants_zeroing.store(false, Relaxed);
            return IdleWork::Nothing;
        };
        let zeroed = match &mut job {
            IdleJob::Base(page) => {
                memory.zero_pages(*page, 1);
                1
            }
            IdleJob::Large(half) => {
                let pages = max_pages.clamp(1, (1 << MAX_ORDER) - half.done);
                memory.zero_pages(Mfn::new(half.block.raw() + half.done), pages);
                half.done += pages;
                pages
            }
        };
        part.memory.lock().end_idle(&self.map, job);
        IdleWork::Zeroed(zeroed)
    }

    /// Whether [`Frames::idle_step`] may have something to do for this node. A hint: large blocks were taken since it
    /// had nothing to do.
    #[inline]
    #[must_use]
    pub fn wants_zeroing(&self, node: NodeId) -> bool {
        self.nodes.get(node.index()).is_some_and(|part| part.wants_zeroing.load(Relaxed))
    }

    /// How many 2 MiB blocks of `node` idle harts keep zeroed (16 at first).
    pub fn set_zeroed_target(&self, node: NodeId, large_blocks: u32) {
        if let Some(part) = self.nodes.get(node.index()) {
            part.memory.lock().set_zeroed_target(large_blocks);
        }
    }

    /// Zeroed (single pages, large blocks) of `node` at hand.
    #[must_use]
    pub fn zeroed(&self, node: NodeId) -> (u32, u32) {
        self.nodes.get(node.index()).map_or((0, 0), |part| part.memory.lock().zeroed())
    }

    /// Whole free 2 MiB blocks of `node`.
    #[must_use]
    pub fn free_large_blocks(&self, node: NodeId) -> u64 {
        self.nodes.get(node.index()).map_or(0, |part| part.memory.lock().large_blocks())
    }

    /// How many nodes there are: indices from 0.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Pages of `node` in `state`.
    #[must_use]
    pub fn pages_in(&self, node: NodeId, state: PageState) -> u64 {
        self.nodes.get(node.index()).map_or(0, |part| part.counts[state as usize].load(Relaxed))
    }

    /// What the lock of `node` guards.
    pub(crate) fn node_memory(&self, node: NodeId) -> Option<&TicketMutex<NodeMemory>> {
        self.nodes.get(node.index()).map(|part| &part.memory)
    }

    /// The lock of the node that `entry`'s page lies on.
    #[inline(always)]
    pub(crate) fn lock_of(&self, entry: &MemMapEntry) -> TicketMutexGuard<'_, NodeMemory> {
        self.nodes[entry.node().index()].memory.lock()
    }

    /// Takes a block back. Its row must not be free.
    pub(crate) fn put(&self, mfn: Mfn, order: u8) {
        let entry = self.map.known(mfn);
        let state = entry.state();
        assert!(state != PageState::Free && entry.order() == order, "{mfn:?} is given back, but is {state:?}");
        let node = entry.node();
        self.recount(node, state, PageState::Free, 1 << order);
        self.nodes[node.index()].memory.lock().put(&self.map, mfn, order);
    }

    /// Gives all blocks of a list back, those of one node that follow each other under one lock. Returns the pages.
    pub(crate) fn put_all(&self, dying: &mut DyingList) -> u64 {
        /// Blocks given back under one lock: others wait for it meanwhile.
        const MOST: u32 = 32;
        let mut all = 0;
        while let Some(node) = dying.first().map(|first| self.map.known(first).node()) {
            let part = &self.nodes[node.index()];
            let mut memory = part.memory.lock();
            let (mut blocks, mut pages) = (0, 0);
            while blocks < MOST
                && let Some((mfn, order)) = dying.pop(self, Some(node))
            {
                let (mfn, order) = if order == 0 { dying.pop_block(self, mfn) } else { (mfn, order) };
                memory.put(&self.map, mfn, order);
                (blocks, pages) = (blocks + 1, pages + (1 << order));
            }
            drop(memory);
            self.recount(node, PageState::Dying, PageState::Free, pages);
            all += pages;
        }
        all
    }

    #[inline(always)]
    fn take(&self, node: NodeId, order: u8, to: PageUse, want_zeroed: bool) -> Option<(Frame<Dirty>, bool)> {
        if order > MAX_ORDER || self.refusals.refuses() {
            return None;
        }
        let (state, spu, back, references) = row_for(to)?;
        let part = self.nodes.get(node.index())?;
        let taken = part.memory.lock().take(&self.map, order, want_zeroed)?;
        if order == MAX_ORDER {
            part.wants_zeroing.store(true, Relaxed);
        }
        taken.entry.set_used(state, order, spu, back, references);
        self.recount(node, PageState::Free, state, 1 << order);
        Some((Frame::new(taken.mfn, order, node), taken.is_zero))
    }

    #[inline]
    pub(crate) fn condemn(&self, dying: &mut DyingList, entry: &MemMapEntry, mfn: Mfn, order: u8) {
        self.recount(entry.node(), entry.state(), PageState::Dying, 1 << order);
        entry.set_state(PageState::Dying);
        dying.push(entry, mfn, order);
    }

    fn expect_block(&self, mfn: Mfn, order: u8, state: PageState) -> Result<&MemMapEntry, FrameError> {
        let entry = self.map.entry(mfn).ok_or(FrameError::NoSuchPage(mfn))?;
        if entry.is(state, order) { Ok(entry) } else { Err(wrong_state(mfn, entry)) }
    }

    fn check_unused(&self, start: Mfn, pages: u64) -> Result<(), FrameError> {
        let is_sane = start.raw().checked_add(pages).is_some();
        if is_sane && self.map.is_unused(start, pages) {
            Ok(())
        } else {
            Err(FrameError::AlreadyInUse { start, pages })
        }
    }

    fn count(&self, node: NodeId, state: PageState, pages: u64) {
        self.nodes[node.index()].counts[state as usize].fetch_add(pages, Relaxed);
    }

    #[inline(always)]
    pub(crate) fn recount(&self, node: NodeId, from: PageState, to: PageState, pages: u64) {
        let counts = &self.nodes[node.index()].counts;
        counts[from as usize].fetch_sub(pages, Relaxed);
        counts[to as usize].fetch_add(pages, Relaxed);
    }
}

pub(crate) fn wrong_state(mfn: Mfn, entry: &MemMapEntry) -> FrameError {
    FrameError::WrongState { mfn, state: entry.state(), order: entry.order() }
}

/// State, SPU, owner word and first reference count for a use; `None` if the owner cannot be written down.
#[inline(always)]
fn row_for(to: PageUse) -> Option<(PageState, SpuId, u64, u32)> {
    Some(match to {
        PageUse::Monitor { vm: None } => (PageState::Monitor, SpuId(0), NO_OWNER, 1),
        PageUse::Monitor { vm: Some(vm) } => {
            (PageState::Monitor, SpuId(0), pack_owner(PageOwner { vm, gfn: Gfn::new(0) })?, 1)
        }
        PageUse::Private { vm, gfn, spu } => (PageState::Private, spu, pack_owner(PageOwner { vm, gfn })?, 1),
        PageUse::Replica { vm, gfn, spu } => (PageState::Replica, spu, pack_owner(PageOwner { vm, gfn })?, 1),
        PageUse::Shared => (PageState::Shared, SpuId(0), NO_OWNER, 1),
    })
}
