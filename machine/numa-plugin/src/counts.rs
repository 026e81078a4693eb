//! What each hart did: instructions, which translated code counts, and stalls, which the model adds.

use std::array::from_fn;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use model_file::{MODES, Mode, ModeCounters, STALLS, Stall};

use crate::qemu::{Entry, MODES_OF_PRIV, Scoreboard};

/// Place of the time in a hart's record; the instructions by the value of `priv` follow.
const TIME: usize = 0;
/// Value of the time at which a hart has to come back: translated code compares with a constant, so time counts up to it.
pub const LIMIT: u64 = 1 << 62;

/// The records that translated code adds to.
pub struct Board(Scoreboard);

impl Board {
    pub fn new() -> Self {
        Self(Scoreboard::new(1 + MODES_OF_PRIV))
    }

    /// Picoseconds up to [`LIMIT`].
    pub fn time_entry(&self) -> Entry {
        self.0.entry(TIME)
    }

    /// Instructions in the mode of this value of `priv`.
    pub fn instructions_entry(&self, privilege: usize) -> Entry {
        self.0.entry(1 + privilege % MODES_OF_PRIV)
    }

    pub fn time(&self, hart: usize) -> u64 {
        self.0.get(hart, TIME)
    }

    pub fn set_time(&self, hart: usize, time: u64) {
        self.0.set(hart, TIME, time);
    }

    fn instructions(&self, hart: usize, mode: Mode) -> u64 {
        // 2 is not a mode; 6 and 7 cannot be.
        let of = |privilege: usize| self.0.get(hart, 1 + privilege);
        match mode {
            Mode::U => of(0),
            Mode::S => of(1),
            Mode::M => of(2) + of(3) + of(6) + of(7),
            Mode::VU => of(4),
            Mode::VS => of(5),
            Mode::Idle => 0,
        }
    }
}

/// Stalls of a hart, by mode. Written by the thread of the hart alone.
#[derive(Default)]
pub struct Stalls {
    modes: [ModeStalls; MODES],
}

#[derive(Default)]
struct ModeStalls {
    time_ps: [AtomicU64; STALLS],
    count: [AtomicU64; STALLS],
    walk_reads: AtomicU64,
    invalidations: AtomicU64,
}

impl Stalls {
    /// One stall.
    #[expect(dead_code, reason = "called by the caches")]
    pub fn add(&self, mode: Mode, kind: Stall, time_ps: u64) {
        let stalls = &self.modes[mode as usize];
        bump(&stalls.time_ps[kind as usize], time_ps);
        bump(&stalls.count[kind as usize], 1);
    }

    /// The counters of a mode.
    pub fn counters(&self, board: &Board, hart: usize, mode: Mode, cycle_ps: u64) -> ModeCounters {
        let stalls = &self.modes[mode as usize];
        let stall_ps: [u64; STALLS] = from_fn(|kind| stalls.time_ps[kind].load(Relaxed));
        let instructions = board.instructions(hart, mode);
        ModeCounters {
            instructions,
            time_ps: instructions * cycle_ps + stall_ps.iter().sum::<u64>(),
            stall_ps,
            stalls: from_fn(|kind| stalls.count[kind].load(Relaxed)),
            walk_reads: stalls.walk_reads.load(Relaxed),
            invalidations: stalls.invalidations.load(Relaxed),
        }
    }
}

/// One writer: no need for an atomic addition.
fn bump(count: &AtomicU64, by: u64) {
    count.store(count.load(Relaxed).wrapping_add(by), Relaxed);
}
