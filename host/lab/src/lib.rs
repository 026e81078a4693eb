//! Experiments on the emulated machine: what `mirrorball bench` runs, and the rig that the system tests use as well.
//!
//! # Key types
//! - [`Experiment`]: a name, goals, and a [`Plan`] as data: [`Trial`]s (workload x machine x system x seed), comparisons
//!   of what they measured, charts.
//! - [`run`] an experiment with [`Options`]; it gives a [`Report`] with [`Figure`]s, as JSON, as a table with targets,
//!   papers and peers, and as charts ([`report::write`]). [`stored`] makes one of results that are there.
//! - [`store::Store`]: what trials measured, kept under a key of everything that it depends on.
//! - [`rig::Rig`]: a machine described in code; [`rig::Running`]: the same, booted.
//!
//! # How to add an experiment
//! 1. A file in `src/experiments` with a `pub const EXPERIMENT: Experiment`, named in `EXPERIMENTS` beside it.
//! 2. Its `goals`: one [`report::Goal`] for each figure of the issue: `Goal::new(id, unit, AtMost(x), "what it is")`,
//!    `.paper(value, "Disco, Fig. 6")`, `.below_peer()` where it must beat KVM of the same run, `.peer(x)` where KVM was
//!    measured apart.
//! 3. Its `plan(size)`: trials. A guest that runs under several systems is a [`plan::Workload`]: an initial file system
//!    (of the cache, or made by a function in `src/workloads`), words for its kernel, and the marks around its phases;
//!    each phase gives the values `PHASE.total`, `PHASE.user` and so on; with more than one in `vms` it runs in
//!    so many VMs at once, which begin together. What only makes sense on the monitor is a
//!    [`plan::Procedure`]: a function that boots a [`rig::Rig`] and returns [`store::Measured`] values; name the files
//!    that it needs, and raise its `version` when it measures something else. `Trial::repeated(n)` gives seeds 0 to n;
//!    reports then have the median and the spread.
//! 4. Comparisons: [`compare::Comparison::Ratio`] of a value in one trial over another, with the peer's trial beside;
//!    `Values` takes a procedure's values as figures, `Parts` some of them under other names, `Worst` the largest.
//! 5. Charts: [`plot::ChartPlan`]: figures beside target and peer, bars of parts, curves. Look at the PNGs.
//! 6. A record in `docs/results` for each figure that is to be claimed, with the goal's target: a test compares them.
//!    `mirrorball bench report --write` fills in what was measured.
//!
//! # How it measures
//! Never host time. Instructions: QEMU's `-icount shift=0` makes each one a nanosecond of virtual time and repeats
//! exactly; a counting plugin tells the modes apart. Time: that of the machine model, which repeats exactly for one seed.
//!
//! # What it refuses
//! To invent: a figure that could not be measured has no value, and says why. To mix: a stored result of another
//! workload, machine, monitor, plugin or emulator is not used; the refusal says what differs.
//!
//! No `unsafe`, no locks held while anything runs. Unit tests for everything but the machines; `tests/` of
//! `system-tests` use the rig.
#![forbid(unsafe_code)]

mod error;
mod experiments;
mod run;
mod workloads;

pub mod artifacts;
pub mod attacks;
pub mod compare;
pub mod plan;
pub mod plot;
pub mod report;
pub mod rig;
pub mod store;

pub use error::LabError;
pub use experiments::EXPERIMENTS;
pub use plan::{Experiment, Plan, Size, Trial};
pub use report::{Figure, Report};
pub use run::{Progress, Scratch};

/// How an experiment is to be run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Small sizes and few repetitions: minutes.
    pub quick: bool,
    /// Whether to say on standard error how far it is.
    pub verbose: bool,
    /// Whether to measure again what is stored.
    pub fresh: bool,
    /// Measure only the runs whose names have this in them; the others are as they are stored, or missing.
    pub only: Option<String>,
}

impl Options {
    const fn size(&self) -> Size {
        if self.quick { Size::Quick } else { Size::Full }
    }

    fn wants(&self, trial: &Trial) -> bool {
        self.only.as_ref().is_none_or(|part| trial.name.contains(part))
    }
}

/// The experiment of this name.
///
/// # Errors
/// [`LabError::Unknown`].
pub fn find(name: &str) -> Result<&'static Experiment, LabError> {
    let found = EXPERIMENTS.iter().find(|experiment| experiment.name == name);
    found.ok_or_else(|| LabError::Unknown { name: name.to_owned() })
}

/// Runs an experiment. What is stored of this very configuration is not measured again.
///
/// # Errors
/// [`LabError::Unknown`], or why the machine did not run. What was measured before that is stored.
pub fn run(name: &str, options: &Options) -> Result<Report, LabError> {
    run::experiment(find(name)?, options)
}

/// What is stored of an experiment, nothing measured: all sizes of which there is something, or the full one without
/// values. Beside each what it lacks.
///
/// # Errors
/// [`LabError`] if it cannot be told what the results would depend on.
pub fn stored(experiment: &Experiment) -> Result<Vec<(Report, Vec<String>)>, LabError> {
    let (full, quick) = (run::stored(experiment, Size::Full)?, run::stored(experiment, Size::Quick)?);
    let has_values = |report: &Report| report.figures.iter().any(|figure| figure.value.is_some());
    match (has_values(&full.0), has_values(&quick.0)) {
        (true, true) => Ok(vec![full, quick]),
        (false, true) => Ok(vec![quick]),
        (_, false) => Ok(vec![full]),
    }
}
