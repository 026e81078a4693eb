//! A synthetic machine.

use std::collections::BTreeMap;

use addr::{CpuIndex, NodeId, VcpuIndex, VmId};
use sched::balance::{Activity, Caution, HartFacts, Move, Snapshot, VcpuFacts, place_vm, pull_for_idle, rebalance};
use sched::{Entity, RunQueue, Scheduling};

use crate::report::{Report, Trip};
use crate::vcpu::{Program, State, Vcpu};

/// Ticks in a millisecond: a timebase of 10 MHz, as on QEMU `virt`.
pub const TICKS_PER_MS: u64 = 10_000;
const HZ: u64 = TICKS_PER_MS * 1_000;
/// Time goes in steps of a quarter of a millisecond.
const STEP: u64 = TICKS_PER_MS / 4;
/// The balancer looks this often while a hart is crowded: at 50 Hz, as in the monitor.
const BALANCE_EVERY: u64 = 20 * TICKS_PER_MS;
/// One idle hart of each node looks for work this often while a hart is crowded, as in the monitor.
const PULL_EVERY: u64 = 2 * TICKS_PER_MS;

/// Nodes of harts that run vCPUs.
pub struct Machine {
    harts: Vec<HartFacts>,
    queues: Vec<RunQueue>,
    vcpus: Vec<Vcpu>,
    index: BTreeMap<Entity, usize>,
    caution: Caution,
    now: u64,
    /// When the counters began.
    since: u64,
    trips: Vec<Trip>,
    /// Hart-ticks idle in this step.
    idle_ticks: u64,
    /// Hart-ticks idle while a vCPU waited anywhere.
    wasted_ticks: u64,
    vms: u16,
}

impl Machine {
    /// `nodes` nodes of `harts_per_node` harts.
    #[must_use]
    pub fn new(nodes: u8, harts_per_node: usize) -> Self {
        Self::with_nodes(&vec![harts_per_node; usize::from(nodes)])
    }

    /// A node for each of `harts_of_nodes`, with so many harts. At most 256 nodes count.
    #[must_use]
    pub fn with_nodes(harts_of_nodes: &[usize]) -> Self {
        let harts: Vec<_> = (0..=u8::MAX)
            .zip(harts_of_nodes)
            .flat_map(|(node, harts)| {
                vec![HartFacts { node: NodeId(node), is_online: true, has_duties: false }; *harts]
            })
            .collect();
        Self {
            queues: harts.iter().map(|_| Scheduling::new(HZ).new_queue()).collect(),
            harts,
            vcpus: Vec::new(),
            index: BTreeMap::new(),
            caution: Caution::new(HZ),
            now: 0,
            since: 0,
            trips: Vec::new(),
            idle_ticks: 0,
            wasted_ticks: 0,
            vms: 0,
        }
    }

    /// Balances with this caution in place of the usual one.
    #[must_use]
    pub fn with_caution(self, caution: Caution) -> Self {
        Self { caution, ..self }
    }

    /// Starts a VM where the policy wants it.
    pub fn start_vm(&mut self, weight: u32, programs: &[Program]) {
        let facts = self.facts();
        let places = place_vm(&self.snapshot(&facts), programs.len());
        self.start_vm_on(weight, programs, &places);
    }

    /// Starts a VM on these harts.
    pub fn start_vm_on(&mut self, weight: u32, programs: &[Program], places: &[CpuIndex]) {
        let vm = VmId(self.vms);
        self.vms += 1;
        for ((vcpu, program), hart) in (0..).zip(programs).zip(places) {
            let entity = Entity { vm, vcpu: VcpuIndex(vcpu) };
            self.index.insert(entity, self.vcpus.len());
            self.vcpus.push(Vcpu::new(entity, weight, *program, *hart));
            self.queues[hart.index()].enqueue(entity, weight, self.now);
        }
    }

    /// Lets `ms` milliseconds pass.
    pub fn run(&mut self, ms: u64) {
        let end = self.now + ms * TICKS_PER_MS;
        while self.now < end {
            self.wake();
            for hart in 0..self.queues.len() {
                self.run_hart(hart);
            }
            // No more harts idle for nothing than vCPUs wait.
            let waiting: usize = self.queues.iter().map(|queue| queue.len().saturating_sub(1)).sum();
            self.wasted_ticks += self.idle_ticks.min(waiting as u64 * STEP);
            self.idle_ticks = 0;
            self.now += STEP;
            if self.now.is_multiple_of(PULL_EVERY) && self.is_contended() {
                self.pull();
            }
            if self.now.is_multiple_of(BALANCE_EVERY) && self.is_contended() {
                self.balance();
            }
        }
    }

    /// Forgets what was counted so far, for a report of the steady state.
    pub fn reset_counters(&mut self) {
        for vcpu in &mut self.vcpus {
            (vcpu.ran_ticks, vcpu.waited_ticks, vcpu.worst_wake_ticks) = (0, 0, 0);
            // The counters began anew, and so does their history.
            vcpu.history = Default::default();
        }
        self.trips.clear();
        (self.wasted_ticks, self.since) = (0, self.now);
    }

    /// How it went since the counters began.
    #[must_use]
    pub fn report(&self) -> Report {
        Report::new(&self.vcpus, self.harts.len(), self.now - self.since, self.wasted_ticks, &self.trips)
    }

    /// Whether some hart has more than it can run at once.
    fn is_contended(&self) -> bool {
        self.queues.iter().any(|queue| queue.len() > 1)
    }

    fn wake(&mut self) {
        for vcpu in &mut self.vcpus {
            if vcpu.wake_if_due(self.now) {
                self.queues[vcpu.hart.index()].enqueue(vcpu.entity, vcpu.weight, self.now);
            }
        }
    }

    /// One hart's step: turns until the step is over or nobody is left.
    fn run_hart(&mut self, hart: usize) {
        let queue = &mut self.queues[hart];
        let mut left = STEP;
        while left > 0 {
            let Some(entity) = queue.pick_next() else { break };
            let vcpu = &mut self.vcpus[self.index[&entity]];
            let ticks = queue.slice_ticks(entity).min(left).min(vcpu.wants());
            queue.charge(entity, ticks);
            if vcpu.ran(self.now + STEP - left, ticks) {
                queue.dequeue(entity);
            }
            left -= ticks;
        }
        self.idle_ticks += left;
    }

    /// One idle hart of each node looks for work.
    fn pull(&mut self) {
        let mut last = None;
        for hart in 0..self.queues.len() {
            let node = Some(self.harts[hart].node);
            if !self.queues[hart].is_empty() || node == last {
                continue;
            }
            last = node;
            let facts = self.facts();
            if let Some(found) = pull_for_idle(&self.snapshot(&facts), &self.caution, CpuIndex(hart as u16)) {
                self.perform(found);
            }
        }
    }

    fn balance(&mut self) {
        let facts = self.facts();
        rebalance(&self.snapshot(&facts), &self.caution).into_iter().for_each(|found| self.perform(found));
        for vcpu in &mut self.vcpus {
            vcpu.history.observe(vcpu.ran_ticks, vcpu.waited_ticks, self.caution.history_ticks);
        }
    }

    fn perform(&mut self, found: Move) {
        let vcpu = &mut self.vcpus[self.index[&found.entity]];
        assert_eq!(vcpu.hart, found.from, "the proposal is about the vCPU where it is");
        let lag = self.queues[found.from.index()].remove(found.entity).unwrap_or_default();
        vcpu.hart = found.to;
        vcpu.moves.note(found.from, found.reason, &self.caution, self.now);
        if let State::Runnable { .. } = vcpu.state {
            self.queues[found.to.index()].enqueue_moved(found.entity, vcpu.weight, lag, self.now);
        }
        let Move { entity, from, to, reason } = found;
        self.trips.push(Trip { at: self.now, entity, from, to, reason });
    }

    fn facts(&self) -> Vec<VcpuFacts> {
        self.vcpus.iter().map(|vcpu| self.facts_of(vcpu)).collect()
    }

    fn facts_of(&self, vcpu: &Vcpu) -> VcpuFacts {
        let activity = match vcpu.state {
            State::Asleep { .. } => Activity::Blocked,
            State::Runnable { .. } if self.queues[vcpu.hart.index()].current() == Some(vcpu.entity) => {
                Activity::Running
            }
            State::Runnable { since, .. } => Activity::Waiting { ticks: self.now.saturating_sub(since) },
        };
        VcpuFacts {
            entity: vcpu.entity,
            weight: vcpu.weight,
            hart: vcpu.hart,
            activity,
            home: None,
            served_permille: vcpu.history.served_permille(),
            last_move: vcpu.moves.last(self.now),
            is_gang: false,
        }
    }

    fn snapshot<'a>(&'a self, vcpus: &'a [VcpuFacts]) -> Snapshot<'a> {
        Snapshot { harts: &self.harts, vcpus, distance: &|from, to| if from == to { 10 } else { 20 } }
    }
}
