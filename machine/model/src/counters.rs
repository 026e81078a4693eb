//! Counters of all harts, before they go to the shared file.

use alloc::{vec, vec::Vec};

use model_file::{MODES, Mode, ModeCounters, Stall};

/// Counters of all harts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    harts: Vec<[ModeCounters; MODES]>,
}

impl Counters {
    /// Zeroes for `harts` harts.
    pub fn new(harts: usize) -> Self {
        Self { harts: vec![[ModeCounters::default(); MODES]; harts] }
    }

    /// The counts of a hart in a mode.
    pub fn of(&self, hart: usize, mode: Mode) -> &ModeCounters {
        &self.harts[hart][mode as usize]
    }

    /// `count` instructions that took `time_ps` without stalls.
    pub fn run(&mut self, hart: usize, mode: Mode, count: u64, time_ps: u64) {
        let counters = &mut self.harts[hart][mode as usize];
        counters.instructions += count;
        counters.time_ps += time_ps;
    }

    /// One stall.
    pub fn stall(&mut self, hart: usize, mode: Mode, kind: Stall, time_ps: u64) {
        let counters = &mut self.harts[hart][mode as usize];
        counters.time_ps += time_ps;
        counters.stall_ps[kind as usize] += time_ps;
        counters.stalls[kind as usize] += 1;
    }

    /// Time without instructions.
    pub fn idle(&mut self, hart: usize, time_ps: u64) {
        self.harts[hart][Mode::Idle as usize].time_ps += time_ps;
    }
}
