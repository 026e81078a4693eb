//! Where the time of each hart goes: instructions and stalls per mode.

use alloc::{vec, vec::Vec};

/// Number of modes.
pub const MODES: usize = 5;
/// Number of kinds of stall.
pub const STALLS: usize = 5;

/// Who the hart works for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Mode {
    /// VU.
    GuestUser,
    /// VS.
    GuestKernel,
    /// HS, and U without virtualization.
    Monitor,
    /// M.
    Firmware,
    /// Waiting for an interrupt.
    Idle,
}

/// What a hart waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Stall {
    /// The second-level cache.
    L2,
    /// Memory of its own node.
    Local,
    /// Memory of another node.
    Remote,
    /// Ownership of a line that it has.
    Upgrade,
    /// A page walk, whatever served its reads.
    Walk,
}

/// Counts of one mode of one hart; the same bytes are in the shared file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ModeCounters {
    /// Instructions run.
    pub instructions: u64,
    /// Time, stalls included.
    pub time_ps: u64,
    /// Time of each [`Stall`].
    pub stall_ps: [u64; STALLS],
    /// Number of each [`Stall`].
    pub stalls: [u64; STALLS],
}

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
