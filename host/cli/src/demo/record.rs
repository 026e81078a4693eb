//! The last demonstration that went well, kept with the lab's results. `bench report --write` puts it into the tree's pages.

use std::path::PathBuf;

use claims::{Found, day_of};
use lab::report::commit_of;
use serde::{Deserialize, Serialize};

use super::report::Report;
use crate::failure::Failure;

/// Under the cache.
const FILE: &str = "lab/demo/last.json";

/// What is kept.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Kept {
    commit: String,
    /// Cores of the host.
    cores: usize,
    seconds: f64,
    monitor_share: f64,
    summary: String,
}

/// The page's block of it, and its figures.
#[derive(Debug, PartialEq)]
pub struct Findings {
    /// For the marked block.
    pub text: String,
    /// The commit.
    pub commit: String,
    /// For the records.
    pub found: Vec<Found>,
}

/// Keeps a demonstration in which all results were right.
///
/// # Errors
/// There is no place for it.
pub fn keep(report: &Report) -> Result<(), Failure> {
    let Some(path) = path() else { return Ok(()) };
    let mut text = serde_json::to_vec_pretty(&Kept::of(report))
        .map_err(|error| Failure::File { path: path.clone(), source: error.into() })?;
    text.push(b'\n');
    lab::store::write_whole(&path, &text).map_err(|error| Failure::Other(error.to_string()))
}

/// What was kept last; nothing where there was no demonstration.
///
/// # Errors
/// What is there cannot be read.
pub fn findings() -> Result<Option<Findings>, Failure> {
    let Some(path) = path().filter(|path| path.is_file()) else { return Ok(None) };
    let failed = |source: std::io::Error| Failure::File { path: path.clone(), source };
    let kept: Kept =
        serde_json::from_slice(&std::fs::read(&path).map_err(failed)?).map_err(|error| failed(error.into()))?;
    let at = std::fs::metadata(&path).and_then(|data| data.modified()).map_err(failed)?;
    Ok(Some(kept.findings(day_of(at))))
}

fn path() -> Option<PathBuf> {
    Some(config::cache_dir()?.join(FILE))
}

impl Kept {
    fn of(report: &Report) -> Self {
        Self {
            commit: commit_of(&report.monitor.version),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            seconds: report.total_s,
            monitor_share: report.monitor_share(),
            summary: report.summary(),
        }
    }

    fn findings(self, date: String) -> Findings {
        let cores = self.cores;
        let found = |id: &str, value| Found {
            id: id.to_owned(),
            experiment: "demo".to_owned(),
            size: "full".to_owned(),
            value,
            spread: None,
            runs: 1,
            peer: None,
            remark: String::new(),
            machine: format!("{cores} cores of the host"),
            commit: self.commit.clone(),
            date: date.clone(),
        };
        let figures = [("demo_seconds", self.seconds), ("demo_monitor_share", 100.0 * self.monitor_share)];
        let found = figures.map(|(id, value)| found(id, value)).into();
        let text = format!(
            "$ ./x demo                    ({cores} cores; the first run also builds the guests)\n{}",
            self.summary
        );
        Findings { text, commit: self.commit, found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demonstration_becomes_a_block_and_two_figures() {
        let summary = "VM  RESULT\na   ok\n".to_owned();
        let kept = Kept { commit: "0123456789ab".into(), cores: 2, seconds: 260.4, monitor_share: 0.013, summary };
        let findings = kept.findings("2026-11-24".into());
        assert!(findings.text.starts_with("$ ./x demo ") && findings.text.ends_with(")\nVM  RESULT\na   ok\n"));
        let figures: Vec<_> = findings.found.iter().map(|found| (found.id.as_str(), found.value)).collect();
        assert_eq!(figures, [("demo_seconds", 260.4), ("demo_monitor_share", 1.3)]);
        assert!(findings.found.iter().all(|found| found.commit == "0123456789ab" && found.date == "2026-11-24"));
    }
}
