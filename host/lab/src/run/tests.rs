//! Experiments without machines: what is run, what is taken from the store, what is not.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::compare::Comparison;
use crate::plan::{MachineSpec, Procedure};
use crate::report::{AtMost, Goal};
use crate::store::Value;

/// The tests share the counters below.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
static RUNS: AtomicUsize = AtomicUsize::new(0);
/// The run in which everything ends.
static PANICS: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The run that fails.
static FAILS: AtomicUsize = AtomicUsize::new(usize::MAX);

fn count(trial: &Trial, _: &Progress) -> Result<Measured, LabError> {
    let run = RUNS.fetch_add(1, Ordering::SeqCst);
    assert_ne!(run, PANICS.load(Ordering::SeqCst), "interrupted");
    if run == FAILS.load(Ordering::SeqCst) {
        return Err(LabError::BadName { text: "failed".into() });
    }
    let Work::Procedure(procedure) = &trial.work else { return Ok(Measured::default()) };
    let value = match procedure.count {
        0 => Value::missing("time", "the guest died"),
        count => Value::new("time", crate::compare::ratio(count + trial.seed, 1), "ns", 1),
    };
    Ok(Measured { values: vec![value], ..Measured::default() })
}

fn trial(name: &str, count_of: u64, version: u32) -> Trial {
    Trial {
        name: name.to_owned(),
        work: Work::Procedure(Procedure { count: count_of, version, needs: &[], run: count }),
        machine: MachineSpec::new(1, 1, 64),
        // Depends on no monitor.
        system: System::Bare,
        meter: Meter::Own,
        seed: 0,
    }
}

fn plan(version: u32) -> Plan {
    let ratio = Comparison::Ratio {
        figure: "slow".into(),
        value: "time".into(),
        of: "b".into(),
        over: "a".into(),
        peer: Some("c".into()),
    };
    let mut trials = vec![trial("a", 10, 1)];
    trials.extend(trial("b", 20, version).repeated(2));
    trials.push(trial("c", 30, 1));
    Plan { trials, comparisons: vec![ratio], charts: Vec::new() }
}

/// Runs a plan; gives how many trials really ran.
fn go(plan: &Plan, store: &Store, fresh: bool) -> (Result<(Results, Vec<String>), LabError>, usize) {
    let bench = Mutex::new(Bench::with(Size::Full, "QEMU 10.0.2".into()).expect("a temporary directory"));
    let before = RUNS.load(Ordering::SeqCst);
    let options = Options { fresh, ..Options::default() };
    let results = trials(plan, store, &options, &bench, &Progress::silent());
    (results, RUNS.load(Ordering::SeqCst) - before)
}

fn store() -> (TempDir, Store) {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::at(dir.path().to_owned());
    (dir, store)
}

#[test]
fn an_interrupted_experiment_goes_on_where_it_stopped() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (_dir, store) = store();
    // As if the process had been killed in the third run.
    PANICS.store(RUNS.load(Ordering::SeqCst) + 2, Ordering::SeqCst);
    let interrupted = std::panic::catch_unwind(|| go(&plan(1), &store, false));
    PANICS.store(usize::MAX, Ordering::SeqCst);
    assert!(interrupted.is_err());
    // The two that ended are there; the one that was interrupted and the one after it run now.
    let (results, ran) = go(&plan(1), &store, false);
    assert_eq!(ran, 2);
    let goals = [Goal::new("slow", "ratio", AtMost(3.0), "").below_peer()];
    let figures = figures(&plan(1).comparisons, &results.expect("nothing fails").0, Goals(&goals));
    assert_eq!((figures[0].value, figures[0].peer, figures[0].is_reached()), (Some(2.05), Some(3.0), Some(true)));
    assert_eq!(go(&plan(1), &store, false).1, 0);
    assert_eq!(go(&plan(1), &store, true).1, 4);
}

#[test]
fn a_trial_that_fails_costs_its_own_figures_and_is_run_again() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (_dir, store) = store();
    FAILS.store(RUNS.load(Ordering::SeqCst) + 3, Ordering::SeqCst);
    let (results, ran) = go(&plan(1), &store, false);
    FAILS.store(usize::MAX, Ordering::SeqCst);
    let (results, failures) = results.expect("the others ran");
    assert_eq!((ran, failures.len()), (4, 1));
    assert!(failures[0].starts_with("c: "), "{failures:?}");
    let goals = [Goal::new("slow", "ratio", AtMost(3.0), "").below_peer()];
    let figures = figures(&plan(1).comparisons, &results, Goals(&goals));
    // Nobody knows whether it undercuts the peer.
    assert_eq!((figures[0].value, figures[0].peer, figures[0].is_reached()), (Some(2.05), None, None));
    assert_eq!(go(&plan(1), &store, false).1, 1);
}

#[test]
fn a_full_disk_ends_the_experiment() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().join("lab");
    std::fs::write(&place, "no folder").expect("room");
    let (results, ran) = go(&plan(1), &Store::at(place), false);
    assert!(matches!(results, Err(LabError::Store { .. })));
    assert_eq!(ran, 1);
}

#[test]
fn only_the_runs_asked_for_are_measured() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (_dir, store) = store();
    let bench = Mutex::new(Bench::with(Size::Full, "QEMU 10.0.2".into()).expect("a temporary directory"));
    let ran = |fresh, only: &str| {
        let options = Options { fresh, only: Some(only.to_owned()), ..Options::default() };
        let before = RUNS.load(Ordering::SeqCst);
        let results = trials(&plan(1), &store, &options, &bench, &Progress::silent()).expect("nothing fails").0;
        (RUNS.load(Ordering::SeqCst) - before, results.all().count())
    };
    assert_eq!(ran(false, "b"), (2, 2));
    assert_eq!(ran(false, "a"), (1, 3));
    assert_eq!(ran(true, "a"), (1, 3));
}

#[test]
fn only_what_is_configured_otherwise_runs_again() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (_dir, store) = store();
    assert_eq!(go(&plan(1), &store, false).1, 4);
    assert_eq!(go(&plan(2), &store, false).1, 2);
    // Both versions are kept.
    assert_eq!((go(&plan(1), &store, false).1, go(&plan(2), &store, false).1), (0, 0));
}

#[test]
fn what_could_not_be_measured_is_tried_again() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (_dir, store) = store();
    let plan = Plan { trials: vec![trial("a", 0, 1)], ..Plan::default() };
    assert_eq!((go(&plan, &store, false).1, go(&plan, &store, false).1), (1, 1));
}

/// A trial that needs a file of the images, which nobody has made.
fn without_images(trial: &Trial, _: &Progress) -> Result<Measured, LabError> {
    let name = if trial.name == "b" { "kernel/Image" } else { "loads-base/base.cpio" };
    Err(LabError::Missing { path: name.into(), maker: "./x image" })
}

fn unprepared(name: &str, system: System) -> Trial {
    let work = Work::Procedure(Procedure { count: 1, version: 1, needs: &[], run: without_images });
    Trial { work, system, ..trial(name, 1, 1) }
}

#[test]
fn what_all_trials_miss_is_told_once_with_what_makes_it() {
    let (_dir, store) = store();
    let mut all: Vec<Trial> = unprepared("a", System::Bare).repeated(6);
    all.extend([unprepared("b", System::Bare), unprepared("a-kvm", System::Kvm)]);
    let (refused, _) = go(&Plan { trials: all.clone(), ..Plan::default() }, &store, false);
    let text = refused.expect_err("nothing can be measured").to_string();
    let cause = "loads-base/base.cpio is not there: run `./x image` in the source tree of Mirrorball";
    assert_eq!((text.matches(cause).count(), text.matches("is not there").count()), (1, 2), "{text}");
    assert!(text.starts_with("nothing can be measured: "), "{text}");
    // Where others have a result, the cause names those that have none.
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    all.push(trial("c", 1, 1));
    let (results, _) = go(&Plan { trials: all, ..Plan::default() }, &store, false);
    let (results, failures) = results.expect("one has a result");
    assert_eq!(results.all().count(), 1);
    assert_eq!(failures.len(), 2, "{failures:?}");
    assert_eq!(failures[0], format!("a and 5 other runs: {cause}"));
    assert!(failures[1].starts_with("b: kernel/Image"), "{failures:?}");
}

#[test]
fn the_time_of_a_whole_run_is_that_of_its_very_trials() {
    const GOALS: &[Goal] = &[Goal::new("x_full_minutes", "min", AtMost(10.0), "wall time")];
    let experiment = |goals| Experiment { name: "x", summary: "", goals, plan: |_| plan(1) };
    let (_dir, store) = store();
    let mut bench = Bench::with(Size::Full, "QEMU 10.0.2".into()).expect("a temporary directory");
    let mut figure = |goals, version| wall::figure(&experiment(goals), Size::Full, &plan(version), &store, &mut bench);
    // Without a goal nobody misses it.
    assert_eq!(figure(&[], 1), None);
    assert_eq!(figure(GOALS, 1).expect("there is a goal").value, None);

    let value = Value { note: "Quiet.".into(), ..Value::new("minutes", 7.5, "min", 1) };
    let measured = Measured { values: vec![value], ..Measured::default() };
    let mut other = Bench::with(Size::Full, "QEMU 10.0.2".into()).expect("a temporary directory");
    store.keep(&wall::configuration(&plan(1), &mut other).expect("no files"), &measured).expect("room");
    let found = figure(GOALS, 1).expect("it is stored");
    assert_eq!((found.value, found.is_reached(), found.remark.as_str()), (Some(7.5), Some(true), "Quiet."));
    assert_eq!(figure(GOALS, 2).expect("there is a goal").value, None, "another version of a trial");
}

#[test]
fn a_run_that_takes_a_stored_result_is_no_whole_run() {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (_dir, store) = store();
    let reused = |fresh| {
        let bench = Mutex::new(Bench::with(Size::Full, "QEMU 10.0.2".into()).expect("a temporary directory"));
        let options = Options { fresh, ..Options::default() };
        trials(&plan(1), &store, &options, &bench, &Progress::silent()).expect("it runs");
        locked(&bench).has_reused
    };
    assert_eq!([reused(false), reused(false), reused(true)], [false, true, false]);
}
