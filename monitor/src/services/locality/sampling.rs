//! Looks on a machine that counts no misses: samples of its VMs' pages take their place.
//!
//! VMs that have run since the last look are sampled, a few at a time by turns. What a round finds goes the same way as
//! the reports of miss counters: the same policy, with other thresholds, and the same jobs.
//!
//! Where there are counters nevertheless (`placement_by = "samples"`), what they would have proposed is compared with what
//! the samples do.

use super::{
    BUSY_HZ, Guests, IDLE_HZ, Locality,
    batches::{Batches, Kind},
    is_unsettled,
    spread::{SWEPT, SWEPT_IDLE, facts_of},
    stays, told,
};
use crate::{
    hart,
    machine::{capabilities, description, memory},
    trace,
    vm::{
        Vm,
        memory::{Facts as _, Located, Wish, one_more},
    },
};
use addr::{BASE_PAGE, Gfn, NodeId, PAGES_PER_LARGE, PageSize, VmId};
use alloc::{sync::Arc, vec::Vec};
use control::{EventKind, PlacementAction, PlacementReason};
use frames::PageState;
use machine_io::MissCounters;
use pace::{Pace, Share};
use placement::{
    BlockFacts, BlockProposal, LOOKS, PageFacts, Proposal, Sample, Samples, Switches, Thresholds, Writes, decide,
    decide_block,
};
use rv::csr;
use sched::Entity;

/// Rounds per second, and ticks of the policy's clock.
const ROUNDS_HZ: u64 = 4;
/// Looks at samples per second.
const LOOKS_HZ: u64 = ROUNDS_HZ * LOOKS as u64;
/// The longest pause after a look that was dear.
const LONGEST_PAUSE_S: u64 = 10;
/// VMs sampled in a round.
const SAMPLED_VMS: usize = 4;
/// How pages are judged here.
const THRESHOLDS: Thresholds = Thresholds::for_samples();

/// A VM in its rounds.
struct Sampled {
    vm: VmId,
    samples: Samples,
    /// How long its vCPUs had run at the last look.
    ran: u64,
    /// A block that is to be put together again when nobody wants its pages any more.
    to_join: Option<Gfn>,
}

/// What sampling remembers.
pub struct Sampling {
    vms: Vec<Sampled>,
    /// When the next look is due.
    next: u64,
    /// Looks, and the faults that bring leaves back, keep to their share of a hart.
    pace: Pace,
    /// The VM that rounds begin with, by turns.
    turn: usize,
    /// Faults that samples have caused and no pause has made up for.
    faults: u64,
}

impl Sampling {
    pub const fn new() -> Self {
        Self { vms: Vec::new(), next: 0, pace: Pace::new(), turn: 0, faults: 0 }
    }

    /// Plans the next look, after one that took `ticks` itself until `now`.
    fn plan_next(&mut self, ticks: u64, now: u64) {
        let hz = capabilities().timebase_hz;
        let faults = hart::ticks_of_faults(core::mem::take(&mut self.faults), hz);
        self.pace.spent(ticks.saturating_add(faults), Share::of_machine(hart::all().len()), now);
        self.next = self.pace.next(hz / LOOKS_HZ, LONGEST_PAUSE_S * hz, now);
    }

    /// Those that are there, and no others.
    fn follow(&mut self, guests: &Guests) {
        self.vms.retain(|sampled| guests.find(sampled.vm).is_some());
        for (vm, _) in &guests.0 {
            if self.vms.iter().all(|sampled| sampled.vm != vm.id) {
                let ram = vm.memory();
                let samples = Samples::new(ram.base(), ram.bytes() / BASE_PAGE);
                self.vms.push(Sampled { vm: vm.id, samples, ran: 0, to_join: None });
            }
        }
    }

    /// Looks at the rounds under way, and begins others; returns the pages of those that have ended.
    fn look(&mut self, guests: &Guests, now: u64) -> Vec<(VmId, Vec<Sample>)> {
        let mut ended = Vec::new();
        let mut is_open = 0;
        self.turn = self.turn.checked_rem(self.vms.len()).unwrap_or(0);
        let (later, first) = self.vms.split_at_mut(self.turn);
        for sampled in first.iter_mut().chain(later) {
            let Some((vm, _)) = guests.find(sampled.vm) else { continue };
            let ran = run_ticks(vm, now);
            // Who rests has used nothing: that tells nothing of who uses it.
            if core::mem::replace(&mut sampled.ran, ran) == ran {
                continue;
            }
            if sampled.samples.is_open() {
                self.faults += vm.memory().look_at(&mut sampled.samples);
                ended.extend(sampled.samples.take_round().map(|round| (sampled.vm, round)));
            } else if is_open < SAMPLED_VMS {
                vm.memory().begin_samples(&mut sampled.samples);
            }
            is_open += usize::from(sampled.samples.is_open());
        }
        if !ended.is_empty() {
            self.turn += 1;
        }
        ended
    }
}

impl Locality {
    /// One look: how many there should be per second from now on.
    pub(super) fn look_at_samples(&mut self, counters: Option<&mut MissCounters>, now: u64) -> u64 {
        memory::frames().sweep_spread(SWEPT);
        let guests = Guests::now();
        self.sampling.follow(&guests);
        if guests.0.is_empty() {
            self.forget();
            memory::frames().sweep_spread(SWEPT_IDLE);
            return IDLE_HZ;
        }
        self.tell_news(&guests);
        self.end_watches(now);
        if now >= self.sampling.next {
            self.look_at_rounds(&guests, counters.filter(|counters| counters.is_on()), now);
            let end = csr::time::read();
            self.sampling.plan_next(end.wrapping_sub(now), end);
        }
        let jobs = self.send_jobs(&guests);
        if jobs == 0 && self.watched.is_empty() { LOOKS_HZ } else { BUSY_HZ }
    }

    fn look_at_rounds(&mut self, guests: &Guests, counters: Option<&mut MissCounters>, now: u64) {
        if let Some(counters) = &counters {
            self.learn_nodes(counters);
        }
        let ended = self.sampling.look(guests, now);
        for (vm, round) in &ended {
            let Some((vm, switches)) = guests.find(*vm) else { continue };
            self.judge_round(vm, *switches, round, counters.as_deref(), now);
        }
        if let Some(counters) = counters.filter(|_| !ended.is_empty()) {
            counters.reset();
        }
        self.join_blocks(guests);
        if now >= self.interval_end {
            self.interval_end = now + capabilities().timebase_hz / ROUNDS_HZ;
            self.tick = self.tick.wrapping_add(1);
        }
    }

    fn judge_round(
        &mut self,
        vm: &Arc<Vm>,
        switches: Switches,
        round: &[Sample],
        counters: Option<&MissCounters>,
        now: u64,
    ) {
        let mut to_watch = Batches::new();
        let mut to_examine = None;
        for sample in round {
            let Some(row) = memory::frames().map().glance(sample.page) else { continue };
            if row.state == PageState::Shared {
                let is_unsettled = is_unsettled(vm, now, ROUNDS_HZ);
                let facts = PageFacts { is_unsettled, ..facts_of(row.node, row.node, sample.seen) };
                self.judge_sampled_sharer(vm, switches, sample, &facts, &THRESHOLDS);
                continue;
            }
            let Some(found) = vm.memory().facts(sample.gfn, sample.page, &row) else { continue };
            let home = row.node;
            if found.size != sample.size {
                continue;
            }
            if found.size == PageSize::Large {
                to_examine = to_examine.or(self.judge_sampled_block(vm, switches, sample, &found, home, now));
                continue;
            }
            let facts = PageFacts {
                by: home,
                home,
                misses: sample.seen,
                backing: found.backing,
                writes: Writes::Unknown,
                is_pinned: found.is_pinned,
                is_unsettled: is_unsettled(vm, now, ROUNDS_HZ),
                history: found.history,
                may_retry: true,
            };
            let missed = counters.map(|counters| self.misses_on(counters, sample.page, 1));
            for by in description().nodes.ids().filter(|node| *node != home) {
                let facts = PageFacts { by, ..facts };
                let proposal = decide(&facts, self.tick, switches, &THRESHOLDS);
                if let Some(misses) = missed {
                    let counted = PageFacts { misses, ..facts };
                    let other = decide(&counted, self.tick, switches, &Thresholds::for_misses());
                    vm.memory().note_agreement(wish(proposal), wish(other));
                }
                self.follow_proposal(vm, sample, by, proposal, &mut to_watch);
            }
        }
        self.watch(vm, &mut to_watch, now);
        let Some(sampled) = self.sampling.vms.iter_mut().find(|sampled| sampled.vm == vm.id) else { return };
        sampled.to_join = sampled.to_join.or(sampled.samples.take_examined());
        if let Some(block) = to_examine.filter(|_| sampled.samples.can_examine() && sampled.to_join.is_none())
            && vm.memory().split_block(block)
        {
            sampled.samples.examine(block);
        }
    }

    fn follow_proposal(&mut self, vm: &Vm, of: &Sample, node: NodeId, proposal: Proposal, to_watch: &mut Batches) {
        let Sample { gfn, page, .. } = *of;
        if wish(proposal) != Wish::Stay {
            if self.known.is_known(page, node, self.tick, 0) {
                return;
            }
            self.known.note(page, node, self.tick);
        }
        match proposal {
            Proposal::Migrate { .. } => self.planned.add_one(vm.id, Kind::Migrate, node, gfn),
            Proposal::Replicate { .. } => self.planned.add_one(vm.id, Kind::Replicate, node, gfn),
            Proposal::Watch => to_watch.add_one(vm.id, Kind::Replicate, node, gfn),
            Proposal::Collapse(_) => {}
            Proposal::Leave(reason) => _ = told(reason).map(|reason| stays(vm, 1, reason)),
        }
    }

    /// The block, if it is worth to be examined.
    fn judge_sampled_block(
        &mut self,
        vm: &Vm,
        switches: Switches,
        sample: &Sample,
        found: &Located,
        home: NodeId,
        now: u64,
    ) -> Option<Gfn> {
        let facts = BlockFacts {
            home,
            misses: sample.seen,
            is_over: true,
            may_grow: false,
            was_mixed: true,
            was_local: false,
            is_pinned: found.is_pinned,
            is_unsettled: is_unsettled(vm, now, ROUNDS_HZ),
            parts: None,
            history: found.history,
            may_retry: true,
        };
        match decide_block(&facts, self.tick, switches, &THRESHOLDS) {
            BlockProposal::Migrate { to } => self.note_sampled_block(vm.id, sample.gfn, sample.page, to, now),
            BlockProposal::Split => return Some(sample.gfn),
            BlockProposal::Leave(reason) => _ = told(reason).map(|reason| stays(vm, 1, reason)),
            // Only of what is asked before its time or again, and of what more is known of.
            BlockProposal::Wait | BlockProposal::LookAgain | BlockProposal::Replicate { .. } => {}
        }
        None
    }

    /// Blocks that were examined are one large page again, if none of their pages has left and none is about to.
    fn join_blocks(&mut self, guests: &Guests) {
        for sampled in &mut self.sampling.vms {
            let (Some(block), Some((vm, _))) = (sampled.to_join, guests.find(sampled.vm)) else { continue };
            let is_watched = |watched: &super::Watched| {
                watched.vm == vm.id && watched.gfns.iter().any(|gfn| gfn.large_base() == block)
            };
            if self.planned.has_page_of(vm.id, block) || self.watched.iter().any(is_watched) {
                continue;
            }
            sampled.to_join = None;
            if vm.memory().join_block(block) {
                vm.memory().note_try(block, one_more(self.tick, &THRESHOLDS));
            } else {
                let Some(node) = vm.memory().node_of(block) else { continue };
                let (action, reason, pages) = (PlacementAction::Split, PlacementReason::SeveralUsers, PAGES_PER_LARGE);
                trace::record(Some(vm.id), EventKind::PagesPlaced { action, pages, node, reason });
            }
        }
    }
}

/// What a proposal comes to: does the page stay, leave, or get a copy? Watching comes before copies.
const fn wish(proposal: Proposal) -> Wish {
    match proposal {
        Proposal::Migrate { .. } => Wish::Move,
        Proposal::Replicate { .. } | Proposal::Watch => Wish::Copy,
        Proposal::Leave(_) | Proposal::Collapse(_) => Wish::Stay,
    }
}

/// How long its vCPUs have run.
fn run_ticks(vm: &Vm, now: u64) -> u64 {
    let ran = vm.vcpus().iter().map(|vcpu| vcpu.run_ticks(Entity { vm: vm.id, vcpu: vcpu.index }, now));
    ran.fold(0, u64::wrapping_add)
}
