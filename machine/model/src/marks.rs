//! A line of the file of marks: what was counted up to a mark. Plugin and lab have it from here.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use model_file::{MODES, Mode, ModeCounters, Stall};
use serde::{Deserialize, Serialize};

/// What was counted up to a mark, on all harts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkLine {
    /// Its number; 0 is the end of the machine, `model_file::hint` has the others.
    pub mark: u16,
    /// The hart that came by.
    pub hart: usize,
    /// That hart's time.
    pub now_ps: u64,
    /// Whether the model is on.
    pub is_on: bool,
    /// Every hart.
    pub harts: Vec<MarkHart>,
}

/// A hart at a mark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkHart {
    /// Its node.
    pub node: usize,
    /// Its time.
    pub now_ps: u64,
    /// What it did, by the names of the modes in which it did anything.
    pub modes: BTreeMap<String, MarkMode>,
    /// What of that was for locks, by mode. Only where somebody has said in which code that is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub locks: BTreeMap<String, MarkLocks>,
}

/// What a kernel did to take its locks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkLocks {
    /// Time of the code that takes and waits for locks, stalls for data included.
    pub time_ps: u64,
    /// Such stalls.
    pub stall_ps: u64,
    /// Time in which it waited without running, by WRS. It is part of the time of mode `idle`.
    pub wait_ps: u64,
}

/// [`ModeCounters`] with names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkMode {
    /// Instructions.
    pub instructions: u64,
    /// Time, stalls included.
    pub time_ps: u64,
    /// Time of stalls, by kind.
    pub stall_ps: BTreeMap<String, u64>,
    /// Number of stalls, by kind.
    pub stalls: BTreeMap<String, u64>,
    /// Page-table entries that walks read.
    pub walk_reads: u64,
    /// Copies of others that writes took away.
    pub invalidations: u64,
}

impl MarkLine {
    /// A line of the clocks and counters of all harts.
    pub fn new(
        mark: u16,
        hart: usize,
        is_on: bool,
        harts: impl Iterator<Item = (usize, u64, [ModeCounters; MODES], [MarkLocks; MODES])>,
    ) -> Self {
        let named = |counters: &[ModeCounters; MODES]| {
            let used = Mode::ALL.into_iter().filter(|mode| counters[*mode as usize] != ModeCounters::default());
            used.map(|mode| (mode.name().to_string(), (&counters[mode as usize]).into())).collect()
        };
        let named_locks = |locks: &[MarkLocks; MODES]| {
            let used = Mode::ALL.into_iter().filter(|mode| locks[*mode as usize] != MarkLocks::default());
            used.map(|mode| (mode.name().to_string(), locks[mode as usize])).collect()
        };
        let line = |(node, now_ps, counters, locks)| MarkHart {
            node,
            now_ps,
            modes: named(&counters),
            locks: named_locks(&locks),
        };
        let harts: Vec<_> = harts.map(line).collect();
        Self { mark, hart, now_ps: harts.get(hart).map_or(0, |hart| hart.now_ps), is_on, harts }
    }

    /// Counters of a mode, of all harts together.
    pub fn total(&self, mode: Mode) -> ModeCounters {
        let mut words = [0; ModeCounters::WORDS];
        for found in self.harts.iter().filter_map(|hart| hart.modes.get(mode.name())) {
            words.iter_mut().zip(found.counters().words()).for_each(|(sum, word)| *sum += word);
        }
        ModeCounters::from_words(&words)
    }
}

impl MarkMode {
    /// Without names.
    pub fn counters(&self) -> ModeCounters {
        let of = |map: &BTreeMap<String, u64>| Stall::ALL.map(|kind| map.get(kind.name()).copied().unwrap_or(0));
        ModeCounters {
            instructions: self.instructions,
            time_ps: self.time_ps,
            stall_ps: of(&self.stall_ps),
            stalls: of(&self.stalls),
            walk_reads: self.walk_reads,
            invalidations: self.invalidations,
        }
    }
}

impl From<&ModeCounters> for MarkMode {
    fn from(counters: &ModeCounters) -> Self {
        let named = |values: &[u64]| {
            Stall::ALL.into_iter().map(|kind| (kind.name().to_string(), values[kind as usize])).collect()
        };
        Self {
            instructions: counters.instructions,
            time_ps: counters.time_ps,
            stall_ps: named(&counters.stall_ps),
            stalls: named(&counters.stalls),
            walk_reads: counters.walk_reads,
            invalidations: counters.invalidations,
        }
    }
}
