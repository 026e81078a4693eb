//! Measurements: instructions per operation as the guest sees them, the monitor's work included.
//!
//! `instret` counts what the hart executes in all modes when QEMU runs with `-icount shift=0`, so a difference
//! of two readings around `n` operations is the cost of all levels together. The loop's own cost is taken off.

use crate::{
    console::println,
    cpu,
    entry::{self, SEEN},
    sbi,
    tree::Machine,
};
use core::sync::atomic::{AtomicU64, Ordering};

/// Runs figure `name` with `count` repetitions.
pub fn run(name: &str, machine: &Machine, hart: u64, count: u64) {
    match name {
        "sbi_null" => report(
            name,
            count,
            per_operation(count, || {
                sbi::spec_version();
            }),
            "instructions",
        ),
        "sbi_unknown" => report(
            name,
            count,
            per_operation(count, || {
                sbi::call(0x1234_5678, 0, [0; 5]);
            }),
            "instructions",
        ),
        "mmio" => report(
            name,
            count,
            per_operation(count, || {
                cpu::load32(0x10_1000);
            }),
            "instructions",
        ),
        "first_touch" => first_touch(machine, count),
        "timer" => timers(hart, count),
        "ipi_self" => ipi_self(hart, count),
        "wfi_wake" => wfi_wake(hart, count),
        "spin" => spin(machine, hart, count),
        _ => println!("FIGURE {name} unknown"),
    }
}

fn report(name: &str, count: u64, value: u64, unit: &str) {
    println!("FIGURE {name} {value} {unit} {count}");
}

/// Instructions per call of `operation`, without the loop.
fn per_operation(count: u64, operation: impl Fn()) -> u64 {
    let measure = |operation: &dyn Fn()| {
        let begin = cpu::instret();
        for _ in 0..count {
            operation();
        }
        cpu::instret() - begin
    };
    measure(&operation); // warm
    let empty = measure(&|| core::hint::black_box(()));
    measure(&operation).saturating_sub(empty) / count.max(1)
}

/// First touch of `count` pages that lie 4 KiB apart. Meaningful with `pages = "base"` in the VM's description.
fn first_touch(machine: &Machine, count: u64) {
    let start = 0x8020_0000 + (16 << 20);
    let room = (machine.ram_start + machine.ram_bytes - (4 << 20) - start) / 4096;
    let count = count.min(room);
    let touch = || {
        let begin = cpu::instret();
        for page in 0..count {
            cpu::store(start + page * 4096, 1);
        }
        cpu::instret() - begin
    };
    let first = touch();
    let second = touch();
    report("first_touch", count, first.saturating_sub(second) / count.max(1), "instructions");
}

fn timers(hart: u64, count: u64) {
    let seen = &SEEN[hart as usize].interrupts[5];
    cpu::set_sie(cpu::TIMER);
    cpu::interrupts(true);
    let begin = cpu::instret();
    for _ in 0..count {
        let before = seen.load(Ordering::SeqCst);
        cpu::set_stimecmp(cpu::time() + 10);
        while seen.load(Ordering::SeqCst) == before {
            core::hint::spin_loop();
        }
    }
    let spent = cpu::instret() - begin;
    cpu::interrupts(false);
    report("timer", count, spent / count.max(1), "instructions");
}

fn ipi_self(hart: u64, count: u64) {
    let seen = &SEEN[hart as usize].interrupts[1];
    cpu::set_sie(cpu::SOFTWARE);
    cpu::interrupts(true);
    let begin = cpu::instret();
    for _ in 0..count {
        let before = seen.load(Ordering::SeqCst);
        sbi::send_ipi(1, hart);
        while seen.load(Ordering::SeqCst) == before {
            core::hint::spin_loop();
        }
    }
    let spent = cpu::instret() - begin;
    cpu::interrupts(false);
    report("ipi_self", count, spent / count.max(1), "instructions");
}

/// WFI until the timer: with icount, idle time is skipped and costs no instructions.
fn wfi_wake(hart: u64, count: u64) {
    let seen = &SEEN[hart as usize].interrupts[5];
    cpu::set_sie(cpu::TIMER);
    let begin = cpu::instret();
    for _ in 0..count {
        cpu::set_stimecmp(cpu::time() + 500);
        cpu::wfi();
        cpu::interrupts(true);
        cpu::interrupts(false);
    }
    let spent = cpu::instret() - begin;
    cpu::set_sie(0);
    report("wfi_wake", count, spent / count.max(1), "instructions");
    println!("FIGURE wfi_interrupts {} count {count}", seen.load(Ordering::SeqCst));
}

static SPINNING: AtomicU64 = AtomicU64::new(0);

extern "C" fn spin_for_ever() -> ! {
    SPINNING.fetch_add(1, Ordering::SeqCst);
    loop {
        core::hint::spin_loop();
    }
}

/// Every hart computes for `count` thousand ticks: for fairness and switch costs.
fn spin(machine: &Machine, hart: u64, count: u64) {
    for other in (0..machine.harts).filter(|other| *other != hart) {
        entry::start_hart(other, spin_for_ever);
    }
    let until = cpu::time() + count * 1_000;
    let mut rounds = 0_u64;
    while cpu::time() < until {
        rounds += 1;
    }
    report("spin", count, rounds, "rounds");
}
