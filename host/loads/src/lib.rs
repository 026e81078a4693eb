//! The lab's workloads as data: what a guest boots, with which command line, and what its console must say.
//!
//! A workload is a kernel, an initial file system and a command line, and these run unchanged on the bare machine, in a
//! Mirrorball VM and in a KVM guest. Everything lies in memory; no disk is needed.
//!
//! # How to run one
//! ```no_run
//! # fn main() -> Result<(), loads::LoadError> {
//! # let (cache, program) = (std::path::PathBuf::new(), std::path::PathBuf::new());
//! let files = loads::Files { cache, program };
//! let load = loads::find("compile")?;
//! let initrd = load.initrd(&files)?; // with kernel/Image of the cache
//! let command_line = load.command_line(loads::Size::Small, Some(2)); // add the console: console=ttyS0
//! let memory = load.memory_mib(loads::Size::Small);
//! // ... boot it, wait until it has powered off ...
//! # let console = "";
//! let outcome = loads::Outcome::of(load, console)?;
//! # Ok(())
//! # }
//! ```
//! For a KVM guest, [`KvmGuests`] makes the host's initial file system and command line around those of the guest.
//!
//! # Marks
//! The measured part lies between marks [`workloads::marks::BEGIN`] and [`workloads::marks::END`], which `load measure`
//! sets inside the guest; workloads of several parts have marks for each: [`Load::phases`]. What comes before is
//! preparation: file systems, a server's start, caches that are to be warm. A machine model is switched on just before the
//! first mark and off after the last, so a machine whose model is off at first runs the preparation at plain speed.
//!
//! # Key types
//! [`Load`] and [`LOADS`]; [`Files`], what was built; [`Outcome`], what a guest's console says; [`KvmGuests`].
//!
//! # What it refuses
//! A console that does not say that the workload ended with the right result: the guest itself compares it.
//!
//! No `unsafe`, no locks. Tests on the host for lines and archives; the system tests boot some.
#![forbid(unsafe_code)]

mod error;
mod kvm;
mod outcome;
mod table;

use std::path::{Path, PathBuf};

pub use error::LoadError;
pub use kvm::{HugePages, KvmGuests};
pub use outcome::{Outcome, Part};
pub use table::LOADS;
pub use workloads::Size;
use workloads::marks;

/// What was built, and where.
#[derive(Clone, Debug)]
pub struct Files {
    /// The cache that `./x image --loads` fills.
    pub cache: PathBuf,
    /// The program `load` that `./x build` makes for guests.
    pub program: PathBuf,
}

/// A workload.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// Its archive in the cache, if it is made of Debian's packages.
    archive: Option<&'static str>,
    /// Memory that it needs in MiB: small and full, its initial file system included.
    memory_mib: (u32, u32),
    /// Its parts, in the order of their marks.
    parts: &'static [&'static str],
}

/// A part of a workload between two marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Its name; the whole is called `all`.
    pub name: &'static str,
    /// The mark that it begins with.
    pub begins: u16,
    /// The mark that it ends with.
    pub ends: u16,
}

/// The workload of this name.
///
/// # Errors
/// [`LoadError::Unknown`].
pub fn find(name: &str) -> Result<&'static Load, LoadError> {
    LOADS.iter().find(|load| load.name == name).ok_or_else(|| LoadError::Unknown { name: name.to_owned() })
}

impl Load {
    /// Memory that the guest needs.
    #[must_use]
    pub const fn memory_mib(&self, size: Size) -> u32 {
        match size {
            Size::Small => self.memory_mib.0,
            Size::Full => self.memory_mib.1,
        }
    }

    /// The kernel command line, without a console. Without `threads` there are as many as the guest has harts.
    #[must_use]
    pub fn command_line(&self, size: Size, threads: Option<u16>) -> String {
        let size = match size {
            Size::Small => "small",
            Size::Full => "full",
        };
        let threads = threads.map(|threads| format!(" threads={threads}")).unwrap_or_default();
        format!("quiet workload={} size={size}{threads}", self.name)
    }

    /// The initial file system.
    ///
    /// # Errors
    /// [`LoadError::Missing`] if a part has not been built.
    pub fn initrd(&self, files: &Files) -> Result<Vec<u8>, LoadError> {
        let mut bytes = read(&files.cache.join("loads-base/base.cpio"), "./x image --loads")?;
        if let Some(archive) = self.archive {
            bytes.extend(read(&files.cache.join(archive), "./x image --loads")?);
        }
        let mut programs = image::Archive::new();
        programs.file("usr/bin/load", 0o755, &read(&files.program, "./x build")?);
        bytes.extend(programs.finish());
        Ok(bytes)
    }

    /// The whole and its parts, with their marks.
    #[must_use]
    pub fn phases(&self) -> Vec<Phase> {
        let all = Phase { name: "all", begins: marks::BEGIN, ends: marks::END };
        let parts = (0_u16..).zip(self.parts).map(|(index, name)| Phase {
            name,
            begins: marks::part_begins(index),
            ends: marks::part_ends(index),
        });
        [all].into_iter().chain(parts).collect()
    }
}

fn read(path: &Path, maker: &'static str) -> Result<Vec<u8>, LoadError> {
    std::fs::read(path).map_err(|error| LoadError::Missing { path: path.to_owned(), maker, error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_others_refused() {
        assert_eq!(find("compile").unwrap().name, "compile");
        let error = find("compiel").unwrap_err().to_string();
        assert!(error.contains("compiel") && error.contains("compile"), "{error}");
    }

    #[test]
    fn command_lines_say_all() {
        let load = find("radix").unwrap();
        assert_eq!(load.command_line(Size::Full, Some(8)), "quiet workload=radix size=full threads=8");
        assert_eq!(load.command_line(Size::Small, None), "quiet workload=radix size=small");
    }

    #[test]
    fn phases_have_marks_of_their_own() {
        for load in LOADS {
            let marks: Vec<u16> = load.phases().iter().flat_map(|phase| [phase.begins, phase.ends]).collect();
            assert!(marks.windows(2).all(|pair| pair[0] < pair[1]), "{}: {marks:?}", load.name);
        }
    }

    #[test]
    fn a_missing_archive_is_named_with_what_makes_it() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files { cache: dir.path().into(), program: dir.path().join("load") };
        let error = find("compute").unwrap().initrd(&files).unwrap_err().to_string();
        assert!(error.contains("base.cpio") && error.contains("./x image --loads"), "{error}");
        std::fs::create_dir_all(dir.path().join("loads-base")).unwrap();
        std::fs::write(dir.path().join("loads-base/base.cpio"), "").unwrap();
        let error = find("compute").unwrap().initrd(&files).unwrap_err().to_string();
        assert!(error.contains("./x build"), "{error}");
        std::fs::write(&files.program, "program").unwrap();
        assert!(find("compute").unwrap().initrd(&files).unwrap().starts_with(b"070701"));
    }
}
