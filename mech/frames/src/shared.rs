//! Pages that several guest pages, or holders like the disk cache, have in common.
//!
//! The lock of the page's home node guards its row's state, reference count and back-maps. What links need is taken from
//! that node under the same lock (see `links`).
//!
//! A guest page's reference ends only *after* the shootdown of its leaves (see [`DyingList`]): so a page with one reference
//! is known to that one holder alone, TLBs included, and may be freed or written by it at once.

use addr::{Gfn, Mfn, NodeId, SpuId};

use crate::backmap::{Attached, NO_CHAIN};
use crate::entry::{NO_OWNER, pack_owner, unpack_owner};
use crate::frames::wrong_state;
use crate::node::NodeMemory;
use crate::{DyingList, FrameError, Frames, MachineMemory, MemMapEntry, PageOwner, PageState};

/// How much is shared on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// Shared pages that some guest page maps.
    pub mapped_pages: u64,
    /// Guest pages that they back: what would be copies without sharing.
    pub guest_pages: u64,
}

impl Frames {
    /// One more guest page maps a shared page. A private page becomes shared by this. Returns its node.
    ///
    /// # Errors
    /// If it is neither private nor shared, or not a single page, or the reference cannot be written down.
    #[inline(always)]
    pub fn attach_shared<M: MachineMemory>(
        &self,
        memory: &M,
        mfn: Mfn,
        owner: PageOwner,
    ) -> Result<NodeId, FrameError> {
        let entry = self.map().entry(mfn).ok_or(FrameError::NoSuchPage(mfn))?;
        let back = pack_owner(owner).ok_or(FrameError::NotMapped { mfn, owner })?;
        let mut node = self.lock_of(entry);
        if entry.is(PageState::Shared, 0)
            && let Attached::Done { is_first } = node.chains.attach(memory, entry, back)
        {
            node.sharing.guest_pages += 1;
            node.sharing.mapped_pages += u64::from(is_first);
            return Ok(entry.node());
        }
        self.attach_slowly(memory, &mut node, mfn, entry, back)
    }

    /// The page is private so far, or a page for links is needed.
    #[cold]
    #[inline(never)]
    fn attach_slowly<M: MachineMemory>(
        &self,
        memory: &M,
        node: &mut NodeMemory,
        mfn: Mfn,
        entry: &MemMapEntry,
        back: u64,
    ) -> Result<NodeId, FrameError> {
        // The chain of a private page is one of replicas.
        let was_private = entry.is(PageState::Private, 0) && entry.references().1 == NO_CHAIN;
        if !was_private && !entry.is(PageState::Shared, 0) {
            return Err(wrong_state(mfn, entry));
        }
        let mut attached = node.chains.attach(memory, entry, back);
        if attached == Attached::NoLink && self.add_links(memory, node, entry) {
            attached = node.chains.attach(memory, entry, back);
        }
        let Attached::Done { is_first } = attached else { return Err(FrameError::TooManyReferences(mfn)) };
        node.sharing.guest_pages += 1;
        if was_private {
            entry.set_state(PageState::Shared);
            self.recount(entry.node(), PageState::Private, PageState::Shared, 1);
            // The first one's, too.
            node.sharing.guest_pages += 1;
        }
        node.sharing.mapped_pages += u64::from(is_first || was_private);
        Ok(entry.node())
    }

    /// The only guest page that maps a shared page takes it for itself. `false` if there are other references; `true` too
    /// for a page that is its private one already (nobody else came).
    ///
    /// # Errors
    /// If it is not such a page, or `owner` does not map it.
    pub fn make_private(&self, mfn: Mfn, owner: PageOwner) -> Result<bool, FrameError> {
        let entry = self.map().entry(mfn).ok_or(FrameError::NoSuchPage(mfn))?;
        let mut node = self.lock_of(entry);
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
        node.sharing.guest_pages -= 1;
        node.sharing.mapped_pages -= 1;
        Ok(true)
    }

    /// Someone who maps nothing keeps the page that `owner` maps as it is: until [`Frames::release_hold`] a write to it
    /// makes a copy. A private page becomes shared by this; its leaves do not allow writing any more, and the shootdown of
    /// that has ended.
    ///
    /// # Errors
    /// If it is neither private to `owner` nor shared, or not a single page, or the reference cannot be counted.
    pub fn hold(&self, mfn: Mfn, owner: PageOwner) -> Result<(), FrameError> {
        let entry = self.map().entry(mfn).ok_or(FrameError::NoSuchPage(mfn))?;
        let mut node = self.lock_of(entry);
        let was_private = entry.is(PageState::Private, 0);
        if !was_private && !entry.is(PageState::Shared, 0) {
            return Err(wrong_state(mfn, entry));
        }
        if was_private && Some(entry.back()) != pack_owner(owner) {
            return Err(FrameError::NotMapped { mfn, owner });
        }
        count_hold(mfn, entry)?;
        if was_private {
            entry.set_state(PageState::Shared);
            self.recount(entry.node(), PageState::Private, PageState::Shared, 1);
            node.sharing.guest_pages += 1;
            node.sharing.mapped_pages += 1;
        }
        Ok(())
    }

    /// [`Frames::hold`] of a page that is shared already.
    pub(crate) fn hold_shared(&self, mfn: Mfn) -> Result<(), FrameError> {
        let entry = self.map().entry(mfn).ok_or(FrameError::NoSuchPage(mfn))?;
        let _node = self.lock_of(entry);
        if entry.is(PageState::Shared, 0) { count_hold(mfn, entry) } else { Err(wrong_state(mfn, entry)) }
    }

    /// Someone who maps nothing (the disk cache) lets go of a shared page. `true` if it was the last reference: the page is
    /// free then.
    ///
    /// # Errors
    /// If it is not a shared page.
    pub fn release_hold(&self, mfn: Mfn) -> Result<bool, FrameError> {
        let entry = self.map().entry(mfn).ok_or(FrameError::NoSuchPage(mfn))?;
        let guard = self.lock_of(entry);
        if !entry.is(PageState::Shared, 0) {
            return Err(wrong_state(mfn, entry));
        }
        let (references, chain) = entry.references();
        let left = references.checked_sub(1).ok_or_else(|| wrong_state(mfn, entry))?;
        entry.set_references(left, chain);
        drop(guard);
        if left == 0 {
            self.put(mfn, 0);
        }
        Ok(left == 0)
    }

    /// Whether a page of [`crate::PageUse::Shared`] is its holder's alone. Once it is, it stays so until the holder
    /// lets somebody map it.
    #[must_use]
    pub fn is_held_alone(&self, mfn: Mfn) -> bool {
        self.map().entry(mfn).is_some_and(|entry| {
            let _node = self.lock_of(entry);
            entry.references().0 == 1
        })
    }

    /// How much is shared on `node`.
    #[must_use]
    pub fn sharing(&self, node: NodeId) -> Sharing {
        self.node_memory(node).map_or(Sharing::default(), |node| node.lock().sharing)
    }

    /// Calls `see` for guest pages that map the shared page `mfn`, some of them if there are more than `most`, with the node's lock
    /// held.
    pub fn for_some_owners<M: MachineMemory>(&self, memory: &M, mfn: Mfn, most: usize, see: impl FnMut(PageOwner)) {
        // A page in the middle of a block has a stale row.
        let Some(entry) = self.map().block_of(mfn).filter(|head| *head == mfn).map(|head| self.map().known(head))
        else {
            return;
        };
        let node = self.lock_of(entry);
        if entry.is(PageState::Shared, 0) {
            node.chains.owners(memory, entry).take(most).for_each(see);
        }
    }

    /// Calls `see` for every guest page that maps `mfn`, with the node's lock held.
    pub fn for_each_owner<M: MachineMemory>(&self, memory: &M, mfn: Mfn, mut see: impl FnMut(PageOwner)) {
        let Some(head) = self.map().block_of(mfn) else { return };
        let entry = self.map().known(head);
        let node = self.lock_of(entry);
        let advance = mfn.raw() - head.raw();
        let mut tell = |o: PageOwner| see(PageOwner { vm: o.vm, gfn: Gfn::new(o.gfn.raw() + advance) });
        match entry.state() {
            PageState::Shared => node.chains.owners(memory, entry).for_each(tell),
            // Their chain, if they have one, is of replicas.
            PageState::Private | PageState::Replica => unpack_owner(entry.back()).into_iter().for_each(&mut tell),
            _ => {}
        }
    }

    /// A guest page no longer maps a shared page: its reference ends when `dying` has passed its shootdown.
    #[inline]
    pub(crate) fn leave_shared(
        &self,
        dying: &mut DyingList,
        entry: &MemMapEntry,
        mfn: Mfn,
        owner: PageOwner,
    ) -> Result<bool, FrameError> {
        if !entry.is(PageState::Shared, 0) {
            return Err(wrong_state(mfn, entry));
        }
        dying.push_reference(mfn, pack_owner(owner).ok_or(FrameError::NotMapped { mfn, owner })?);
        Ok(false)
    }

    /// The same for a caller whose own table says that the page is shared: half as many instructions.
    #[inline(always)]
    pub fn drop_shared(&self, dying: &mut DyingList, mfn: Mfn, owner: PageOwner) {
        if let Some(back) = pack_owner(owner) {
            dying.push_reference(mfn, back);
        }
    }

    /// The shootdown of a guest page's last mapping of `mfn` has ended. `true` if it was the last reference: the page is
    /// free then.
    ///
    /// # Panics
    /// If there was no such reference: the monitor has lost count of its memory and must not go on.
    #[inline(always)]
    pub(crate) fn detach_shared<M: MachineMemory>(&self, memory: &M, mfn: Mfn, back: u64) -> bool {
        let entry = self.map().known(mfn);
        let mut node = self.lock_of(entry);
        if !entry.is(PageState::Shared, 0) {
            drop(node);
            return self.put_offered(mfn, entry, back);
        }
        let detached = node.chains.detach(memory, entry, back);
        let detached = detached.expect("a page that was mapped has a reference until its shootdown has ended");
        node.sharing.guest_pages -= 1;
        node.sharing.mapped_pages -= u64::from(detached.was_last_owner);
        if let Some(page) = detached.page {
            self.return_links(&mut node, entry, page);
        }
        drop(node);
        if detached.left == 0 {
            self.put(mfn, 0);
        }
        detached.left == 0
    }

    /// The page was offered to others by its only owner (`pmap::Pmap::share`), and none came: its row says *private* still.
    ///
    /// # Panics
    /// If it is not such a page, as for [`Frames::detach_shared`].
    #[cold]
    #[inline(never)]
    fn put_offered(&self, mfn: Mfn, entry: &MemMapEntry, back: u64) -> bool {
        let is_its = entry.is(PageState::Private, 0) && entry.back() == back && entry.references() == (1, NO_CHAIN);
        assert!(is_its, "a page that was mapped has a reference until its shootdown has ended");
        self.put(mfn, 0);
        true
    }

    #[cold]
    fn return_links(&self, node: &mut NodeMemory, entry: &MemMapEntry, page: Mfn) {
        self.recount(entry.node(), PageState::Monitor, PageState::Free, 1);
        node.put(self.map(), page, 0);
    }

    /// Takes a page for links from the node that `entry`'s page lies on.
    #[cold]
    fn add_links<M: MachineMemory>(&self, memory: &M, node: &mut NodeMemory, entry: &MemMapEntry) -> bool {
        let home = entry.node();
        let spans = self.map().spans().iter().filter(|span| span.node == home);
        let Some(first) = spans.map(|span| span.start).min() else { return false };
        let Some(taken) = node.take(self.map(), 0, false) else { return false };
        if !node.chains.add_page(memory, first, taken.mfn) {
            node.put(self.map(), taken.mfn, 0);
            return false;
        }
        taken.entry.set_used(PageState::Monitor, 0, SpuId(0), NO_OWNER, 1);
        self.recount(home, PageState::Free, PageState::Monitor, 1);
        true
    }
}

/// One more reference. The node is locked.
fn count_hold(mfn: Mfn, entry: &MemMapEntry) -> Result<(), FrameError> {
    let (references, chain) = entry.references();
    let more = references.checked_add(1).ok_or(FrameError::TooManyReferences(mfn))?;
    entry.set_references(more, chain);
    Ok(())
}
