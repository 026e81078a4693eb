//! The machine, from event to event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use addr::{CpuIndex, NodeId, VmId};
use sched::balance::{Caution, HartFacts, LoadTree};
use sched::gang::Gangs;
use sched::{Entity, RunQueue, Scheduling};

use super::outcome::{Outcome, Span, VmOutcome, us};
use super::scene::{MachineScene, Scene};
use super::vm::{State, Vcpu, Vm, Work};
use crate::TICKS_PER_MS;
use crate::report::{Report, Trip};

const HZ: u64 = TICKS_PER_MS * 1_000;
pub(super) const TICKS_PER_US: u64 = TICKS_PER_MS / 1_000;
/// The first hart of each region looks this often, and an idle hart of each node: as in the monitor.
const BALANCE_EVERY: u64 = 10 * TICKS_PER_MS;
const PULL_EVERY: u64 = 2 * TICKS_PER_MS;
/// A wait for a store ends, and traps, after this time.
const STORE_WAIT: u64 = 20 * TICKS_PER_US;
/// Spans that are kept.
const MAX_SPANS: usize = 2_000_000;

/// What happens to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A hart's slice, or its vCPU's work, ends; unless it has begun another turn since.
    Ends {
        hart: usize,
        turn: u64,
    },
    /// A hart looks at what others left.
    Looks {
        hart: usize,
        is_called: bool,
    },
    Wakes {
        vcpu: usize,
    },
    Pulls,
    /// The first hart of a region looks.
    Balances {
        leader: usize,
    },
}

/// A machine that plays a [`Scene`].
#[derive(Debug)]
pub struct Play {
    pub(super) machine: MachineScene,
    rules: Scheduling,
    pub(super) caution: Caution,
    pub(crate) facts: Vec<HartFacts>,
    pub(super) tree: LoadTree,
    /// The vCPUs of each hart.
    pub(super) owned: Vec<Vec<usize>>,
    pub(super) queues: Vec<RunQueue>,
    pub(super) harts: Vec<Hart>,
    pub(crate) vcpus: Vec<Vcpu>,
    pub(super) vms: Vec<Vm>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    pub(crate) now: u64,
    spans: Option<Vec<Span>>,
    /// vCPUs that wait for a hart, and harts with nobody to run.
    pub(super) waiting: u64,
    idle: u64,
    pub(crate) wasted_ticks: u64,
    /// When the counters began.
    pub(crate) since: u64,
    pub(crate) trips: Vec<Trip>,
    picks: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hart {
    pub(super) running: Option<usize>,
    /// Counts its turns.
    turn: u64,
    /// The VM whose turn it follows, and when that was called.
    follows: Option<(VmId, u64)>,
    last_span: Option<usize>,
    pub(super) idle_since: Option<u64>,
}

/// What a hart sees of the others when it picks.
pub(super) struct View<'a> {
    vms: &'a [Vm],
    vcpus: &'a [Vcpu],
    harts: &'a [Hart],
    rules: Scheduling,
    now: u64,
}

impl Gangs for View<'_> {
    fn now(&self) -> u64 {
        self.now
    }

    fn called_at(&self, entity: Entity) -> Option<u64> {
        let vm = self.vms.get(usize::from(entity.vm.0))?;
        vm.mode.holds(vm.signs, second(self.now)).then_some(vm.called_at)
    }

    fn can_gather(&self, entity: Entity) -> bool {
        let others = &self.vcpus[self.vms[usize::from(entity.vm.0)].vcpus.clone()];
        let is_elsewhere =
            |(vm, at): (VmId, u64)| vm != entity.vm && self.now.saturating_sub(at) < self.rules.turn_ticks;
        let is_held = |vcpu: &&Vcpu| self.harts[vcpu.hart.index()].follows.is_some_and(is_elsewhere);
        let waits = |vcpu: &&Vcpu| vcpu.entity != entity && matches!(vcpu.state, State::Runnable { .. });
        !others.iter().filter(waits).any(|vcpu| is_held(&vcpu))
    }
}

impl Play {
    /// The machine at its start.
    #[must_use]
    pub fn new(scene: &Scene) -> Self {
        let nodes = vec![scene.machine.harts_per_node; scene.machine.nodes.into()];
        let mut play = Self::on(&nodes, &scene.machine);
        for vm in &scene.vm {
            (0..vm.count).for_each(|number| play.start(vm, number));
        }
        play
    }

    /// A machine without VMs: a node for each of `harts_of_nodes`, with so many harts. What things cost, and how long it is played, is as
    /// `machine` says.
    #[must_use]
    pub fn on(harts_of_nodes: &[u16], machine: &MachineScene) -> Self {
        let node = |(node, harts): (u8, &u16)| {
            vec![HartFacts { node: NodeId(node), is_online: true, has_duties: false }; usize::from(*harts)]
        };
        let facts: Vec<_> = (0..=u8::MAX).zip(harts_of_nodes).flat_map(node).collect();
        let rules = Scheduling::new(HZ);
        let mut play = Self {
            machine: machine.clone(),
            rules,
            caution: Caution::new(HZ),
            queues: facts.iter().map(|_| rules.new_queue()).collect(),
            harts: vec![Hart::default(); facts.len()],
            idle: facts.len() as u64,
            tree: LoadTree::new(&facts.iter().map(|hart| hart.node).collect::<Vec<_>>()),
            owned: vec![Vec::new(); facts.len()],
            facts,
            vcpus: Vec::new(),
            vms: Vec::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            // Turns are called after time 0.
            now: 1,
            since: 0,
            spans: None,
            trips: Vec::new(),
            waiting: 0,
            wasted_ticks: 0,
            picks: 0,
        };
        for hart in 0..play.harts.len() {
            play.after(0, Event::Looks { hart, is_called: false });
            if play.tree.leads(CpuIndex(hart as u16)) {
                play.after(BALANCE_EVERY, Event::Balances { leader: hart });
            }
        }
        play.after(PULL_EVERY, Event::Pulls);
        play
    }

    /// Balances with this caution in place of the usual one.
    #[must_use]
    pub fn with_caution(self, caution: Caution) -> Self {
        Self { caution, ..self }
    }

    /// Keeps the turns of all vCPUs, for a picture; the first two million of them.
    #[must_use]
    pub fn with_spans(mut self) -> Self {
        self.spans = Some(Vec::new());
        self
    }

    /// The turns that were kept.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        self.spans.as_deref().unwrap_or_default()
    }

    /// The VMs' names.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.vms.iter().map(|vm| vm.name.clone()).collect()
    }

    /// Plays to the end.
    pub fn run(&mut self) -> Outcome {
        self.advance(u64::from(self.machine.ms) * TICKS_PER_MS);
        (0..self.harts.len()).for_each(|hart| self.stop(hart));
        let hart_ticks = (self.now * self.harts.len() as u64).max(1);
        Outcome {
            harts: self.harts.len(),
            us: us(self.now),
            wasted_ppm: self.wasted_ticks * 1_000_000 / hart_ticks,
            moves: self.trips.len() as u64,
            picks: self.picks,
            vms: self.vms.iter().map(|vm| VmOutcome::new(vm, &self.vcpus)).collect(),
        }
    }

    /// Goes on until this time, or until all VMs have ended that do.
    fn advance(&mut self, end: u64) {
        while !self.has_ended()
            && let Some(Reverse((at, _, event))) = self.events.peek().copied().filter(|Reverse((at, ..))| *at < end)
        {
            self.events.pop();
            self.pass_to(at);
            self.happen(event);
        }
        if !self.has_ended() {
            self.pass_to(end);
        }
    }

    fn pass_to(&mut self, at: u64) {
        self.wasted_ticks += self.idle.min(self.waiting) * (at - self.now);
        self.now = at;
    }

    /// Goes on for `ms` milliseconds.
    pub fn go_on_for(&mut self, ms: u64) {
        self.advance(self.now + ms * TICKS_PER_MS);
    }

    /// Forgets what was counted so far, for a report of the steady state.
    pub fn reset_counters(&mut self) {
        let now = self.now;
        for vcpu in &mut self.vcpus {
            (vcpu.ran_ticks, vcpu.waited_ticks) = (0, 0);
            vcpu.latencies.clear();
            // The counters began anew, and so does their history.
            vcpu.history = Default::default();
            if let State::Running { since } = vcpu.state {
                vcpu.uncounted_ticks = now - since;
            }
        }
        self.trips.clear();
        (self.wasted_ticks, self.since) = (0, now);
    }

    /// How it went since the counters began.
    #[must_use]
    pub fn report(&self) -> Report {
        Report::new(self)
    }

    /// Whether all VMs have ended that do.
    fn has_ended(&self) -> bool {
        let mut that_end = self.vms.iter().filter(|vm| vm.rounds.is_some()).peekable();
        that_end.peek().is_some() && that_end.all(|vm| vm.left == 0)
    }

    pub(super) fn after(&mut self, ticks: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((self.now + ticks, self.sequence, event)));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Ends { hart, turn } if self.harts[hart].turn != turn => {}
            Event::Ends { hart, .. } => self.turn(hart),
            Event::Looks { hart, is_called } => {
                if is_called {
                    self.queues[hart].heed_calls();
                }
                self.turn(hart);
            }
            Event::Wakes { vcpu } => {
                self.vcpus[vcpu].next_step();
                self.wake(vcpu);
            }
            Event::Pulls => {
                if self.waiting > 0 && self.idle > 0 {
                    self.pull();
                }
                self.after(PULL_EVERY, Event::Pulls);
            }
            Event::Balances { leader } => {
                if self.waiting > 0 {
                    self.balance(leader, self.now / BALANCE_EVERY);
                }
                self.after(BALANCE_EVERY, Event::Balances { leader });
            }
        }
    }

    pub(super) fn vm_of(&self, vcpu: usize) -> usize {
        usize::from(self.vcpus[vcpu].entity.vm.0)
    }

    /// The hart's loop, once: as in the monitor.
    fn turn(&mut self, hart: usize) {
        self.stop(hart);
        loop {
            self.picks += 1;
            let view =
                View { vms: &self.vms, vcpus: &self.vcpus, harts: &self.harts, rules: self.rules, now: self.now };
            let Some(pick) = self.queues[hart].pick_together(&view) else {
                let state = &mut self.harts[hart];
                state.follows = None;
                state.idle_since.get_or_insert(self.now);
                return;
            };
            self.harts[hart].follows = pick.turn_at.map(|at| (pick.entity.vm, at));
            if pick.calls {
                self.call(pick.entity.vm, hart);
            }
            let vcpu = self.vms[usize::from(pick.entity.vm.0)].vcpus.start + pick.entity.vcpu.index();
            self.go_on(vcpu);
            if self.vcpus[vcpu].work != Work::Nothing {
                return self.begin(hart, vcpu);
            }
            self.leave(vcpu);
        }
    }

    /// The VM's turn begins: harts on which others of its vCPUs wait are told.
    fn call(&mut self, vm: VmId, caller: usize) {
        let vm = &mut self.vms[usize::from(vm.0)];
        (vm.called_at, vm.turns) = (self.now, vm.turns + 1);
        let delay = u64::from(self.machine.call_us) * TICKS_PER_US;
        for at in vm.vcpus.clone() {
            let vcpu = &self.vcpus[at];
            let hart = vcpu.hart.index();
            if hart != caller && matches!(vcpu.state, State::Runnable { .. }) {
                self.after(delay, Event::Looks { hart, is_called: true });
            }
        }
    }

    fn begin(&mut self, hart: usize, at: usize) {
        let queue = &self.queues[hart];
        let vcpu = &mut self.vcpus[at];
        if let State::Runnable { since, is_fresh } = vcpu.state {
            vcpu.waited_ticks += self.now - since;
            self.waiting -= 1;
            if is_fresh {
                vcpu.latencies.push(self.now - since);
            }
        }
        vcpu.state = State::Running { since: self.now };
        let is_shared = queue.len() > 1;
        let slice = if is_shared { queue.slice_ticks(vcpu.entity) } else { u64::MAX };
        let work = match vcpu.work {
            Work::Computes { left } => left,
            Work::Spins { tells: true } if is_shared => STORE_WAIT,
            _ => u64::MAX,
        };
        self.idle -= 1;
        self.harts[hart].running = Some(at);
        self.harts[hart].idle_since = None;
        self.harts[hart].turn += 1;
        if slice.min(work) < u64::MAX {
            self.after(slice.min(work), Event::Ends { hart, turn: self.harts[hart].turn });
        }
    }

    /// Who ran is charged, and what it did is done.
    pub(super) fn stop(&mut self, hart: usize) {
        let Some(at) = self.harts[hart].running.take() else { return };
        let vcpu = &mut self.vcpus[at];
        let State::Running { since } = vcpu.state else { return };
        let ran = self.now - since;
        self.idle += 1;
        self.waiting += 1;
        vcpu.state = State::Runnable { since: self.now, is_fresh: false };
        vcpu.ran_ticks += ran - std::mem::take(&mut vcpu.uncounted_ticks);
        self.queues[hart].charge(vcpu.entity, ran);
        match &mut vcpu.work {
            Work::Spins { tells } => {
                vcpu.spun_ticks += ran;
                if *tells && ran >= STORE_WAIT && self.queues[hart].len() > 1 {
                    self.told(hart, at);
                }
            }
            Work::Computes { left } => {
                *left = left.saturating_sub(ran);
                if *left == 0 {
                    self.finish_step(at);
                }
            }
            Work::Begins | Work::Nothing => {}
        }
        self.note_span(hart, at, since);
        if self.vcpus[at].work == Work::Begins {
            self.go_on(at);
        }
        if self.vcpus[at].work == Work::Nothing {
            self.leave(at);
        }
    }

    /// A vCPU says that it waits for a store: a sign, and mostly the end of its slice.
    fn told(&mut self, hart: usize, at: usize) {
        let vm = self.vm_of(at);
        self.vms[vm].signs = self.vms[vm].signs.with_sign(second(self.now));
        self.queues[hart].give_up(self.vcpus[at].entity);
    }

    /// It does not want its hart any more.
    fn leave(&mut self, at: usize) {
        let vcpu = &mut self.vcpus[at];
        if vcpu.state != State::Asleep {
            vcpu.state = State::Asleep;
            self.waiting -= 1;
            self.queues[vcpu.hart.index()].dequeue(vcpu.entity);
        }
    }

    pub(super) fn wake(&mut self, at: usize) {
        // Its hart learns of it between two turns, when who ran has been charged.
        self.stop(self.vcpus[at].hart.index());
        let vcpu = &mut self.vcpus[at];
        vcpu.state = State::Runnable { since: self.now, is_fresh: true };
        self.waiting += 1;
        let (hart, entity) = (vcpu.hart.index(), vcpu.entity);
        self.queues[hart].enqueue(entity, self.vms[usize::from(entity.vm.0)].weight, self.now);
        self.after(0, Event::Looks { hart, is_called: false });
    }

    fn note_span(&mut self, hart: usize, at: usize, from: u64) {
        let to = self.now;
        let Some(spans) = self.spans.as_mut().filter(|_| from < to) else { return };
        let Entity { vm, vcpu } = self.vcpus[at].entity;
        if let Some(last) = self.harts[hart].last_span.and_then(|last| spans.get_mut(last))
            && (last.vm, last.vcpu, last.to) == (vm.0, vcpu.0, from)
        {
            last.to = to;
        } else if spans.len() < MAX_SPANS {
            self.harts[hart].last_span = Some(spans.len());
            spans.push(Span { hart: hart as u16, vm: vm.0, vcpu: vcpu.0, from, to });
        }
    }

    pub(super) fn view(&self) -> View<'_> {
        View { vms: &self.vms, vcpus: &self.vcpus, harts: &self.harts, rules: self.rules, now: self.now }
    }
}

/// Seconds of the machine's time.
const fn second(now: u64) -> u32 {
    (now / HZ) as u32
}
