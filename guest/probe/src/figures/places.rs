//! Where a monitor puts pages, as the time of an access tells: two vCPUs on two nodes, memory that no cache holds.
//!
//! The first vCPU fills memory (it is there first), and then
//! - `own`: the other one alone reads and writes it, turn after turn;
//! - `both`: both read the same table;
//! - `mixed`: each uses every second page, so that single pages have to move.
//!
//! `of_much` fills more, and has the other one use it line by line in no order: all pages a little, none of them much.
//!
//! `of_shared` is for one vCPU: it reads a disk's blocks into its memory, which other VMs may have in theirs, too.
//!
//! Each line that is read is checked, and the table is written again in the end: so what moves or has copies while it is used
//! is what the guest has written.

use super::{block::Disk, report};
use crate::{console::println, cpu, entry, tree::Machine};
use core::sync::atomic::{AtomicU64, Ordering};

const LINE: u64 = 128;
const PAGE: u64 = 4096;
/// More than the second-level cache of a modelled machine.
const BYTES: u64 = 4 << 20;
const LINES: u64 = BYTES / LINE;
/// What `of_much` fills: each page is missed on a few times in a tenth of a second.
const MUCH_LINES: u64 = (64 << 20) / LINE;
/// Ticks between looks of a vCPU that waits for the other one: 5 ms.
const NAP: u64 = 50_000;

static START: AtomicU64 = AtomicU64::new(0);
static TURNS: AtomicU64 = AtomicU64::new(0);
/// What the other vCPU is to do, and what it has done.
static ASKED: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);
/// Lines that were not what they should be.
static WRONG: AtomicU64 = AtomicU64::new(0);

/// The round that the table says in the end.
const LAST: u64 = 1 << 40;

const fn stamp(line: u64, round: u64) -> u64 {
    line.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round
}

fn note(is_right: bool) {
    // Who reads for ever never tells how many there were.
    if !is_right && WRONG.fetch_add(1, Ordering::SeqCst) == 0 {
        println!("WRONG");
    }
}

fn fill(start: u64, lines: u64, round: u64) {
    (0..lines).for_each(|line| cpu::store(start + line * LINE, stamp(line, round)));
}

/// Reads lines of a table that says `round`; with `writes`, what is read says one more afterwards.
fn turn(start: u64, round: u64, writes: bool, mut lines: impl Iterator<Item = u64>) {
    lines.by_ref().for_each(|line| {
        let at = start + line * LINE;
        note(cpu::load(at) == stamp(line, round));
        if writes {
            cpu::store(at, stamp(line, round + 1));
        }
    });
}

/// Pages of one parity, line by line.
fn of_parity(parity: u64) -> impl Iterator<Item = u64> {
    (0..LINES).filter(move |line| line * LINE / PAGE % 2 == parity)
}

/// All of the many lines, each once, far from the one before.
fn scattered() -> impl Iterator<Item = u64> {
    const { assert!(MUCH_LINES.is_power_of_two(), "an odd factor leaves none out") };
    (0..MUCH_LINES).map(|number| number.wrapping_mul(0x9e37_79b1) % MUCH_LINES)
}

/// The time of the first and of the last of all turns, in ns per line.
fn measure(name: &str, lines: u64, mut turn: impl FnMut(u64)) {
    let turns = TURNS.load(Ordering::SeqCst);
    for round in 0..turns {
        let begin = cpu::time();
        turn(round);
        let ns = (cpu::time() - begin) * 100 / lines;
        if round == 0 || round + 1 == turns {
            let which = if round == 0 { "first" } else { "last" };
            println!("FIGURE {name}_{which} {ns} ns {lines}");
        }
    }
}

/// What the other vCPU does.
extern "C" fn serve() -> ! {
    let start = START.load(Ordering::SeqCst);
    loop {
        let asked = ASKED.load(Ordering::SeqCst);
        if asked == DONE.load(Ordering::SeqCst) {
            nap();
            continue;
        }
        match asked {
            1 => measure("own", LINES, |round| turn(start, round, true, 0..LINES)),
            2 => measure("both_other", LINES, |_| turn(start, 0, false, 0..LINES)),
            3 => measure("mixed_other", LINES / 2, |round| turn(start, round, true, of_parity(1))),
            5 => measure("much", MUCH_LINES, |round| turn(start, round, true, scattered())),
            _ => turn(start, LAST, false, 0..LINES),
        }
        DONE.store(asked, Ordering::SeqCst);
    }
}

/// Sleeps a little, with nothing of the hart used.
fn nap() {
    cpu::set_sie(cpu::TIMER);
    cpu::set_stimecmp(cpu::time() + NAP);
    cpu::wfi();
    cpu::set_sie(0);
    cpu::set_stimecmp(u64::MAX);
}

fn ask(what: u64) {
    ASKED.store(what, Ordering::SeqCst);
}

fn wait(what: u64) {
    while DONE.load(Ordering::SeqCst) != what {
        nap();
    }
}

/// Memory that nobody uses.
const fn middle(machine: &Machine) -> u64 {
    (machine.ram_start + machine.ram_bytes / 2).next_multiple_of(2 << 20)
}

/// Fills so many lines of memory and starts the other vCPU; where the memory begins.
fn begin(machine: &Machine, hart: u64, lines: u64, count: u64) -> Option<u64> {
    let start = middle(machine);
    let Some(other) = (0..machine.harts).find(|other| *other != hart) else {
        super::unable("places", "one vCPU only");
        return None;
    };
    START.store(start, Ordering::SeqCst);
    TURNS.store(count, Ordering::SeqCst);
    fill(start, lines, 0);
    entry::start_hart(other, serve);
    Some(start)
}

fn own(start: u64, count: u64) {
    ask(1);
    wait(1);
    turn(start, count, false, 0..LINES);
}

fn both(start: u64) {
    fill(start, LINES, 0);
    ask(2);
    measure("both", LINES, |_| turn(start, 0, false, 0..LINES));
    wait(2);
}

fn mixed(start: u64, count: u64) {
    fill(start, LINES, 0);
    ask(3);
    measure("mixed", LINES / 2, |round| turn(start, round, true, of_parity(0)));
    wait(3);
    turn(start, count, false, 0..LINES);
}

fn tell() {
    report("places_wrong", WRONG.load(Ordering::SeqCst), "lines", LINES);
}

/// The first of the three alone.
pub fn of_one(machine: &Machine, hart: u64, count: u64) {
    if let Some(start) = begin(machine, hart, LINES, count) {
        own(start, count);
        tell();
    }
}

/// As the first of the three, of more memory.
pub fn of_much(machine: &Machine, hart: u64, count: u64) {
    if let Some(start) = begin(machine, hart, MUCH_LINES, count) {
        ask(5);
        wait(5);
        turn(start, count, false, 0..MUCH_LINES);
        tell();
    }
}

/// The second alone.
pub fn of_readers(machine: &Machine, hart: u64, count: u64) {
    if let Some(start) = begin(machine, hart, LINES, count) {
        both(start);
        tell();
    }
}

/// The second, then what has copies is written and left alone.
pub fn of_readers_once(machine: &Machine, hart: u64, count: u64) {
    if let Some(start) = begin(machine, hart, LINES, count) {
        both(start);
        fill(start, LINES, LAST);
        turn(start, LAST, false, 0..LINES);
        tell();
        loop {
            nap();
        }
    }
}

/// All three, `count` turns each.
pub fn places(machine: &Machine, hart: u64, count: u64) {
    let Some(start) = begin(machine, hart, LINES, count) else { return };
    own(start, count);
    both(start);
    mixed(start, count);
    // What has copies is written: nobody sees the old contents afterwards.
    fill(start, LINES, LAST);
    turn(start, LAST, false, 0..LINES);
    ask(4);
    wait(4);
    tell();
}

/// Pages that a disk was read to, `count` turns: the disk says on each line what [`stamp`] does. They are written in the end.
pub fn of_shared(machine: &Machine, _: u64, count: u64) {
    let mut disk = match Disk::open() {
        Ok(disk) => disk,
        Err(why) => return super::unable("places_of_shared", why),
    };
    let start = middle(machine);
    let refused = (0..BYTES / PAGE).filter(|block| disk.read_to(start + block * PAGE, *block).status != 0).count();
    if refused != 0 {
        return super::unable("places_of_shared", "the disk refuses to be read");
    }
    TURNS.store(count, Ordering::SeqCst);
    measure("shared", LINES, |_| turn(start, 0, false, 0..LINES));
    turn(start, 0, true, 0..LINES);
    turn(start, 1, false, 0..LINES);
    tell();
}
