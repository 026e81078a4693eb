//! Virtual time: QEMU's clock, and the places where harts look up.

use std::cell::Cell;
use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::thread;

use machine_model::Step;
use model_file::{MODES, Mode, Request, at};

use crate::state::{Model, model, words};
use crate::{gates, hooks, idle};

/// The machine's time, in ns: what all threads see that are not running a hart.
static MACHINE_NS: AtomicI64 = AtomicI64::new(0);
/// The latest time that any hart has read: no hart reads an earlier one, so that clocks agree on the order of events.
static LATEST_NS: AtomicI64 = AtomicI64::new(0);

thread_local! {
    /// On the thread of the harts, while a hart runs translated code: the time counter, and what to add to it.
    static RUNNING: Cell<Option<(&'static AtomicU64, u64)>> = const { Cell::new(None) };
}

/// Takes over QEMU's virtual clock.
pub fn take_clock(start_ps: u64) -> Result<(), &'static str> {
    MACHINE_NS.store(start_ps as i64, Relaxed);
    hooks().take_clock(read_clock, set_clock)
}

/// The machine's time.
pub fn machine_ns() -> i64 {
    MACHINE_NS.load(Relaxed)
}

extern "C" fn read_clock() -> i64 {
    let machine_ns = machine_ns();
    // Devices and timers, which hold the lock, live in the machine's time; a hart that asks has its own.
    let Some((counter, base_ps)) = RUNNING.get().filter(|_| !hooks().is_locked()) else { return machine_ns };
    let now_ns = (counter.load(Relaxed).wrapping_add(base_ps) / 1000) as i64;
    let now_ns = now_ns.max(machine_ns).max(LATEST_NS.load(Relaxed));
    LATEST_NS.store(now_ns, Relaxed);
    now_ns
}

/// Moves the machine's time forward.
pub fn set_machine(to_ns: i64) {
    MACHINE_NS.fetch_max(to_ns, Relaxed);
}

extern "C" fn set_clock(to_ns: i64) {
    MACHINE_NS.fetch_max(to_ns, Relaxed);
}

/// A hart begins a block and its time counter is at [`crate::state::LOOK_UP`].
pub extern "C" fn look_up(index: c_uint, _: *mut c_void) {
    let (model, hart) = (model(), index as usize);
    RUNNING.set(None);
    if model.clocks.must_refuse(hart) {
        // Whoever's turn it is goes on with its clock when it is next asked, so it needs to be found again.
        leave(model, hart);
        return;
    }
    let spent_ps = model.take_spent(hart);
    model.clocks.set_machine(machine_ns() as u64 * 1000);
    model.clocks.advance(hart, spent_ps);
    let limit_ps = gates::limit_ps(model.machine.shared());
    let deadline_ps = run_due_timers(model, limit_ps);
    take_request(model, hart);
    if limit_ps.is_some_and(|limit_ps| model.clocks.slowest() >= Some(limit_ps)) {
        // Nobody may run before a disk has done its work. The lock is not held, so the main loop can hear of it.
        thread::sleep(gates::LOOK);
        model.clocks.end_turn();
        model.arm(hart, 0);
        leave(model, hart);
        return;
    }
    let until_ps = [deadline_ps, limit_ps].into_iter().flatten().min();
    match model.clocks.step(hart, until_ps) {
        Step::Run { budget_ps } => {
            model.arm(hart, budget_ps);
            resume(model, hart);
        }
        Step::Yield => {
            model.arm(hart, 0);
            model.turn_is_over(hart);
            leave(model, hart);
        }
    }
}

/// A hart's own time is the clock from here on.
fn resume(model: &Model, hart: usize) {
    let base_ps = model.clocks.now(hart).wrapping_sub(model.harts[hart].seen);
    RUNNING.set(Some((&model.harts[hart].words[words::TIME], base_ps)));
}

fn leave(model: &Model, hart: usize) {
    // If somebody else is in the middle of a turn, the emulator comes back to it without a look: its time is the clock.
    if let Some(turn) = model.clocks.turn() {
        resume(model, turn);
    }
    if let Some(cpu) = model.harts[hart].cpu {
        hooks().leave(cpu);
    }
}

/// Moves the machine's time to the slowest hart's, or the limit, and runs the timers that are due by then. Gives the next
/// one's time.
fn run_due_timers(model: &mut Model, limit_ps: Option<u64>) -> Option<u64> {
    let slowest_ns = model.clocks.slowest()?.min(limit_ps.unwrap_or(u64::MAX)) / 1000;
    let next = || Some(machine_ns() as u64 + hooks().next_timer_ns()?);
    let mut deadline_ns = next();
    if deadline_ns.is_some_and(|deadline_ns| deadline_ns <= slowest_ns) {
        hooks().locked(|| hooks().run_timers(slowest_ns as i64));
        deadline_ns = next();
    }
    // Without a timer the clock does not move by itself.
    set_clock(slowest_ns as i64);
    model.clocks.set_machine(machine_ns() as u64 * 1000);
    model.machine.shared().set(at::NOW, machine_ns() as u64 * 1000);
    deadline_ns.map(|ns| ns * 1000)
}

fn take_request(model: &mut Model, hart: usize) {
    match model.machine.shared().take_request() {
        None => {}
        Some(Request::On) => model.switch(hart, true),
        Some(Request::Off) => model.switch(hart, false),
        Some(Request::ResetPages) => model.machine.shared().reset_pages(),
    }
}

/// A hart is about to execute WFI.
pub extern "C" fn wait(index: c_uint, mode: *mut c_void) {
    let (model, hart) = (model(), index as usize);
    let mode = Mode::ALL[mode.addr() % Mode::ALL.len()];
    if !model.view.registers.as_ref().is_some_and(|registers| registers.can_wait(mode)) {
        return;
    }
    RUNNING.set(None);
    let spent_ps = model.take_spent(hart);
    let all_wait = model.clocks.wait(hart, spent_ps);
    model.arm(hart, 0);
    model.turn_is_over(hart);
    if let Some(cpu) = model.harts[hart].cpu.filter(|_| all_wait) {
        model.publish(hart);
        hooks().later(cpu, idle::pass_time, 0);
    }
}

/// A hart is about to stall until a reservation is lost (WRS): nothing that it could see happens before the others run.
pub extern "C" fn stall(index: c_uint, mode: *mut c_void) {
    let (model, hart) = (model(), index as usize);
    let counter = &model.harts[hart].words[words::TIME];
    let rest_ps = crate::state::LOOK_UP.saturating_sub(counter.load(Relaxed)).min(model.config.window_ps);
    model.stall(hart, rest_ps);
    model.clocks.idle_for(hart, rest_ps);
    model.harts[hart].locks[mode.addr() % MODES].wait_ps += rest_ps;
}

/// A program says where its kernel takes and waits for locks.
pub extern "C" fn lock_code(_: c_uint, _: *mut c_void) {
    const A0: usize = 10;
    let model = model();
    if let Some(registers) = &model.view.registers {
        let code = registers.general(A0)..registers.general(A0 + 1);
        model.add_lock_code(code);
    }
}

/// A hart is about to write a timer: it looks up before its next block.
pub extern "C" fn look_soon(index: c_uint, _: *mut c_void) {
    look_at_next_block(model(), index as usize);
}

/// `hart` looks up when its present block has ended.
pub fn look_at_next_block(model: &mut Model, hart: usize) {
    // What it has used so far stays between counter and mark.
    let spent_ps = model.spent(hart);
    let base = model.harts[hart].seen;
    if base + spent_ps < crate::state::LOOK_UP {
        model.arm(hart, 0);
        model.stall(hart, spent_ps);
        resume(model, hart);
    }
}

/// A program's mark.
pub extern "C" fn mark(index: c_uint, number: *mut c_void) {
    let (model, hart, number) = (model(), index as usize, number.addr() as u16);
    match number {
        model_file::hint::ON => {
            model.switch(hart, true);
            model.mark(hart, number);
        }
        model_file::hint::OFF => {
            model.mark(hart, number);
            model.switch(hart, false);
        }
        number => model.mark(hart, number),
    }
}
