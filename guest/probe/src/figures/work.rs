//! Guests that do something useful, or nothing, for as long as is wanted.
//
// UNSAFETY: `cbo.zero`, which the compiler does not know of.
#![expect(unsafe_code)]

use super::{clock::spent, report};
use crate::{console::println, cpu, entry, layout, tree::Machine};
use core::sync::atomic::{AtomicU64, Ordering};

const WORDS: u64 = (1 << 20) / 8;

/// Fills a MiB with pseudo-random words and adds it up, `count` times: `CHECKSUM value`, the same on any machine.
pub fn checksum(_: &Machine, _: u64, count: u64) {
    let (mut state, mut sum) = (0x9e37_79b9_7f4a_7c15_u64, 0_u64);
    println!("WORKING");
    for _ in 0..count {
        for word in 0..WORDS {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            cpu::store(layout::FREE + word * 8, state);
        }
        for word in 0..WORDS {
            sum = sum.rotate_left(5) ^ cpu::load(layout::FREE + word * 8);
        }
    }
    println!("CHECKSUM {sum:#018x} {count}");
}

/// Touches `count` MiB, then waits for ever.
pub fn touch(machine: &Machine, hart: u64, count: u64) {
    let end = (layout::FREE + (count << 20)).min(machine.ram_start + machine.ram_bytes);
    for at in (layout::FREE..end).step_by(4096).filter(|at| !machine.is_tree(*at, 4096)) {
        cpu::store(at, at);
    }
    println!("TOUCHED {}", (end - layout::FREE) >> 20);
    idle(machine, hart, count);
}

/// Waits for ever.
pub fn idle(_: &Machine, _: u64, _: u64) {
    println!("IDLE");
    loop {
        cpu::wfi();
    }
}

/// Takes memory that nobody has touched, then waits `count` times for a lock, and that a few times over.
pub fn lock_waits(machine: &Machine, _: u64, count: u64) {
    const BLOCK: u64 = 2 << 20;
    const ROUNDS: u64 = 4;
    let start = (machine.ram_start + machine.ram_bytes / 2).next_multiple_of(BLOCK);
    for at in (start..).step_by(BLOCK as usize).take(ROUNDS as usize) {
        cpu::store(at, at);
        (0..count).for_each(|_| cpu::wait_for_lock());
    }
    report("lock_waits", ROUNDS * count, "waits", count);
}

static SPINNING: AtomicU64 = AtomicU64::new(0);

extern "C" fn spin_for_ever() -> ! {
    SPINNING.fetch_add(1, Ordering::SeqCst);
    loop {
        core::hint::spin_loop();
    }
}

/// Every hart computes for `count` thousand ticks: for fairness.
pub fn spin(machine: &Machine, hart: u64, count: u64) {
    for other in (0..machine.harts).filter(|other| *other != hart) {
        entry::start_hart(other, spin_for_ever);
    }
    println!("SPINNING");
    let until = cpu::time() + count * 1_000;
    let mut rounds = 0_u64;
    while cpu::time() < until {
        rounds += 1;
    }
    report("spin", rounds, "rounds", 1);
}

/// Computes and sleeps by turns, each hart for other times; every other hart never sleeps.
extern "C" fn nap_now_and_then() -> ! {
    const TICKS_PER_MS: u64 = 10_000;
    let hart = cpu::this_hart() as u64;
    let (work, sleep) = (8 + 13 * (hart % 4), 5 + 11 * (hart % 3));
    cpu::set_sie(cpu::TIMER);
    loop {
        let until = cpu::time() + work * TICKS_PER_MS;
        while cpu::time() < until {
            core::hint::spin_loop();
        }
        if hart % 2 == 1 {
            let until = cpu::time() + sleep * TICKS_PER_MS;
            cpu::set_stimecmp(until);
            while cpu::time() < until {
                cpu::wfi();
            }
            cpu::set_stimecmp(u64::MAX);
        }
    }
}

/// Every hart works for ever, and some of them sleep now and then.
pub fn naps(machine: &Machine, hart: u64, _: u64) {
    for other in (0..machine.harts).filter(|other| *other != hart) {
        entry::start_hart(other, nap_now_and_then);
    }
    println!("NAPPING");
    nap_now_and_then();
}

/// Instructions to zero a page with the best that the machine has: 64-byte blocks.
pub fn zeroing_cost(machine: &Machine) -> Option<u64> {
    if !machine.isa.has_cbo_zero {
        return None;
    }
    let (page, end) = (layout::BUFFERS, layout::BUFFERS + 4096);
    // Its own first touch is not the zeroing.
    cpu::store(page, 1);
    let begin = spent();
    // SAFETY: zeroes one page of the probe's buffers.
    unsafe {
        core::arch::asm!(".option push", ".option arch, +zicboz", "1: cbo.zero ({0})", "addi {0}, {0}, 64",
            "bltu {0}, {1}, 1b", ".option pop", inout(reg) page => _, in(reg) end, options(nostack));
    }
    Some(spent() - begin)
}
