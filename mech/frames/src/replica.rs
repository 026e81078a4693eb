//! Replicas: read-only copies of a private page on other nodes (Disco, section 4.2.3: "a memmap entry also contains pointers
//! to any replicated copies of the page").
//!
//! The pointers are a chain through the rows themselves, so they take no memory: the master's row names the first replica
//! where a shared page's row has its chain of back-maps, each replica's row the next. A replica's row has the back-map of its
//! master, so that a hot replica leads to its guest page as any page does. Rows of one chain are guarded by the lock of the
//! VM that maps them, like that of any private page.

use addr::{Mfn, NodeId};

use crate::backmap::NO_CHAIN;
use crate::entry::pack_owner;
use crate::frames::wrong_state;
use crate::{Clean, DyingList, Frame, FrameError, Frames, MemMapEntry, PageOwner, PageState};

impl Frames {
    /// `copy`, which was taken as [`crate::PageUse::Replica`] for `owner`, is one more replica of the private page `master`.
    ///
    /// # Errors
    /// With the frame, if `master` is no private single page of `owner`, `copy` was not taken for it, or its number does not
    /// fit the chain (frames beyond 16 TiB).
    pub fn attach_replica(
        &self,
        master: Mfn,
        copy: Frame<Clean>,
        owner: PageOwner,
    ) -> Result<Mfn, (FrameError, Frame<Clean>)> {
        let checked = self.master(master, owner).and_then(|entry| {
            let row = self.map().known(copy.mfn());
            if !row.is(PageState::Replica, 0) {
                return Err(wrong_state(copy.mfn(), row));
            }
            if Some(row.back()) != pack_owner(owner) {
                return Err(FrameError::NotMapped { mfn: copy.mfn(), owner });
            }
            let number = u32::try_from(copy.mfn().raw()).ok().filter(|number| *number != NO_CHAIN);
            Ok((entry, row, number.ok_or(FrameError::NoSuchPage(copy.mfn()))?))
        });
        let (entry, row, number) = match checked {
            Ok(found) => found,
            Err(why) => return Err((why, copy)),
        };
        let (references, first) = entry.references();
        row.set_references(1, first);
        entry.set_references(references, number);
        Ok(copy.settle())
    }

    /// The replica of `master` on `node`.
    #[must_use]
    pub fn replica_on(&self, master: Mfn, node: NodeId) -> Option<Mfn> {
        self.replicas(master).find(|replica| self.map().node_of(*replica) == Some(node))
    }

    /// The replicas of a private page, newest first.
    pub fn replicas(&self, master: Mfn) -> impl Iterator<Item = Mfn> + '_ {
        let first = self.map().entry(master).filter(|entry| entry.is(PageState::Private, 0)).and_then(next);
        core::iter::successors(first, |at| next(self.map().known(*at)))
    }

    /// All replicas of `master` go: they are added to `dying`. Returns how many.
    ///
    /// # Errors
    /// If it is no private single page of `owner`.
    pub fn drop_replicas(&self, dying: &mut DyingList, master: Mfn, owner: PageOwner) -> Result<u64, FrameError> {
        let entry = self.master(master, owner)?;
        let (references, _) = entry.references();
        let (mut at, mut dropped) = (next(entry), 0);
        entry.set_references(references, NO_CHAIN);
        while let Some(replica) = at {
            let row = self.map().known(replica);
            // Its link is the list's from now on.
            at = next(row);
            self.condemn(dying, row, replica, 0);
            dropped += 1;
        }
        Ok(dropped)
    }

    fn master(&self, master: Mfn, owner: PageOwner) -> Result<&MemMapEntry, FrameError> {
        let entry = self.map().entry(master).ok_or(FrameError::NoSuchPage(master))?;
        if !entry.is(PageState::Private, 0) {
            return Err(wrong_state(master, entry));
        }
        if Some(entry.back()) == pack_owner(owner) {
            Ok(entry)
        } else {
            Err(FrameError::NotMapped { mfn: master, owner })
        }
    }
}

fn next(row: &MemMapEntry) -> Option<Mfn> {
    let (_, chain) = row.references();
    (chain != NO_CHAIN).then(|| Mfn::new(chain.into()))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use addr::{Gfn, SpuId, VmId};
    use tlb::ShootdownTracker;

    use super::*;
    use crate::testing::small_machine;
    use crate::{MachineMemory, PageUse, PendingShootdown};

    const OWNER: PageOwner = PageOwner { vm: VmId(7), gfn: Gfn::new(0x400) };

    fn replica(frames: &Frames, memory: &impl MachineMemory, node: u8, gfn: Gfn) -> Frame<Clean> {
        let to = PageUse::Replica { vm: OWNER.vm, gfn, spu: SpuId(0) };
        frames.alloc(NodeId(node), 0, to).expect("there is memory").zero(memory)
    }

    #[test]
    fn replicas_are_found_from_the_master_and_go_together() {
        let (memory, frames) = small_machine(&[1, 1, 1]);
        let private = PageUse::Private { vm: OWNER.vm, gfn: OWNER.gfn, spu: SpuId(0) };
        let master = frames.alloc(NodeId(0), 0, private).unwrap().settle();
        assert_eq!(frames.replica_on(master, NodeId(1)), None);
        let on = [1, 2]
            .map(|node| frames.attach_replica(master, replica(&frames, &memory, node, OWNER.gfn), OWNER).unwrap());
        assert_eq!(frames.replica_on(master, NodeId(1)), Some(on[0]));
        assert_eq!(frames.replica_on(master, NodeId(2)), Some(on[1]));
        assert_eq!(frames.replica_on(master, NodeId(0)), None);
        for page in [master, on[0], on[1]] {
            assert_eq!(
                frames.map().info(page).and_then(|info| info.owner),
                Some(OWNER),
                "each leads to the guest page"
            );
            let mut owners = Vec::new();
            frames.for_each_owner(&memory, page, |owner| owners.push(owner));
            assert_eq!(owners, [OWNER]);
        }
        assert_eq!(frames.vm_pages(&memory, OWNER.vm).private, 1);
        assert_eq!(frames.vm_pages(&memory, OWNER.vm).replicas, 2);
        let shared = frames.attach_shared(&memory, master, PageOwner { vm: VmId(8), gfn: Gfn::new(1) });
        assert!(shared.is_err(), "its chain is one of replicas: {shared:?}");

        let mut dying = DyingList::new();
        assert_eq!(frames.drop_replicas(&mut dying, master, OWNER), Ok(2));
        assert_eq!(frames.drop_replicas(&mut dying, master, OWNER), Ok(0));
        assert_eq!(frames.replicas(master).count(), 0);
        let tracker = ShootdownTracker::new(1);
        let pending = PendingShootdown::new(tracker.retire(), dying);
        assert_eq!(pending.redeem(&tracker).expect("nobody runs").free_all(&frames, &memory), 2);
        assert!((1..3).all(|node| frames.pages_in(NodeId(node), PageState::Free) == 256));
    }

    #[test]
    fn what_is_no_replica_is_refused() {
        let (memory, frames) = small_machine(&[1, 1]);
        let private = PageUse::Private { vm: OWNER.vm, gfn: OWNER.gfn, spu: SpuId(0) };
        let master = frames.alloc(NodeId(0), 0, private).unwrap().settle();
        let of_other = replica(&frames, &memory, 1, Gfn::new(0x401));
        let (_, frame) = frames.attach_replica(master, of_other, OWNER).expect_err("another guest page's");
        frames.free(frame);
        let good = replica(&frames, &memory, 1, OWNER.gfn);
        let other = PageOwner { vm: VmId(8), ..OWNER };
        let (_, frame) = frames.attach_replica(master, good, other).expect_err("another VM");
        let (_, frame) = frames.attach_replica(Mfn::new(1), frame, OWNER).expect_err("no memory");
        frames.free(frame);
        let page = frames.alloc(NodeId(1), 0, private).unwrap().zero(&memory);
        let (_, frame) = frames.attach_replica(master, page, OWNER).expect_err("taken as something else");
        frames.free(frame);
        assert!(frames.drop_replicas(&mut DyingList::new(), master, other).is_err());
        assert_eq!(frames.replicas(Mfn::new(1)).count(), 0);
    }
}
