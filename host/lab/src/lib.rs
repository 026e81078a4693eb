//! Experiments on the emulated machine: what `mirrorball bench` runs, and the rig that the system tests use as well.
//!
//! # Key types
//! - [`run`] an experiment of [`EXPERIMENTS`] with [`Options`]; it gives a [`Report`] with [`Figure`]s, as JSON or as a
//!   table with targets, peers and what each figure is made of.
//! - [`rig::Rig`]: a machine described in code; [`rig::Running`]: the same, booted.
//!
//! # How it measures
//! Instructions, never time: QEMU's `-icount shift=0` makes each instruction one nanosecond of virtual time and repeats
//! exactly. Operations are measured from inside a probe guest, whole workloads from outside by a counting plugin.
//! Peers are constants, measured apart on the same emulated machine: each report says so.
//!
//! # What it refuses
//! To invent: a figure that could not be measured has no value, and says why.
//!
//! No `unsafe`, no locks. Unit tests for reports and parsing; `tests/` of `system-tests` use the rig.
#![forbid(unsafe_code)]

mod error;
mod exits;
mod figure;
mod overhead;
mod report;

pub mod artifacts;
pub mod rig;

pub use error::LabError;
pub use figure::{Figure, GOALS, Goal};
pub use report::Report;

/// How an experiment is to be run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Fewer repetitions: ends within ten minutes on two cores.
    pub quick: bool,
    /// Whether to say on standard error how far it is.
    pub verbose: bool,
}

impl Options {
    fn progress(&self, what: &str) {
        if self.verbose {
            eprintln!("bench: {what}");
        }
    }
}

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// What it finds out.
    pub summary: &'static str,
    run: fn(&Options) -> Result<Report, LabError>,
}

/// All experiments.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "exits",
        summary: "what single operations of a guest cost, in instructions and exits, and the monitor's sizes",
        run: exits::run,
    },
    Experiment {
        name: "overhead",
        summary: "whole programs in a VM against the same kernel and files on the bare machine, in instructions",
        run: overhead::run,
    },
];

/// Runs an experiment.
///
/// # Errors
/// [`LabError::Unknown`], or why the machine did not run.
pub fn run(name: &str, options: Options) -> Result<Report, LabError> {
    match EXPERIMENTS.iter().find(|experiment| experiment.name == name) {
        Some(experiment) => (experiment.run)(&options),
        None => Err(LabError::Unknown { name: name.to_owned() }),
    }
}
