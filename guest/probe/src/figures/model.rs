//! What the machine model can be believed: latencies, caches, TLB, parallel time, clocks and timers, as a bare program
//! sees them by `rdtime`.
//
// UNSAFETY: chains of loads, page tables, marks.
#![expect(unsafe_code)]

use super::report;
use crate::{console::println, cpu, entry, layout, tree::Machine};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

/// Picoseconds of a tick of `time`, at 10 MHz.
const TICK_PS: u64 = 100_000;
/// Distance of the places of a chain: a line of the model.
const LINE: u64 = 128;
const PAGE: u64 = 4096;
/// Memory that no cache of the model holds.
const LARGE: u64 = 8 << 20;
/// Loads in one turn of the loop that follows a chain.
const UNROLLED: u64 = 16;

/// Makes a chain through `count` (a power of two) places from `start` on, in an order that is no order.
fn make_chain(start: u64, count: u64, stride: u64) {
    // A full cycle, since the factor is one more than a multiple of four and the summand is odd.
    let next = |at: u64| (at * 1_664_525 + 1_013_904_223) % count;
    for at in 0..count {
        cpu::store(start + at * stride, start + next(at) * stride);
    }
}

/// Follows a chain for `loads` loads. Gives the time of a load, in ps.
fn follow(start: u64, loads: u64) -> u64 {
    let begin = cpu::time();
    // SAFETY: reads what `make_chain` has written.
    unsafe {
        asm!(
            "1:", "ld {at}, 0({at})", "ld {at}, 0({at})", "ld {at}, 0({at})", "ld {at}, 0({at})", "ld {at}, 0({at})",
            "ld {at}, 0({at})", "ld {at}, 0({at})", "ld {at}, 0({at})", "ld {at}, 0({at})", "ld {at}, 0({at})",
            "ld {at}, 0({at})", "ld {at}, 0({at})", "ld {at}, 0({at})", "ld {at}, 0({at})", "ld {at}, 0({at})",
            "ld {at}, 0({at})", "addi {left}, {left}, -1", "bnez {left}, 1b",
            at = inout(reg) start => _, left = inout(reg) loads / UNROLLED => _, options(nostack),
        );
    }
    (cpu::time() - begin) * TICK_PS / loads
}

/// Time per load in a chain of `bytes`, when it has been followed once.
fn time_of(start: u64, bytes: u64, stride: u64) -> u64 {
    let count = bytes / stride;
    make_chain(start, count, stride);
    let loads = count.max(1 << 14);
    follow(start, loads);
    follow(start, loads)
}

/// From a hart of each node to the memory of each node: `chase_FROM_TO`; and without a miss, `chase_l1`. The count is the
/// memory of a node in MiB, times sixteen, and the number of nodes.
pub fn latency(machine: &Machine, hart: u64, count: u64) {
    report("chase_l1", time_of(layout::FREE, PAGE, LINE), "ps", 1);
    SHAPE.store(count, Ordering::SeqCst);
    HARTS.store(machine.harts, Ordering::SeqCst);
    let nodes = count % 16;
    for from in 0..nodes {
        let first = from * machine.harts / nodes;
        if first == hart {
            chase(from);
        } else {
            entry::start_hart(first, chase_along);
        }
        while MEASURED.load(Ordering::SeqCst) <= from {
            core::hint::spin_loop();
        }
    }
}

static SHAPE: AtomicU64 = AtomicU64::new(0);
static HARTS: AtomicU64 = AtomicU64::new(0);
static MEASURED: AtomicU64 = AtomicU64::new(0);

/// From this hart to the memory of each node.
fn chase(from: u64) {
    let (nodes, bytes) = (SHAPE.load(Ordering::SeqCst) % 16, (SHAPE.load(Ordering::SeqCst) / 16) << 20);
    for to in 0..nodes {
        // The firmware has the start of the first node, the device tree its end.
        let start = 0x8000_0000 + to * bytes + bytes / 2;
        println!("FIGURE chase_{from}_{to} {} ps 1", time_of(start, LARGE, LINE));
    }
    MEASURED.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn chase_along() -> ! {
    chase(cpu::this_hart() as u64 * (SHAPE.load(Ordering::SeqCst) % 16) / HARTS.load(Ordering::SeqCst));
    loop {
        cpu::wfi();
    }
}

/// Time per load by the size of what is read.
pub fn caches(machine: &Machine, _: u64, _: u64) {
    let start = machine.ram_start + machine.ram_bytes / 2;
    for (name, kib) in [
        ("size_8k", 8),
        ("size_16k", 16),
        ("size_32k", 32),
        ("size_64k", 64),
        ("size_128k", 128),
        ("size_256k", 256),
        ("size_512k", 512),
        ("size_1m", 1024),
        ("size_2m", 2048),
        ("size_4m", 4096),
        ("size_8m", 8192),
    ] {
        report(name, time_of(start, kib << 10, LINE), "ps", 1);
    }
}

/// Time per load by the number of pages that are read, a line of each, with pages of 4 KiB and of 2 MiB.
pub fn tlb(machine: &Machine, _: u64, _: u64) {
    let start = (machine.ram_start + machine.ram_bytes / 2).next_multiple_of(2 << 20);
    let tables = start - (16 << 20);
    for (is_small, names) in [(true, SMALL), (false, LARGE_PAGES)] {
        translate(tables, start, is_small);
        for (name, pages) in names.into_iter().zip([16, 32, 64, 128, 256, 512, 1024]) {
            // One line further in each page, so that the lines are in different sets.
            report(name, time_of(start, pages * (PAGE + LINE), PAGE + LINE), "ps", 1);
        }
        // SAFETY: back to physical addresses, which are the same.
        unsafe { asm!("csrw satp, zero", "sfence.vma", options(nostack)) };
    }
}

const SMALL: [&str; 7] = ["pages_16", "pages_32", "pages_64", "pages_128", "pages_256", "pages_512", "pages_1024"];
const LARGE_PAGES: [&str; 7] = ["mega_16", "mega_32", "mega_64", "mega_128", "mega_256", "mega_512", "mega_1024"];

/// Sv39, every address itself: gigabytes, but for 8 MiB from `start` on in small pages or in pages of 2 MiB.
fn translate(tables: u64, start: u64, is_small: bool) {
    const TABLE: u64 = 1;
    const LEAF: u64 = 0xcf;
    let entry = |addr: u64, bits: u64| addr >> 12 << 10 | bits;
    let (root, middle) = (tables, tables + PAGE);
    for at in 0..512 {
        cpu::store(root + at * 8, if at < 256 { entry(at << 30, LEAF) } else { 0 });
        cpu::store(middle + at * 8, entry((start >> 30 << 30) + (at << 21), LEAF));
    }
    cpu::store(root + (start >> 30) * 8, entry(middle, TABLE));
    for table in (0..4).filter(|_| is_small) {
        let (last, from) = (tables + (2 + table) * PAGE, start + (table << 21));
        (0..512).for_each(|at| cpu::store(last + at * 8, entry(from + at * PAGE, LEAF)));
        cpu::store(middle + (from >> 21 & 511) * 8, entry(last, TABLE));
    }
    let satp = 8 << 60 | root >> 12;
    // SAFETY: every address stays what it is.
    unsafe { asm!("sfence.vma", "csrw satp, {0}", "sfence.vma", in(reg) satp, options(nostack)) };
}

static READY: AtomicU64 = AtomicU64::new(0);
static GO: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);
static LONGEST: AtomicU64 = AtomicU64::new(0);

/// A loop of known length. Gives its ticks.
fn work(turns: u64) -> u64 {
    let begin = cpu::time();
    // SAFETY: registers only.
    unsafe {
        asm!("1: addi {0}, {0}, -1", "xor {1}, {1}, {0}", "bnez {0}, 1b", inout(reg) turns => _, out(reg) _,
            options(nomem, nostack));
    }
    cpu::time() - begin
}

extern "C" fn work_along() -> ! {
    READY.fetch_add(1, Ordering::SeqCst);
    while GO.load(Ordering::SeqCst) == 0 {}
    LONGEST.fetch_max(work(GO.load(Ordering::SeqCst)), Ordering::SeqCst);
    DONE.fetch_add(1, Ordering::SeqCst);
    loop {
        cpu::wfi();
    }
}

/// A loop of `count` turns on one hart alone, and on all at once: the longest counts.
pub fn parallel(machine: &Machine, hart: u64, count: u64) {
    let alone = work(count);
    let others = machine.harts - 1;
    for other in (0..machine.harts).filter(|other| *other != hart) {
        entry::start_hart(other, work_along);
    }
    while READY.load(Ordering::SeqCst) < others {
        core::hint::spin_loop();
    }
    mark_begin();
    GO.store(count, Ordering::SeqCst);
    let own = work(count);
    while DONE.load(Ordering::SeqCst) < others {
        core::hint::spin_loop();
    }
    mark_end();
    let longest = LONGEST.load(Ordering::SeqCst).max(own);
    report("parallel_alone", alone * TICK_PS / 1000, "ns", 1);
    report("parallel_together", longest * TICK_PS / 1000, "ns", machine.harts);
}

fn mark_begin() {
    // SAFETY: does nothing.
    unsafe { asm!("slti x0, x0, 1", options(nostack)) };
}

fn mark_end() {
    // SAFETY: does nothing.
    unsafe { asm!("slti x0, x0, 2", options(nostack)) };
}

static SHOWN: AtomicU64 = AtomicU64::new(0);
static BACKWARDS: AtomicU64 = AtomicU64::new(0);

/// Reads the time and compares it with the latest that any hart had read before.
fn compare_clocks(count: u64) {
    for _ in 0..count {
        let before = SHOWN.load(Ordering::SeqCst);
        let now = cpu::time();
        if now < before {
            BACKWARDS.fetch_add(1, Ordering::SeqCst);
        }
        SHOWN.fetch_max(now, Ordering::SeqCst);
    }
}

extern "C" fn compare_along() -> ! {
    compare_clocks(u64::MAX);
    loop {
        cpu::wfi();
    }
}

/// Clocks that never go back, seen from any hart; timers that wake a waiting hart at their time: the latest in ns.
pub fn clocks(machine: &Machine, hart: u64, count: u64) {
    for other in (0..machine.harts).filter(|other| *other != hart) {
        entry::start_hart(other, compare_along);
    }
    compare_clocks(count);
    report("clock_backwards", BACKWARDS.load(Ordering::SeqCst), "times", count);
    cpu::set_sie(cpu::TIMER);
    let (mut late, mut early) = (0, 0);
    for round in 0..100 {
        let deadline = cpu::time() + 1_000 + round;
        cpu::set_stimecmp(deadline);
        cpu::wfi();
        let now = cpu::time();
        late = late.max(now.saturating_sub(deadline));
        early += u64::from(now < deadline);
        cpu::set_stimecmp(u64::MAX);
    }
    report("timer_late", late * TICK_PS / 1000, "ns", 100);
    report("timer_early", early, "times", 100);
}
