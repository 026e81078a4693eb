//! Facts for the balancer, and what becomes of its proposals.

use addr::CpuIndex;
use sched::balance::{Activity, Move, Snapshot, VcpuFacts, pull_for_idle, rebalance};
use sched::gang::Gangs;

use super::machine::{Event, Play, TICKS_PER_US};
use super::vm::{State, Vcpu};

impl Play {
    pub(super) fn pull(&mut self) {
        let facts = self.vcpu_facts();
        let (mut found, mut last) = (Vec::new(), None);
        for (hart, state) in self.harts.iter().enumerate() {
            let node = Some(self.facts[hart].node);
            if state.running.is_none() && node != last {
                last = node;
                found.extend(pull_for_idle(&self.snapshot(&facts), &self.caution, CpuIndex(hart as u16)));
            }
        }
        found.into_iter().for_each(|found| self.perform(found));
    }

    pub(super) fn balance(&mut self) {
        let facts = self.vcpu_facts();
        let moves = rebalance(&self.snapshot(&facts), &self.caution);
        moves.into_iter().for_each(|found| self.perform(found));
        for vcpu in &mut self.vcpus {
            vcpu.history.observe(vcpu.ran_ticks, vcpu.waited_ticks, self.caution.history_ticks);
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
        let lag = self.queues[from.index()].remove(entity).unwrap_or_default();
        let machine = &self.scene.machine;
        let is_near = self.facts[from.index()].node == self.facts[to.index()].node;
        let cost = if is_near { machine.move_us } else { machine.move_between_nodes_us };
        let vcpu = &mut self.vcpus[at];
        vcpu.hart = to;
        vcpu.owed_ticks += u64::from(cost) * TICKS_PER_US;
        vcpu.moves.note(from, reason, &self.caution, self.now);
        self.moves += 1;
        if let State::Runnable { .. } = vcpu.state {
            let weight = self.vms[usize::from(entity.vm.0)].weight;
            self.queues[to.index()].enqueue_moved(entity, weight, lag, self.now);
        }
        for hart in [from.index(), to.index()] {
            self.after(0, Event::Looks { hart, is_called: false });
        }
    }

    pub(super) fn vcpu_facts(&self) -> Vec<VcpuFacts> {
        let view = self.view();
        let facts = |vcpu: &Vcpu| VcpuFacts {
            entity: vcpu.entity,
            weight: self.vms.get(usize::from(vcpu.entity.vm.0)).map_or(100, |vm| vm.weight),
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
        self.vcpus.iter().map(facts).collect()
    }

    pub(super) fn snapshot<'a>(&'a self, vcpus: &'a [VcpuFacts]) -> Snapshot<'a> {
        Snapshot { harts: &self.facts, vcpus, distance: &|from, to| if from == to { 10 } else { 20 } }
    }
}
