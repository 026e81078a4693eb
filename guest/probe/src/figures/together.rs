//! vCPUs that wait for each other, and others beside them: what running together is worth, and whether sleepers wake up in time.

use super::report;
use crate::{console::println, cpu, entry, tree::Machine};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Most turns of the loop that is a hart's work between two barriers.
const WORK: u64 = 40_000;
/// Ticks of a microsecond.
const TICKS_PER_US: u64 = 10;
/// How long a serving hart works, and sleeps.
const SERVE_US: u64 = 40;
const SLEEP_US: u64 = 460;
/// Latencies are counted by microsecond up to this.
const LATENCIES: usize = 20_000;

static HARTS: AtomicU64 = AtomicU64::new(0);
static ROUNDS: AtomicU64 = AtomicU64::new(0);
static ROUND: AtomicU64 = AtomicU64::new(0);
static ARRIVED: AtomicU64 = AtomicU64::new(0);
static TELLS: AtomicBool = AtomicBool::new(false);
static SEEN: [AtomicU64; LATENCIES] = [const { AtomicU64::new(0) }; LATENCIES];

/// A number that looks random.
const fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Waits until all harts have come.
fn meet() {
    let round = ROUND.load(Ordering::Acquire);
    if ARRIVED.fetch_add(1, Ordering::AcqRel) + 1 == HARTS.load(Ordering::Relaxed) {
        ARRIVED.store(0, Ordering::Relaxed);
        ROUND.store(round + 1, Ordering::Release);
        return;
    }
    while ROUND.load(Ordering::Acquire) == round {
        if TELLS.load(Ordering::Relaxed) { cpu::wait_for_lock() } else { core::hint::spin_loop() }
    }
}

fn work_and_meet() {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ (cpu::this_hart() as u64 + 1) << 20;
    for _ in 0..ROUNDS.load(Ordering::Relaxed) {
        for turn in 0..next(&mut state) % WORK {
            core::hint::black_box(turn);
        }
        meet();
    }
}

extern "C" fn work_and_stop() -> ! {
    work_and_meet();
    loop {
        cpu::wfi();
    }
}

/// All harts meet at a barrier `count` times, and spin there.
pub fn barriers(machine: &Machine, hart: u64, count: u64) {
    HARTS.store(machine.harts, Ordering::Relaxed);
    ROUNDS.store(count, Ordering::Relaxed);
    for other in (0..machine.harts).filter(|other| *other != hart) {
        entry::start_hart(other, work_and_stop);
    }
    println!("MEETING");
    let begin = cpu::time();
    work_and_meet();
    report("barriers", (cpu::time() - begin) / TICKS_PER_US, "us", count);
}

/// The same with `wrs.nto`.
pub fn barriers_told(machine: &Machine, hart: u64, count: u64) {
    TELLS.store(true, Ordering::Relaxed);
    barriers(machine, hart, count);
}

fn serve() {
    cpu::set_sie(cpu::TIMER);
    let mut wanted = cpu::time();
    for _ in 0..ROUNDS.load(Ordering::Relaxed) {
        wanted = cpu::time().max(wanted) + SLEEP_US * TICKS_PER_US;
        cpu::set_stimecmp(wanted);
        while cpu::time() < wanted {
            cpu::wfi();
        }
        let late = (cpu::time() - wanted) / TICKS_PER_US;
        SEEN[(late as usize).min(LATENCIES - 1)].fetch_add(1, Ordering::Relaxed);
        let until = cpu::time() + SERVE_US * TICKS_PER_US;
        while cpu::time() < until {
            core::hint::black_box(());
        }
    }
    cpu::set_stimecmp(u64::MAX);
    ARRIVED.fetch_add(1, Ordering::AcqRel);
}

extern "C" fn serve_and_stop() -> ! {
    serve();
    cpu::set_sie(0);
    loop {
        cpu::wfi();
    }
}

/// Each hart wakes up `count` times, 2,000 times a second, and works a little: how late it wakes up, 99 times of 100 at most.
pub fn serves(machine: &Machine, hart: u64, count: u64) {
    ROUNDS.store(count, Ordering::Relaxed);
    for other in (0..machine.harts).filter(|other| *other != hart) {
        entry::start_hart(other, serve_and_stop);
    }
    println!("SERVING");
    serve();
    while ARRIVED.load(Ordering::Acquire) < machine.harts {
        core::hint::spin_loop();
    }
    let all: u64 = SEEN.iter().map(|seen| seen.load(Ordering::Relaxed)).sum();
    let within = |permille: u64| {
        let mut sum = 0;
        SEEN.iter().position(|seen| {
            sum += seen.load(Ordering::Relaxed);
            sum * 1_000 >= all * permille
        })
    };
    for (name, permille) in [("serves_p50", 500), ("serves", 990)] {
        report(name, within(permille).unwrap_or(LATENCIES) as u64, "us", all);
    }
}
