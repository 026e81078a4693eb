//! What a guest marks with `slti x0, x0, N`: a line of JSON each, with the time and all counters.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use model_file::{Mode, ModeCounters, Stall};
use serde_json::{Map, Value, json};

/// The file that the lines go to.
pub struct Marks(Mutex<File>);

impl Marks {
    /// Appends to this file.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path) -> Result<Self, String> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.map(|file| Self(Mutex::new(file))).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Writes a line.
    pub fn write(&self, mark: u64, hart: usize, now_ps: u64, is_on: bool, harts: Vec<Value>) {
        let line = json!({ "mark": mark, "hart": hart, "now_ps": now_ps, "is_on": is_on, "harts": harts });
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One write per line: a reader never sees half of one. If the disk is full, the reader misses the mark.
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}

/// A hart in such a line.
pub fn hart_value(node: usize, now_ps: u64, modes: &[(Mode, ModeCounters)]) -> Value {
    let used = modes.iter().filter(|(_, counters)| *counters != ModeCounters::default());
    let modes: Map<_, _> = used.map(|(mode, counters)| (mode.name().into(), mode_value(counters))).collect();
    json!({ "node": node, "now_ps": now_ps, "modes": modes })
}

fn mode_value(counters: &ModeCounters) -> Value {
    let by_kind = |values: [u64; Stall::ALL.len()]| -> Value {
        Stall::ALL
            .iter()
            .map(|kind| (kind.name().to_owned(), values[*kind as usize].into()))
            .collect::<Map<_, _>>()
            .into()
    };
    json!({
        "instructions": counters.instructions,
        "time_ps": counters.time_ps,
        "stall_ps": by_kind(counters.stall_ps),
        "stalls": by_kind(counters.stalls),
        "walk_reads": counters.walk_reads,
        "invalidations": counters.invalidations,
    })
}
