//! The periodic balancer.

use core::cmp::{Ordering, Reverse};
use core::ops::Range;

use addr::{CpuIndex, NodeId};
use alloc::vec::Vec;
use arrayvec::ArrayVec;

use super::loads::{Load, Loads, is_due, waited};
use super::stay::may_leave;
use super::{Caution, Domain, Move, Reason, Snapshot, VcpuFacts};

/// Most moves that one call proposes.
pub const MAX_MOVES: usize = 8;

/// The moves that would make a part of the machine fairer. In a region: first inside each node, the worst-served ones before others,
/// then vCPUs that can go home, then between nodes. In a larger part: those that go home, and from one half to the other. At most
/// [`MAX_MOVES`], each vCPU at most once. Work: harts and vCPUs of the part, for each move.
#[must_use]
pub fn rebalance(snapshot: &Snapshot<'_>, caution: &Caution, domain: &Domain) -> ArrayVec<Move, MAX_MOVES> {
    let loads = Loads::new(*snapshot, domain.harts.clone());
    let mut plan = Plan { snapshot: *snapshot, loads, caution, moves: ArrayVec::new() };
    match domain.halves() {
        None => plan.region(domain),
        Some(halves) => plan.between_halves(&halves),
    }
    plan.moves
}

/// Where to balance.
#[derive(Clone, Debug)]
struct Reach {
    /// Where vCPUs come from, and where they go.
    from: Range<usize>,
    to: Range<usize>,
    /// One node only.
    node: Option<NodeId>,
}

/// How hesitantly.
#[derive(Clone, Copy, Debug)]
struct Rules {
    wait_ticks: u64,
    unfair_permille: u16,
}

/// Harts that one step tries as targets. The first will do, unless who should go there has just left it.
const TARGETS: usize = 4;

/// Harts with little to do, the one with least first.
type Targets = ArrayVec<(CpuIndex, Load), TARGETS>;

struct Plan<'a> {
    snapshot: Snapshot<'a>,
    loads: Loads<'a>,
    caution: &'a Caution,
    moves: ArrayVec<Move, MAX_MOVES>,
}

impl<'a> Plan<'a> {
    fn region(&mut self, domain: &Domain) {
        let all = || Reach { from: domain.harts.clone(), to: domain.harts.clone(), node: None };
        for node in self.nodes_by_need(domain) {
            let inside = Reach { node: Some(node), ..all() };
            while !self.moves.is_full() && self.step(&inside) {}
        }
        while !self.moves.is_full() && self.go_home() {}
        while !self.moves.is_full() && self.step(&all()) {}
    }

    fn between_halves(&mut self, halves: &[Range<usize>; 2]) {
        while !self.moves.is_full() && self.go_home() {}
        while !self.moves.is_full() {
            let [left, right] = halves.clone();
            let reach = match self.per_hart(&left, right.len()).cmp(&self.per_hart(&right, left.len())) {
                Ordering::Greater => Reach { from: left, to: right, node: None },
                Ordering::Less => Reach { from: right, to: left, node: None },
                // What is uneven inside them is for those who balance them.
                Ordering::Equal => return,
            };
            if !self.step(&reach) {
                return;
            }
        }
    }

    /// The load of a half, for as many harts as the other one has besides.
    fn per_hart(&self, half: &Range<usize>, others: usize) -> u64 {
        let sum = self.loads.harts_of(half.clone(), None).map(|(_, load)| load.weight).sum::<u64>();
        sum.saturating_mul(others as u64)
    }

    /// The nodes, those first where a hart with several vCPUs serves them worst: however few moves a call makes, no
    /// node is left out for long.
    fn nodes_by_need(&self, domain: &Domain) -> Vec<NodeId> {
        let harts = self.snapshot.harts.get(domain.harts.clone()).unwrap_or_default();
        let mut nodes: Vec<NodeId> = harts.iter().map(|hart| hart.node).collect();
        order::ascending(&mut nodes);
        nodes.dedup();
        let worst = |node: &NodeId| {
            let crowded = self.loads.harts(Some(*node)).filter(|(_, load)| load.runnable > 1);
            crowded.map(|(_, load)| load.served_permille()).min().unwrap_or(u64::MAX)
        };
        order::by_key(&mut nodes, |node| (worst(node), *node));
        nodes
    }

    /// Proposes one move, if there is a good one.
    fn step(&mut self, reach: &Reach) -> bool {
        let targets = self.targets(reach);
        // Among equally loaded harts: from where service is worst to where it is best.
        let sources = self.loads.harts_of(reach.from.clone(), reach.node);
        let crowded = sources.filter(|(_, load)| load.runnable > 1);
        let sources = crowded.filter_map(|(cpu, load)| {
            let key = (load.weight, Reverse(load.served_permille()), Reverse(cpu));
            Some((key, self.best_from(cpu, &targets, reach)?))
        });
        match sources.max_by_key(|(key, _)| *key) {
            Some((_, (vcpu, to, reason))) => self.propose(vcpu, to, reason),
            None => false,
        }
    }

    /// Between nodes more hesitantly; and so it is, too, where a whole region looks at pairs of harts that one node has.
    const fn rules(&self, reach: &Reach) -> Rules {
        let caution = self.caution;
        match reach.node {
            Some(_) => Rules { wait_ticks: caution.local_wait_ticks, unfair_permille: caution.local_unfair_permille },
            None => Rules { wait_ticks: caution.remote_wait_ticks, unfair_permille: caution.remote_unfair_permille },
        }
    }

    fn targets(&self, reach: &Reach) -> Targets {
        let key = |(cpu, load): &(CpuIndex, Load)| (load.weight, Reverse(load.served_permille()), *cpu);
        let mut targets = Targets::new();
        for (cpu, load) in self.loads.harts_of(reach.to.clone(), reach.node) {
            let hart = (cpu, *load);
            if targets.is_full() && targets.last().is_some_and(|last| key(&hart) < key(last)) {
                targets.pop();
            }
            if targets.try_push(hart).is_ok() {
                order::by_key(&mut targets, key);
            }
        }
        targets
    }

    /// Who should leave `from`, for the first target that is better for somebody.
    fn best_from(&self, from: CpuIndex, targets: &Targets, reach: &Reach) -> Option<(&'a VcpuFacts, CpuIndex, Reason)> {
        let rules = self.rules(reach);
        targets.iter().filter(|(to, _)| *to != from).find_map(|(to, _)| {
            let even = self.to_even(from, *to, rules).map(|vcpu| (vcpu, *to, Reason::Even));
            even.or_else(|| Some((self.to_rotate(from, *to, rules)?, *to, Reason::Rotate)))
        })
    }

    /// A waiting vCPU whose move leaves both harts less loaded than `from` is now.
    fn to_even(&self, from: CpuIndex, to: CpuIndex, rules: Rules) -> Option<&'a VcpuFacts> {
        let (high, low) = (self.loads.of(from).weight, self.loads.of(to).weight);
        let node = self.snapshot.harts.get(to.index())?.node;
        let helps = |vcpu: &&VcpuFacts| {
            is_due(vcpu, rules.wait_ticks, rules.unfair_permille)
                && low + u64::from(vcpu.weight) < high
                && self.stays_apart(vcpu, to)
                && self.may_leave(vcpu, to, Reason::Even)
        };
        self.movable(from).filter(helps).min_by_key(|vcpu| {
            let leaves_home = vcpu.home.is_some_and(|home| home != node);
            (self.has_sibling(vcpu, to), leaves_home, Reverse(waited(vcpu)), vcpu.entity)
        })
    }

    /// The best-served vCPU of `from`, if the harts' loads differ by no more than it and service differs too much.
    /// The two harts change roles: those who stay on `from` now have the better place. If it may not leave yet, nobody
    /// else goes: it would keep the better place for itself.
    fn to_rotate(&self, from: CpuIndex, to: CpuIndex, rules: Rules) -> Option<&'a VcpuFacts> {
        let (high, low) = (self.loads.of(from), self.loads.of(to));
        let unfairness = low.served_permille().checked_sub(high.served_permille())?;
        if low.weight == 0 || low.weight >= high.weight || unfairness <= u64::from(rules.unfair_permille) {
            return None;
        }
        // Who runs together with its siblings would lose more than a turn on the better place gives.
        let fits = |vcpu: &&VcpuFacts| low.weight + u64::from(vcpu.weight) <= high.weight && self.stays_apart(vcpu, to);
        self.movable(from)
            .filter(fits)
            .max_by_key(|vcpu| (!self.has_sibling(vcpu, to), vcpu.served_permille, Reverse(vcpu.entity)))
            .filter(|vcpu| self.may_leave(vcpu, to, Reason::Rotate))
    }

    /// Proposes to bring one vCPU back to the node of its memory, onto an idle hart.
    fn go_home(&mut self) -> bool {
        let homes = self.snapshot.vcpus.iter().filter_map(|vcpu| {
            let home = vcpu.home?;
            let is_away = self.snapshot.harts.get(vcpu.hart.index())?.node != home;
            let is_movable = vcpu.activity.is_runnable() && !self.is_moving(vcpu);
            // A sibling that sleeps there would soon be in the way.
            let is_free = |cpu, runnable| runnable == 0 && !self.has_sibling(vcpu, cpu);
            let idle = self.loads.harts(Some(home)).find(|(cpu, load)| is_free(*cpu, load.runnable));
            let (idle, _) = idle.filter(|_| is_away && is_movable)?;
            self.may_leave(vcpu, idle, Reason::Home).then_some((vcpu, idle))
        });
        match homes.min_by_key(|(vcpu, _)| (vcpu.served_permille, vcpu.entity)) {
            Some((vcpu, idle)) => self.propose(vcpu, idle, Reason::Home),
            None => false,
        }
    }

    fn propose(&mut self, vcpu: &VcpuFacts, to: CpuIndex, reason: Reason) -> bool {
        self.loads.shift(vcpu, to);
        self.moves.try_push(Move { entity: vcpu.entity, from: vcpu.hart, to, reason }).is_ok()
    }

    /// Whether it has been where it is for long enough to leave for hart `to`.
    fn may_leave(&self, vcpu: &VcpuFacts, to: CpuIndex, reason: Reason) -> bool {
        let is_idle = self.loads.of(to).runnable == 0;
        may_leave(&self.snapshot, self.caution, vcpu, to, is_idle, reason)
    }

    /// The runnable vCPUs of `hart` that are not moving yet.
    fn movable(&self, hart: CpuIndex) -> impl Iterator<Item = &'a VcpuFacts> {
        let runnable = self.loads.vcpus(hart).filter(|vcpu| vcpu.activity.is_runnable());
        runnable.filter(|vcpu| !self.is_moving(vcpu))
    }

    fn is_moving(&self, vcpu: &VcpuFacts) -> bool {
        self.moves.iter().any(|planned| planned.entity == vcpu.entity)
    }

    /// Whether `hart` owns another vCPU of the same VM. Such two cannot be gang-scheduled.
    fn has_sibling(&self, vcpu: &VcpuFacts, hart: CpuIndex) -> bool {
        self.loads.vcpus(hart).any(|other| other.is_sibling(vcpu))
    }

    /// Whether it need not run together with its siblings, or comes to none on `to`, or leaves one behind.
    fn stays_apart(&self, vcpu: &VcpuFacts, to: CpuIndex) -> bool {
        !vcpu.is_gang || !self.has_sibling(vcpu, to) || self.has_sibling(vcpu, vcpu.hart)
    }
}
