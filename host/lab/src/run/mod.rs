//! Running an experiment: every trial that the store does not have yet, in order; then figures and charts from all.

mod abreast;
mod counts;
mod guest;
mod kvm;
mod marks;
mod outcome;
mod progress;
mod wall;

use abreast::{Need, Room};
pub use kvm::settings as kvm_settings;
pub use marks::Marks;
use outcome::{Causes, Outcome};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use machine::ModelStartError;
use tempfile::TempDir;

pub use progress::Progress;

use crate::compare::{Results, figures};
use crate::plan::{
    Artifact, Content, Experiment, Initrd, Meter, ModelSpec, Plan, Size, System, Time, Trial, Work, Workload,
};
use crate::report::{Goals, Report};
use crate::rig::Rig;
use crate::store::{Configuration, Digests, Found, Measured, Parts, Store, Value, emulator};
use crate::{LabError, Options, artifacts};

/// Runs an experiment: what the store has of this very configuration is not measured again, unless `fresh`.
///
/// A trial that fails costs its own figures; the report names it.
///
/// # Errors
/// [`LabError`] if nothing can be run, as where the files that all trials boot are missing, or a result cannot be kept.
pub fn experiment(experiment: &Experiment, options: &Options) -> Result<Report, LabError> {
    let store = Store::of(experiment.name, options.size().label())?;
    let plan = (experiment.plan)(options.size());
    let progress = Progress::new(options.verbose, plan.trials.len());
    let (watch, bench) = (wall::Watch::start(), Mutex::new(Bench::new(options.size())?));
    let (results, failures) = trials(&plan, &store, options, &bench, &progress)?;
    let mut bench = locked(&bench);
    if failures.is_empty() && options.only.is_none() && !bench.has_reused {
        let measured = Measured { values: vec![watch.value()], ..Measured::default() };
        store.keep(&wall::configuration(&plan, &mut bench)?, &measured)?;
    }
    let mut report = Report { failures, ..report(experiment, options.size(), &plan, &results) };
    report.add(wall::figure(experiment, options.size(), &plan, &store, &mut bench), Goals(experiment.goals));
    Ok(report)
}

/// What a trial of an experiment has measured so far, for a procedure that is long.
///
/// # Errors
/// [`LabError`] if it cannot be told what its result depends on.
pub fn parts(experiment: &str, size: Size, trial: &Trial) -> Result<Parts, LabError> {
    let configuration = Bench::new(size)?.configuration(trial)?;
    Ok(Store::of(experiment, size.label())?.parts(&configuration))
}

/// What the store has of an experiment, nothing measured; and what is missing or refused, for people.
///
/// # Errors
/// [`LabError`] if it cannot be told what the results depend on.
pub fn stored(experiment: &Experiment, size: Size) -> Result<(Report, Vec<String>), LabError> {
    let store = Store::of(experiment.name, size.label())?;
    let plan = (experiment.plan)(size);
    let (mut results, mut gaps) = (Results::default(), Vec::new());
    let (mut bench, mut measured_at) = (Bench::new(size)?, None);
    for trial in &plan.trials {
        let found = bench.configuration(trial).map(|wanted| (store.find(&wanted), wanted));
        match found.map(|(found, wanted)| (found, store.measured_at(&wanted))) {
            Ok((Found::Same(measured), at)) => {
                results.add(&trial.name, measured);
                measured_at = measured_at.max(at);
            }
            Ok((Found::Other(how), _)) => gaps.push(format!("{}: refused, it was measured with {how}", trial.label())),
            Ok((Found::Nothing, _)) => gaps.push(format!("{}: not measured yet", trial.label())),
            Err(error) => gaps.push(format!("{}: {error}", trial.label())),
        }
    }
    let mut report = Report { measured_at, ..report(experiment, size, &plan, &results) };
    if measured_at.is_some() {
        report.add(wall::figure(experiment, size, &plan, &store, &mut bench), Goals(experiment.goals));
    }
    Ok((report, gaps))
}

/// All results, and what became of the trials that failed.
fn trials(
    plan: &Plan,
    store: &Store,
    options: &Options,
    bench: &Mutex<Bench>,
    progress: &Progress,
) -> Result<(Results, Vec<String>), LabError> {
    let work = |trial: &Trial| {
        let outcome = outcome(trial, one(trial, store, options, bench, progress), options, progress);
        progress.end();
        outcome
    };
    let outcomes = abreast::run(&plan.trials, Room::of_host(), need, work)?;
    let (mut results, mut failed) = (Results::default(), Causes::default());
    let (mut unprepared, mut left_out) = (Causes::default(), Causes::default());
    for (trial, outcome) in plan.trials.iter().zip(outcomes) {
        match outcome {
            Outcome::Measured(measured) => results.add(&trial.name, measured),
            Outcome::Failed(cause) => failed.add(cause, trial.label()),
            Outcome::Unprepared(cause) => unprepared.add(cause, trial.label()),
            Outcome::LeftOut(cause) => left_out.add(cause, trial.label()),
            Outcome::Nothing => {}
        }
    }
    if results.all().next().is_none() && failed.is_empty() && !unprepared.is_empty() {
        return Err(LabError::Unprepared { causes: unprepared.into_causes() });
    }
    left_out.into_texts().for_each(|text| progress.note(&format!("left out: {text}")));
    Ok((results, failed.into_texts().chain(unprepared.into_texts()).collect()))
}

/// What a trial needs of the host. One that is measured in virtual time does not notice others; what a procedure measures, it
/// knows alone.
fn need(trial: &Trial) -> Need {
    match (&trial.work, trial.machine.time) {
        (Work::Guest(_), Time::Model(_) | Time::Counting) => {
            Need::Memory(trial.machine.nodes.iter().map(|node| u64::from(node.memory_mib)).sum())
        }
        _ => Need::Alone,
    }
}

/// # Errors
/// Results cannot be stored: then no further ones are measured.
fn outcome(
    trial: &Trial,
    result: Result<Option<Measured>, LabError>,
    options: &Options,
    progress: &Progress,
) -> Result<Outcome, LabError> {
    match result {
        Ok(Some(measured)) => Ok(Outcome::Measured(measured)),
        Ok(None) => Ok(Outcome::Nothing),
        Err(error @ LabError::Store { .. }) => Err(error),
        Err(_) if !options.wants(trial) => Ok(Outcome::Nothing),
        Err(error) => {
            let outcome = Outcome::of_error(trial, &error);
            // What is missing is told at the end, once for all trials that miss it.
            if let Outcome::Failed(cause) = &outcome {
                progress.note(&format!("{}: {cause}", trial.label()));
            }
            Ok(outcome)
        }
    }
}

/// The bench, for the moment that it takes to look something up or to make a file.
fn locked(bench: &Mutex<Bench>) -> MutexGuard<'_, Bench> {
    bench.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result of a trial, stored or measured now; `None` if there is none and none is wanted.
fn one(
    trial: &Trial,
    store: &Store,
    options: &Options,
    bench: &Mutex<Bench>,
    progress: &Progress,
) -> Result<Option<Measured>, LabError> {
    let (configuration, wanted) = (locked(bench).configuration(trial)?, options.wants(trial));
    match if options.fresh && wanted { Found::Nothing } else { store.find(&configuration) } {
        Found::Same(measured) => {
            locked(bench).has_reused = true;
            if wanted {
                progress.note(&format!("{}: as stored", trial.label()));
            }
            return Ok(Some(measured));
        }
        _ if !wanted => return Ok(None),
        Found::Other(how) => {
            progress.note(&format!("{}: the stored result is not used: measured with {how}", trial.label()));
        }
        Found::Nothing => {}
    }
    progress.begin(&trial.label());
    let parts = store.parts(&configuration);
    if options.fresh {
        parts.forget()?;
    }
    let measured = measure(trial, bench, progress)?;
    // What could not be measured is tried again the next time.
    if measured.is_complete() {
        store.keep(&configuration, &measured)?;
        parts.forget()?;
    }
    Ok(Some(measured))
}

fn measure(trial: &Trial, bench: &Mutex<Bench>, progress: &Progress) -> Result<Measured, LabError> {
    let workload = match &trial.work {
        Work::Procedure(procedure) => return (procedure.run)(trial, progress),
        Work::Guest(workload) => workload,
    };
    let (initrd, scratch) = {
        let mut bench = locked(bench);
        (bench.initrd(trial, workload)?, bench.scratch.path().to_owned())
    };
    let mut measured = guest::measure(trial, workload, &initrd.path, &scratch)?;
    for (phase, why) in &initrd.without {
        let of_phase = |value: &Value| value.name.split('.').next() == Some(*phase);
        measured.values.retain(|value| !of_phase(value));
        measured.values.push(Value::missing(&format!("{phase}.total"), why));
    }
    Ok(measured)
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
        failures: Vec::new(),
        measured_at: None,
        charts,
    }
}

/// The machine that is modelled, with all numbers of its preset.
fn model_text(trial: &Trial, model: ModelSpec) -> Result<String, LabError> {
    let hardware = Rig::of("bench", trial)?.into_hardware();
    let description = model.plan(trial.seed).describe(&hardware);
    let description = description.map_err(|error| LabError::Launch(ModelStartError::from(error).into()))?;
    serde_json::to_string(&description).map_err(|error| LabError::io("the machine model")(error.into()))
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
    made: BTreeMap<String, Made>,
    /// Whether a stored result has been used.
    has_reused: bool,
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
        Ok(Self {
            scratch: Scratch::new(size)?,
            digests: Digests::default(),
            emulator,
            made: BTreeMap::new(),
            has_reused: false,
        })
    }

    /// Everything that the result of a trial depends on.
    fn configuration(&mut self, trial: &Trial) -> Result<Configuration, LabError> {
        let json = serde_json::to_value(trial).map_err(|error| LabError::io("a trial")(error.into()))?;
        let mut configuration = Configuration::new(json, self.emulator.clone());
        let mut needs = Vec::new();
        if trial.meter == Meter::Instructions {
            needs.push(Artifact::Counter);
        }
        if let Time::Model(model) = trial.machine.time {
            needs.push(Artifact::Model);
            configuration.depend_on_text("machine model", &model_text(trial, model)?);
        }
        if trial.system == System::Mirrorball {
            needs.push(Artifact::Monitor);
        }
        if trial.machine.own_firmware {
            needs.push(Artifact::Firmware);
        }
        match &trial.work {
            Work::Procedure(procedure) => needs.extend(procedure.needs),
            Work::Guest(workload) => {
                needs.push(workload.kernel);
                let initrd = self.initrd(trial, workload)?;
                configuration.depend(&format!("{} initial file system", workload.name), self.digests.of(&initrd.path)?);
            }
        }
        for artifact in needs {
            configuration.depend(artifact.label(), self.digests.of(&artifact.path()?)?);
        }
        Ok(configuration)
    }

    /// The initial file system that a trial's machine or VM boots with: the workload's, or that of a KVM host with it.
    fn initrd(&mut self, trial: &Trial, workload: &Workload) -> Result<Made, LabError> {
        let name = match trial.system {
            System::Kvm => format!("{}-kvm-{}-{}", workload.name, trial.machine.harts(), workload.memory_mib),
            System::Bare | System::Mirrorball => workload.name.to_owned(),
        };
        if let Some(made) = self.made.get(&name) {
            return Ok(made.clone());
        }
        let mut content = match workload.initrd {
            Initrd::Made(make) => make(&self.scratch)?,
            Initrd::Load(load) => {
                let bytes = loads::find(load)?.initrd(&artifacts::load_files()?)?;
                Content { bytes, without: Vec::new() }
            }
        };
        if trial.system == System::Kvm {
            content.bytes = kvm::host(trial, workload, &content.bytes)?;
        }
        let path = self.scratch.path().join(format!("{name}.cpio"));
        crate::store::write_whole(&path, &content.bytes)?;
        let made = Made { path, without: content.without };
        self.made.insert(name, made.clone());
        Ok(made)
    }
}

#[cfg(test)]
mod tests;
