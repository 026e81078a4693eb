//! Deterministic parallel time: a clock per hart, the machine's clock, and the rule of how far a hart may run.
//!
//! The machine's clock follows the slowest running hart, and no hart runs further ahead of it than a window. When all
//! wait, the driver moves it to the next timer. Who runs first follows from the clocks and the seed alone, as long as
//! the driver always takes the harts in the same order.
//!
//! All numbers are atomic, so that any thread may read the time; one thread drives.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Clocks of all harts and of the machine, in picoseconds.
#[derive(Debug)]
pub struct Clocks {
    harts: Box<[HartClock]>,
    machine_ps: AtomicU64,
    /// The latest time that anybody was told: nobody is told an earlier one.
    told_ps: AtomicU64,
    window_ps: u64,
    seed: u64,
}

#[derive(Debug, Default)]
struct HartClock {
    now_ps: AtomicU64,
    idle_ps: AtomicU64,
    state: AtomicU8,
}

// 0: not there yet.
const RUNNING: u8 = 1;
const WAITING: u8 = 2;

impl Clocks {
    /// Clocks of `harts` harts that are not there yet. With seed 0 all begin together, else each at a moment of the
    /// first window that the seed chooses.
    pub fn new(harts: usize, start_ps: u64, window_ps: u64, seed: u64) -> Self {
        let harts = (0..harts).map(|_| HartClock::default()).collect();
        Self { harts, machine_ps: start_ps.into(), told_ps: 0.into(), window_ps: window_ps.max(1), seed }
    }

    /// `hart` begins to run. Gives its clock.
    pub fn start(&self, hart: usize) -> u64 {
        let offset = if self.seed == 0 { 0 } else { mix(self.seed ^ mix(hart as u64)) % self.window_ps };
        let now_ps = self.machine() + offset;
        self.harts[hart].now_ps.store(now_ps, Relaxed);
        self.harts[hart].state.store(RUNNING, Relaxed);
        now_ps
    }

    /// `hart` has run to `now_ps` by its own count. One that waited is woken: it goes on at the machine's time. Gives
    /// its clock.
    pub fn reach(&self, hart: usize, now_ps: u64) -> u64 {
        let clock = &self.harts[hart];
        let now_ps = now_ps.max(self.machine());
        if clock.state.swap(RUNNING, Relaxed) == WAITING {
            let waited = now_ps.saturating_sub(clock.now_ps.load(Relaxed));
            clock.idle_ps.fetch_add(waited, Relaxed);
        }
        clock.now_ps.store(now_ps, Relaxed);
        now_ps
    }

    /// `hart` waits for an interrupt from `now_ps` on.
    pub fn wait(&self, hart: usize, now_ps: u64) {
        self.harts[hart].now_ps.store(now_ps, Relaxed);
        self.harts[hart].state.store(WAITING, Relaxed);
    }

    /// Whether `hart` waits.
    pub fn is_waiting(&self, hart: usize) -> bool {
        self.harts[hart].state.load(Relaxed) == WAITING
    }

    /// The clock of `hart` when it was last told.
    pub fn now(&self, hart: usize) -> u64 {
        self.harts[hart].now_ps.load(Relaxed)
    }

    /// How long `hart` has waited, until now.
    pub fn idle(&self, hart: usize) -> u64 {
        let running = self.harts[hart].idle_ps.load(Relaxed);
        let present = if self.is_waiting(hart) { self.machine().saturating_sub(self.now(hart)) } else { 0 };
        running + present
    }

    /// The clock of the slowest running hart; `None` when all wait.
    pub fn slowest(&self) -> Option<u64> {
        let running = self.harts.iter().filter(|clock| clock.state.load(Relaxed) == RUNNING);
        running.map(|clock| clock.now_ps.load(Relaxed)).min()
    }

    /// How long `hart`, which runs, may go on before it has to tell its clock again. `None`: the others come first.
    pub fn leave(&self, hart: usize) -> Option<u64> {
        let slowest = self.slowest().unwrap_or_else(|| self.machine());
        let leave = (slowest + self.window_ps).saturating_sub(self.now(hart));
        (leave != 0).then_some(leave)
    }

    /// The machine's time.
    pub fn machine(&self) -> u64 {
        self.machine_ps.load(Relaxed)
    }

    /// The machine's time is `to_ps`; it never goes back.
    pub fn pass(&self, to_ps: u64) {
        self.machine_ps.fetch_max(to_ps, Relaxed);
    }

    /// What a hart is told that asks for the time at `now_ps` of its own clock: never less than anybody was told before.
    pub fn tell(&self, now_ps: u64) -> u64 {
        let now_ps = now_ps.max(self.machine());
        self.told_ps.fetch_max(now_ps, Relaxed).max(now_ps)
    }
}

/// The finalizer of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
