//! What pages cost that move, get copies, are mapped from the disk cache or end being shared; and users of pages who make the
//! worst of a monitor that moves them.
//!
//! Marks tell an emulator what to count: marks 2 and 3 are around the part in which pages move, 4 and 5 around the same work when
//! all are where they stay. Both vCPUs work or spin all the time, so that a hart that is idle does nothing else meanwhile.
//
// UNSAFETY: marks.
#![expect(unsafe_code)]

use super::{
    block::{Direction, Disk},
    report, unable,
};
use crate::{console::println, cpu, entry, layout, tree::Machine};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

const LINE: u64 = 128;
const PAGE: u64 = 4096;
/// Pages that move: more than a second-level cache holds.
const PAGES: u64 = 2048;
/// Pages that adversaries fight over.
const FOUGHT: u64 = 1024;
/// Blocks of the disk that are read.
const BLOCKS: u64 = 1024;
/// Ticks of 100 ns.
const QUIET_TICKS: u64 = 2_500_000;

static START: AtomicU64 = AtomicU64::new(0);
static TURNS: AtomicU64 = AtomicU64::new(0);
static ROUND: AtomicU64 = AtomicU64::new(0);
static ARRIVED: AtomicU64 = AtomicU64::new(0);

/// Sets mark `N` for the emulator.
fn mark<const N: u16>() {
    // SAFETY: does nothing. The clobbered memory keeps work from being moved across it.
    unsafe { asm!("slti x0, x0, {n}", n = const N, options(nostack)) }
}

/// One access to each line, `writes` or not.
fn walk(pages: u64, writes: bool) {
    let start = START.load(Ordering::SeqCst);
    for at in (start..start + pages * PAGE).step_by(LINE as usize) {
        let value = cpu::load(at);
        if writes {
            cpu::store(at, value + 1);
        }
    }
}

/// Waits until both vCPUs are here, spinning.
fn meet() {
    let round = ROUND.load(Ordering::SeqCst);
    if ARRIVED.fetch_add(1, Ordering::SeqCst) == 1 {
        ARRIVED.store(0, Ordering::SeqCst);
        ROUND.store(round + 1, Ordering::SeqCst);
        return;
    }
    while ROUND.load(Ordering::SeqCst) == round {
        core::hint::spin_loop();
    }
}

/// The first vCPU touches `pages` pages and starts the other one, which is on another node.
fn begin(name: &str, machine: &Machine, hart: u64, count: u64, pages: u64, along: extern "C" fn() -> !) -> bool {
    let Some(other) = (0..machine.harts).find(|other| *other != hart) else {
        unable(name, "one vCPU only");
        return false;
    };
    START.store((machine.ram_start + machine.ram_bytes / 2).next_multiple_of(2 << 20), Ordering::SeqCst);
    TURNS.store(count, Ordering::SeqCst);
    walk(pages, true);
    entry::start_hart(other, along);
    true
}

/// The node's first access to each page, which costs it a fault; and a quarter of a second in which nobody uses them, so that
/// counters which tell of who filled them have begun anew.
fn touch_all() {
    let start = START.load(Ordering::SeqCst);
    (0..PAGES).for_each(|page| _ = cpu::load(start + page * PAGE));
    let end = cpu::time() + QUIET_TICKS;
    while cpu::time() < end {
        core::hint::spin_loop();
    }
}

extern "C" fn use_alone() -> ! {
    let turns = TURNS.load(Ordering::SeqCst);
    touch_all();
    meet();
    mark::<2>();
    (0..turns).for_each(|_| walk(PAGES, true));
    mark::<3>();
    mark::<4>();
    (0..turns).for_each(|_| walk(PAGES, true));
    mark::<5>();
    meet();
    rest()
}

/// Pages of one node that the other one alone uses, `count` turns: they migrate.
pub fn migrate(machine: &Machine, hart: u64, count: u64) {
    if begin("moves_migrate", machine, hart, count, PAGES, use_alone) {
        meet();
        meet();
        report("moves_migrate", PAGES, "pages", count);
    }
}

extern "C" fn read_along() -> ! {
    let turns = TURNS.load(Ordering::SeqCst);
    touch_all();
    meet();
    (0..turns).for_each(|_| walk(PAGES, false));
    meet();
    (0..turns).for_each(|_| walk(PAGES, false));
    meet();
    rest()
}

/// Pages that both nodes read, `count` turns: they get copies.
pub fn replicate(machine: &Machine, hart: u64, count: u64) {
    if !begin("moves_replicate", machine, hart, count, PAGES, read_along) {
        return;
    }
    meet();
    mark::<2>();
    (0..count).for_each(|_| walk(PAGES, false));
    meet();
    mark::<3>();
    mark::<4>();
    (0..count).for_each(|_| walk(PAGES, false));
    meet();
    mark::<5>();
    report("moves_replicate", PAGES, "pages", count);
}

extern "C" fn rest() -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// Pages that are read from a disk whose blocks are in memory already (marks 2 and 3), and then written (4 and 5).
pub fn share(machine: &Machine, hart: u64, _: u64) {
    let mut disk = match Disk::open() {
        Ok(disk) => disk,
        Err(why) => return unable("moves_share", why),
    };
    // Its blocks come into memory, and every page has one of its own before.
    let page = |block: u64| layout::FREE + block * PAGE;
    for block in 0..BLOCKS {
        let is_read = disk.transfer(Direction::Read, block).status == 0;
        if !is_read || machine.is_tree(page(block), PAGE) {
            return unable("moves_share", "the disk refuses to be read, or memory is in use");
        }
        cpu::store(page(block), block);
    }
    if let Some(other) = (0..machine.harts).find(|other| *other != hart) {
        entry::start_hart(other, rest);
    }
    mark::<2>();
    let refused = (0..BLOCKS).filter(|block| disk.read_to(page(*block), *block).status != 0).count();
    mark::<3>();
    mark::<4>();
    (0..BLOCKS).for_each(|block| cpu::store(page(block), block));
    mark::<5>();
    if refused == 0 {
        report("moves_share", BLOCKS, "pages", 1);
    } else {
        unable("moves_share", "requests were refused");
    }
}

/// The time of `count` turns of the worst that both vCPUs can do, in us.
fn fight(name: &str, machine: &Machine, hart: u64, count: u64, along: extern "C" fn() -> !, own: impl Fn(u64)) {
    if !begin(name, machine, hart, count, FOUGHT, along) {
        return;
    }
    meet();
    let begin = cpu::time();
    (0..count).for_each(own);
    meet();
    println!("FIGURE {name} {} us {count}", (cpu::time() - begin) / 10);
}

extern "C" fn write_along() -> ! {
    meet();
    (0..TURNS.load(Ordering::SeqCst)).for_each(|_| walk(FOUGHT, true));
    meet();
    rest()
}

/// Both write all pages all the time.
pub fn ping_pong(machine: &Machine, hart: u64, count: u64) {
    fight("adversary_ping_pong", machine, hart, count, write_along, |_| walk(FOUGHT, true));
}

/// Turns of a phase: pages have just become hot when it ends.
const PHASE: u64 = 3;

extern "C" fn write_in_turn() -> ! {
    meet();
    for _ in 0..TURNS.load(Ordering::SeqCst) {
        meet();
        (0..PHASE).for_each(|_| walk(FOUGHT, true));
        meet();
    }
    meet();
    rest()
}

/// One writes all pages a few times, then the other one does.
pub fn phases(machine: &Machine, hart: u64, count: u64) {
    fight("adversary_phases", machine, hart, count, write_in_turn, |_| {
        (0..PHASE).for_each(|_| walk(FOUGHT, true));
        meet();
        meet();
    });
}

extern "C" fn read_in_turn() -> ! {
    meet();
    for _ in 0..TURNS.load(Ordering::SeqCst) {
        meet();
        (0..PHASE).for_each(|_| walk(FOUGHT, false));
        meet();
    }
    meet();
    rest()
}

/// Both read all pages a few times, and then one writes a word of each: copies are made to be thrown away.
pub fn rare_writer(machine: &Machine, hart: u64, count: u64) {
    fight("adversary_rare_writer", machine, hart, count, read_in_turn, |round| {
        meet();
        (0..PHASE).for_each(|_| walk(FOUGHT, false));
        meet();
        let start = START.load(Ordering::SeqCst);
        (0..FOUGHT).for_each(|page| cpu::store(start + page * PAGE, round));
    });
}
