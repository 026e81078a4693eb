//! Frames between their last table and the allocator.

use addr::{Mfn, NodeId};
use alloc::vec::Vec;
use tlb::{CpuSet, ShootdownToken, ShootdownTracker, TlbGeneration};

use crate::buddy::NIL;
use crate::{Frames, MachineMemory, MemMapEntry, PageState};

/// log2 of the pages of a run that are given back as one block, at most: others wait for the lock meanwhile.
const MOST_ORDER: u32 = 6;

/// References after which a list counts as full: 64 KiB of the monitor's memory.
const MOST_REFERENCES: usize = 4096;

/// Frames that no table names any more but some TLB may still know: linked through their rows, so any number of them
/// takes no memory. And references to shared pages, which keep those until the same shootdown has ended: whoever has
/// the last one could not know of a TLB of another VM. These do take memory: whoever adds them asks
/// [`DyingList::is_full`] before each bounded step. The only way on is a [`PendingShootdown`].
#[must_use = "these frames are lost unless a PendingShootdown takes them"]
#[derive(Debug)]
pub struct DyingList {
    head: u64,
    /// The last frame of the list, while there is one.
    tail: u64,
    pages: u64,
    /// Shared pages, with the owner words of references that end.
    references: Vec<(Mfn, u64)>,
}

impl Default for DyingList {
    fn default() -> Self {
        Self::new()
    }
}

impl DyingList {
    /// No frames.
    pub const fn new() -> Self {
        Self { head: NIL, tail: NIL, pages: 0, references: Vec::new() }
    }

    /// Pages in it; shared ones do not count.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// Whether it has neither frames nor references.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.pages == 0 && self.references.is_empty()
    }

    /// References to shared pages in it.
    #[inline]
    #[must_use]
    pub const fn references(&self) -> usize {
        self.references.len()
    }

    /// Whether it should take no more references: they would take too much of the monitor's memory.
    #[inline]
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.references.len() >= MOST_REFERENCES
    }

    #[inline]
    pub(crate) fn push(&mut self, entry: &MemMapEntry, mfn: Mfn, order: u8) {
        entry.set_next(self.head);
        if self.head == NIL {
            self.tail = mfn.raw();
        }
        self.head = mfn.raw();
        self.pages += 1 << order;
    }

    /// Takes what is in `other`, however many frames that are, in a step or two.
    fn append(&mut self, mut other: Self, frames: &Frames) {
        if other.head != NIL {
            if self.head == NIL {
                self.head = other.head;
            } else {
                frames.map().known(Mfn::new(self.tail)).set_next(other.head);
            }
            self.tail = other.tail;
            self.pages += other.pages;
        }
        if self.references.is_empty() {
            self.references = other.references;
        } else {
            self.references.append(&mut other.references);
        }
    }

    #[inline(always)]
    pub(crate) fn push_reference(&mut self, mfn: Mfn, back: u64) {
        self.references.push((mfn, back));
    }

    /// What [`PendingShootdown`] does with the list, where it can be done at once: `false` if some hart has not passed
    /// `token`, and nothing was freed. The list keeps its memory for the next time.
    #[inline(always)]
    pub fn free_if_passed<M: MachineMemory>(
        &mut self,
        token: &ShootdownToken,
        tracker: &ShootdownTracker,
        frames: &Frames,
        memory: &M,
    ) -> bool {
        if !tracker.is_complete(token) {
            return false;
        }
        while let Some((mfn, back)) = self.references.pop() {
            frames.detach_shared(memory, mfn, back);
        }
        if self.head != NIL {
            frames.put_all(self);
        }
        true
    }

    /// The block that [`DyingList::pop`] takes next.
    #[inline]
    pub(crate) fn first(&self) -> Option<Mfn> {
        (self.head != NIL).then_some(Mfn::new(self.head))
    }

    /// The next block; only if it is of this node, should it be one.
    #[inline(always)]
    pub(crate) fn pop(&mut self, frames: &Frames, of: Option<NodeId>) -> Option<(Mfn, u8)> {
        if self.head == NIL {
            return None;
        }
        let mfn = Mfn::new(self.head);
        let entry = frames.map().known(mfn);
        if of.is_some_and(|node| node != entry.node()) {
            return None;
        }
        assert!(entry.state() == PageState::Dying, "{mfn:?} is given back, but is {:?}", entry.state());
        self.head = entry.next();
        self.pages -= 1 << entry.order();
        Some((mfn, entry.order()))
    }

    /// `page` was the next one: takes those behind it, too, that make a naturally aligned block of single pages with it, and
    /// returns that. Pages that were taken one after another often go so, and a block is given back as fast as a page.
    pub(crate) fn pop_block(&mut self, frames: &Frames, page: Mfn) -> (Mfn, u8) {
        // Last in, first out: a run comes with its last page first, and is the second half of its block.
        let end = page.raw() + 1;
        let most = 1 << end.trailing_zeros().min(MOST_ORDER);
        let rows = frames.map().rows(Mfn::new(end - most), most).unwrap_or_default();
        let (mut next, mut len) = (self.head, 1);
        let mut block = (next, len);
        for entry in rows.iter().rev().skip(1) {
            if next != end - 1 - len || !entry.is(PageState::Dying, 0) {
                break;
            }
            (next, len) = (entry.next(), len + 1);
            if len.is_power_of_two() {
                block = (next, len);
            }
        }
        let (next, len) = block;
        self.head = next;
        self.pages -= len - 1;
        (Mfn::new(end - len), len.ilog2() as u8)
    }
}

/// Leaves were removed or weakened, and these frames became unreachable by it. Redeem it when every hart that was
/// inside the VM has passed the generation; the harts in [`PendingShootdown::targets`] need an interrupt for that.
#[must_use = "its frames are lost, and the change is not in force, until it is redeemed"]
#[derive(Debug)]
pub struct PendingShootdown {
    token: ShootdownToken,
    dying: DyingList,
}

impl PendingShootdown {
    /// `dying` may be freed after `token`, which must have been made *after* all leaves were removed.
    pub const fn new(token: ShootdownToken, dying: DyingList) -> Self {
        Self { token, dying }
    }

    /// The harts that have to be interrupted now.
    #[must_use]
    pub fn targets(&self, tracker: &ShootdownTracker) -> CpuSet {
        tracker.targets(&self.token)
    }

    /// Whether it may be redeemed: every hart that was inside the VM has passed. Once true it stays true.
    #[must_use]
    pub fn is_complete(&self, tracker: &ShootdownTracker) -> bool {
        tracker.is_complete(&self.token)
    }

    /// Frames that wait in it, in pages.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.dying.pages()
    }

    /// References to shared pages that wait in it.
    #[must_use]
    pub const fn references(&self) -> usize {
        self.dying.references()
    }

    /// Waits from now on for what `later`, of the same VM and made after it, waits for, with the frames of both.
    #[must_use = "its frames are lost, and the change is not in force, until it is redeemed"]
    pub fn joined(mut self, later: Self, frames: &Frames) -> Self {
        self.dying.append(later.dying, frames);
        let token = if later.token.generation() > self.token.generation() { later.token } else { self.token };
        Self { token, dying: self.dying }
    }

    /// What every hart inside the VM has to pass.
    #[must_use]
    pub const fn generation(&self) -> TlbGeneration {
        self.token.generation()
    }

    /// Whether it frees nothing: its change of the tables only has to come into force.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.dying.is_empty()
    }

    /// Exchanges it for frames that may be freed.
    ///
    /// # Errors
    /// Comes back unchanged when some hart has not passed yet.
    pub fn redeem(self, tracker: &ShootdownTracker) -> Result<FreeableList, Self> {
        if self.is_complete(tracker) { Ok(FreeableList(self.dying)) } else { Err(self) }
    }
}

/// Frames that no table and no TLB knows.
#[must_use = "these frames are lost unless they are freed"]
#[derive(Debug)]
pub struct FreeableList(DyingList);

impl FreeableList {
    /// References to shared pages in it.
    #[must_use]
    pub const fn references(&self) -> usize {
        self.0.references()
    }

    /// Gives up to `max_blocks` blocks back to the allocator, so that long lists can be cut into steps. Returns what is
    /// left.
    pub fn free_some<M: MachineMemory>(mut self, frames: &Frames, memory: &M, max_blocks: usize) -> Option<Self> {
        for _ in 0..max_blocks {
            self.free_next(frames, memory)?;
        }
        (!self.0.is_empty()).then_some(self)
    }

    /// Gives all back; returns how many pages are free now.
    pub fn free_all<M: MachineMemory>(mut self, frames: &Frames, memory: &M) -> u64 {
        let mut pages = 0;
        while let Some((mfn, back)) = self.0.references.pop() {
            pages += u64::from(frames.detach_shared(memory, mfn, back));
        }
        pages + frames.put_all(&mut self.0)
    }

    /// Gives one block or reference back: the pages that are free by it. `None` when nothing is left.
    fn free_next<M: MachineMemory>(&mut self, frames: &Frames, memory: &M) -> Option<u64> {
        if let Some((mfn, back)) = self.0.references.pop() {
            return Some(u64::from(frames.detach_shared(memory, mfn, back)));
        }
        let (mfn, order) = self.0.pop(frames, None)?;
        frames.put(mfn, order);
        Some(1 << order)
    }
}
