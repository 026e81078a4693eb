//! Facts for the balancer, and what becomes of its proposals.

use std::ops::Range;

use addr::CpuIndex;
use sched::balance::{Activity, Domain, Move, Snapshot, Sum, VcpuFacts, pull_for_idle, rebalance};
use sched::gang::Gangs;

use super::machine::{Event, Play, TICKS_PER_US};
use super::vm::{State, Vcpu};
use crate::report::Trip;

impl Play {
    pub(super) fn pull(&mut self) {
        let mut last = None;
        for hart in 0..self.harts.len() {
            let node = Some(self.facts[hart].node);
            let Some(since) = self.harts[hart].idle_since.filter(|_| node != last) else { continue };
            last = node;
            let (idle, idle_ticks) = (CpuIndex(hart as u16), self.now - since);
            let around = self.tree.neighbourhood(idle, idle_ticks / self.caution.remote_wait_ticks);
            // Whoever finds nobody waiting there need not know more.
            if self.queues[around.clone()].iter().all(|queue| queue.len() < 2) {
                continue;
            }
            let facts = self.vcpu_facts(around);
            if let Some(found) = pull_for_idle(&self.snapshot(&facts), &self.caution, idle, idle_ticks) {
                self.perform(found);
            }
        }
    }

    /// The first hart of a region looks at it, and at what it is the first of besides.
    pub(super) fn balance(&mut self, leader: usize, tick: u64) {
        let leader = CpuIndex(leader as u16);
        for hart in self.tree.neighbourhood(leader, 0) {
            let queue = &self.queues[hart];
            self.tree.note(CpuIndex(hart as u16), Sum { weight: queue.weight(), runnable: queue.len() as u32 });
        }
        let due: Vec<Domain> = self.tree.due(leader, tick).cloned().collect();
        for domain in due {
            let facts = self.vcpu_facts(domain.harts.clone());
            let moves = rebalance(&self.snapshot(&facts), &self.caution, &domain);
            moves.into_iter().for_each(|found| self.perform(found));
        }
        for hart in self.tree.neighbourhood(leader, 0) {
            for at in &self.owned[hart] {
                let vcpu = &mut self.vcpus[*at];
                vcpu.history.observe(vcpu.has_run(self.now), vcpu.waited_ticks, self.caution.history_ticks);
            }
        }
    }

    /// A proposal that is out of date is dropped.
    fn perform(&mut self, found: Move) {
        let Move { entity, from, to, reason } = found;
        let at = self.vms[usize::from(entity.vm.0)].vcpus.start + entity.vcpu.index();
        if self.vcpus[at].hart != from || self.vcpus[at].state == State::Asleep {
            return;
        }
        if self.harts[from.index()].running == Some(at) {
            self.stop(from.index());
        }
        self.stop(to.index());
        let lag = self.queues[from.index()].remove(entity).unwrap_or_default();
        let machine = &self.machine;
        let is_near = self.facts[from.index()].node == self.facts[to.index()].node;
        let cost = if is_near { machine.move_us } else { machine.move_between_nodes_us };
        let vcpu = &mut self.vcpus[at];
        vcpu.hart = to;
        self.owned[from.index()].retain(|owned| *owned != at);
        self.owned[to.index()].push(at);
        vcpu.owed_ticks += u64::from(cost) * TICKS_PER_US;
        vcpu.moves.note(from, reason, &self.caution, self.now);
        self.trips.push(Trip { at: self.now, entity, from, to, reason });
        if let State::Runnable { .. } = vcpu.state {
            self.queues[to.index()].enqueue_moved(entity, self.vcpus[at].weight, lag, self.now);
        }
        for hart in [from.index(), to.index()] {
            self.after(0, Event::Looks { hart, is_called: false });
        }
    }

    /// The vCPUs of these harts.
    pub(super) fn vcpu_facts(&self, harts: Range<usize>) -> Vec<VcpuFacts> {
        let view = self.view();
        let facts = |vcpu: &Vcpu| VcpuFacts {
            entity: vcpu.entity,
            weight: vcpu.weight,
            hart: vcpu.hart,
            activity: match vcpu.state {
                State::Asleep => Activity::Blocked,
                State::Running { .. } => Activity::Running,
                State::Runnable { since, .. } => Activity::Waiting { ticks: self.now - since },
            },
            home: None,
            served_permille: vcpu.history.served_permille(),
            last_move: vcpu.moves.last(self.now),
            is_gang: view.called_at(vcpu.entity).is_some(),
        };
        self.owned[harts].iter().flatten().map(|at| facts(&self.vcpus[*at])).collect()
    }

    pub(super) fn snapshot<'a>(&'a self, vcpus: &'a [VcpuFacts]) -> Snapshot<'a> {
        Snapshot { harts: &self.facts, vcpus, distance: &|from, to| if from == to { 10 } else { 20 } }
    }
}
