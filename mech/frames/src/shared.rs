//! Pages that several guest pages, or holders like the disk cache, have in common.
//!
//! The lock of the page's home node guards its row's state, reference count and back-maps. A new link may allocate from
//! the heap with that lock held, so the heap must never take pages from a node by itself under its own lock.

use addr::{Gfn, Mfn};

use crate::entry::pack_owner;
use crate::frames::wrong_state;
use crate::{DyingList, FrameError, Frames, MemMapEntry, PageOwner, PageState};

impl Frames {
    /// One more guest page maps a shared page. A private page becomes shared by this.
    ///
    /// # Errors
    /// If it is neither private nor shared, or not a single page, or counted out.
    pub fn attach_shared(&self, mfn: Mfn, owner: PageOwner) -> Result<(), FrameError> {
        let entry = self.map().entry(mfn).ok_or(FrameError::NoSuchPage(mfn))?;
        let back = pack_owner(owner).ok_or(FrameError::NotMapped { mfn, owner })?;
        let mut memory = self.lock_of(entry);
        let was_private = entry.is(PageState::Private, 0);
        if !was_private && !entry.is(PageState::Shared, 0) {
            return Err(wrong_state(mfn, entry));
        }
        if !memory.chains.attach(entry, back) {
            return Err(FrameError::TooManyReferences(mfn));
        }
        if was_private {
            entry.set_state(PageState::Shared);
            self.recount(entry.node(), PageState::Private, PageState::Shared, 1);
        }
        Ok(())
    }

    /// The only guest page that maps a shared page takes it for itself. `false` if there are other references; `true` too
    /// for a page that is its private one already (nobody else came).
    ///
    /// # Errors
    /// If it is not such a page, or `owner` does not map it.
    pub fn make_private(&self, mfn: Mfn, owner: PageOwner) -> Result<bool, FrameError> {
        let entry = self.map().entry(mfn).ok_or(FrameError::NoSuchPage(mfn))?;
        let _guard = self.lock_of(entry);
        let was_shared = entry.is(PageState::Shared, 0);
        if !was_shared && !entry.is(PageState::Private, 0) {
            return Err(wrong_state(mfn, entry));
        }
        if entry.references().0 != 1 {
            return Ok(false);
        }
        if Some(entry.back()) != pack_owner(owner) {
            return Err(FrameError::NotMapped { mfn, owner });
        }
        if !was_shared {
            return Ok(true);
        }
        entry.set_state(PageState::Private);
        self.recount(entry.node(), PageState::Shared, PageState::Private, 1);
        Ok(true)
    }

    /// Someone who maps nothing (the disk cache) lets go of a shared page. `true` if it was the last reference and the
    /// page is now in `dying`.
    ///
    /// # Errors
    /// If it is not a shared page.
    pub fn release_hold(&self, dying: &mut DyingList, mfn: Mfn) -> Result<bool, FrameError> {
        let entry = self.map().entry(mfn).ok_or(FrameError::NoSuchPage(mfn))?;
        let guard = self.lock_of(entry);
        if !entry.is(PageState::Shared, 0) {
            return Err(wrong_state(mfn, entry));
        }
        let (references, chain) = entry.references();
        let left = references.checked_sub(1).ok_or_else(|| wrong_state(mfn, entry))?;
        entry.set_references(left, chain);
        if left == 0 {
            self.condemn(dying, entry, mfn, 0);
        }
        drop(guard);
        Ok(left == 0)
    }

    /// Calls `see` for every guest page that maps `mfn`, with the node's lock held.
    pub fn for_each_owner(&self, mfn: Mfn, mut see: impl FnMut(PageOwner)) {
        let Some(head) = self.map().block_of(mfn) else { return };
        let entry = self.map().known(head);
        let memory = self.lock_of(entry);
        if matches!(entry.state(), PageState::Private | PageState::Shared | PageState::Replica) {
            let advance = mfn.raw() - head.raw();
            memory.chains.for_each(entry, |o| see(PageOwner { vm: o.vm, gfn: Gfn::new(o.gfn.raw() + advance) }));
        }
    }

    /// A guest page no longer maps a shared page: `true` if that was the last reference and the page is in `dying`.
    pub(crate) fn detach_shared(
        &self,
        dying: &mut DyingList,
        entry: &MemMapEntry,
        mfn: Mfn,
        owner: PageOwner,
    ) -> Result<bool, FrameError> {
        let mut memory = self.lock_of(entry);
        if !entry.is(PageState::Shared, 0) {
            return Err(wrong_state(mfn, entry));
        }
        let back = pack_owner(owner);
        let left = back.and_then(|back| memory.chains.detach(entry, back));
        let left = left.ok_or(FrameError::NotMapped { mfn, owner })?;
        if left == 0 {
            self.condemn(dying, entry, mfn, 0);
        }
        Ok(left == 0)
    }
}
