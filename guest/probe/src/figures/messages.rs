//! Interrupts from hart to hart.

use super::{clock::spent, report, unable};
use crate::{cpu, entry, entry::SEEN, imsic, sbi, tree::Machine};
use core::sync::atomic::{AtomicU64, Ordering};

/// An IPI to oneself by SBI.
pub fn to_oneself(_: &Machine, hart: u64, count: u64) {
    let seen = &SEEN[hart as usize].interrupts[1];
    cpu::set_sie(cpu::SOFTWARE);
    cpu::interrupts(true);
    let begin = spent();
    for _ in 0..count {
        let before = seen.load(Ordering::SeqCst);
        sbi::send_ipi(1, hart);
        while seen.load(Ordering::SeqCst) == before {
            core::hint::spin_loop();
        }
    }
    let spent = spent() - begin;
    cpu::interrupts(false);
    report("ipi_self", spent / count, "instructions", count);
}

static READY: AtomicU64 = AtomicU64::new(0);
static FENCED: AtomicU64 = AtomicU64::new(0);

/// Computes, takes messages, and forgets its translations after each, as Linux does when it is told to.
extern "C" fn listen() -> ! {
    let seen = &SEEN[cpu::this_hart()].interrupts[9];
    imsic::enable();
    cpu::set_sie(cpu::EXTERNAL);
    cpu::interrupts(true);
    READY.store(1, Ordering::SeqCst);
    loop {
        let count = seen.load(Ordering::SeqCst);
        if FENCED.load(Ordering::SeqCst) != count {
            cpu::fence_translations();
            FENCED.store(count, Ordering::SeqCst);
        }
        core::hint::spin_loop();
    }
}

fn to_another(name: &str, machine: &Machine, hart: u64, count: u64, arrived: impl Fn(usize) -> u64) {
    let Some(other) = (0..machine.harts).find(|other| *other != hart) else { return unable(name, "one hart only") };
    if !machine.has_imsic {
        return unable(name, "no IMSIC");
    }
    entry::start_hart(other, listen);
    while READY.load(Ordering::SeqCst) == 0 {
        core::hint::spin_loop();
    }
    let begin = spent();
    for message in 1..=count {
        imsic::send(other, imsic::IDENTITY);
        while arrived(other as usize) < message {
            core::hint::spin_loop();
        }
    }
    report(name, (spent() - begin) / count, "instructions", count);
}

/// Messages to a hart that computes.
pub fn ipi(machine: &Machine, hart: u64, count: u64) {
    to_another("ipi", machine, hart, count, |other| SEEN[other].interrupts[9].load(Ordering::SeqCst));
}

/// The same, and the answer that its translations are forgotten.
pub fn remote_fence(machine: &Machine, hart: u64, count: u64) {
    to_another("rfence", machine, hart, count, |_| FENCED.load(Ordering::SeqCst));
}
