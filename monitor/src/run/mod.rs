//! The per-hart loop: look at what was asked, pick a vCPU, run it until something happens, account, repeat.
//!
//! This is where Disco's run queues are, and Cellular Disco's gang scheduler. The queue's policy is the crate `sched`; this file
//! only carries out its decisions.

pub mod duties;
mod gangs;
mod local;

use crate::{
    hart::{Hart, stretch},
    machine::agenda,
    services::{
        balance, cells, crash,
        mail::{self, Message},
    },
    vcpu::{Next, RunState, Vcpu},
};
use ::vcpu::hsm::HartState;
use control::EventKind;
use core::sync::atomic::{self, Ordering};
use local::HartLocal;
use rv::{csr, fence, fields::interrupt};
use sched::RunQueue;

/// At most one part of a second in so many is paid of a VM's debt with one turn: a vCPU that sleeps afterwards is forgiven what is more
/// than a period of its queue.
const PAID_HZ: u64 = 100;

/// Runs vCPUs on `hart` for ever.
pub fn run(hart: &'static Hart) -> ! {
    let capabilities = crate::machine::capabilities();
    let queue = crate::machine::scheduling().new_queue();
    let mut local = HartLocal::new(capabilities, queue);
    hart.counters.online_at.store(csr::time::read(), Ordering::Relaxed);
    crate::trace::record(None, EventKind::HartOnline);
    local.tools.arm(u64::MAX);
    enable_interrupts();
    let mut queued = 0;
    loop {
        if has_news(hart) {
            attend(hart, &mut local);
        }
        let waiting = wake_due(hart, &mut local);
        match local.pick(hart) {
            Some(entity) => turn(hart, &mut local, entity, waiting),
            None => idle(hart, &mut local, waiting),
        }
        let now_queued = local.queue.len() as u32;
        if now_queued != queued {
            balance::note_length(queued, now_queued);
            hart.counters.queued.store(now_queued, Ordering::Relaxed);
            if local.is_noted {
                balance::note_load(hart, &local.queue);
            }
            queued = now_queued;
        }
    }
}

/// Whether anybody has left something for this hart. Whoever does so rings afterwards, so what is missed here ends the
/// next stretch in the guest at once.
#[inline]
fn has_news(hart: &Hart) -> bool {
    csr::sip::read() & (interrupt::SSI | interrupt::SEI) != 0
        || hart.has_work()
        || hart.is_control() && duties::is_due()
}

/// Handles everything that others left for this hart.
#[inline(never)]
fn attend(hart: &Hart, local: &mut HartLocal) {
    let pending = csr::sip::read();
    clear_software_interrupt();
    if crate::machine::cell::has_failed() {
        crash::stop(hart);
    }
    if pending & interrupt::SEI != 0 {
        crate::machine::irq::handle_external(hart.cpu, |source| duties::device_interrupt(hart, source));
    }
    let is_kicked = hart.take_kick();
    if is_kicked {
        if hart.gathering.take_call() {
            local.queue.heed_calls();
        }
        look_at_requests(local);
    }
    for message in mail::take(hart) {
        deliver(hart, local, message);
    }
    if hart.is_control() {
        if pending & interrupt::SSI != 0 {
            cells::rung(is_kicked || agenda::is_called());
        }
        local.tools.stretch.note(stretch::DUTIES);
        duties::step(hart, &mut local.tools);
    }
}

/// Goes on with what waits for other harts: jobs, and vCPUs that leave.
#[cold]
fn go_on(hart: &Hart, local: &mut HartLocal) {
    local.step_jobs(hart);
    local.let_go(hart);
}

fn deliver(hart: &Hart, local: &mut HartLocal, message: Message) {
    match message {
        // Its VM began to end while it was on its way: the call to release it came before it did.
        Message::Adopt(vcpu) if vcpu.vm.ending().is_some() => {
            let vm = vcpu.vm.clone();
            drop(vcpu);
            vm.vcpu_released();
        }
        Message::Adopt(vcpu) => {
            let mut vcpu = if vcpu.node() == hart.node { vcpu } else { vcpu.relocate(hart.node) };
            vcpu.arrive(hart, &mut local.tools);
            if vcpu.run_state == RunState::Runnable {
                local.queue.enqueue(vcpu.entity(), vcpu.weight(), csr::time::read());
            }
            local.vcpus.push(vcpu);
            // Requests made while it was on its way rang at its old hart.
            look_at_requests(local);
        }
        Message::HandOver { entity, to, reason } => local.hand_over(hart, entity, to, reason),
        Message::Weigh(vm) => {
            let runnable = local.vcpus.iter().filter(|vcpu| vcpu.vm.id == vm && vcpu.run_state == RunState::Runnable);
            for vcpu in runnable {
                local.queue.enqueue(vcpu.entity(), vcpu.weight(), csr::time::read());
            }
            if local.is_noted {
                balance::note_load(hart, &local.queue);
            }
        }
        Message::Release(vm) => local.release_vm(hart, vm),
        Message::Place(job) => local.jobs.push(job),
        Message::Look(vcpu) => local.show(&vcpu),
        Message::Panic(how) => crash::provoke(how),
    }
}

/// Makes vCPUs runnable that somebody wants something of.
fn look_at_requests(local: &mut HartLocal) {
    let now = csr::time::read();
    if let Some(at) = local.loaded {
        local.vcpus[at].serve_fences();
    }
    // Pairs with the fence of whoever begins to wait: it sees that this hart has left its guests, or this one sees that it waits.
    atomic::fence(Ordering::SeqCst);
    for vcpu in &mut local.vcpus {
        // Whoever rang may have called this hart away from the VM.
        vcpu.vm.tell_waiting();
        let state = vcpu.run_state;
        match state {
            RunState::Blocked if vcpu.shared.has_requests() || vcpu.has_interrupt() => {}
            RunState::Stopped if vcpu.shared.hsm() == HartState::StartPending => vcpu.start(),
            RunState::Suspended if vcpu.is_called() => {}
            RunState::Parked if vcpu.vm.lets_run(vcpu.index) => {}
            RunState::Held if !vcpu.vm.lets_run(vcpu.index) || !vcpu.waits() => {}
            _ => continue,
        }
        vcpu.mark_runnable(now);
        local.queue.enqueue(vcpu.entity(), vcpu.weight(), now);
    }
}

/// What the vCPUs that wait off the hart wait for.
#[derive(Clone, Copy)]
struct Waiting {
    /// The earliest of their timers.
    deadline: u64,
    /// Their guest interrupt files.
    files: u64,
}

/// Makes vCPUs runnable whose timer or guest interrupt file calls; what the others wait for.
#[inline]
fn wake_due(hart: &Hart, local: &mut HartLocal) -> Waiting {
    let mut waiting = Waiting { deadline: u64::MAX, files: 0 };
    if local.has_unfinished() {
        go_on(hart, local);
        waiting.deadline = local.look_at();
    }
    for vcpu in &mut local.vcpus {
        if vcpu.run_state != RunState::Blocked {
            match vcpu.run_state {
                RunState::Held => look_at_held(vcpu, &mut local.queue, &mut waiting),
                RunState::Suspended => look_at_suspended(vcpu, &mut local.queue, &mut waiting),
                _ => {}
            }
            continue;
        }
        let now = csr::time::read();
        if vcpu.wake_at <= now || vcpu.file_mask() & crate::vcpu::file::pending_files() != 0 {
            vcpu.mark_runnable(now);
            local.queue.enqueue(vcpu.entity(), vcpu.weight(), now);
        } else {
            waiting.deadline = waiting.deadline.min(vcpu.wake_at);
            waiting.files |= vcpu.file_mask();
        }
    }
    waiting
}

/// A vCPU that waits for other harts: it may go on, or is looked at again.
#[cold]
fn look_at_held(vcpu: &mut Vcpu, queue: &mut RunQueue, waiting: &mut Waiting) {
    if vcpu.waits() {
        waiting.deadline = waiting.deadline.min(vcpu.look_at());
    } else {
        let now = csr::time::read();
        vcpu.mark_runnable(now);
        queue.enqueue(vcpu.entity(), vcpu.weight(), now);
    }
}

/// A vCPU that is suspended: it wakes up, or what it waits for.
#[cold]
#[inline(never)]
fn look_at_suspended(vcpu: &mut Vcpu, queue: &mut RunQueue, waiting: &mut Waiting) {
    if vcpu.is_called() {
        let now = csr::time::read();
        vcpu.call(now);
        queue.enqueue(vcpu.entity(), vcpu.weight(), now);
    } else {
        waiting.deadline = waiting.deadline.min(vcpu.wake_at);
        waiting.files |= vcpu.wake_files();
    }
}

/// One turn of a vCPU: until its slice ends, it waits, or somebody calls.
#[inline]
fn turn(hart: &Hart, local: &mut HartLocal, entity: sched::Entity, waiting: Waiting) {
    let Some(at) = local.position(entity) else {
        local.queue.dequeue(entity);
        return;
    };
    local.idle_since = None;
    local.load(hart, at);
    let begin = csr::time::read();
    let is_shared = local.queue.len() > 1;
    let slice_end = if is_shared { begin.saturating_add(local.queue.slice_ticks(entity)) } else { u64::MAX };
    local.tools.watch(waiting.files);
    local.tools.arm(slice_end.min(waiting.deadline).min(duties::next_tick(hart, true)));
    let vcpu = &mut local.vcpus[at];
    hart.counters.running.store(entity.label(), Ordering::Relaxed);
    vcpu.begin_turn(begin, is_shared, duties::wants_rest(hart), hart.node);
    let next = vcpu.run(hart, &mut local.tools);
    let end = csr::time::read();
    hart.counters.running.store(u32::MAX, Ordering::Relaxed);
    vcpu.end_turn(end);
    // With what harts have done for its VM outside turns.
    let owed = vcpu.vm.take_debt(local.capabilities.timebase_hz / PAID_HZ);
    local.queue.charge(entity, end.wrapping_sub(begin).saturating_add(owed));
    let stays = match next {
        Next::Resume | Next::Reschedule => true,
        Next::Yield => {
            local.queue.give_up(entity);
            true
        }
        Next::Wait => !vcpu.block(),
        Next::Held => {
            vcpu.hold();
            false
        }
        Next::Suspend => !vcpu.sleep(),
        Next::Stopped => {
            vcpu.stop();
            false
        }
        Next::VmStateChanged => {
            vcpu.vm.lets_run(vcpu.index) || {
                vcpu.run_state = RunState::Parked;
                // Whoever paused the VM waits for its last vCPU.
                agenda::wake_control();
                false
            }
        }
    };
    if !stays {
        local.queue.dequeue(entity);
    }
}

/// Nothing is runnable: take something over, do a bounded piece of background work, or sleep until something happens.
fn idle(hart: &Hart, local: &mut HartLocal, waiting: Waiting) {
    let begin = csr::time::read();
    hart.counters.idle.start(begin);
    let pull_at = balance::pull(hart, begin, *local.idle_since.get_or_insert(begin));
    local.tools.stretch.end(begin, &hart.counters.stretches);
    local.tools.stretch.begin(begin);
    local.tools.stretch.note(stretch::ZEROING);
    if !crate::machine::idle_step(hart.node) {
        local.tools.watch(waiting.files);
        local.tools.arm(waiting.deadline.min(duties::next_tick(hart, false)).min(pull_at));
        if !hart.has_work() {
            fence::wait_for_interrupt();
            local.tools.timer_fired();
        }
        local.tools.stretch.begin(csr::time::read());
        local.tools.stretch.note(stretch::WAKEUP);
    }
    hart.counters.idle.stop(csr::time::read());
}

#[expect(unsafe_code)]
fn enable_interrupts() {
    // UNSAFETY and SAFETY: with sstatus.SIE = 0 these interrupts are taken only while a guest runs, into the trap
    // vector that is installed; in HS-mode they only end a WFI.
    unsafe {
        csr::sie::write(interrupt::SSI | interrupt::STI | interrupt::SEI);
        csr::hie::set(interrupt::SGEI);
    }
}

#[expect(unsafe_code)]
fn clear_software_interrupt() {
    // UNSAFETY and SAFETY: the doorbell's flags are read after this, so no ring is lost.
    unsafe { csr::sip::clear(interrupt::SSI) };
}
