//! The workloads' own code, apart from what an operating system does for it: so the same code runs in a guest and in tests
//! on the host, and must give the same results.
//!
//! # Key types
//! - [`Size`]: how much; [`Crew`]: the threads that a workload runs on, and how they wait; [`Barrier`] for them.
//! - [`compute`], [`engineering`], [`raytrace`], [`radix`], [`web`]: one workload each, with the result that each size must give.
//!   Results do not depend on the number of threads.
//! - [`splash`]: parallel programs of the kind of SPLASH-2, which Linux and SPLASHOS run from one source.
//! - [`symbols::Ranges`]: finds pieces of code in a Linux kernel's list of symbols.
//!
//! # Program `load`
//! A static Linux program without a C library (`src/bin/load`): runs these workloads with threads or processes of its
//! own, measures page faults and system calls, and sets the marks by which an emulator knows what to measure, and where the
//! kernel takes its locks.
//!
//! # What it refuses
//! A result that is not the known one: the program then fails.
//!
//! No locks but [`Barrier`]. No `unsafe` here; the program has the system calls. Tests run each workload on the host,
//! small, with one thread and with three.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod compute;
mod crew;
pub mod digest;
pub mod engineering;
pub mod marks;
pub mod radix;
pub mod random;
pub mod raytrace;
pub mod splash;
pub mod symbols;
pub mod web;

pub use crew::{Barrier, Crew};

/// How much a workload does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// For tests and quick looks: a tenth of a billion instructions, or a few.
    Small,
    /// For experiments: about ten times as much, with a footprint beyond every cache.
    Full,
}

impl Size {
    /// The size that a word names.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "small" => Some(Self::Small),
            "full" => Some(Self::Full),
            _ => None,
        }
    }

    /// One of two values.
    pub const fn pick<T: Copy>(self, small: T, full: T) -> T {
        match self {
            Self::Small => small,
            Self::Full => full,
        }
    }
}
