//! The ends of a machine's logs, for messages.

use std::fs;
use std::path::{Path, PathBuf};

use crate::rundir::RunDir;

/// Lines of a log that a message shows.
const TAIL_LINES: usize = 12;

/// The last lines of a machine's logs, for a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logs {
    /// Of the machine's own log.
    pub monitor: Vec<String>,
    /// Of what the emulator said.
    pub emulator: Vec<String>,
    /// Where the machine's log is.
    pub path: PathBuf,
}

impl std::fmt::Display for Logs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (who, lines) in [("the emulator said", &self.emulator), ("the machine's log ends with", &self.monitor)] {
            if !lines.is_empty() {
                write!(f, "\n{who}:\n  {}", lines.join("\n  "))?;
            }
        }
        match (self.monitor.is_empty(), self.emulator.is_empty()) {
            (false, _) => write!(f, "\nthe whole log: {}", self.path.display()),
            (true, false) => Ok(()),
            (true, true) => f.write_str("\nnothing was logged: the monitor did not get as far as its UART"),
        }
    }
}

/// Those of a machine.
pub fn logs(dir: &RunDir) -> Logs {
    Logs { monitor: tail(&dir.monitor_log()), emulator: tail(&dir.qemu_log()), path: dir.monitor_log() }
}

/// The last lines of a log.
pub fn tail(path: &Path) -> Vec<String> {
    let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines.iter().skip(lines.len().saturating_sub(TAIL_LINES)).map(|line| (*line).to_owned()).collect()
}
