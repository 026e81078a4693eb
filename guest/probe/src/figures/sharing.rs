//! What it costs that vCPUs share a hart. The machine has one hart, the VM two vCPUs: one measures, the other turns in a
//! loop of known length and counts, so that its part can be taken off exactly.
//
// UNSAFETY: loops of an exact number of instructions.
#![expect(unsafe_code)]

use super::{clock::spent, median, report, unable};
use crate::{cpu, entry, tree::Machine};
use core::{
    arch::asm,
    sync::atomic::{AtomicU64, Ordering},
};

/// Instructions of one turn of either loop below.
const TURN: u64 = 4;
/// Ticks to sleep: long against the wake-up, short against a time slice.
const SLEEP: u64 = 500;

static TURNS: AtomicU64 = AtomicU64::new(0);

extern "C" fn turn_for_ever() -> ! {
    // SAFETY: stores to the counter only, whose only writer this is.
    unsafe {
        asm!("1: addi t0, t0, 1", "sd t0, 0({0})", "nop", "j 1b", in(reg) TURNS.as_ptr(), in("t0") 0_u64,
            options(noreturn));
    }
}

/// Turns until the other counter is not `last`; gives the turns made and the counter.
fn turn_until_it_moves(last: u64) -> (u64, u64) {
    let mut turns = 0_u64;
    let now;
    // SAFETY: loads the counter.
    unsafe {
        asm!("1: ld {now}, 0({at})", "addi {turns}, {turns}, 1", "nop", "beq {now}, {last}, 1b",
            now = out(reg) now, turns = inout(reg) turns, at = in(reg) TURNS.as_ptr(), last = in(reg) last,
            options(nostack));
    }
    (turns, now)
}

fn with_neighbour(name: &str, machine: &Machine, hart: u64, measure: impl FnOnce()) {
    let Some(other) = (0..machine.harts).find(|other| *other != hart) else { return unable(name, "one vCPU only") };
    entry::start_hart(other, turn_for_ever);
    turn_until_it_moves(TURNS.load(Ordering::SeqCst));
    measure();
}

/// Waits `count` times for the timer; instructions in all, and those of the measuring loop.
fn sleep(count: u64) -> (u64, u64) {
    cpu::set_sie(cpu::TIMER);
    let begin = spent();
    let mut turns = 0;
    for _ in 0..count {
        let deadline = cpu::time() + SLEEP;
        cpu::set_stimecmp(deadline);
        // A monitor may let WFI return early; each time costs what it costs.
        while cpu::time() < deadline {
            cpu::wfi();
            turns += 1;
        }
    }
    let spent = spent() - begin;
    cpu::set_sie(0);
    cpu::set_stimecmp(u64::MAX);
    (spent, turns * 3 + count * 6)
}

/// WFI while another vCPU wants the hart: descheduled, woken by the timer, running again.
pub fn wfi_wake(machine: &Machine, hart: u64, count: u64) {
    with_neighbour("wfi_wake", machine, hart, || {
        let begin = TURNS.load(Ordering::SeqCst);
        let cost = median(count, |count| {
            let before = TURNS.load(Ordering::SeqCst);
            let (spent, own) = sleep(count);
            let neighbour = (TURNS.load(Ordering::SeqCst) - before) * TURN;
            spent.saturating_sub(neighbour + own)
        });
        report("wfi_wake", cost, "instructions", count);
        let neighbour = (TURNS.load(Ordering::SeqCst) - begin) * TURN;
        report("wfi_neighbour", neighbour / count, "instructions", count);
    });
}

/// WFI while nobody else wants the hart.
pub fn wfi_alone(_: &Machine, _: u64, count: u64) {
    let cost = median(count, |count| {
        let (spent, own) = sleep(count);
        spent.saturating_sub(own)
    });
    report("wfi_alone", cost, "instructions", count);
}

/// Two vCPUs that compute for ever: what a switch at the end of a time slice costs.
pub fn vcpu_switch(machine: &Machine, hart: u64, count: u64) {
    with_neighbour("vcpu_switch", machine, hart, || {
        let cost = median(count, |count| {
            let first = TURNS.load(Ordering::SeqCst);
            let (mut last, mut own) = (first, 0);
            let begin = spent();
            for _ in 0..count {
                let (turns, now) = turn_until_it_moves(last);
                own += turns;
                last = now;
            }
            let spent = spent() - begin;
            spent.saturating_sub((own + (last - first)) * TURN)
        });
        // Away and back are two switches.
        report("vcpu_switch", cost / 2, "instructions", 2 * count);
    });
}
