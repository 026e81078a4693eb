//! The half of a hart that only the hart itself touches.

use crate::{
    hart::{self, Hart, HartTools, PreemptionPoint, Turn, stretch},
    machine::{Capabilities, agenda, node_box::NodeBox},
    services::{
        balance,
        locality::Job,
        mail::{self, Message},
    },
    vcpu::{RunState, Vcpu},
    vm::{debug::Answer, shared::SharedVcpu},
};
use addr::{CpuIndex, VmId};
use alloc::{sync::Arc, vec::Vec};
use control::EventKind;
use core::sync::atomic::Ordering;
use rv::csr;
use sched::{Entity, RunQueue, balance::Reason};

/// How often a second a hart looks whether what waits for other harts can go on.
const LOOKS_HZ: u64 = 20_000;

/// A hart's own vCPUs and their queue.
#[derive(Debug)]
pub struct HartLocal {
    /// Every vCPU that this hart owns, runnable or not.
    pub(super) vcpus: Vec<NodeBox<Vcpu>>,
    /// The runnable ones.
    pub(super) queue: RunQueue,
    /// Position in `vcpus` of the vCPU whose state is in the hart's registers.
    pub(super) loaded: Option<usize>,
    /// Jobs for pages of its node that are not finished.
    pub(super) jobs: Vec<Job>,
    /// vCPUs that go as soon as nobody stores into their interrupt files: to another hart, or for good.
    leaving: Vec<(Entity, Option<CpuIndex>)>,
    /// Since when it has had nobody to run, if it has not.
    pub(super) idle_since: Option<u64>,
    /// Whether others know what it has to do by the load tree alone.
    pub(super) is_noted: bool,
    /// The turn of a VM that it follows.
    pub(super) follows: Option<Turn>,
    /// How long such a turn lasts.
    pub(super) turn_ticks: u64,
    /// What vCPUs use of the hart.
    pub(super) tools: HartTools,
    /// What the hart can do; here because every switch asks.
    pub(super) capabilities: &'static Capabilities,
}

impl HartLocal {
    pub(super) fn new(capabilities: &'static Capabilities, queue: RunQueue) -> Self {
        Self {
            vcpus: Vec::with_capacity(16),
            queue,
            loaded: None,
            jobs: Vec::new(),
            leaving: Vec::new(),
            idle_since: None,
            is_noted: balance::is_large(),
            follows: None,
            turn_ticks: crate::machine::scheduling().turn_ticks,
            tools: HartTools::new(capabilities),
            capabilities,
        }
    }

    /// The position of a vCPU.
    pub(super) fn position(&self, entity: Entity) -> Option<usize> {
        self.vcpus.iter().position(|vcpu| vcpu.entity() == entity)
    }

    /// Takes the loaded vCPU's state out of the hart's registers.
    #[inline(always)]
    pub(super) fn unload(&mut self) {
        if let Some(at) = self.loaded.take() {
            self.vcpus[at].unload(self.capabilities);
        }
    }

    /// Puts vCPU `at` into the hart's registers, unless it is there already.
    #[inline(always)]
    pub(super) fn load(&mut self, hart: &Hart, at: usize) {
        if self.loaded != Some(at) {
            self.unload();
            hart::add(&hart.counters.switches, 1);
            self.vcpus[at].load(self.capabilities);
            self.loaded = Some(at);
            hart.counters.loaded.store(self.vcpus[at].entity().label(), Ordering::Relaxed);
        }
    }

    /// Whether jobs or leaving vCPUs wait for other harts.
    #[inline(always)]
    pub(super) fn has_unfinished(&self) -> bool {
        !self.jobs.is_empty() || !self.leaving.is_empty()
    }

    /// When to look at it again.
    pub(super) fn look_at(&self) -> u64 {
        if !self.has_unfinished() {
            return u64::MAX;
        }
        csr::time::read() + (self.capabilities.timebase_hz / LOOKS_HZ).max(1)
    }

    /// Goes on with the jobs, each as far as it comes. Once somebody calls, the others have their turn first the next time.
    pub(super) fn step_jobs(&mut self, hart: &Hart) {
        if self.jobs.is_empty() {
            return;
        }
        self.tools.stretch.note(stretch::PLACEMENT);
        let mut point = PreemptionPoint::new(&mut self.tools, &hart.counters.stretches, stretch::PLACEMENT);
        let mut may_go_on = || point.may_go_on();
        let mut jobs = core::mem::take(&mut self.jobs).into_iter();
        let mut unfinished = Vec::new();
        for job in jobs.by_ref() {
            unfinished.extend(job.step(&mut may_go_on));
            if !may_go_on() {
                break;
            }
        }
        self.jobs = jobs.chain(unfinished).collect();
    }

    /// Gives a vCPU to hart `to`, with what is owed to it in the interrupt file: as soon as nobody stores into that.
    pub(super) fn hand_over(&mut self, hart: &Hart, entity: Entity, to: CpuIndex, reason: Reason) {
        let (Some(at), Some(target)) = (self.position(entity), hart::all().get(to.index())) else { return };
        if target.cpu == hart.cpu || self.vcpus[at].run_state == RunState::Leaving {
            return;
        }
        let kind = EventKind::VcpuMigrated { vcpu: entity.vcpu, from: hart.cpu, to, reason: balance::traced(reason) };
        crate::trace::record(Some(entity.vm), kind);
        // After the event: two events of a vCPU are never closer than its stay.
        self.vcpus[at].shared.note_move(hart.cpu, reason, &balance::caution(), csr::time::read());
        self.begin_to_leave(at, Some(to));
        self.let_go(hart);
    }

    /// Sees to what a debugger has asked of a vCPU.
    #[cold]
    pub(super) fn show(&mut self, vcpu: &SharedVcpu) {
        let Some(at) = self.vcpus.iter().position(|own| Arc::ptr_eq(&own.shared, vcpu)) else {
            vcpu.looks.lock().answer = Some(Answer::Elsewhere);
            return agenda::wake_control();
        };
        if self.loaded == Some(at) {
            self.unload();
        }
        self.vcpus[at].serve_debugger();
    }

    /// Drops the vCPUs of `vm`, as soon as nobody stores into their interrupt files.
    pub(super) fn release_vm(&mut self, hart: &Hart, vm: VmId) {
        for (_, to) in self.leaving.iter_mut().filter(|(entity, _)| entity.vm == vm) {
            *to = None;
        }
        let is_going = |vcpu: &NodeBox<Vcpu>| vcpu.vm.id == vm && vcpu.run_state != RunState::Leaving;
        while let Some(at) = self.vcpus.iter().position(is_going) {
            self.begin_to_leave(at, None);
        }
        self.let_go(hart);
    }

    /// It runs no more here.
    fn begin_to_leave(&mut self, at: usize, to: Option<CpuIndex>) {
        self.unload();
        let vcpu = &mut self.vcpus[at];
        self.queue.remove(vcpu.entity());
        vcpu.begin_to_leave();
        vcpu.state_before = vcpu.run_state;
        vcpu.run_state = RunState::Leaving;
        self.leaving.push((vcpu.entity(), to));
    }

    /// Lets those go that can.
    pub(super) fn let_go(&mut self, hart: &Hart) {
        let mut next = 0;
        if !self.leaving.is_empty() {
            self.tools.stretch.note(stretch::MOVE);
        }
        while let Some((entity, to)) = self.leaving.get(next).copied() {
            let at = self.position(entity);
            if at.is_some_and(|at| self.vcpus[at].is_file_in_use()) {
                next += 1;
                continue;
            }
            self.leaving.swap_remove(next);
            if let Some(at) = at {
                self.unload();
                let vcpu = self.vcpus.swap_remove(at);
                self.send_away(hart, vcpu, to);
            }
        }
    }

    fn send_away(&mut self, hart: &Hart, mut vcpu: NodeBox<Vcpu>, to: Option<CpuIndex>) {
        vcpu.leave_file(&mut self.tools);
        vcpu.run_state = vcpu.state_before;
        let Some(target) = to.and_then(|to| hart::all().get(to.index())) else {
            let vm = vcpu.vm.clone();
            drop(vcpu);
            return vm.vcpu_released();
        };
        hart::add(&vcpu.shared.counters.migrations, 1);
        if target.node != hart.node {
            let now = csr::time::read();
            vcpu.vm.note_node_change(now);
            balance::look_after_change(now);
        }
        vcpu.shared.set_cpu(target.cpu);
        mail::send(target, Message::Adopt(vcpu));
    }
}
