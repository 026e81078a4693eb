//! Running an experiment: every trial that the store does not have yet, in order; then figures and charts from all.

mod counts;
mod guest;
mod kvm;
mod progress;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

pub use progress::Progress;

use crate::compare::{Results, figures};
use crate::plan::{Artifact, Content, Experiment, Initrd, Meter, Plan, Size, System, Trial, Work};
use crate::report::{Goals, Report};
use crate::store::{Configuration, Digests, Found, Measured, Store, Value, emulator};
use crate::{LabError, Options};

/// Runs an experiment: what the store has of this very configuration is not measured again, unless `fresh`.
///
/// # Errors
/// [`LabError`] of the first trial that fails. Those before it are stored.
pub fn experiment(experiment: &Experiment, options: &Options) -> Result<Report, LabError> {
    let store = Store::of(experiment.name, options.size().label())?;
    let plan = (experiment.plan)(options.size());
    let progress = Progress::new(options.verbose, plan.trials.len());
    let mut bench = Bench::new(options.size())?;
    let results = trials(&plan, &store, options.fresh, &mut bench, &progress)?;
    Ok(report(experiment, options.size(), &plan, &results))
}

/// What the store has of an experiment, nothing measured; and what is missing or refused, for people.
///
/// # Errors
/// [`LabError`] if it cannot be told what the results depend on.
pub fn stored(experiment: &Experiment, size: Size) -> Result<(Report, Vec<String>), LabError> {
    let store = Store::of(experiment.name, size.label())?;
    let plan = (experiment.plan)(size);
    let (mut results, mut gaps) = (Results::default(), Vec::new());
    let mut bench = Bench::new(size)?;
    for trial in &plan.trials {
        let configuration = match bench.configuration(trial) {
            Err(error @ LabError::Missing { .. }) if trial.system == System::Kvm => {
                gaps.push(format!("{}: left out: {error}", trial.label()));
                continue;
            }
            other => other?,
        };
        match store.find(&configuration) {
            Found::Same(measured) => results.add(&trial.name, measured),
            Found::Other(how) => gaps.push(format!("{}: refused, it was measured with {how}", trial.label())),
            Found::Nothing => gaps.push(format!("{}: not measured yet", trial.label())),
        }
    }
    Ok((report(experiment, size, &plan, &results), gaps))
}

fn trials(
    plan: &Plan,
    store: &Store,
    fresh: bool,
    bench: &mut Bench,
    progress: &Progress,
) -> Result<Results, LabError> {
    let mut results = Results::default();
    for trial in &plan.trials {
        progress.begin(&trial.label());
        let configuration = match bench.configuration(trial) {
            // The peer is for comparison: the rest can be measured without it.
            Err(error @ LabError::Missing { .. }) if trial.system == System::Kvm => {
                progress.note(&format!("{}: left out: {error}", trial.label()));
                progress.end();
                continue;
            }
            other => other?,
        };
        let found = if fresh { Found::Nothing } else { store.find(&configuration) };
        let measured = match found {
            Found::Same(measured) => {
                progress.note(&format!("{}: as stored", trial.label()));
                measured
            }
            found => {
                if let Found::Other(how) = found {
                    progress.note(&format!("{}: the stored result is not used: measured with {how}", trial.label()));
                }
                let measured = bench.measure(trial, progress)?;
                // What could not be measured is tried again the next time.
                if measured.is_complete() {
                    store.keep(&configuration, &measured)?;
                }
                measured
            }
        };
        results.add(&trial.name, measured);
        progress.end();
    }
    Ok(results)
}

fn report(experiment: &Experiment, size: Size, plan: &Plan, results: &Results) -> Report {
    let goals = Goals(experiment.goals);
    let first = |part: fn(&Measured) -> &String| {
        results.all().map(part).find(|text| !text.is_empty()).map_or("unknown", String::as_str).to_owned()
    };
    let figures = figures(&plan.comparisons, results, goals);
    let charts = plan.charts.iter().map(|chart| chart.fill(results, &figures)).collect();
    Report {
        name: experiment.name.to_owned(),
        machine: first(|measured| &measured.machine),
        commit: first(|measured| &measured.commit),
        figures,
        size,
        charts,
    }
}

/// Where files for trials are made.
#[derive(Debug)]
pub struct Scratch {
    dir: TempDir,
    /// How much of the experiment.
    pub size: Size,
}

impl Scratch {
    fn new(size: Size) -> Result<Self, LabError> {
        let dir = tempfile::Builder::new().prefix("mb-bench-").tempdir();
        Ok(Self { dir: dir.map_err(LabError::io("a temporary directory"))?, size })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// What all trials of a run share: made files and digests.
struct Bench {
    scratch: Scratch,
    digests: Digests,
    emulator: String,
    made: BTreeMap<&'static str, Made>,
}

/// An initial file system on the disk.
#[derive(Clone, Debug)]
struct Made {
    path: PathBuf,
    without: Vec<(&'static str, String)>,
}

impl Bench {
    fn new(size: Size) -> Result<Self, LabError> {
        Self::with(size, emulator()?)
    }

    fn with(size: Size, emulator: String) -> Result<Self, LabError> {
        Ok(Self { scratch: Scratch::new(size)?, digests: Digests::default(), emulator, made: BTreeMap::new() })
    }

    /// Everything that the result of a trial depends on.
    fn configuration(&mut self, trial: &Trial) -> Result<Configuration, LabError> {
        let json = serde_json::to_value(trial).map_err(|error| LabError::io("a trial")(error.into()))?;
        let mut configuration = Configuration::new(json, self.emulator.clone());
        let mut needs = Vec::new();
        if trial.meter == Meter::Instructions {
            needs.push(Artifact::Counter);
        }
        if trial.system == System::Mirrorball {
            needs.push(Artifact::Monitor);
        }
        if trial.system == System::Kvm {
            needs.push(Artifact::KvmHost);
        }
        match &trial.work {
            Work::Procedure(procedure) => needs.extend(procedure.needs),
            Work::Guest(workload) => {
                needs.push(guest::KERNEL);
                let initrd = self.initrd(workload.name, workload.initrd)?;
                configuration.depend(&format!("{} initial file system", workload.name), self.digests.of(&initrd.path)?);
            }
        }
        for artifact in needs {
            configuration.depend(artifact.label(), self.digests.of(&artifact.path()?)?);
        }
        Ok(configuration)
    }

    fn measure(&mut self, trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
        let workload = match &trial.work {
            Work::Procedure(procedure) => return (procedure.run)(trial, progress),
            Work::Guest(workload) => workload,
        };
        let initrd = self.initrd(workload.name, workload.initrd)?;
        let mut measured = guest::measure(trial, workload, &initrd.path, self.scratch.path())?;
        for (phase, why) in &initrd.without {
            let of_phase = |value: &Value| value.name.split('.').next() == Some(*phase);
            measured.values.retain(|value| !of_phase(value));
            measured.values.push(Value::missing(&format!("{phase}.total"), why));
        }
        Ok(measured)
    }

    fn initrd(&mut self, workload: &'static str, initrd: Initrd) -> Result<Made, LabError> {
        let make = match initrd {
            Initrd::Cached(name) => {
                return Ok(Made { path: crate::artifacts::cached(name)?, without: Vec::new() });
            }
            Initrd::Made(make) => make,
        };
        if let Some(made) = self.made.get(workload) {
            return Ok(made.clone());
        }
        let Content { bytes, without } = make(&self.scratch)?;
        let path = self.scratch.path().join(format!("{workload}.cpio"));
        crate::store::write_whole(&path, &bytes)?;
        let made = Made { path, without };
        self.made.insert(workload, made.clone());
        Ok(made)
    }
}

#[cfg(test)]
mod tests;
