//! Copies of shared pages on other nodes: a page that several VMs map from the disk cache, or have merged, may have one on each
//! node whose harts read it often (Disco, section 4.2.3).
//!
//! Such a page is never written: a write gives the writer a page of its own. So its copies never differ, and need no
//! shootdown to come. They go when no guest maps the page any more, or when memory is short ([`Frames::retire_spread`]), and until
//! then the page has one more reference: its last guest that writes to it gets a copy, too, and no leaf of another node's table
//! shows what it writes over.
//!
//! There are few of them beside all shared pages, so they are found by a map of their own: rows have no room for them, their
//! chains are of guest pages. Its lock comes before those of nodes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Unbounded};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use addr::{Mfn, NodeId};
use spin::mutex::TicketMutex;

use crate::entry::NO_OWNER;
use crate::frames::wrong_state;
use crate::{Clean, Frame, FrameError, Frames, PageState};

/// Nodes whose copies can be found.
const NODES: usize = 8;
/// Shared pages with copies, at most: 64 MiB on each node.
const MOST: usize = 16_384;
/// What is no copy.
const NONE: Mfn = Mfn::new(u64::MAX);

/// The copies of all shared pages.
pub(crate) struct SpreadPages {
    /// Pages that have copies. Nobody asks for the map while there are none.
    count: AtomicUsize,
    pages: TicketMutex<Pages>,
}

struct Pages {
    copies: BTreeMap<Mfn, [Mfn; NODES]>,
    /// The page that was looked at last.
    swept: Mfn,
}

impl SpreadPages {
    pub(crate) const fn new() -> Self {
        let pages = Pages { copies: BTreeMap::new(), swept: Mfn::new(0) };
        Self { count: AtomicUsize::new(0), pages: TicketMutex::new(pages) }
    }
}

impl Frames {
    /// `copy`, which was taken as [`crate::PageUse::Shared`] and has the contents of the shared page `page`, is what harts of its
    /// node are to read in the place of that from now on. The caller has a reference to `page` that does not end meanwhile.
    ///
    /// # Errors
    /// With the frame, if either is no shared page, the node has a copy or is the page's own, or too many pages have copies.
    #[cold]
    #[inline(never)]
    pub fn attach_spread(&self, page: Mfn, copy: Frame<Clean>) -> Result<Mfn, (FrameError, Frame<Clean>)> {
        match self.note_spread(page, &copy) {
            Ok(()) => Ok(copy.settle()),
            Err(why) => Err((why, copy)),
        }
    }

    fn note_spread(&self, page: Mfn, copy: &Frame<Clean>) -> Result<(), FrameError> {
        let row = self.map().known(copy.mfn());
        if !row.is(PageState::Shared, 0) {
            return Err(wrong_state(copy.mfn(), row));
        }
        let home = self.map().node_of(page).ok_or(FrameError::NoSuchPage(page))?;
        let mut pages = self.spread.pages.lock();
        let known = pages.copies.get(&page).copied();
        let mut copies = known.unwrap_or([NONE; NODES]);
        let refused = FrameError::NoCopy { mfn: page, node: copy.node() };
        let slot = copies.get_mut(copy.node().index()).filter(|slot| **slot == NONE && home != copy.node());
        *slot.ok_or(refused)? = copy.mfn();
        if known.is_none() {
            if pages.copies.len() >= MOST {
                return Err(refused);
            }
            self.hold_shared(page)?;
        }
        pages.copies.insert(page, copies);
        self.spread.count.store(pages.copies.len(), Relaxed);
        Ok(())
    }

    /// The copy of the shared page `page` that harts of `node` are to read.
    #[must_use]
    #[inline]
    pub fn spread_on(&self, page: Mfn, node: NodeId) -> Option<Mfn> {
        if self.spread.count.load(Relaxed) == 0 { None } else { self.find_spread(page, node) }
    }

    #[inline(never)]
    fn find_spread(&self, page: Mfn, node: NodeId) -> Option<Mfn> {
        self.spread.pages.lock().copies.get(&page)?.get(node.index()).copied().filter(|copy| *copy != NONE)
    }

    /// Shared pages that have copies.
    #[must_use]
    pub fn spread_pages(&self) -> usize {
        self.spread.count.load(Relaxed)
    }

    /// Looks at the next few pages with copies: those of a page that no guest maps any more go. Returns how many pages are free by it.
    pub fn sweep_spread(&self, most: usize) -> u64 {
        if self.spread.count.load(Relaxed) == 0 {
            return 0;
        }
        let mut pages = self.spread.pages.lock();
        let mut freed = 0;
        for _ in 0..most.min(pages.copies.len()) {
            let next = pages.copies.range((Excluded(pages.swept), Unbounded)).next();
            let next = next.or_else(|| pages.copies.first_key_value()).map(|(page, _)| *page);
            let Some(page) = next else { break };
            pages.swept = page;
            // Who maps it from now on asks for copies later, and waits for this lock.
            if self.is_mapped(page) {
                continue;
            }
            let copies = pages.copies.remove(&page).unwrap_or([NONE; NODES]);
            freed += self.release_spread(page, copies);
        }
        self.spread.count.store(pages.copies.len(), Relaxed);
        freed
    }

    /// Nobody is led to the copies of up to `most` pages from now on. They are free when no leaf and no TLB entry names them any
    /// more, which the caller sees to: [`RetiredCopies::free`].
    #[cold]
    pub fn retire_spread(&self, most: usize) -> RetiredCopies {
        let mut pages = self.spread.pages.lock();
        let retired = core::iter::from_fn(|| pages.copies.pop_first()).take(most).collect();
        self.spread.count.store(pages.copies.len(), Relaxed);
        RetiredCopies(retired)
    }

    /// The references of a page's copies, and the one to it because of them, go. Returns how many pages are free by it.
    fn release_spread(&self, page: Mfn, copies: [Mfn; NODES]) -> u64 {
        let held = copies.into_iter().filter(|copy| *copy != NONE).chain([page]);
        // A row that contradicts the map of copies is a bug that must not hide.
        let is_free = |held| self.release_hold(held).expect("pages with copies, and copies, are shared");
        held.map(|held| u64::from(is_free(held))).sum()
    }

    /// Whether a guest page maps the shared page. Takes the lock of the page's node.
    fn is_mapped(&self, page: Mfn) -> bool {
        let entry = self.map().known(page);
        let _node = self.lock_of(entry);
        entry.back() != NO_OWNER
    }
}

/// Copies that nobody is led to any more, though leaves may name them still.
#[must_use = "these copies are lost unless they are freed"]
#[derive(Debug)]
pub struct RetiredCopies(Vec<(Mfn, [Mfn; NODES])>);

impl RetiredCopies {
    /// The pages, and the nodes that had a copy of each.
    pub fn pages(&self) -> impl ExactSizeIterator<Item = (Mfn, impl Iterator<Item = NodeId>)> {
        self.0.iter().map(|(page, copies)| {
            let with = (0..NODES as u8).map(NodeId).filter(|node| copies[node.index()] != NONE);
            (*page, with)
        })
    }

    /// No leaf names them, and the shootdown of that has ended. Returns how many pages are free by it.
    pub fn free(self, frames: &Frames) -> u64 {
        self.0.into_iter().map(|(page, copies)| frames.release_spread(page, copies)).sum()
    }
}

#[cfg(test)]
mod tests {
    use addr::{Gfn, SpuId, VmId};
    use tlb::ShootdownTracker;

    use super::*;
    use crate::testing::{FakeMemory, small_machine};
    use crate::{DyingList, PageOwner, PageUse, PendingShootdown};

    const fn owner(vm: u16) -> PageOwner {
        PageOwner { vm: VmId(vm), gfn: Gfn::new(0x400) }
    }

    fn page(frames: &Frames, memory: &FakeMemory, node: u8) -> Frame<Clean> {
        frames.alloc(NodeId(node), 0, PageUse::Shared).expect("there is memory").zero(memory)
    }

    /// A page of node 0 with a copy on each of the others, that the first VM maps and nobody else holds.
    fn spread(frames: &Frames, memory: &FakeMemory, nodes: u8) -> Mfn {
        let shared = page(frames, memory, 0).settle();
        frames.attach_shared(memory, shared, owner(1)).unwrap();
        for node in 1..nodes {
            let copy = frames.attach_spread(shared, page(frames, memory, node)).unwrap();
            assert_eq!(frames.spread_on(shared, NodeId(node)), Some(copy));
        }
        assert_eq!(frames.release_hold(shared), Ok(false), "who made it lets go");
        shared
    }

    fn leave(frames: &Frames, memory: &FakeMemory, page: Mfn, vm: u16) {
        let (mut dying, tracker) = (DyingList::new(), ShootdownTracker::new(1));
        frames.drop_mapping(&mut dying, page, 0, owner(vm)).unwrap();
        let pending = PendingShootdown::new(tracker.retire(), dying);
        pending.redeem(&tracker).expect("nobody runs").free_all(frames, memory);
    }

    #[test]
    fn copies_are_found_until_no_guest_maps_the_page() {
        let (memory, frames) = small_machine(&[1, 1, 1]);
        let shared = spread(&frames, &memory, 3);
        assert_eq!((frames.spread_pages(), frames.spread_on(shared, NodeId(0))), (1, None));
        assert_eq!(frames.sweep_spread(9), 0, "a guest maps it");
        assert_eq!(frames.make_private(shared, owner(1)), Ok(false), "its copies would differ then");
        frames.attach_shared(&memory, shared, owner(2)).unwrap();
        leave(&frames, &memory, shared, 1);
        assert_eq!(frames.sweep_spread(9), 0, "another guest maps it");
        leave(&frames, &memory, shared, 2);
        assert!(frames.spread_on(shared, NodeId(1)).is_some(), "who has it from before may look");
        assert_eq!(frames.sweep_spread(9), 3);
        assert_eq!((frames.spread_pages(), frames.spread_on(shared, NodeId(1))), (0, None));
        assert!((1..3).all(|node| frames.pages_in(NodeId(node), PageState::Free) == 256));
    }

    #[test]
    fn a_holder_keeps_the_page_and_not_its_copies() {
        let (memory, frames) = small_machine(&[1, 1]);
        let shared = spread(&frames, &memory, 2);
        frames.hold(shared, owner(1)).unwrap();
        leave(&frames, &memory, shared, 1);
        assert_eq!(frames.sweep_spread(9), 1);
        assert!(frames.is_held_alone(shared), "whoever holds it may give it back now");
        assert_eq!(frames.release_hold(shared), Ok(true));
    }

    #[test]
    fn copies_of_mapped_pages_can_be_retired() {
        let (memory, frames) = small_machine(&[1, 1, 1]);
        let shared = [(); 3].map(|()| spread(&frames, &memory, 3));
        let free = |node| frames.pages_in(NodeId(node), PageState::Free);
        let before = [0, 1, 2].map(free);
        let retired = frames.retire_spread(2);
        let pages: Vec<_> = retired.pages().map(|(page, nodes)| (page, nodes.collect::<Vec<_>>())).collect();
        assert_eq!(pages, [shared[0], shared[1]].map(|page| (page, [NodeId(1), NodeId(2)].to_vec())));
        assert_eq!((frames.spread_pages(), frames.spread_on(shared[0], NodeId(1))), (1, None));
        assert_eq!([0, 1, 2].map(free), before, "leaves may name them");
        // A page may have copies again before the old ones are gone.
        frames.attach_spread(shared[0], page(&frames, &memory, 1)).unwrap();
        assert_eq!(retired.free(&frames), 4, "the pages themselves are mapped");
        assert_eq!([0, 1, 2].map(free), [before[0], before[1] + 1, before[2] + 2]);
        leave(&frames, &memory, shared[1], 1);
        assert_eq!(free(0), before[0] + 1, "nothing else holds it");
        assert_eq!(frames.retire_spread(9).free(&frames) + frames.retire_spread(9).free(&frames), 3);
        assert!((1..3).all(|node| free(node) == 256));
    }

    #[test]
    fn sweeps_take_turns() {
        let (memory, frames) = small_machine(&[1, 1]);
        let shared = [(); 3].map(|()| spread(&frames, &memory, 2));
        leave(&frames, &memory, shared[2], 1);
        let freed: u64 = (0..3).map(|_| frames.sweep_spread(1)).sum();
        assert_eq!((freed, frames.spread_pages()), (2, 2));
        let mut owners = 0;
        frames.for_some_owners(&memory, shared[0], 9, |found| {
            assert_eq!(found, owner(1));
            owners += 1;
        });
        frames.for_some_owners(&memory, shared[0], 0, |_| owners += 1);
        assert_eq!(owners, 1);
    }

    #[test]
    fn what_can_have_no_copy_is_refused() {
        let (memory, frames) = small_machine(&[1, 1]);
        let shared = spread(&frames, &memory, 2);
        let refused = |page, copy| {
            let (why, copy) = frames.attach_spread(page, copy).expect_err("it can have none");
            frames.free(copy);
            why
        };
        let on = |node| FrameError::NoCopy { mfn: shared, node: NodeId(node) };
        assert_eq!(refused(shared, page(&frames, &memory, 1)), on(1), "there is one");
        assert_eq!(refused(shared, page(&frames, &memory, 0)), on(0), "it is there itself");
        let beyond = Mfn::new(1);
        assert_eq!(refused(beyond, page(&frames, &memory, 1)), FrameError::NoSuchPage(beyond));
        let private = PageUse::Private { vm: VmId(1), gfn: Gfn::new(7), spu: SpuId(0) };
        let own = frames.alloc(NodeId(0), 0, private).unwrap().settle();
        assert!(matches!(refused(own, page(&frames, &memory, 1)), FrameError::WrongState { .. }), "it may be written");
        let copy = frames.alloc(NodeId(1), 0, private).unwrap().zero(&memory);
        assert!(matches!(refused(shared, copy), FrameError::WrongState { .. }), "taken as something else");
        assert_eq!(frames.spread_pages(), 1);
    }
}
