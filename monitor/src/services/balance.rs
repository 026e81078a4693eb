//! Facts for the balancer, and what becomes of its proposals.
//!
//! The policy is `sched::balance`. A proposal is a message to the hart that owns the vCPU; that hart hands it over when
//! its turn ends, or forgets it when it is out of date.

use super::{
    mail::{self, Message},
    registry,
};
use crate::{
    hart::{Hart, all},
    machine::{self, agenda},
    vm::{shared::VcpuShared, topology},
};
use ::vcpu::hsm::HartState;
use addr::{CpuIndex, NodeId, VcpuIndex, VmId};
use alloc::vec::Vec;
use control::{MigrationReason, VmSpec};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use machine_tree::MAX_NODES;
use rv::csr;
use sched::{
    Entity, RunQueue,
    balance::{
        Activity, Caution, HartFacts, LoadTree, Move, REGION, Reason, Snapshot, Sum, VcpuFacts, place_parts, place_vm,
        pull_for_idle, rebalance,
    },
};
use spin::Once;

/// Time between two looks at the whole machine, in fractions of a second.
pub const REBALANCE_HZ: u64 = 100;
/// Looks of a node's idle harts at the others, per second, while some hart is crowded. All of a node share them: with
/// hundreds of idle harts the registry would have time for nothing else.
const PULL_HZ: u64 = 500;

/// Looks after vCPUs that are away from their memory, per second, though nobody is crowded: at first, when one has just
/// left, and later.
const CHANGED_HZ: u64 = 20;
const AWAY_HZ: u64 = 2;
/// When the next of these looks is due.
static NEXT_LOOK: AtomicU64 = AtomicU64::new(u64::MAX);

/// When to look though nobody is crowded.
#[inline]
#[must_use]
pub fn next_look() -> u64 {
    NEXT_LOOK.load(Ordering::SeqCst)
}

/// A vCPU has changed nodes: it comes back when there is room, before its memory follows it.
pub fn look_after_change(now: u64) {
    let at = now + machine::capabilities().timebase_hz / CHANGED_HZ;
    if NEXT_LOOK.fetch_min(at, Ordering::SeqCst) > at {
        agenda::note(at, at);
        // The control hart has to set its timer anew.
        agenda::wake_control();
    }
}

/// The machine at one moment.
struct Facts {
    harts: Vec<HartFacts>,
    vcpus: Vec<VcpuFacts>,
}

impl Facts {
    fn new(registry: &registry::Registry) -> Self {
        let facts = all().iter().map(|hart| HartFacts {
            node: hart.node,
            is_online: hart.is_online(),
            has_duties: hart.is_control(),
        });
        let harts = facts.collect();
        let now = csr::time::read();
        let mut vcpus = Vec::new();
        for record in registry.records() {
            let Some(life) = record.launched() else { continue };
            let is_gang = life.vcpus().len() > 1 && life.together().gathers();
            let of_vm = OfVm { id: record.id, weight: life.together().weight(), home: life.home(), is_gang };
            vcpus.extend(life.vcpus().iter().map(|vcpu| vcpu_facts(of_vm, vcpu, now)));
        }
        Self { harts, vcpus }
    }

    /// With the vCPUs of VMs that are being loaded, as they will be: nobody moves them, but each has its hart.
    fn and_newcomers(mut self, registry: &registry::Registry) -> Self {
        let now = csr::time::read();
        for (record, vm) in registry.records().filter_map(|record| record.newcomer().map(|vm| (record, vm))) {
            let weight = u32::from(record.spec.weight);
            let of_vm = OfVm { id: record.id, weight, home: None, is_gang: false };
            self.vcpus.extend(vm.vcpus().iter().map(|vcpu| {
                let facts = vcpu_facts(of_vm, vcpu, now);
                let is_first = vcpu.index == VcpuIndex(0);
                let activity = if is_first { Activity::Waiting { ticks: 0 } } else { facts.activity };
                VcpuFacts { activity, ..facts }
            }));
        }
        self
    }

    /// Whether it wants to run, and does not where its memory is.
    fn is_away(&self, vcpu: &VcpuFacts) -> bool {
        let node = self.harts.get(vcpu.hart.index()).map(|hart| hart.node);
        vcpu.activity != Activity::Blocked && vcpu.home.is_some() && vcpu.home != node
    }
}

/// What all vCPUs of a VM have in common.
#[derive(Clone, Copy)]
struct OfVm {
    id: VmId,
    weight: u32,
    home: Option<NodeId>,
    is_gang: bool,
}

fn vcpu_facts(vm: OfVm, vcpu: &VcpuShared, now: u64) -> VcpuFacts {
    let entity = Entity { vm: vm.id, vcpu: vcpu.index };
    let is_running = all().get(vcpu.cpu().index()).is_some_and(|hart| hart.runs(entity));
    let activity = if is_running {
        Activity::Running
    } else if vcpu.is_blocked() || vcpu.hsm() == HartState::Stopped {
        Activity::Blocked
    } else {
        Activity::Waiting { ticks: now.saturating_sub(vcpu.runnable_since()) }
    };
    // Where its guest thinks that it is comes first.
    let home = vcpu.home().or(vm.home);
    VcpuFacts {
        entity,
        weight: vm.weight,
        hart: vcpu.cpu(),
        activity,
        home,
        served_permille: vcpu.served_permille(),
        last_move: vcpu.last_move(now),
        is_gang: vm.is_gang,
    }
}

fn distance(from: NodeId, to: NodeId) -> u8 {
    machine::description().nodes.distance(from, to)
}

/// Harts for the vCPUs of a new VM.
pub fn place(registry: &registry::Registry, spec: &VmSpec) -> Vec<CpuIndex> {
    let facts = Facts::new(registry).and_newcomers(registry);
    let snapshot = Snapshot { harts: &facts.harts, vcpus: &facts.vcpus, distance: &distance };
    match topology::parts(spec) {
        parts if parts.len() == 1 => place_vm(&snapshot, usize::from(spec.vcpus)),
        parts => place_parts(&snapshot, &parts),
    }
}

/// Looks at the machine and asks for the few moves that make it fairer.
pub fn step(registry: &registry::Registry) {
    NEXT_LOOK.store(u64::MAX, Ordering::SeqCst);
    registry.records().filter_map(|record| record.life.as_ref()).for_each(|life| life.update_home());
    let second = machine::second(csr::time::read());
    registry.records().filter_map(|record| record.life.as_ref()).for_each(|life| life.together().look(second));
    let facts = Facts::new(registry);
    let snapshot = Snapshot { harts: &facts.harts, vcpus: &facts.vcpus, distance: &distance };
    let (now, caution) = (csr::time::read(), caution());
    // Each part as often as the load tree says, whoever its first hart is.
    let tick = now / (machine::capabilities().timebase_hz / REBALANCE_HZ).max(1);
    let leaders = all().iter().filter(|hart| tree().leads(hart.cpu));
    for domain in leaders.flat_map(|leader| tree().due(leader.cpu, tick)) {
        rebalance(&snapshot, &caution, domain).into_iter().for_each(propose);
    }
    let history_ticks = caution.history_ticks;
    if facts.vcpus.iter().any(|vcpu| facts.is_away(vcpu)) {
        NEXT_LOOK.fetch_min(now + machine::capabilities().timebase_hz / AWAY_HZ, Ordering::SeqCst);
    }
    for record in registry.records() {
        let Some(life) = record.launched() else { continue };
        let entity = |vcpu: &VcpuShared| Entity { vm: record.id, vcpu: vcpu.index };
        life.vcpus().iter().for_each(|vcpu| vcpu.observe_service(entity(vcpu), history_ticks, now));
    }
}

/// What harts have to do, and who balances what.
fn tree() -> &'static LoadTree {
    static TREE: Once<LoadTree> = Once::new();
    // Bounded: harts of the machine.
    TREE.call_once(|| LoadTree::new(&all().iter().map(|hart| hart.node).collect::<Vec<_>>()))
}

/// Whether there are harts of which others know by the load tree alone.
#[must_use]
pub fn is_large() -> bool {
    all().len() > REGION
}

/// A hart's queue has changed, on a machine that [`is_large`].
#[cold]
pub fn note_load(hart: &Hart, queue: &RunQueue) {
    tree().note(hart.cpu, Sum { weight: queue.weight(), runnable: queue.len() as u32 });
}

/// When the idle harts of each node look next.
static NEXT_PULL: [AtomicU64; MAX_NODES] = [const { AtomicU64::new(0) }; MAX_NODES];

/// `idle` has nothing to run: asks for a vCPU that waits elsewhere if it is time, and says when to come again. A hart that
/// fell asleep before any was crowded is not woken for this; [`step`] moves something to it.
pub fn pull(idle: &Hart, now: u64, idle_since: u64) -> u64 {
    let Some(next) = NEXT_PULL.get(idle.node.index()).filter(|_| is_contended()) else { return u64::MAX };
    let due = next.load(Ordering::Relaxed);
    let later = now + machine::capabilities().timebase_hz / PULL_HZ;
    if now >= due && next.compare_exchange(due, later, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        pull_for(idle.cpu, now.saturating_sub(idle_since));
    }
    next.load(Ordering::Relaxed)
}

/// Gives up where somebody else is at the registry.
fn pull_for(idle: CpuIndex, idle_ticks: u64) {
    let Some(registry) = registry::try_lock() else { return };
    let around = tree().neighbourhood(idle, idle_ticks / caution().remote_wait_ticks.max(1));
    let mut facts = Facts::new(&registry);
    facts.vcpus.retain(|vcpu| around.contains(&vcpu.hart.index()));
    let snapshot = Snapshot { harts: &facts.harts, vcpus: &facts.vcpus, distance: &distance };
    pull_for_idle(&snapshot, &caution(), idle, idle_ticks).into_iter().for_each(propose);
}

/// The policy's numbers on this machine.
pub fn caution() -> Caution {
    Caution::new(machine::capabilities().timebase_hz)
}

/// Asks the owner; it says no by doing nothing when things have changed.
fn propose(proposal: Move) {
    let Move { entity, from, to, reason } = proposal;
    if let Some(hart) = all().get(from.index()) {
        mail::send(hart, Message::HandOver { entity, to, reason });
    }
}

/// The reason as clients are told.
pub const fn traced(reason: Reason) -> MigrationReason {
    match reason {
        Reason::IdlePull => MigrationReason::IdleElsewhere,
        Reason::Home => MigrationReason::Home,
        Reason::Together => MigrationReason::Together,
        Reason::Even => MigrationReason::Balance,
        Reason::Rotate => MigrationReason::Turns,
    }
}

/// Harts with more vCPUs than they can run at once.
static CROWDED: AtomicU32 = AtomicU32::new(0);

/// The queue of one hart got longer or shorter.
#[inline]
pub fn note_length(before: u32, now: u32) {
    match (before > 1, now > 1) {
        (false, true) => CROWDED.fetch_add(1, Ordering::Relaxed),
        (true, false) => CROWDED.fetch_sub(1, Ordering::Relaxed),
        _ => return,
    };
}

/// Whether there is anything to balance: a hart with more than it can run at once, and another one.
#[inline]
#[must_use]
pub fn is_contended() -> bool {
    CROWDED.load(Ordering::Relaxed) != 0 && all().len() > 1
}
