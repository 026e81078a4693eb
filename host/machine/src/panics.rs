//! Panics of the monitor: how its supervisor knows of one, and how often a machine is started again.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use crash::Crash;

/// Restarts of a machine within [`WINDOW`], after which it stays off.
const MOST: usize = 3;
const WINDOW: Duration = Duration::from_secs(60);
/// How much of a log's end is looked at: more than the harts of the largest machine write.
const LOG_BYTES: u64 = 4 << 20;

/// How often a machine was started again lately. One that panics as soon as it runs must not do so for ever.
#[derive(Debug, Default)]
pub struct Restarts {
    recent: Vec<Instant>,
    count: u32,
}

impl Restarts {
    /// Counts another restart, at `now`; which one it is, or `None` if there were too many.
    pub fn begin(&mut self, now: Instant) -> Option<u32> {
        self.recent.retain(|at| now.duration_since(*at) < WINDOW);
        if self.recent.len() >= MOST {
            return None;
        }
        self.recent.push(now);
        self.count += 1;
        Some(self.count)
    }
}

/// The crashes at the end of a log.
///
/// # Errors
/// If it cannot be read.
pub fn crashes_in(log: &Path) -> io::Result<Vec<Crash>> {
    let mut file = File::open(log)?;
    let end = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(end.saturating_sub(LOG_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES).read_to_end(&mut bytes)?;
    Ok(crash::read(&bytes))
}

/// How the first cell, which takes the machine with it, has panicked; `None` if it has not.
pub fn panic_in(log: &Path) -> Option<String> {
    let crashes = crashes_in(log).unwrap_or_default();
    crashes.iter().rev().find(|crash| crash.cell == 0).map(|crash| crash.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_panics_all_the_time_stays_off() {
        let (mut restarts, begin) = (Restarts::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!([0, 10, 20, 59].map(|seconds| restarts.begin(at(seconds))), [Some(1), Some(2), Some(3), None]);
        assert_eq!([60, 61, 71].map(|seconds| restarts.begin(at(seconds))), [Some(4), None, Some(5)]);
    }

    #[test]
    fn only_the_first_cell_takes_the_machine() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let log = dir.path().join("monitor.log");
        assert_eq!(panic_in(&log), None);
        let begin = crash::Begin { hart: 0, ticks: 0, timebase_hz: 1, harts: 1, fingerprint: 0 };
        for (cell, expected) in [(1, None), (0, Some(String::new())), (1, Some(String::new()))] {
            let mut text = std::fs::read(&log).unwrap_or_default();
            crash::Writer::new(|line: &[u8]| text.extend_from_slice(line), cell).begin(&begin, "");
            std::fs::write(&log, text).expect("it can be written");
            assert_eq!(panic_in(&log), expected);
        }
    }
}
