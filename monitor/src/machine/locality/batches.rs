//! Pages that wait for something, in batches of those that go the same way: each batch becomes a job.

use super::job::BATCH;
use addr::{Gfn, NodeId, VmId};
use alloc::{collections::VecDeque, vec::Vec};

/// Pages that wait for one thing, at most; those beyond will be hot again.
pub const WAITING: usize = 1024;
/// Places of [`Known`].
const PLACES: usize = 2048;

/// What is to become of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They move.
    Migrate,
    /// They get a copy.
    Replicate,
}

/// Pages of a VM that go to a node, as many as a job has at most.
#[derive(Debug)]
pub struct Batch {
    pub vm: VmId,
    pub kind: Kind,
    pub node: NodeId,
    pub gfns: Vec<Gfn>,
}

/// Batches, oldest first.
#[derive(Debug)]
pub struct Batches {
    batches: VecDeque<Batch>,
    pages: usize,
}

impl Batches {
    pub const fn new() -> Self {
        Self { batches: VecDeque::new(), pages: 0 }
    }

    /// One more page, with those that go the same way.
    pub fn add_one(&mut self, vm: VmId, kind: Kind, node: NodeId, gfn: Gfn) {
        if self.pages >= WAITING {
            return;
        }
        self.pages += 1;
        let fits =
            |batch: &&mut Batch| batch.vm == vm && batch.kind == kind && batch.node == node && batch.gfns.len() < BATCH;
        // The one that is being filled is among the last.
        if let Some(batch) = self.batches.iter_mut().rev().find(fits) {
            batch.gfns.push(gfn);
            return;
        }
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

    /// Does anything go to `node`?
    pub fn has(&self, node: NodeId) -> bool {
        self.batches.iter().any(|batch| batch.node == node)
    }

    /// Does a page of the VM's block wait?
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

/// Pages that have been taken up in an interval of the counters: that another report comes is no news. A place knows one
/// page, so some are forgotten; then a page is tried twice, which the second one finds out.
#[derive(Debug)]
pub struct Known(Vec<Option<(VmId, Gfn, NodeId, u16)>>);

impl Known {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Has the page been taken up for `node` in interval `tick`? From now on it has.
    pub fn is_known(&mut self, vm: VmId, gfn: Gfn, node: NodeId, tick: u16) -> bool {
        if self.0.is_empty() {
            self.0 = alloc::vec![None; PLACES];
        }
        // Neighbours are neighbours here, and nodes far apart.
        let place = (gfn.raw() as usize + node.index() * (PLACES / 8) + usize::from(vm.0) * 61) % PLACES;
        let page = Some((vm, gfn, node, tick));
        self.0.get_mut(place).is_some_and(|known| core::mem::replace(known, page) == page)
    }
}
