//! Pages that wait for something, in batches of those that go the same way: each batch becomes a job.

use super::job::BATCH;
use addr::{Gfn, Mfn, NodeId, VmId};
use alloc::{collections::VecDeque, vec::Vec};

/// Pages that wait for one thing, at most; those beyond will be hot again.
pub const WAITING: usize = 1024;
/// Pages that wait for jobs beyond which no others are judged.
const SOON: usize = 512;
/// Places of [`Known`].
const PLACES: usize = 2048;

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

/// Pages of a VM that go to a node, as many as a job has at most.
#[derive(Debug)]
pub struct Batch {
    pub vm: VmId,
    pub kind: Kind,
    pub node: NodeId,
    pub gfns: Vec<Gfn>,
}

impl Batch {
    /// Has it room for a page that goes this way?
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

/// Pages that have been taken up lately: that another report of one comes is no news. A place knows one page, so some are
/// forgotten; then a page is tried twice, which the second one finds out.
#[derive(Debug)]
pub struct Known(Vec<u64>);

impl Known {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Has the page been taken up for `node` in interval `tick`, or in the `before` ones?
    #[inline(always)]
    pub fn is_known(&self, page: Mfn, node: NodeId, tick: u16, before: u16) -> bool {
        let known = self.0.get(place_of(page, node)).copied().unwrap_or(NOTHING);
        known & !TICK == key_of(page, node) && tick.wrapping_sub(known as u16) <= before
    }

    /// The page is taken up for `node` in interval `tick`.
    #[inline(always)]
    pub fn note(&mut self, page: Mfn, node: NodeId, tick: u16) {
        if self.0.is_empty() {
            self.0.resize(PLACES, NOTHING);
        }
        self.0[place_of(page, node)] = key_of(page, node) | u64::from(tick);
    }
}

/// What no page's word is.
const NOTHING: u64 = u64::MAX;
const TICK: u64 = 0xffff;

/// The page's and the node's part of a word; the interval has the low 16 bits.
#[inline(always)]
const fn key_of(page: Mfn, node: NodeId) -> u64 {
    page.raw() << 24 | (node.0 as u64) << 16
}

/// Neighbours are neighbours here, and nodes far apart.
#[inline(always)]
const fn place_of(page: Mfn, node: NodeId) -> usize {
    (page.raw() as usize + node.index() * (PLACES / 8)) % PLACES
}
