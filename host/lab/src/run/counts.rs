//! What the counting plugin has written.

use std::path::Path;

use crate::LabError;
use crate::compare::ratio;
use crate::plan::{Mark, Phase, System};
use crate::store::Value;

/// Instructions by privilege mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Modes {
    user: u64,
    supervisor: u64,
    /// Firmware.
    machine: u64,
    virtual_user: u64,
    virtual_supervisor: u64,
}

impl Modes {
    /// All.
    const fn total(self) -> u64 {
        self.user + self.supervisor + self.machine + self.guest()
    }

    /// In a VM.
    const fn guest(self) -> u64 {
        self.virtual_user + self.virtual_supervisor
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

    fn mark(&self, mark: Mark, system: System) -> Option<Modes> {
        match (mark, system) {
            (Mark::Hint(number), _) => self.at(&format!("MARK {number}")),
            (Mark::Kernel, System::Bare) => self.at("FIRST hs"),
            (Mark::Kernel, System::Mirrorball | System::Kvm) => self.at("FIRST vs"),
        }
    }

    /// `phase.total`, and what it is made of; a missing total if a mark is missing.
    pub fn values(&self, phase: &Phase, system: System) -> Vec<Value> {
        let (Some(from), Some(to)) = (self.mark(phase.from, system), self.mark(phase.to, system)) else {
            return vec![Value::missing(
                &format!("{}.total", phase.name),
                "a mark is missing: the workload did not run",
            )];
        };
        let modes = to.since(from);
        // In a VM user and kernel are the guest's; what else runs is the monitor, or KVM's host with its VMM.
        let (user, kernel) = match system {
            System::Bare => (modes.user, modes.supervisor),
            System::Mirrorball | System::Kvm => (modes.virtual_user, modes.virtual_supervisor),
        };
        let monitor = modes.total() - modes.machine - user - kernel;
        let parts = [
            ("user", user),
            ("kernel", kernel),
            ("guest", modes.guest()),
            ("monitor", monitor),
            ("firmware", modes.machine),
        ];
        let value =
            |part: &str, count| Value::new(&format!("{}.{part}", phase.name), ratio(count, 1), "instructions", 1);
        std::iter::once(value("total", modes.total())).chain(parts.map(|(part, n)| value(part, n))).collect()
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
        let phase = |from, to| Phase { name: "a", from, to };
        let numbers = |phase, system| -> Vec<_> {
            counts.values(&phase, system).into_iter().map(|value| (value.name, value.number)).collect()
        };
        let named = |name: &str, number: f64| (format!("a.{name}"), Some(number));
        let of = |user, kernel, guest, monitor, firmware| {
            let parts =
                [("user", user), ("kernel", kernel), ("guest", guest), ("monitor", monitor), ("firmware", firmware)];
            parts.map(|(name, number)| named(name, number)).to_vec()
        };
        let parts = numbers(phase(Mark::Hint(4), Mark::Hint(5)), System::Mirrorball);
        assert_eq!((&parts[0], &parts[1..]), (&named("total", 15.0), &of(4.0, 5.0, 9.0, 3.0, 3.0)[..]));
        let parts = numbers(phase(Mark::Kernel, Mark::Hint(1)), System::Mirrorball);
        assert_eq!((&parts[0], &parts[1..]), (&named("total", 1025.0), &of(5.0, 1000.0, 1005.0, 10.0, 10.0)[..]));
        assert_eq!(numbers(phase(Mark::Hint(6), Mark::Hint(7)), System::Bare), [("a.total".to_owned(), None)]);
    }
}
