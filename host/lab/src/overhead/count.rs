//! What the counting plugin has written.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::LabError;

/// Instructions by privilege mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    user: u64,
    supervisor: u64,
    /// Firmware.
    pub machine: u64,
    virtual_user: u64,
    virtual_supervisor: u64,
}

impl Modes {
    /// All.
    pub const fn total(self) -> u64 {
        self.user + self.supervisor + self.machine + self.guest()
    }

    /// In a VM.
    pub const fn guest(self) -> u64 {
        self.virtual_user + self.virtual_supervisor
    }

    /// In the monitor (or, bare, in the kernel).
    pub const fn monitor(self) -> u64 {
        self.supervisor
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            supervisor: self.supervisor.saturating_sub(earlier.supervisor),
            machine: self.machine.saturating_sub(earlier.machine),
            virtual_user: self.virtual_user.saturating_sub(earlier.virtual_user),
            virtual_supervisor: self.virtual_supervisor.saturating_sub(earlier.virtual_supervisor),
        }
    }

    fn parse(words: &[&str]) -> Option<Self> {
        let mut numbers = words.iter().map(|word| word.parse::<u64>().ok());
        let mut next = || numbers.next().flatten();
        let (user, supervisor, machine, virtual_user) = (next()?, next()?, next()?, next()?);
        Some(Self { user, supervisor, machine, virtual_user, virtual_supervisor: next()? })
    }
}

/// Marks and their counts.
#[derive(Clone, Debug, Default)]
pub struct Counts(Vec<(String, Modes)>);

impl Counts {
    /// Reads the plugin's file.
    pub fn read(path: &Path) -> Result<Self, LabError> {
        let text = std::fs::read_to_string(path).map_err(LabError::io(path.display().to_string()))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let entry = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            let counts = Modes::parse(words.get(words.len().checked_sub(5)?..)?)?;
            Some((words.get(..words.len() - 5)?.join(" "), counts))
        };
        Self(text.lines().filter_map(entry).collect())
    }

    fn at(&self, what: &str) -> Option<Modes> {
        self.0.iter().find(|(name, _)| name == what).map(|(_, counts)| *counts)
    }

    /// Between the two marks of a workload.
    pub fn workload(&self, number: u16) -> Option<Modes> {
        let begin = self.at(&format!("MARK {}", 2 * number))?;
        Some(self.at(&format!("MARK {}", 2 * number + 1))?.since(begin))
    }

    /// From the first instruction in this supervisor mode to the first program.
    pub fn boot(&self, mode: &str) -> Option<Modes> {
        Some(self.at("MARK 1")?.since(self.at(&format!("FIRST {mode}"))?))
    }
}

/// Waits for a process to end, at most so long; takes its life then.
pub fn wait(child: &mut Child, timeout: Duration) -> Result<(), LabError> {
    const LOOK: Duration = Duration::from_millis(100);
    let deadline = Instant::now() + timeout;
    loop {
        let ended = child.try_wait().map_err(LabError::io("the emulator"))?;
        if ended.is_some() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            let error = std::io::Error::new(std::io::ErrorKind::TimedOut, format!("still runs after {timeout:?}"));
            return Err(LabError::io("the bare machine")(error));
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_told_apart() {
        let text = "FIRST hs 0 1 100 0 0\nFIRST vs 0 50 100 0 0\nMARK 1 0 60 110 5 1000\nMARK 4 1 1 1 1 1\n\
            MARK 5 2 3 4 5 6\nnonsense\nEND 9 9 9 9 9\n";
        let counts = Counts::parse(text);
        assert_eq!(counts.workload(2).map(Modes::total), Some(15));
        let boot = counts.boot("vs").expect("both are there");
        assert_eq!((boot.guest(), boot.monitor(), boot.machine), (1005, 10, 10));
        assert_eq!(counts.workload(3), None);
    }
}
