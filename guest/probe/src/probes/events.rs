//! Supervisor software events (SSE).

use super::{Outcome, check, harts, skip, wait_for};
use crate::{
    cpu, entry, layout,
    resume::{self, Handler},
    sbi,
    sbi::error,
    tree::Machine,
};
use core::sync::atomic::{AtomicU64, Ordering};

/// The extension.
pub const SSE: usize = 0x53_5345;
/// The event that each hart has.
pub const LOCAL: u64 = 0xffff_0000;
/// The event that all harts share.
pub const GLOBAL: u64 = 0xffff_8000;
const INJECT: usize = 7;
const UNMASK: usize = 8;
const MASK: usize = 9;
const STATUS: u64 = 0;
const PRIORITY: u64 = 1;
const CONFIG: u64 = 2;
const PREFERRED: u64 = 3;
const SEPC: u64 = 6;
const FLAGS: u64 = 7;
const A6: u64 = 8;
const PENDING: u64 = 1 << 2;
const STATE: u64 = 3;
const ENABLED: u64 = 2;
const RUNNING: u64 = 3;
const INVALID_STATE: i64 = -10;

/// Words for attributes, of each hart.
fn words() -> u64 {
    layout::SCRATCH + 0x1000 * (1 + cpu::this_hart() as u64)
}

/// The end of the `n`-th stack for handlers of this hart.
fn stack(n: u64) -> u64 {
    layout::SCRATCH + 0x4_0000 + 0x4000 * cpu::this_hart() as u64 + 0x2000 * (n + 1)
}

/// A call with up to three arguments; the error.
pub fn call(function: usize, arguments: [u64; 3]) -> i64 {
    let [a0, a1, a2] = arguments;
    sbi::call(SSE, function, [a0, a1, a2, 0, 0]).0
}

fn read(event: u64, attribute: u64) -> u64 {
    let error = sbi::call(SSE, 0, [event, attribute, 1, words(), 0]).0;
    if error == 0 { cpu::load(words()) } else { u64::MAX }
}

fn write(event: u64, attribute: u64, value: u64) -> i64 {
    cpu::store(words(), value);
    sbi::call(SSE, 1, [event, attribute, 1, words(), 0]).0
}

/// The order in which handlers began (low digit first) and ended, in decimal digits.
static ORDER: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);

fn note(digit: u64) {
    let _ = ORDER.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |order| Some(order * 10 + digit));
}

fn expect(is_right: bool) {
    if !is_right {
        WRONG.fetch_add(1, Ordering::SeqCst);
    }
}

/// A handler: `data` is its own event, and injects the other one while it runs.
extern "C" fn handle(handler: &Handler, hart: u64) {
    let (own, other) = if handler.data & 1 == 0 { (LOCAL, GLOBAL) } else { (GLOBAL, LOCAL) };
    let digit = 1 + (handler.data & 1);
    note(digit);
    expect(hart == cpu::this_hart() as u64 && cpu::sstatus() & 1 << 1 == 0);
    expect(read(own, STATUS) & (STATE | PENDING) == RUNNING);
    expect(write(own, PRIORITY, 0) == INVALID_STATE);
    expect(write(own, FLAGS, 1 << 6) == error::INVALID_PARAM);
    let injects = handler.data & 2 != 0;
    if injects {
        expect(call(INJECT, [other, hart, 0]) == 0);
    }
    note(digit + 4);
}

fn register(event: u64, handler: &Handler, priority: u64) -> Outcome {
    check(write(event, PRIORITY, priority) == 0, "a priority cannot be set")?;
    let argument = core::ptr::from_ref(handler) as u64;
    check(call(2, [event, resume::event_entry(), argument]) == 0, "a handler cannot be registered")?;
    check(call(2, [event, resume::event_entry(), argument]) == INVALID_STATE, "a handler is registered twice")?;
    check(call(4, [event, 0, 0]) == 0, "an event cannot be enabled")?;
    check(read(event, STATUS) & STATE == ENABLED, "an enabled event is in another state")
}

fn unregister(event: u64) -> Outcome {
    check(call(3, [event, 0, 0]) == INVALID_STATE, "an enabled event loses its handler")?;
    check(call(5, [event, 0, 0]) == 0 && call(3, [event, 0, 0]) == 0, "an event cannot be given up")
}

/// The local event injects the global one in its handler, with the priorities given; the order that follows.
fn nest(hart: u64, local: u64, global: u64) -> Result<u64, super::Failure> {
    let outer = Handler::new(stack(0), handle, 2);
    let inner = Handler::new(stack(1), handle, 1);
    check(write(GLOBAL, PREFERRED, hart) == 0, "the global event cannot be sent here")?;
    register(LOCAL, &outer, local)?;
    register(GLOBAL, &inner, global)?;
    ORDER.store(0, Ordering::SeqCst);
    check(call(INJECT, [LOCAL, hart, 0]) == 0, "an event cannot be injected")?;
    let order = ORDER.load(Ordering::SeqCst);
    unregister(LOCAL)?;
    unregister(GLOBAL)?;
    check(WRONG.load(Ordering::SeqCst) == 0, "a handler finds something wrong")?;
    Ok(order)
}

/// Injection, completion, nesting, masks.
pub fn nested(_: &Machine, hart: u64) -> Outcome {
    if sbi::probe_extension(SSE as u64).1 == 0 {
        return skip("no software events");
    }
    check(call(MASK, [0; 3]) == -8, "events are not masked after reset")?;
    check(call(UNMASK, [0; 3]) == 0 && call(UNMASK, [0; 3]) == -7, "events cannot be unmasked")?;
    check(nest(hart, 10, 5)? == 1_265, "a more urgent event does not interrupt a handler")?;
    check(nest(hart, 5, 10)? == 1_526, "a less urgent event interrupts a handler")?;
    check(nest(hart, 7, 7)? == 1_526, "of equal priorities the lower number is not the more urgent")?;
    one_shot_and_masked(hart)?;
    check(call(6, [0; 3]) == 0, "completion without a handler fails")?;
    check(call(MASK, [0; 3]) == 0, "events cannot be masked")
}

fn one_shot_and_masked(hart: u64) -> Outcome {
    let handler = Handler::new(stack(0), handle, 0);
    check(write(LOCAL, CONFIG, 2) == error::INVALID_PARAM, "a configuration that means nothing is taken")?;
    check(write(LOCAL, CONFIG, 1) == 0, "an event cannot be made to happen once")?;
    register(LOCAL, &handler, 0)?;
    check(call(MASK, [0; 3]) == 0, "events cannot be masked")?;
    ORDER.store(0, Ordering::SeqCst);
    check(call(INJECT, [LOCAL, hart, 0]) == 0, "an event cannot be injected while masked")?;
    check(ORDER.load(Ordering::SeqCst) == 0, "a masked event is delivered")?;
    check(read(LOCAL, STATUS) & PENDING != 0, "a masked event is not pending")?;
    check(call(UNMASK, [0; 3]) == 0, "events cannot be unmasked")?;
    check(ORDER.load(Ordering::SeqCst) == 15, "an event does not come when it is unmasked")?;
    check(read(LOCAL, A6) == UNMASK as u64, "the interrupted a6 is wrong")?;
    check(read(LOCAL, SEPC) != u64::MAX && read(LOCAL, STATUS) & STATE == 1, "an event happens more than once")?;
    check(call(3, [LOCAL, 0, 0]) == 0 && write(LOCAL, CONFIG, 0) == 0, "an event cannot be given up")
}

/// Ticks after which a hart that waits for an event looks whether it has missed it.
const LONGEST_WAIT: u64 = 10_000;

static STEP: AtomicU64 = AtomicU64::new(0);
static CAME: AtomicU64 = AtomicU64::new(0);

extern "C" fn came(handler: &Handler, hart: u64) {
    expect(hart == cpu::this_hart() as u64 && handler.data == hart);
    CAME.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn receive() -> ! {
    let own = cpu::this_hart() as u64;
    let handler = Handler::new(stack(0), came, own);
    expect(register(LOCAL, &handler, 0).is_ok() && call(UNMASK, [0; 3]) == 0);
    cpu::set_sie(cpu::SOFTWARE);
    STEP.store(1, Ordering::SeqCst);
    while STEP.load(Ordering::SeqCst) == 1 {
        core::hint::spin_loop();
    }
    // An event ends this wait; one that came just before it began would not, so the timer does, too.
    cpu::set_sie(cpu::TIMER);
    while CAME.load(Ordering::SeqCst) < 2 {
        cpu::set_stimecmp(cpu::time() + LONGEST_WAIT);
        cpu::wfi();
    }
    cpu::set_stimecmp(u64::MAX);
    cpu::set_sie(cpu::SOFTWARE);
    expect(sbi::hart_suspend(0, 0, 0) == 0);
    expect(CAME.load(Ordering::SeqCst) == 3);
    harts::stop()
}

/// Events for a hart that computes, one that waits, one that is suspended.
pub fn remote(machine: &Machine, hart: u64) -> Outcome {
    if sbi::probe_extension(SSE as u64).1 == 0 || !machine.is_mirrorball {
        return skip("no software events that wake a hart");
    }
    let other = harts::other_hart(machine, hart)?;
    WRONG.store(0, Ordering::SeqCst);
    CAME.store(0, Ordering::SeqCst);
    STEP.store(0, Ordering::SeqCst);
    check(entry::start_hart(other, receive) == 0, "hart_start failed")?;
    check(wait_for(|| STEP.load(Ordering::SeqCst) == 1), "the other hart does not run")?;
    for wanted in 1..=3 {
        if wanted == 3 {
            check(wait_for(|| sbi::hart_status(other) == (0, 4)), "the other hart is not suspended")?;
        }
        check(call(INJECT, [LOCAL, other, 0]) == 0, "an event cannot be injected into another hart")?;
        check(wait_for(|| CAME.load(Ordering::SeqCst) == wanted), "an event does not come to another hart")?;
        STEP.store(2, Ordering::SeqCst);
    }
    check(wait_for(|| sbi::hart_status(other) == harts::STOPPED), "the other hart does not stop")?;
    check(WRONG.load(Ordering::SeqCst) == 0, "a handler on another hart finds something wrong")
}
