//! Shared pages: a copy on a node is for the harts of that node whatever VM they run, see [`frames::Frames::attach_spread`].

use super::{Guests, INTERVAL_HZ, Kind, Locality, THRESHOLDS, budget, is_unsettled, stays, told};
use crate::{
    machine::{
        description,
        memory::{DirectMemory, frames},
    },
    vm::{Vm, memory::Facts as _},
};
use addr::{Gfn, Mfn, NodeId, PAGES_PER_LARGE, VmId};
use arrayvec::ArrayVec;
use frames::PageOwner;
use machine_io::MissCounters;
use placement::{
    Backing, History, Misses, PageFacts, Proposal, Sample, Switches, Thresholds, Writes, decide, is_worth_a_copy,
};

/// Guest pages with the same page that are asked about at once: others come to the copy by their faults, or are hot again.
const OWNERS: usize = 16;
/// Hot pages of a block of shared pages after which its misses are asked for.
const ENOUGH: u32 = 16;
/// Blocks of shared pages in an interval, at most; others will be hot again.
const MOST_BLOCKS: usize = 64;
/// Pages with copies that are looked at, at each look: do they still need them?
pub const SWEPT: usize = 8;
/// The same while there is nothing else to do.
pub const SWEPT_IDLE: usize = 512;

/// A block of shared pages under one leaf in a VM's table, some of which a node misses on often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedBlock {
    vm: VmId,
    gfn: Gfn,
    by: NodeId,
}

impl Locality {
    /// Harts of `by` miss often on `page`, which is no VM's own: who maps it there?
    #[cold]
    #[inline(never)]
    pub(super) fn judge_shared(&mut self, counters: &MissCounters, guests: &Guests, page: Mfn, by: NodeId, now: u64) {
        let mut owners = ArrayVec::<PageOwner, OWNERS>::new();
        frames().for_some_owners(&DirectMemory, page, OWNERS, |owner| owners.push(owner));
        let Some(home) = frames().map().node_of(page).filter(|_| !owners.is_empty()) else { return };
        self.known.note(page, by, self.tick);
        let facts = facts_of(home, by, self.misses_on(counters, page, 1));
        for owner in owners {
            if let Some((vm, switches)) = guests.find(owner.vm)
                && let Some(backing) = vm.memory().shared_facts(owner.gfn, page, by)
            {
                let is_unsettled = is_unsettled(vm, now, INTERVAL_HZ);
                let may_retry = budget(&mut self.budgets, vm, self.tick).allows(self.tick, &THRESHOLDS);
                let facts = PageFacts { backing, is_unsettled, may_retry, ..facts };
                match backing {
                    Backing::SharedBlock if switches.replicate => {
                        self.note_shared_block(counters, vm, owner.gfn, page, by)
                    }
                    _ => _ = self.judge_sharer(vm, *switches, owner.gfn, &facts, &THRESHOLDS),
                }
            }
        }
    }

    /// A page of a block of shared pages under one leaf is hot: when so many are, the block may be worth a copy.
    fn note_shared_block(&mut self, counters: &MissCounters, vm: &Vm, gfn: Gfn, page: Mfn, by: NodeId) {
        let wanted = SharedBlock { vm: vm.id, gfn: gfn.large_base(), by };
        let at = self.shared_blocks.iter().position(|(block, _)| *block == wanted).unwrap_or_else(|| {
            if self.shared_blocks.len() < MOST_BLOCKS {
                self.shared_blocks.push((wanted, 0));
            }
            self.shared_blocks.len() - 1
        });
        let Some((_, hot)) = self.shared_blocks.get_mut(at).filter(|(block, _)| *block == wanted) else { return };
        *hot += 1;
        if *hot != ENOUGH {
            return;
        }
        let first = Mfn::new(page.raw() & !(PAGES_PER_LARGE - 1));
        let misses = self.misses_on(counters, first, PAGES_PER_LARGE);
        let is_worth = misses.get(by.index()).is_some_and(|misses| is_worth_a_copy(*misses, &THRESHOLDS));
        let budget = budget(&mut self.budgets, vm, self.tick);
        if is_worth && budget.allows(self.tick, &THRESHOLDS) && vm.memory().begin_shared_copy(gfn, by) {
            budget.spend(PAGES_PER_LARGE as u32);
        }
    }

    fn judge_sharer(
        &mut self,
        vm: &Vm,
        switches: Switches,
        gfn: Gfn,
        facts: &PageFacts,
        thresholds: &Thresholds,
    ) -> Proposal {
        let proposal = decide(facts, self.tick, switches, thresholds);
        match proposal {
            Proposal::Replicate { on, .. } => {
                budget(&mut self.budgets, vm, self.tick).spend(1);
                self.planned.add_one(vm.id, Kind::Spread, on, gfn);
            }
            Proposal::Leave(reason) => _ = told(reason).map(|reason| stays(vm, 1, reason)),
            Proposal::Migrate { .. } | Proposal::Watch | Proposal::Collapse(_) => {}
        }
        proposal
    }

    /// A page that the VM shares has been sampled: which of the nodes that use it are to have a copy?
    pub(super) fn judge_sampled_sharer(
        &mut self,
        vm: &Vm,
        switches: Switches,
        of: &Sample,
        facts: &PageFacts,
        thresholds: &Thresholds,
    ) {
        for by in description().nodes.ids().filter(|node| *node != facts.home) {
            // Who has a copy has used that.
            if frames().spread_on(of.page, by).is_some() || self.known.is_known(of.page, by, self.tick, 0) {
                continue;
            }
            let may_retry = budget(&mut self.budgets, vm, self.tick).allows(self.tick, thresholds);
            let facts = PageFacts { by, may_retry, ..*facts };
            if let Proposal::Replicate { .. } = self.judge_sharer(vm, switches, of.gfn, &facts, thresholds) {
                self.known.note(of.page, by, self.tick);
            }
        }
    }
}

/// What is known of a page that several have in common, and of no VM that has it.
pub(super) fn facts_of(home: NodeId, by: NodeId, misses: Misses) -> PageFacts {
    PageFacts {
        by,
        home,
        misses,
        backing: Backing::Shared,
        writes: Writes::None,
        // Devices read it, if anything.
        is_pinned: false,
        is_unsettled: false,
        history: History::default(),
        may_retry: false,
    }
}
