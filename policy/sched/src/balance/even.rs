//! The periodic balancer.

use core::cmp::Reverse;

use addr::{CpuIndex, NodeId};
use alloc::vec::Vec;
use arrayvec::ArrayVec;

use super::loads::{Loads, is_due, waited};
use super::{Caution, Move, Reason, Snapshot, VcpuFacts};

/// Most moves that one call proposes.
pub const MAX_MOVES: usize = 8;

/// The moves that would make the machine fairer: first inside each node, the worst-served ones before others, then
/// vCPUs that can go home, then between nodes. At most [`MAX_MOVES`], each vCPU at most once. Work: harts and vCPUs,
/// for each move and node; machines of hundreds of harts use [`rebalance_node`] and [`rebalance_between`].
#[must_use]
pub fn rebalance(snapshot: &Snapshot<'_>, caution: &Caution) -> ArrayVec<Move, MAX_MOVES> {
    let mut plan = Plan::new(snapshot);
    for node in plan.nodes_by_need() {
        plan.inside(node, caution);
    }
    plan.between(caution);
    plan.moves
}

/// Like [`rebalance`], inside one node only. Each node may do this for itself, from facts about itself, and often.
#[must_use]
pub fn rebalance_node(snapshot: &Snapshot<'_>, caution: &Caution, node: NodeId) -> ArrayVec<Move, MAX_MOVES> {
    let mut plan = Plan::new(snapshot);
    plan.inside(node, caution);
    plan.moves
}

/// Like [`rebalance`], between nodes only.
#[must_use]
pub fn rebalance_between(snapshot: &Snapshot<'_>, caution: &Caution) -> ArrayVec<Move, MAX_MOVES> {
    let mut plan = Plan::new(snapshot);
    plan.between(caution);
    plan.moves
}

/// Where to balance, and how hesitantly.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// One node, or the whole machine.
    domain: Option<NodeId>,
    wait_ticks: u64,
    unfair_permille: u16,
}

struct Plan<'a> {
    snapshot: Snapshot<'a>,
    loads: Loads<'a>,
    moves: ArrayVec<Move, MAX_MOVES>,
}

impl<'a> Plan<'a> {
    fn new(snapshot: &Snapshot<'a>) -> Self {
        Self { snapshot: *snapshot, loads: Loads::new(*snapshot), moves: ArrayVec::new() }
    }

    /// The nodes, those first where a hart with several vCPUs serves them worst: however few moves a call makes, no
    /// node is left out for long.
    fn nodes_by_need(&self) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = self.snapshot.harts.iter().map(|hart| hart.node).collect();
        order::ascending(&mut nodes);
        nodes.dedup();
        let worst = |node: &NodeId| {
            let crowded = self.loads.harts(Some(*node)).filter(|(_, load)| load.runnable > 1);
            crowded.map(|(_, load)| load.served_permille()).min().unwrap_or(u64::MAX)
        };
        order::by_key(&mut nodes, |node| (worst(node), *node));
        nodes
    }

    fn inside(&mut self, node: NodeId, caution: &Caution) {
        let rules = Rules {
            domain: Some(node),
            wait_ticks: caution.local_wait_ticks,
            unfair_permille: caution.local_unfair_permille,
        };
        while !self.moves.is_full() && self.step(rules) {}
    }

    fn between(&mut self, caution: &Caution) {
        while !self.moves.is_full() && self.go_home() {}
        let rules = Rules {
            domain: None,
            wait_ticks: caution.remote_wait_ticks,
            unfair_permille: caution.remote_unfair_permille,
        };
        while !self.moves.is_full() && self.step(rules) {}
    }

    /// Proposes one move inside the domain, if there is a good one.
    fn step(&mut self, rules: Rules) -> bool {
        // Among equally loaded harts: from where service is worst to where it is best.
        let busiest = self.loads.harts(rules.domain).filter(|(_, load)| load.runnable > 1);
        let from = busiest.max_by_key(|(cpu, load)| (load.weight, Reverse(load.served_permille()), Reverse(*cpu)));
        let least = self.loads.harts(rules.domain);
        let to = least.min_by_key(|(cpu, load)| (load.weight, Reverse(load.served_permille()), *cpu));
        let (Some((from, _)), Some((to, _))) = (from, to) else { return false };
        if from == to {
            return false;
        }
        if let Some(vcpu) = self.to_even(from, to, rules) {
            return self.propose(vcpu, to, Reason::Even);
        }
        match self.to_rotate(from, to, rules) {
            Some(vcpu) => self.propose(vcpu, to, Reason::Rotate),
            None => false,
        }
    }

    /// A waiting vCPU whose move leaves both harts less loaded than `from` is now.
    fn to_even(&self, from: CpuIndex, to: CpuIndex, rules: Rules) -> Option<&'a VcpuFacts> {
        let (high, low) = (self.loads.of(from).weight, self.loads.of(to).weight);
        let node = self.snapshot.harts.get(to.index())?.node;
        let helps = |vcpu: &&VcpuFacts| {
            is_due(vcpu, rules.wait_ticks, rules.unfair_permille) && low + u64::from(vcpu.weight) < high
        };
        self.movable(from).filter(helps).min_by_key(|vcpu| {
            let leaves_home = vcpu.home.is_some_and(|home| home != node);
            (self.has_sibling(vcpu, to), leaves_home, Reverse(waited(vcpu)))
        })
    }

    /// The best-served vCPU of `from`, if the harts' loads differ by no more than it and service differs too much.
    /// The two harts change roles: those who stay on `from` now have the better place.
    fn to_rotate(&self, from: CpuIndex, to: CpuIndex, rules: Rules) -> Option<&'a VcpuFacts> {
        let (high, low) = (self.loads.of(from), self.loads.of(to));
        let unfairness = low.served_permille().checked_sub(high.served_permille())?;
        if low.weight == 0 || low.weight >= high.weight || unfairness <= u64::from(rules.unfair_permille) {
            return None;
        }
        let fits = |vcpu: &&VcpuFacts| low.weight + u64::from(vcpu.weight) <= high.weight;
        self.movable(from)
            .filter(fits)
            .max_by_key(|vcpu| (!self.has_sibling(vcpu, to), vcpu.served_permille, Reverse(vcpu.entity)))
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
            (is_away && is_movable).then_some((vcpu, idle?.0))
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

    /// The runnable vCPUs of `hart` that are not moving yet.
    fn movable(&self, hart: CpuIndex) -> impl Iterator<Item = &'a VcpuFacts> {
        let runnable = self.snapshot.vcpus.iter().filter(move |vcpu| vcpu.hart == hart && vcpu.activity.is_runnable());
        runnable.filter(|vcpu| !self.is_moving(vcpu))
    }

    fn is_moving(&self, vcpu: &VcpuFacts) -> bool {
        self.moves.iter().any(|planned| planned.entity == vcpu.entity)
    }

    /// Does `hart` own another vCPU of the same VM? Such two cannot be gang-scheduled.
    fn has_sibling(&self, vcpu: &VcpuFacts, hart: CpuIndex) -> bool {
        self.snapshot.vcpus.iter().any(|other| other.hart == hart && other.entity.vm == vcpu.entity.vm)
    }
}
