//! Whether the emulator is there and new enough.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use thiserror::Error;

/// The oldest version that has all that the machine needs.
pub const MIN_VERSION: (u32, u32) = (10, 0);

/// The program where nothing else is said.
const PROGRAM: &str = "qemu-system-riscv64";

/// An emulator that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emulator {
    /// The program.
    pub program: PathBuf,
    /// Its version.
    pub version: Version,
}

/// A version of the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second.
    pub minor: u32,
    /// The third.
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Why the emulator cannot be used.
#[derive(Debug, Error)]
pub enum EmulatorError {
    /// It is not there.
    #[error(
        "{program} is not installed: run `./x setup`, or install QEMU {}.{} or newer \
         (package qemu-system-riscv of Debian 13, or of bookworm-backports on Debian 12)",
        MIN_VERSION.0, MIN_VERSION.1
    )]
    Missing {
        /// The program looked for.
        program: PathBuf,
    },
    /// It does not start.
    #[error("cannot run {program}: {source}")]
    Unusable {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is too old.
    #[error(
        "{program} is version {version}, {}.{} or newer is needed: run `./x setup` \
         (package qemu-system-riscv of Debian 13, or of bookworm-backports on Debian 12)",
        MIN_VERSION.0, MIN_VERSION.1
    )]
    TooOld {
        /// The program.
        program: PathBuf,
        /// Its version.
        version: Version,
    },
    /// It is not the one whose insides the machine model's plugin knows.
    #[error(
        "{program} is version {version}, and the machine model knows only {}.{}: name a QEMU of that version with \
         `qemu = ...` in [machine], or leave out [model]",
        crate::model::MODELLED_VERSION.0, crate::model::MODELLED_VERSION.1
    )]
    NotModelled {
        /// The program.
        program: PathBuf,
        /// Its version.
        version: Version,
    },
    /// It does not say what it is.
    #[error("{program} is no QEMU: it says {answer:?}")]
    Unknown {
        /// The program.
        program: PathBuf,
        /// What it says.
        answer: String,
    },
}

impl Emulator {
    /// Looks at `program`, or at the usual one.
    ///
    /// # Errors
    /// If it is missing, too old, or something else.
    pub fn find(program: Option<&Path>) -> Result<Self, EmulatorError> {
        let program = program.unwrap_or_else(|| Path::new(PROGRAM)).to_owned();
        let answer = match ask(program.as_os_str()) {
            Ok(answer) => answer,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(EmulatorError::Missing { program }),
            Err(source) => return Err(EmulatorError::Unusable { program, source }),
        };
        let first = answer.lines().next().unwrap_or_default().to_owned();
        let Some(version) = parse(&first) else {
            return Err(EmulatorError::Unknown { program, answer: first });
        };
        if (version.major, version.minor) < MIN_VERSION {
            return Err(EmulatorError::TooOld { program, version });
        }
        Ok(Self { program, version })
    }
}

fn ask(program: &OsStr) -> io::Result<String> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)`
fn parse(line: &str) -> Option<Version> {
    let rest = line.strip_prefix("QEMU emulator version ")?;
    let word = rest.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
    let mut numbers = word.split('.').map(str::parse);
    let mut next = || numbers.next().unwrap_or(Ok(0)).ok();
    Some(Version { major: next()?, minor: next()?, patch: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        let version = parse("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2+deb13u1~bpo12+1)");
        assert_eq!(version, Some(Version { major: 10, minor: 0, patch: 2 }));
        assert_eq!(parse("QEMU emulator version 7.2-rc1").map(|v| (v.major, v.minor)), Some((7, 2)));
        assert_eq!(parse("bash 5"), None);
    }

    #[test]
    fn what_is_missing_is_said_with_the_way_to_get_it() {
        let error = Emulator::find(Some(Path::new("/no/qemu"))).expect_err("it is not there");
        assert!(error.to_string().starts_with("/no/qemu is not installed: run `./x setup`"), "{error}");
        let error = Emulator::find(Some(Path::new("/bin/false"))).expect_err("it is another program");
        assert!(error.to_string().starts_with("/bin/false is no QEMU: it says \""), "{error}");
    }
}
