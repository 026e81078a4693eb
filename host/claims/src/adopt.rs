//! Taking over what a finished run found.

use crate::record::{Comparand, Record, State};

/// What a finished run found of one figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The figure.
    pub id: String,
    /// The experiment and its size.
    pub experiment: String,
    /// `quick` or `full`.
    pub size: String,
    /// The value.
    pub value: f64,
    /// The least and the most over its runs.
    pub spread: Option<[f64; 2]>,
    /// How many runs the value is the median of.
    pub runs: u64,
    /// What Linux KVM reached in the same run.
    pub peer: Option<f64>,
    /// What this very measurement says beside the number; empty for nothing.
    pub remark: String,
    /// The machine.
    pub machine: String,
    /// The commit.
    pub commit: String,
    /// The day.
    pub date: String,
}

/// Takes a result over if it is of this record, and of a tree as committed. `true` if the record has changed.
pub fn adopt(record: &mut Record, found: &Found) -> bool {
    let is_its = record.id == found.id
        && record.experiment.as_deref() == Some(&found.experiment)
        && record.size.as_deref() == Some(&found.size);
    if !is_its || !is_committed(&found.commit) || !found.value.is_finite() {
        return false;
    }
    let before = record.clone();
    record.value = found.value;
    record.spread = found.spread;
    record.runs = Some(found.runs);
    if let Some(value) = found.peer {
        record.peer = Some(Comparand { value, of: "KVM".to_owned(), apart: false });
    }
    record.seen.clone_from(&found.remark);
    record.machine = Some(found.machine.clone());
    record.commit = Some(found.commit.clone());
    record.date = Some(found.date.clone());
    record.state = State::Measured;
    *record != before
}

/// Whether a commit is known, and the tree was as it says.
pub fn is_committed(commit: &str) -> bool {
    !commit.is_empty() && commit != "unknown" && !commit.ends_with("-dirty")
}
