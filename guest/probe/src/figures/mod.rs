//! Measurements: instructions per operation as the guest sees them, the monitor's work included.
//!
//! `instret` counts what the hart executes in all modes when QEMU runs with `-icount shift=0`, so a difference of two
//! readings around `n` operations is the cost of all levels together. What the guest itself executes is taken off.
//! Guests of Linux KVM have no such counter: with `ticks=N` on the command line `time` stands in for it, a tick of which
//! is N instructions (100 on QEMU's machines).
//! Whatever interrupts a measurement (a client that looks at the machine, a disk of another VM) is counted, too: so each
//! is made in batches, and the median of these is the figure.
//! Exits are not seen from inside: the host counts those, as the difference of two runs with different `n`.

pub mod block;
pub mod clock;
mod message_moves;
mod messages;
mod model;
mod moves;
mod places;
mod pulse;
mod sharing;
mod together;
mod work;

use crate::{console::println, cpu, entry::SEEN, layout, sbi, tree::Machine};
use clock::spent;
use core::sync::atomic::Ordering;

type Figure = fn(&Machine, u64, u64);

const FIGURES: &[(&str, Figure)] = &[
    ("sbi_null", |_, _, n| report("sbi_null", per_operation(n, null_call), "instructions", n)),
    ("sbi_full", |_, _, n| report("sbi_full", per_operation(n, unknown_call), "instructions", n)),
    ("mmio", |_, _, n| report("mmio", per_operation(n, read_clock), "instructions", n)),
    ("mmio_store", |_, _, n| report("mmio_store", per_operation(n, write_scratch), "instructions", n)),
    ("first_touch", first_touch),
    ("timer", timers),
    ("ipi_self", messages::to_oneself),
    ("ipi", messages::ipi),
    ("rfence", messages::remote_fence),
    ("message-moves", message_moves::message_moves),
    ("wfi_wake", sharing::wfi_wake),
    ("wfi_alone", sharing::wfi_alone),
    ("vcpu_switch", sharing::vcpu_switch),
    ("blk_read_4k", block::read_4k),
    ("checksum", work::checksum),
    ("touch", work::touch),
    ("idle", work::idle),
    ("lock_waits", work::lock_waits),
    ("spin", work::spin),
    ("naps", work::naps),
    ("barriers", together::barriers),
    ("barriers_told", together::barriers_told),
    ("serves", together::serves),
    ("pulse", pulse::pulse),
    ("places", places::places),
    ("places_of_one", places::of_one),
    ("places_of_much", places::of_much),
    ("places_of_readers", places::of_readers),
    ("places_of_readers_once", places::of_readers_once),
    ("places_of_shared", places::of_shared),
    ("moves_migrate", moves::migrate),
    ("moves_replicate", moves::replicate),
    ("moves_share", moves::share),
    ("adversary_ping_pong", moves::ping_pong),
    ("adversary_phases", moves::phases),
    ("adversary_rare_writer", moves::rare_writer),
    ("model_latency", model::latency),
    ("model_caches", model::caches),
    ("model_tlb", model::tlb),
    ("model_parallel", model::parallel),
    ("model_clocks", model::clocks),
];

/// Runs figure `name` with `count` repetitions.
pub fn run(name: &str, machine: &Machine, hart: u64, count: u64) {
    match FIGURES.iter().find(|(known, _)| *known == name) {
        Some((_, figure)) => figure(machine, hart, count.max(1)),
        None => println!("FIGURE {name} unknown"),
    }
}

fn report(name: &str, value: u64, unit: &str, samples: u64) {
    println!("FIGURE {name} {value} {unit} {samples}");
}

fn unable(name: &str, why: &str) {
    println!("FIGURE {name} impossible: {why}");
}

fn null_call() {
    sbi::spec_version();
}

fn unknown_call() {
    sbi::call(0x1234_5678, 0, [0; 5]);
}

fn read_clock() {
    cpu::load32(0x10_1000);
}

fn write_scratch() {
    cpu::store8(0x1000_0007, 1);
}

/// Batches of a measurement.
const BATCHES: usize = 15;

/// The median of what `measure` finds per operation, with `count` operations in all; each call is told how many to make.
fn median(count: u64, mut measure: impl FnMut(u64) -> u64) -> u64 {
    let each = (count / BATCHES as u64).max(1);
    let mut found = [0; BATCHES];
    for batch in &mut found {
        *batch = measure(each) / each;
    }
    found.sort_unstable();
    found[BATCHES / 2]
}

/// Instructions per call of `operation`, without the loop.
fn per_operation(count: u64, operation: impl Fn()) -> u64 {
    let measure = |operation: &dyn Fn(), count: u64| {
        let begin = spent();
        for _ in 0..count {
            operation();
        }
        spent() - begin
    };
    measure(&operation, 1);
    let empty = median(count, |count| measure(&|| core::hint::black_box(()), count));
    median(count, |count| measure(&operation, count)).saturating_sub(empty)
}

/// First touch of `count` pages that lie 4 KiB apart (the VM has `pages = "base"`), and what zeroing a page costs
/// here, so that the host can tell the two apart.
fn first_touch(machine: &Machine, _: u64, count: u64) {
    let room = (machine.ram_start + machine.ram_bytes - layout::FREE) / 4096;
    let count = count.min(room);
    let touch_all = || {
        let mut next = 0;
        median(count, |pages| {
            let begin = spent();
            for page in next..(next + pages).min(room) {
                let at = layout::FREE + page * 4096;
                if !machine.is_tree(at, 4096) {
                    cpu::store(at, 1);
                }
            }
            next += pages;
            spent() - begin
        })
    };
    let first = touch_all();
    let second = touch_all();
    report("first_touch", first.saturating_sub(second), "instructions", count);
    if let Some(instructions) = work::zeroing_cost(machine) {
        report("page_zeroing", instructions, "instructions", 1);
    }
}

fn timers(_: &Machine, hart: u64, count: u64) {
    let seen = &SEEN[hart as usize].interrupts[5];
    cpu::set_sie(cpu::TIMER);
    cpu::interrupts(true);
    let begin = spent();
    for _ in 0..count {
        let before = seen.load(Ordering::SeqCst);
        cpu::set_stimecmp(cpu::time() + 10);
        while seen.load(Ordering::SeqCst) == before {
            core::hint::spin_loop();
        }
    }
    let spent = spent() - begin;
    cpu::interrupts(false);
    report("timer", spent / count, "instructions", count);
}
