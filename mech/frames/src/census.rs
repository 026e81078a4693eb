//! Who has which pages: statistics, and the check that nothing is lost.

use addr::{NodeId, VmId};

use crate::{Frames, MachineMemory, PageState};

/// Pages of a node by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts([u64; PageState::COUNT]);

impl NodeCounts {
    /// Pages in `state`.
    #[must_use]
    pub const fn get(&self, state: PageState) -> u64 {
        self.0[state as usize]
    }

    /// Pages in use or free: all but the bad ones.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum::<u64>() - self.get(PageState::Bad)
    }
}

/// Pages that the memmap says a VM has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmPages {
    /// Guest memory of its own.
    pub private: u64,
    /// Guest pages of it that shared pages back.
    pub shared: u64,
    /// Replicas of its own pages.
    pub replicas: u64,
    /// Page tables and the like.
    pub monitor: u64,
    /// Waiting for a shootdown.
    pub dying: u64,
}

impl VmPages {
    /// Whether no page is left. So it must be after a VM ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What a walk over the whole memmap found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    counts: NodeCounts,
}

impl Census {
    /// Pages in `state`, holes inside spans counted as bad.
    #[must_use]
    pub const fn get(&self, state: PageState) -> u64 {
        self.counts.get(state)
    }
}

impl Frames {
    /// The running counters of `node`: cheap. Pages in no use at all are not counted as bad here.
    #[must_use]
    pub fn counts(&self, node: NodeId) -> NodeCounts {
        NodeCounts(PageState::ALL.map(|state| self.pages_in(node, state)))
    }

    /// Counts the pages of the whole machine by walking the memmap: the truth that the running counters must agree with.
    /// Exact only while nothing changes.
    #[must_use]
    pub fn census(&self) -> Census {
        let mut counts = NodeCounts::default();
        for (_, entry) in self.map().blocks() {
            counts.0[entry.state() as usize] += 1 << entry.order();
        }
        Census { counts }
    }

    /// Counts a VM's pages by walking the memmap: the leak check when a VM ends. Exact only while nothing changes.
    #[must_use]
    pub fn vm_pages<M: MachineMemory>(&self, memory: &M, vm: VmId) -> VmPages {
        let mut found = VmPages::default();
        for (mfn, entry) in self.map().blocks() {
            let info = entry.info(0);
            let is_its = info.owner.is_some_and(|owner| owner.vm == vm);
            let pages = if is_its { 1 << info.order } else { 0 };
            match info.state {
                PageState::Private => found.private += pages,
                PageState::Monitor => found.monitor += pages,
                PageState::Dying => found.dying += pages,
                PageState::Replica => found.replicas += pages,
                PageState::Shared => {
                    self.for_each_owner(memory, mfn, |owner| found.shared += u64::from(owner.vm == vm));
                }
                PageState::Bad | PageState::Free | PageState::Lent => {}
            }
        }
        found
    }
}
