//! Traps that the kernel cannot take (Ssdbltrp), as an event.

use super::{Outcome, check, events, features, skip};
use crate::{
    cpu, layout,
    resume::{self, Handler},
    sbi,
    tree::Machine,
};
use core::sync::atomic::{AtomicU64, Ordering};

const DOUBLE_TRAP: u64 = 3;
const EVENT: u64 = 1;
const STACK: u64 = layout::SCRATCH + 0x8000;
const WORDS: u64 = layout::SCRATCH + 0x9000;
/// `sstatus.SPP` and `sstatus.SDT` in an event's flags.
const FLAGS: u64 = 1 | 1 << 5;
const DISABLE_TRAP: u64 = 1 << 24;

static CAME: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: &Handler, _: u64) {
    let is_read = sbi::call(events::SSE, 0, [EVENT, 7, 1, WORDS, 0]).0 == 0;
    if is_read && cpu::load(WORDS) == FLAGS {
        CAME.fetch_add(1, Ordering::SeqCst);
    }
    // The inner trap is skipped.
    cpu::set_sepc(cpu::sepc() + 4);
}

/// Double traps by an exception that the monitor sees first and by one that it does not come to the handler.
pub fn event(machine: &Machine, _: u64) -> Outcome {
    if !machine.is_mirrorball || features::get(DOUBLE_TRAP).0 != 0 {
        return skip("no double traps");
    }
    check(features::get(DOUBLE_TRAP) == (0, 0), "double traps are on after reset")?;
    check(features::set(DOUBLE_TRAP, 1, 0) == 0, "double traps cannot be switched on")?;
    cpu::set_sstatus(cpu::sstatus() & !DISABLE_TRAP);
    let handler = Handler::new(STACK, count, 0);
    let argument = core::ptr::from_ref(&handler) as u64;
    let is_ready = events::call(2, [EVENT, resume::event_entry(), argument]) == 0
        && events::call(4, [EVENT, 0, 0]) == 0
        && events::call(8, [0; 3]) == 0;
    check(is_ready, "the event of double traps cannot be had")?;
    check(events::call(7, [EVENT, 0, 0]) < 0, "a double trap can be injected")?;
    for (kind, wanted) in [(false, 1), (true, 2), (true, 3)] {
        resume::trap_in_trap(kind);
        check(CAME.load(Ordering::SeqCst) == wanted, "a double trap does not come as an event, or not right")?;
    }
    check(events::call(9, [0; 3]) == 0 && events::call(5, [EVENT, 0, 0]) == 0, "the event cannot be given up")?;
    check(
        events::call(3, [EVENT, 0, 0]) == 0 && features::set(DOUBLE_TRAP, 0, 0) == 0,
        "the feature cannot be given up",
    )
}

/// A double trap of which the guest does not want to hear.
pub fn unheard(by_breakpoint: bool) {
    features::set(DOUBLE_TRAP, 1, 0);
    cpu::set_sstatus(cpu::sstatus() & !DISABLE_TRAP);
    resume::trap_in_trap(by_breakpoint);
}
