//! Frames between their last table and the allocator.

use addr::Mfn;
use tlb::{CpuSet, ShootdownToken, ShootdownTracker};

use crate::buddy::NIL;
use crate::{Frames, MemMapEntry, PageState};

/// Frames that no table names any more but some TLB may still know: linked through their rows, so any number of them
/// takes no memory. The only way on is a [`PendingShootdown`].
#[must_use = "these frames are lost unless a PendingShootdown takes them"]
#[derive(Debug)]
pub struct DyingList {
    head: u64,
    tail: u64,
    pages: u64,
}

impl Default for DyingList {
    fn default() -> Self {
        Self::new()
    }
}

impl DyingList {
    /// No frames.
    pub const fn new() -> Self {
        Self { head: NIL, tail: NIL, pages: 0 }
    }

    /// Pages in it.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// Is nothing in it?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.pages == 0
    }

    /// Adds all of `other`, in constant time.
    pub fn append(&mut self, frames: &Frames, other: Self) {
        if other.is_empty() {
            return;
        }
        frames.map().known(Mfn::new(other.tail)).set_next(self.head);
        if self.is_empty() {
            self.tail = other.tail;
        }
        self.head = other.head;
        self.pages += other.pages;
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

    fn pop(&mut self, frames: &Frames) -> Option<(Mfn, u8)> {
        if self.head == NIL {
            return None;
        }
        let mfn = Mfn::new(self.head);
        let entry = frames.map().known(mfn);
        debug_assert_eq!(entry.state(), PageState::Dying);
        self.head = entry.next();
        self.pages -= 1 << entry.order();
        Some((mfn, entry.order()))
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

    /// May it be redeemed?
    #[must_use]
    pub fn is_complete(&self, tracker: &ShootdownTracker) -> bool {
        tracker.is_complete(&self.token)
    }

    /// Frames that wait in it, in pages.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.dying.pages()
    }

    /// Both in one, of the same VM.
    pub fn merge(self, frames: &Frames, other: Self) -> Self {
        let mut dying = self.dying;
        dying.append(frames, other.dying);
        Self { token: self.token.merge(other.token), dying }
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
    /// Pages left.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.0.pages()
    }

    /// Gives up to `max_blocks` blocks back to the allocator, so that long lists can be cut into steps. Returns what is
    /// left.
    pub fn free_some(mut self, frames: &Frames, max_blocks: usize) -> Option<Self> {
        for _ in 0..max_blocks {
            let (mfn, order) = self.0.pop(frames)?;
            frames.put(mfn, order);
        }
        (!self.0.is_empty()).then_some(self)
    }

    /// Gives all back; returns how many pages.
    pub fn free_all(mut self, frames: &Frames) -> u64 {
        let pages = self.pages();
        while let Some((mfn, order)) = self.0.pop(frames) {
            frames.put(mfn, order);
        }
        pages
    }
}
