//! Pages that wait for something, in batches of those that go the same way: each batch becomes a job.

use addr::{Gfn, NodeId, VmId};
use alloc::{collections::VecDeque, vec::Vec};

use crate::Work;

/// Pages of a job: their shootdowns are the same. On FLASH a job takes a hart up to 3 ms, most of it for the copies' misses.
pub const BATCH: usize = 64;
/// Pages that wait for one thing, at most; those beyond will be hot again.
pub const WAITING: usize = 1024;
/// Pages that wait for jobs beyond which no others are judged.
const SOON: usize = 512;

/// What is to become of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They move.
    Migrate,
    /// They get a copy.
    Replicate,
    /// They are shared, and get a copy that all may have.
    Spread,
}

impl Kind {
    /// The work with these pages.
    pub const fn work(self, gfns: Vec<Gfn>) -> Work {
        match self {
            Self::Migrate => Work::Migrate(gfns),
            Self::Replicate => Work::Replicate(gfns),
            Self::Spread => Work::Spread(gfns),
        }
    }
}

/// Pages of a VM that go to a node, as many as a job has at most.
#[derive(Debug)]
pub struct Batch {
    pub vm: VmId,
    pub kind: Kind,
    pub node: NodeId,
    pub gfns: Vec<Gfn>,
}

impl Batch {
    /// Whether it has room for a page that goes this way.
    #[inline(always)]
    fn fits(&self, vm: VmId, kind: Kind, node: NodeId) -> bool {
        self.vm == vm && self.kind == kind && self.node == node && self.gfns.len() < BATCH
    }
}

/// Batches, oldest first.
#[derive(Debug)]
pub struct Batches {
    batches: VecDeque<Batch>,
    pages: usize,
    /// The batch that was filled last, unless others have gone since.
    filled: usize,
}

impl Batches {
    pub const fn new() -> Self {
        Self { batches: VecDeque::new(), pages: 0, filled: 0 }
    }

    /// One more page, with those that go the same way: mostly with the one before.
    #[inline(always)]
    pub fn add_one(&mut self, vm: VmId, kind: Kind, node: NodeId, gfn: Gfn) {
        if self.pages < WAITING
            && let Some(batch) = self.batches.get_mut(self.filled)
            && batch.fits(vm, kind, node)
        {
            self.pages += 1;
            batch.gfns.push(gfn);
        } else {
            self.add_elsewhere(vm, kind, node, gfn);
        }
    }

    #[inline(never)]
    fn add_elsewhere(&mut self, vm: VmId, kind: Kind, node: NodeId, gfn: Gfn) {
        if self.pages >= WAITING {
            return;
        }
        self.pages += 1;
        if let Some(at) = self.batches.iter().rposition(|batch| batch.fits(vm, kind, node)) {
            self.filled = at;
            self.batches[at].gfns.push(gfn);
            return;
        }
        self.filled = self.batches.len();
        let mut gfns = Vec::with_capacity(BATCH);
        gfns.push(gfn);
        self.batches.push_back(Batch { vm, kind, node, gfns });
    }

    /// A whole batch, which stays one.
    pub fn add(&mut self, vm: VmId, kind: Kind, node: NodeId, gfns: Vec<Gfn>) {
        if self.pages < WAITING && !gfns.is_empty() {
            self.pages += gfns.len();
            self.batches.push_back(Batch { vm, kind, node, gfns });
        }
    }

    /// How many more pages may be judged: those that wait, here or because they are watched, and these shall not be more than
    /// a few looks' work.
    pub const fn room(&self, watched: usize) -> usize {
        SOON.saturating_sub(self.pages + watched)
    }

    /// Keeps those of VMs that are still there.
    pub fn drop_unless(&mut self, is_there: impl Fn(VmId) -> bool) {
        self.batches.retain(|batch| is_there(batch.vm));
        self.pages = self.batches.iter().map(|batch| batch.gfns.len()).sum();
    }

    /// Whether a page of the VM's block waits.
    pub fn has_page_of(&self, vm: VmId, block: Gfn) -> bool {
        let is_of = |batch: &Batch| batch.vm == vm && batch.gfns.iter().any(|gfn| gfn.large_base() == block);
        self.batches.iter().any(is_of)
    }

    /// The oldest batch that is `wanted`.
    pub fn take(&mut self, wanted: impl Fn(&Batch) -> bool) -> Option<Batch> {
        let at = self.batches.iter().position(wanted)?;
        let batch = self.batches.remove(at)?;
        self.pages -= batch.gfns.len();
        Some(batch)
    }
}

/// Watched pages.
#[derive(Debug)]
pub struct Watched {
    pub vm: VmId,
    /// The node that is to get copies.
    pub node: NodeId,
    pub gfns: Vec<Gfn>,
    /// The time from which they are known not to be written.
    pub due: u64,
}

impl Watched {
    /// Whether a page of the VM's block is among them.
    pub fn has_page_of(&self, vm: VmId, block: Gfn) -> bool {
        self.vm == vm && self.gfns.iter().any(|gfn| gfn.large_base() == block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VM: VmId = VmId(1);

    #[test]
    fn pages_that_go_the_same_way_go_together_64_at_a_time() {
        let mut batches = Batches::new();
        for page in 0..100 {
            batches.add_one(VM, Kind::Migrate, NodeId(1), Gfn::new(page));
            batches.add_one(VM, Kind::Migrate, NodeId(2), Gfn::new(1000 + page));
        }
        let mut sizes = Vec::new();
        while let Some(batch) = batches.take(|_| true) {
            let first = if batch.node == NodeId(1) { 0 } else { 1000 };
            assert!(batch.gfns.iter().all(|gfn| (first..first + 100).contains(&gfn.raw())));
            sizes.push((batch.node.0, batch.gfns.len()));
        }
        assert_eq!(sizes, [(1, 64), (2, 64), (1, 36), (2, 36)], "the oldest first");
        assert_eq!(batches.room(0), SOON);
    }

    #[test]
    fn no_more_pages_wait_than_there_is_room_for() {
        let mut batches = Batches::new();
        for page in 0..2 * WAITING as u64 {
            batches.add_one(VM, Kind::Replicate, NodeId((page % 8) as u8), Gfn::new(page));
        }
        assert_eq!(batches.room(0), 0);
        let mut pages = 0;
        while let Some(batch) = batches.take(|_| true) {
            pages += batch.gfns.len();
        }
        assert_eq!(pages, WAITING);
        batches.add(VM, Kind::Replicate, NodeId(0), Vec::new());
        assert!(batches.take(|_| true).is_none(), "nothing is no batch");
    }

    #[test]
    fn who_is_gone_leaves_nothing_behind() {
        let mut batches = Batches::new();
        batches.add_one(VM, Kind::Migrate, NodeId(1), Gfn::new(0x401));
        batches.add_one(VmId(2), Kind::Migrate, NodeId(1), Gfn::new(0x401));
        assert!(batches.has_page_of(VM, Gfn::new(0x400)) && !batches.has_page_of(VM, Gfn::new(0x600)));
        batches.drop_unless(|vm| vm == VmId(2));
        assert!(!batches.has_page_of(VM, Gfn::new(0x400)));
        assert_eq!(batches.room(0), SOON - 1);
        assert_eq!(batches.take(|batch| batch.vm == VmId(2)).map(|batch| batch.gfns.len()), Some(1));
    }
}
