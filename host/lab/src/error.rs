//! What can go wrong in the lab.

use std::io;
use std::path::PathBuf;

use machine::{ClientError, EmulatorError, LaunchError, WaitError};
use thiserror::Error;

use crate::plan::{Meter, System};

/// Why an experiment has no result.
#[derive(Debug, Error)]
pub enum LabError {
    /// There is no experiment of this name.
    #[error("there is no experiment {name:?}; `mirrorball bench list` names them")]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// A program or guest has not been made yet.
    #[error("{path} is not there: run `{maker}` in the source tree of Mirrorball")]
    Missing {
        /// What is missing.
        path: PathBuf,
        /// What makes it.
        maker: &'static str,
    },
    /// Nothing can be measured before files are there; what makes each is said.
    #[error("nothing can be measured: {}", causes.join("\n  and "))]
    Unprepared {
        /// The files, each once, however many trials boot it.
        causes: Vec<String>,
    },
    /// A name that cannot be one: a mistake in the experiment.
    #[error("{text:?} cannot be a name here")]
    BadName {
        /// The text.
        text: String,
    },
    /// There is no emulator that can be used.
    #[error(transparent)]
    Emulator(#[from] EmulatorError),
    /// A trial asks for what the lab cannot do.
    #[error("{trial}: {system} cannot be measured by {meter} on this machine")]
    Unsupported {
        /// The trial.
        trial: String,
        /// Its system.
        system: System,
        /// Its meter.
        meter: Meter,
    },
    /// A result cannot be kept.
    #[error("{path}: {source}")]
    Store {
        /// Its file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A workload cannot be made.
    #[error(transparent)]
    Load(#[from] loads::LoadError),
    /// The machine has not the memory that its system needs.
    #[error("{trial}: the machine has {has} MiB of memory, its system needs {needs} MiB")]
    Memory {
        /// The trial.
        trial: String,
        /// The machine's.
        has: u32,
        /// What is needed.
        needs: u32,
    },
    /// The machine model's marks are none.
    #[error("the file of marks, line {line}: {why}; plugin and lab are not of one build: run `./x build`")]
    Marks {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// A chart could not be drawn.
    #[error("the chart {chart}: {why}")]
    Plot {
        /// The chart.
        chart: String,
        /// Why.
        why: String,
    },
    /// The machine did not start.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The machine did not answer as it should.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Something did not happen in time.
    #[error("{error}\n{log}")]
    Wait {
        /// What.
        error: WaitError,
        /// The end of the machine's log.
        log: String,
    },
    /// A file or process cannot be used.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A guest did not measure what it was to measure.
    #[error("{experiment}: {reason}\nits console:\n{console}")]
    Guest {
        /// What was to be measured.
        experiment: String,
        /// Why it was not.
        reason: String,
        /// What the guest said.
        console: String,
    },
}

impl LabError {
    /// An error of the operating system, with what was tried.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
