//! Where the time of a hart goes.

use crate::{decode_words, encode_words};

/// Number of modes.
pub const MODES: usize = 6;
/// Number of kinds of stall.
pub const STALLS: usize = 5;

/// What a hart is doing: its privilege mode, told apart by virtualization, or waiting.
///
/// Whose time that is depends on the system: under a bare kernel `U` and `S` are the workload, under Mirrorball `S` is
/// the monitor, under KVM `S` is the host's kernel and `U` its VMM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub enum Mode {
    /// User mode without virtualization.
    U,
    /// Supervisor mode without virtualization (HS).
    S,
    /// Firmware.
    M,
    /// A guest's user mode.
    VU,
    /// A guest's kernel.
    VS,
    /// Waiting for an interrupt.
    Idle,
}

impl Mode {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; MODES] = [Self::U, Self::S, Self::M, Self::VU, Self::VS, Self::Idle];

    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U => "u",
            Self::S => "s",
            Self::M => "m",
            Self::VU => "vu",
            Self::VS => "vs",
            Self::Idle => "idle",
        }
    }

    /// From a hart's privilege (the value that `mstatus.MPP` has for it) and whether it is virtual.
    pub const fn of(privilege: u64, is_virtual: bool) -> Self {
        match (privilege & 3, is_virtual) {
            (0, false) => Self::U,
            (0, true) => Self::VU,
            (1, false) => Self::S,
            (1, true) => Self::VS,
            _ => Self::M,
        }
    }
}

/// What a hart waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub enum Stall {
    /// A first-level miss that the second-level cache serves.
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

impl Stall {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; STALLS] = [Self::L2, Self::Local, Self::Remote, Self::Upgrade, Self::Walk];

    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::L2 => "l2",
            Self::Local => "local",
            Self::Remote => "remote",
            Self::Upgrade => "upgrade",
            Self::Walk => "walk",
        }
    }
}

/// Counts of one mode of one hart.
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
    /// Page-table entries that page walks read.
    pub walk_reads: u64,
    /// Copies of other harts that this hart's writes took away.
    pub invalidations: u64,
}

impl ModeCounters {
    /// Its words in the file.
    pub const WORDS: usize = 4 + 2 * STALLS;
    /// Its bytes in the file.
    pub const BYTES: usize = Self::WORDS * 8;

    /// As words of the file.
    pub fn words(&self) -> [u64; Self::WORDS] {
        let mut words = [0; Self::WORDS];
        words[0] = self.instructions;
        words[1] = self.time_ps;
        words[2..2 + STALLS].copy_from_slice(&self.stall_ps);
        words[2 + STALLS..2 + 2 * STALLS].copy_from_slice(&self.stalls);
        words[Self::WORDS - 2..].copy_from_slice(&[self.walk_reads, self.invalidations]);
        words
    }

    /// From the file.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self::from_words(&decode_words(bytes))
    }

    /// From words of the file.
    pub fn from_words(words: &[u64; Self::WORDS]) -> Self {
        let part = |from: usize| core::array::from_fn(|kind| words[from + kind]);
        Self {
            instructions: words[0],
            time_ps: words[1],
            stall_ps: part(2),
            stalls: part(2 + STALLS),
            walk_reads: words[Self::WORDS - 2],
            invalidations: words[Self::WORDS - 1],
        }
    }

    /// As in the file.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        encode_words(self.words())
    }

    /// What was added since `earlier`, which came before.
    pub fn since(&self, earlier: &Self) -> Self {
        let (now, before) = (self.words(), earlier.words());
        Self::from_words(&core::array::from_fn(|at| now[at].wrapping_sub(before[at])))
    }
}

/// The clock of a hart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct HartClock {
    /// Its time, in picoseconds of the machine's clock.
    pub now_ps: u64,
    /// 1 while it waits for an interrupt.
    pub is_idle: u64,
    /// The node that it is part of.
    pub node: u64,
}

impl HartClock {
    /// Its bytes in the file.
    pub const BYTES: usize = 24;

    /// From the file.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let [now_ps, is_idle, node] = decode_words(bytes);
        Self { now_ps, is_idle, node }
    }

    /// As words of the file.
    pub fn words(&self) -> [u64; 3] {
        [self.now_ps, self.is_idle, self.node]
    }
}
