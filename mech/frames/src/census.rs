//! Who has which pages: statistics, and the check that nothing is lost.

use addr::{Mfn, NodeId, VmId};

use crate::{Frames, MachineMemory, MemMapEntry, PageState};

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

    /// Counts a VM's pages in one go: see [`VmCensus`].
    #[must_use]
    pub fn vm_pages<M: MachineMemory>(&self, memory: &M, vm: VmId) -> VmPages {
        let mut census = VmCensus::new(vm);
        while census.step(self, memory, u64::MAX) {}
        census.found
    }
}

/// A count of a VM's pages by a walk over the memmap, in steps: the leak check when a VM ends. Exact only while nothing of that VM changes.
///
/// Between two steps other VMs' pages come and go.
#[derive(Clone, Copy, Debug)]
pub struct VmCensus {
    vm: VmId,
    /// The span of the memmap that is being walked, and the page in it that is next.
    span: usize,
    next: u64,
    found: VmPages,
}

impl VmCensus {
    /// Of the pages of `vm`, from the first one of the machine on.
    #[must_use]
    pub const fn new(vm: VmId) -> Self {
        Self { vm, span: 0, next: 0, found: VmPages { private: 0, shared: 0, replicas: 0, monitor: 0, dying: 0 } }
    }

    /// What was found so far.
    #[must_use]
    pub const fn found(&self) -> &VmPages {
        &self.found
    }

    /// Looks at `most` blocks and users of shared pages, but for the rest of one page's. `true` while there is more.
    pub fn step<M: MachineMemory>(&mut self, frames: &Frames, memory: &M, most: u64) -> bool {
        let mut seen = 0;
        while let Some(span) = frames.map().spans().get(self.span) {
            let end = span.start.raw() + span.pages;
            // Blocks may have grown together since the last step: the page lies in the middle of one then, and its row is stale.
            let first = frames.map().block_of(Mfn::new(self.next.max(span.start.raw())));
            let mut at = first.unwrap_or(span.start);
            while at.raw() < end {
                if seen >= most {
                    self.next = at.raw();
                    return true;
                }
                let Some(entry) = frames.map().entry(at) else { break };
                seen += 1 + self.count(frames, memory, at, entry);
                at = Mfn::new(at.raw() + (1 << entry.order()));
            }
            (self.span, self.next) = (self.span + 1, 0);
        }
        false
    }

    /// Counts one block; returns how many users it looked at.
    fn count<M: MachineMemory>(&mut self, frames: &Frames, memory: &M, mfn: Mfn, entry: &MemMapEntry) -> u64 {
        let (vm, found) = (self.vm, &mut self.found);
        let info = entry.info(0);
        let is_its = info.owner.is_some_and(|owner| owner.vm == vm);
        let pages = if is_its { 1 << info.order } else { 0 };
        let mut users = 0;
        match info.state {
            PageState::Private => found.private += pages,
            PageState::Monitor => found.monitor += pages,
            PageState::Dying => found.dying += pages,
            PageState::Replica => found.replicas += pages,
            PageState::Shared => frames.for_each_owner(memory, mfn, |owner| {
                users += 1;
                found.shared += u64::from(owner.vm == vm);
            }),
            PageState::Bad | PageState::Free | PageState::Lent => {}
        }
        users
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MAX_ORDER, PageOwner, PageUse, testing::small_machine};
    use addr::{Gfn, SpuId};

    const VM: VmId = VmId(7);

    fn owner(vm: VmId, page: u64) -> PageOwner {
        PageOwner { vm, gfn: Gfn::new(0x80000 + page) }
    }

    /// However it is cut, it finds what is there, and no step looks at much more than it may.
    #[test]
    fn a_census_in_steps_finds_the_same() {
        let (memory, frames) = small_machine(&[4, 2]);
        let private = |page: u64| PageUse::Private { vm: VM, gfn: Gfn::new(0x80000 + page), spu: SpuId(0) };
        for node in [NodeId(0), NodeId(1)] {
            let _ = frames.alloc(node, 0, private(u64::from(node.0))).unwrap().settle();
            for _ in 0..100 {
                let page = frames.alloc(node, 0, PageUse::Shared).unwrap().settle();
                for user in 0..20 {
                    let vm = if user % 4 == 0 { VM } else { VmId(8) };
                    frames.attach_shared(&memory, page, owner(vm, 1000 + user)).unwrap();
                }
            }
        }
        let _ = frames.alloc(NodeId(0), MAX_ORDER, private(512)).unwrap().settle();
        let all = VmPages { private: 514, shared: 1000, ..VmPages::default() };
        assert_eq!(frames.vm_pages(&memory, VM), all);
        for most in [1, 10, 333] {
            let mut census = VmCensus::new(VM);
            let mut steps = 1;
            while census.step(&frames, &memory, most) {
                steps += 1;
            }
            assert_eq!(*census.found(), all);
            // 200 pages with 20 users each, and what else there is.
            assert!(steps > 4200 / (most + 20), "{steps} steps of {most}");
        }
    }
}
