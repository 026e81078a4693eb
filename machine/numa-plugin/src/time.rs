//! Virtual time: harts come back when their leave is used up, wait in WFI, and move the machine's clock.
//!
//! A callback never waits: it would stop the one thread that could end the wait. What takes longer is left to work
//! that QEMU runs outside of translated code, with its lock held.

use std::ffi::{c_uint, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use model_file::{Gate, at};

use crate::machine::Machine;
use crate::qemu::Deadline;

/// The machine's time when it starts: a fixed one, for runs that repeat. QEMU's clock stands at 0 until then.
pub const START_NS: u64 = 100_000_000;
/// Jumps of the time that are worth a moment for QEMU's main loop, which brings input from outside.
const LONG_JUMP_NS: u64 = 50_000_000;
/// That moment; also between two looks at a closed gate.
const MOMENT: Duration = Duration::from_micros(200);
const PS_PER_NS: u64 = 1000;

/// QEMU asks for the time.
pub extern "C" fn get_clock() -> i64 {
    let Some(machine) = Machine::get() else { return START_NS as i64 };
    // With the lock held it is a device or a timer that asks: their time is the machine's.
    let asking = if machine.inside.is_locked() { None } else { machine.current() };
    let time_ps = match asking {
        Some(hart) if !machine.clocks.is_waiting(hart) => machine.clocks.tell(machine.hart_now(hart)),
        _ => machine.clocks.machine(),
    };
    (time_ps / PS_PER_NS) as i64
}

/// QEMU moves the time.
pub extern "C" fn set_clock(to_ns: i64) {
    if let (Some(machine), Ok(to_ns)) = (Machine::get(), u64::try_from(to_ns)) {
        machine.clocks.pass(to_ns * PS_PER_NS);
    }
}

/// A hart's leave is used up, or it was woken.
pub extern "C" fn come_back(hart: c_uint, _: *mut c_void) {
    let (Some(machine), hart) = (Machine::get(), hart as usize) else { return };
    machine.clocks.reach(hart, machine.hart_now(hart));
    let slowest = machine.clocks.slowest().unwrap_or_else(|| machine.clocks.now(hart));
    let limit = gate_limit(machine);
    let to_ps = limit.map_or(slowest, |limit| slowest.min(limit));
    pass(machine, to_ps);
    machine.publish(hart);
    let is_held = limit.is_some_and(|limit| machine.clocks.now(hart) >= limit);
    let leave = machine.clocks.leave(hart).filter(|_| !is_held);
    machine.arm(hart, leave.unwrap_or(0));
    if leave.is_none()
        && let Some(cpu) = machine.inside.current()
    {
        if is_held {
            machine.inside.later(cpu, wait_at_gate, 0);
        }
        machine.inside.stop(cpu);
    }
    machine.take_request();
}

/// Moves the machine's clock; timers that this makes due are run outside of translated code.
fn pass(machine: &Machine, to_ps: u64) {
    let (now_ns, to_ns) = (machine.clocks.machine() / PS_PER_NS, to_ps / PS_PER_NS);
    if to_ns <= now_ns {
        return;
    }
    match machine.inside.deadline() {
        Deadline::In(due) if to_ns - now_ns >= due => {
            if let Some(cpu) = machine.inside.current() {
                machine.inside.later(cpu, advance, to_ns);
            }
        }
        _ => machine.clocks.pass(to_ns * PS_PER_NS),
    }
}

extern "C" fn advance(_: *mut c_void, to_ns: u64) {
    if let Some(machine) = Machine::get() {
        machine.inside.advance(to_ns);
    }
}

/// A hart is about to wait for an interrupt.
pub extern "C" fn wait(hart: c_uint, _: *mut c_void) {
    let (Some(machine), hart) = (Machine::get(), hart as usize) else { return };
    machine.clocks.wait(hart, machine.hart_now(hart));
    machine.arm(hart, 0);
    if machine.clocks.slowest().is_none()
        && let Some(cpu) = machine.inside.current()
    {
        machine.inside.later(cpu, jump, 0);
    }
}

/// All harts wait: moves the time to the next timer, until one of them has something to do.
extern "C" fn jump(_: *mut c_void, _: u64) {
    let Some(machine) = Machine::get() else { return };
    let is_over = || machine.clocks.slowest().is_some() || !machine.inside.all_idle();
    while !is_over() {
        let now_ns = machine.clocks.machine() / PS_PER_NS;
        let gate = gate_limit(machine).map(|limit| limit / PS_PER_NS);
        let due = match (machine.inside.deadline(), gate) {
            (Deadline::In(due), None) => due,
            (Deadline::In(due), Some(gate)) => due.min(gate.saturating_sub(now_ns)),
            // Only something from outside can go on from here; QEMU waits for that.
            (Deadline::Never, None) => return,
            (Deadline::Never, Some(_)) => 0,
        };
        let is_held = gate.is_some_and(|gate| now_ns + due >= gate);
        // What is outside gets a chance before the time jumps, or while a disk works.
        machine
            .inside
            .unlocked(|| if is_held || due > LONG_JUMP_NS { thread::sleep(MOMENT) } else { thread::yield_now() });
        if is_over() || (is_held && now_ns + due <= now_ns) {
            continue;
        }
        if let Deadline::In(present) = machine.inside.deadline() {
            machine.inside.advance(now_ns + due.min(present).max(u64::from(!is_held)));
        }
    }
}

/// A running hart has come to a closed gate: gives the disk server a moment.
extern "C" fn wait_at_gate(_: *mut c_void, _: u64) {
    if let Some(machine) = Machine::get() {
        machine.inside.unlocked(|| thread::sleep(MOMENT));
    }
}

/// The time that no clock may pass yet, since a disk is at work.
fn gate_limit(machine: &Machine) -> Option<u64> {
    let gates = machine.shared.word(at::GATES).load(Relaxed).min(Gate::COUNT);
    let words = (0..gates).filter_map(|gate| machine.shared.header().gate_at(gate));
    words.map(|place| machine.shared.word(place).load(Relaxed)).filter(|limit| *limit != Gate::OPEN).min()
}
