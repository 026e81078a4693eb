//! Shared pages: a copy on a node is for the harts of that node whatever VM they run.

use addr::{Gfn, Mfn, NodeId, PAGES_PER_LARGE, VmId};

use super::{
    INTERVAL_HZ, Planner, THRESHOLDS,
    batches::Kind,
    blocks::{first_of, misses_on},
    budget,
};
use crate::{
    Backing, Guest, History, Look, Machine, Misses, Order, PageFacts, Proposal, Sample, Shared, Sharer, Thresholds,
    Writes, decide, is_worth_a_copy,
};

/// Hot pages of a block of shared pages after which its misses are asked for.
const ENOUGH: u32 = 16;
/// Blocks of shared pages in an interval, at most; others will be hot again.
const MOST_BLOCKS: usize = 64;

/// A block of shared pages under one leaf in a VM's table, some of which a node misses on often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SharedBlock {
    vm: VmId,
    gfn: Gfn,
    by: NodeId,
}

impl<const N: usize> Planner<N> {
    /// Harts of `by` miss often on `page`, which is no VM's own: judges it for each VM that maps it there.
    #[cold]
    #[inline(never)]
    pub(super) fn judge_shared(&mut self, look: &Look<'_>, machine: &mut impl Machine<N>, page: Mfn, by: NodeId) {
        let Some(Shared { home, sharers }) = machine.shared(page, by) else { return };
        self.known.note(page, by, self.tick);
        let facts = facts_of(home, by, misses_on(machine, page, 1));
        for Sharer { guest: at, gfn, backing } in sharers {
            let Some(guest) = look.guests.get(at) else { continue };
            let is_unsettled = look.is_unsettled(guest, INTERVAL_HZ);
            let may_retry = budget(&mut self.budgets, guest, self.tick).allows(self.tick, &THRESHOLDS);
            let facts = PageFacts { backing, is_unsettled, may_retry, ..facts };
            match backing {
                Backing::SharedBlock if guest.switches.replicate => {
                    self.note_shared_block(machine, at, guest, gfn, page, by);
                }
                _ => _ = self.judge_sharer(machine, at, guest, gfn, &facts, &THRESHOLDS),
            }
        }
    }

    /// A page of a block of shared pages under one leaf is hot: when so many are, the block may be worth a copy.
    fn note_shared_block(
        &mut self,
        machine: &mut impl Machine<N>,
        at: usize,
        guest: &Guest,
        gfn: Gfn,
        page: Mfn,
        by: NodeId,
    ) {
        if self.count_for_shared_block(SharedBlock { vm: guest.vm, gfn: gfn.large_base(), by }) != ENOUGH {
            return;
        }
        let misses = misses_on(machine, first_of(page), PAGES_PER_LARGE);
        let is_worth = misses.get(by.index()).is_some_and(|misses| is_worth_a_copy(*misses, &THRESHOLDS));
        let budget = budget(&mut self.budgets, guest, self.tick);
        if is_worth && budget.allows(self.tick, &THRESHOLDS) && machine.carry_out(at, Order::CopyShared { gfn, on: by })
        {
            budget.spend(PAGES_PER_LARGE as u32);
        }
    }

    /// How many of its pages have been hot in this interval, with one more; 0 if there is no room to count them.
    fn count_for_shared_block(&mut self, wanted: SharedBlock) -> u32 {
        if let Some((_, hot)) = self.shared_blocks.iter_mut().find(|(block, _)| *block == wanted) {
            *hot += 1;
            return *hot;
        }
        if self.shared_blocks.len() >= MOST_BLOCKS {
            return 0;
        }
        self.shared_blocks.push((wanted, 1));
        1
    }

    fn judge_sharer(
        &mut self,
        machine: &mut impl Machine<N>,
        at: usize,
        guest: &Guest,
        gfn: Gfn,
        facts: &PageFacts<N>,
        thresholds: &Thresholds,
    ) -> Proposal {
        let proposal = decide(facts, self.tick, guest.switches, thresholds);
        match proposal {
            Proposal::Replicate { on, .. } => {
                budget(&mut self.budgets, guest, self.tick).spend(1);
                self.planned.add_one(guest.vm, Kind::Spread, on, gfn);
            }
            Proposal::Leave(reason) => machine.leave(at, 1, reason),
            Proposal::Migrate { .. } | Proposal::Watch | Proposal::Collapse(_) => {}
        }
        proposal
    }

    /// A page that the VM shares has been sampled: decides which of the nodes that use it are to have a copy.
    pub(super) fn judge_sampled_sharer(
        &mut self,
        look: &Look<'_>,
        machine: &mut impl Machine<N>,
        at: usize,
        of: &Sample<N>,
        facts: &PageFacts<N>,
        thresholds: &Thresholds,
    ) {
        let Some(guest) = look.guests.get(at) else { return };
        for by in look.node_ids::<N>().filter(|node| *node != facts.home) {
            // Who has a copy has used that.
            if machine.has_copy(of.page, by) || self.known.is_known(of.page, by, self.tick, 0) {
                continue;
            }
            let may_retry = budget(&mut self.budgets, guest, self.tick).allows(self.tick, thresholds);
            let facts = PageFacts { by, may_retry, ..*facts };
            if let Proposal::Replicate { .. } = self.judge_sharer(machine, at, guest, of.gfn, &facts, thresholds) {
                self.known.note(of.page, by, self.tick);
            }
        }
    }
}

/// What is known of a page that several have in common, and of no VM that has it.
pub(super) fn facts_of<const N: usize>(home: NodeId, by: NodeId, misses: Misses<N>) -> PageFacts<N> {
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
