//! Looks on a machine that counts no misses: samples of its VMs' pages take their place.
//!
//! VMs that have run since the last look are sampled, a few at a time by turns. What a round finds goes the same way as
//! the reports of miss counters: the same policy, with other thresholds, and the same jobs.
//!
//! Where there are counters nevertheless, what they would have proposed is compared with what the samples do.

use addr::{Gfn, NodeId, PageSize, VmId};
use alloc::vec::Vec;
use pace::{Pace, Share};

use super::{
    BUSY_HZ, IDLE_HZ, Planner,
    batches::{Batches, Kind},
    blocks::misses_on,
    shared::facts_of,
};
use crate::{
    Backed, BlockFacts, BlockProposal, Guest, LOOKS, Located, Look, Machine, Order, PageFacts, Proposal, Sample,
    Samples, Thresholds, Wish, Writes, decide, decide_block,
};

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
struct Sampled<const N: usize> {
    vm: VmId,
    samples: Samples<N>,
    /// How long its vCPUs had run at the last look.
    ran: u64,
    /// A block that is to be put together again when nobody wants its pages any more.
    to_join: Option<Gfn>,
}

/// A page whose round has ended.
#[derive(Clone, Copy)]
struct Seen<'a, const N: usize> {
    /// Whose it is: a place in [`Look::guests`], and the guest there.
    at: usize,
    guest: &'a Guest,
    sample: &'a Sample<N>,
    found: &'a Located,
}

/// What sampling remembers.
pub(super) struct Sampling<const N: usize> {
    vms: Vec<Sampled<N>>,
    /// When the next look is due.
    next: u64,
    /// Looks, and the faults that bring leaves back, keep to their share of a hart.
    pace: Pace,
    /// The VM that rounds begin with, by turns.
    turn: usize,
    /// Faults that samples have caused and no pause has made up for.
    faults: u64,
}

impl<const N: usize> Sampling<N> {
    pub(super) const fn new() -> Self {
        Self { vms: Vec::new(), next: 0, pace: Pace::new(), turn: 0, faults: 0 }
    }

    /// Plans the next look, after one that took `ticks` itself until `now`; a fault takes `fault_us`.
    fn plan_next(&mut self, ticks: u64, fault_us: u64, share: Share, hz: u64, now: u64) {
        let faults_us = core::mem::take(&mut self.faults).saturating_mul(fault_us);
        let faults = faults_us.saturating_mul(hz) / 1_000_000;
        self.pace.spent(ticks.saturating_add(faults), share, now);
        self.next = self.pace.next(hz / LOOKS_HZ, LONGEST_PAUSE_S.saturating_mul(hz), now);
    }

    /// Those that are there, and no others.
    fn follow(&mut self, look: &Look<'_>) {
        self.vms.retain(|sampled| look.find(sampled.vm).is_some());
        for Guest { vm, base, pages, .. } in look.guests {
            if self.vms.iter().all(|sampled| sampled.vm != *vm) {
                self.vms.push(Sampled { vm: *vm, samples: Samples::new(*base, *pages), ran: 0, to_join: None });
            }
        }
    }

    /// Looks at the rounds under way, and begins others; returns the pages of those that have ended, by guest.
    fn look(&mut self, look: &Look<'_>, machine: &mut impl Machine<N>) -> Vec<(usize, Vec<Sample<N>>)> {
        let mut ended = Vec::new();
        let mut is_open = 0;
        self.turn = self.turn.checked_rem(self.vms.len()).unwrap_or(0);
        let (later, first) = self.vms.split_at_mut(self.turn);
        for sampled in first.iter_mut().chain(later) {
            let Some((at, _)) = look.find(sampled.vm) else { continue };
            let ran = machine.ran(at);
            // Who rests has used nothing: that tells nothing of who uses it.
            if core::mem::replace(&mut sampled.ran, ran) == ran {
                continue;
            }
            if sampled.samples.is_open() {
                self.faults = self.faults.saturating_add(machine.look_at(at, &mut sampled.samples));
                ended.extend(sampled.samples.take_round().map(|round| (at, round)));
            } else if is_open < SAMPLED_VMS {
                machine.begin_samples(at, &mut sampled.samples);
            }
            is_open += usize::from(sampled.samples.is_open());
        }
        if !ended.is_empty() {
            self.turn += 1;
        }
        ended
    }
}

impl<const N: usize> Planner<N> {
    /// One look at samples: how many looks there should be per second from now on.
    pub fn look_at_samples(&mut self, look: &Look<'_>, machine: &mut impl Machine<N>) -> u64 {
        self.sampling.follow(look);
        if look.guests.is_empty() {
            self.forget();
            return IDLE_HZ;
        }
        self.end_watches(look.now);
        if look.now >= self.sampling.next {
            self.look_at_rounds(look, machine);
            let took = machine.spent();
            let (share, end) = (Share::of_machine(machine.harts()), look.now.saturating_add(took));
            self.sampling.plan_next(took, machine.fault_us(), share, look.hz, end);
        }
        let jobs = self.send_jobs(look, machine);
        if jobs == 0 && self.watched.is_empty() { LOOKS_HZ } else { BUSY_HZ }
    }

    fn look_at_rounds(&mut self, look: &Look<'_>, machine: &mut impl Machine<N>) {
        let ended = self.sampling.look(look, machine);
        for (at, round) in &ended {
            let _ = machine.may_go_on();
            self.judge_round(look, machine, *at, round);
        }
        if machine.counts_misses() && !ended.is_empty() {
            machine.count_anew();
        }
        self.join_blocks(look, machine);
        if look.now >= self.interval_end {
            self.interval_end = look.now.saturating_add(look.hz / ROUNDS_HZ);
            self.tick = self.tick.wrapping_add(1);
        }
    }

    fn judge_round(&mut self, look: &Look<'_>, machine: &mut impl Machine<N>, at: usize, round: &[Sample<N>]) {
        let Some(guest) = look.guests.get(at) else { return };
        let mut to_watch = Batches::new();
        let mut to_examine = None;
        for sample in round {
            match machine.look_up(at, sample.gfn, sample.page) {
                Some(Backed::Shared { home }) => {
                    let is_unsettled = look.is_unsettled(guest, ROUNDS_HZ);
                    let facts = PageFacts { is_unsettled, ..facts_of(home, home, sample.seen) };
                    self.judge_sampled_sharer(look, machine, at, sample, &facts, &THRESHOLDS);
                }
                Some(Backed::Own(found)) if found.size == sample.size => {
                    let seen = Seen { at, guest, sample, found: &found };
                    match found.size {
                        PageSize::Large => to_examine = to_examine.or(self.judge_sampled_block(look, machine, &seen)),
                        PageSize::Base => self.judge_sample(look, machine, &seen, &mut to_watch),
                    }
                }
                _ => {}
            }
        }
        self.watch(look, machine, at, guest.vm, &mut to_watch);
        self.examine(machine, at, guest.vm, to_examine);
    }

    /// A block of the VM that was examined is done with, if it is; this one may be next.
    fn examine(&mut self, machine: &mut impl Machine<N>, at: usize, vm: VmId, next: Option<Gfn>) {
        let Some(sampled) = self.sampling.vms.iter_mut().find(|sampled| sampled.vm == vm) else { return };
        sampled.to_join = sampled.to_join.or(sampled.samples.take_examined());
        if let Some(block) = next.filter(|_| sampled.samples.can_examine() && sampled.to_join.is_none())
            && machine.carry_out(at, Order::Examine(block))
        {
            sampled.samples.examine(block);
        }
    }

    fn judge_sample(
        &mut self,
        look: &Look<'_>,
        machine: &mut impl Machine<N>,
        seen: &Seen<'_, N>,
        to_watch: &mut Batches,
    ) {
        let Seen { at, guest, sample, found } = *seen;
        let home = found.home;
        let facts = PageFacts {
            by: home,
            home,
            misses: sample.seen,
            backing: found.backing,
            writes: Writes::Unknown,
            is_pinned: found.is_pinned,
            is_unsettled: look.is_unsettled(guest, ROUNDS_HZ),
            history: found.history,
            may_retry: true,
        };
        let missed = machine.counts_misses().then(|| misses_on(machine, sample.page, 1));
        for by in look.node_ids::<N>().filter(|node| *node != home) {
            let facts = PageFacts { by, ..facts };
            let proposal = decide(&facts, self.tick, guest.switches, &THRESHOLDS);
            if let Some(misses) = missed {
                let counted = PageFacts { misses, ..facts };
                let other = decide(&counted, self.tick, guest.switches, &Thresholds::for_misses());
                machine.compare(at, wish(proposal), wish(other));
            }
            self.follow_proposal(machine, seen, by, proposal, to_watch);
        }
    }

    fn follow_proposal(
        &mut self,
        machine: &mut impl Machine<N>,
        seen: &Seen<'_, N>,
        node: NodeId,
        proposal: Proposal,
        to_watch: &mut Batches,
    ) {
        let (Sample { gfn, page, .. }, vm) = (*seen.sample, seen.guest.vm);
        if wish(proposal) != Wish::Stay {
            if self.known.is_known(page, node, self.tick, 0) {
                return;
            }
            self.known.note(page, node, self.tick);
        }
        match proposal {
            Proposal::Migrate { .. } => self.planned.add_one(vm, Kind::Migrate, node, gfn),
            Proposal::Replicate { .. } => self.planned.add_one(vm, Kind::Replicate, node, gfn),
            Proposal::Watch => to_watch.add_one(vm, Kind::Replicate, node, gfn),
            Proposal::Collapse(_) => {}
            Proposal::Leave(reason) => machine.leave(seen.at, 1, reason),
        }
    }

    /// The block, if it is worth to be examined.
    fn judge_sampled_block(
        &mut self,
        look: &Look<'_>,
        machine: &mut impl Machine<N>,
        seen: &Seen<'_, N>,
    ) -> Option<Gfn> {
        let Seen { at, guest, sample, found } = *seen;
        let facts = BlockFacts {
            home: found.home,
            misses: sample.seen,
            is_over: true,
            may_grow: false,
            was_mixed: true,
            was_local: false,
            is_pinned: found.is_pinned,
            is_unsettled: look.is_unsettled(guest, ROUNDS_HZ),
            parts: None,
            history: found.history,
            may_retry: true,
        };
        match decide_block(&facts, self.tick, guest.switches, &THRESHOLDS) {
            BlockProposal::Migrate { to } => self.note_sampled_block(guest.vm, sample.gfn, sample.page, to, look.now),
            BlockProposal::Split => return Some(sample.gfn),
            BlockProposal::Leave(reason) => machine.leave(at, 1, reason),
            // Only of what is asked before its time or again, and of what more is known of.
            BlockProposal::Wait | BlockProposal::LookAgain | BlockProposal::Replicate { .. } => {}
        }
        None
    }

    /// Blocks that were examined are one large page again, if none of their pages has left and none is about to.
    fn join_blocks(&mut self, look: &Look<'_>, machine: &mut impl Machine<N>) {
        for sampled in &mut self.sampling.vms {
            let (Some(block), Some((at, guest))) = (sampled.to_join, look.find(sampled.vm)) else { continue };
            let is_watched = self.watched.iter().any(|watched| watched.has_page_of(guest.vm, block));
            if is_watched || self.planned.has_page_of(guest.vm, block) {
                continue;
            }
            sampled.to_join = None;
            if machine.carry_out(at, Order::Join(block)) {
                machine.carry_out(at, Order::NoteTry { gfn: block, tick: self.tick, by_samples: true });
            }
        }
    }
}

const fn wish(proposal: Proposal) -> Wish {
    match proposal {
        Proposal::Migrate { .. } => Wish::Move,
        Proposal::Replicate { .. } | Proposal::Watch => Wish::Copy,
        Proposal::Leave(_) | Proposal::Collapse(_) => Wish::Stay,
    }
}
