//! `bench`: experiments of crate `lab`.

use std::path::{Path, PathBuf};

use claims::{Claims, Found, day_of};
use lab::LabError;
use serde::Serialize;

use super::Context;
use crate::args::Bench;
use crate::failure::Failure;
use crate::output::Table;

/// `bench list --json`: an array of these.
#[derive(Debug, Serialize)]
struct ExperimentView {
    name: &'static str,
    summary: &'static str,
}

/// `bench report --json`: an array of these.
#[derive(Debug, Serialize)]
struct StoredView<'a> {
    #[serde(flatten)]
    report: &'a lab::Report,
    /// Trials without a result that can be used, and why.
    gaps: &'a [String],
}

/// The block of pages that shows the demonstration.
const DEMO_BLOCK: &str = "demo.txt";

pub fn run(context: &Context, args: &Bench) -> Result<(), Failure> {
    match args.name.as_str() {
        "list" => list(context, args.json.json),
        "report" => report(context, args),
        _ => experiment(context, args),
    }
}

fn experiment(context: &Context, args: &Bench) -> Result<(), Failure> {
    lab::find(&args.name).map_err(failed)?;
    if args.write {
        return Err(Failure::Usage("--write belongs to `bench report`".to_owned()));
    }
    let folder = folder(args)?;
    // Its progress goes to standard error.
    let options = lab::Options { quick: args.quick, verbose: true, fresh: args.fresh, only: args.only.clone() };
    let report = lab::run(&args.name, &options).map_err(failed)?;
    let written = lab::report::write(&report, &folder).map_err(failed)?;
    context.output.line(if args.json.json { report.to_json() } else { report.to_string() })?;
    eprintln!("bench: {} files in {}", written.len(), folder.display());
    match incomplete(&report.failures, args.json.json) {
        Some(text) => Err(Failure::Other(text)),
        None => Ok(()),
    }
}

/// What to say of runs without a result. The table has named each cause with its first line.
fn incomplete(failures: &[String], is_json: bool) -> Option<String> {
    let is_told = !is_json && failures.iter().all(|failure| failure.lines().count() <= 1);
    match failures {
        [] => None,
        _ if is_told => Some("some runs of the experiment failed, as said above".to_owned()),
        _ => Some(format!("some runs of the experiment failed: {}", failures.join("\n"))),
    }
}

fn report(context: &Context, args: &Bench) -> Result<(), Failure> {
    let folder = folder(args)?;
    let mut all = Vec::new();
    for experiment in lab::EXPERIMENTS {
        all.extend(lab::stored(experiment).map_err(failed)?);
    }
    if args.write {
        write_claims(&all)?;
    }
    for (report, _) in &all {
        lab::report::write(report, &folder).map_err(failed)?;
    }
    let page = lab::report::page(&all);
    let path = folder.join("report.md");
    lab::store::write_whole(&path, page.as_bytes()).map_err(failed)?;
    if args.json.json {
        let views: Vec<_> = all.iter().map(|(report, gaps)| StoredView { report, gaps }).collect();
        context.output.json(&views)?;
    } else {
        context.output.line(page)?;
    }
    eprintln!("bench: the page is {}", path.display());
    Ok(())
}

/// Takes over what is stored into the records of the tree that the user is in, and writes the pages.
fn write_claims(all: &[(lab::Report, Vec<String>)]) -> Result<(), Failure> {
    let refused = |error: claims::ClaimsError| Failure::Other(error.to_string());
    let here = std::env::current_dir().map_err(|source| Failure::File { path: PathBuf::from("."), source })?;
    let mut claims = Claims::find(&here).map_err(refused)?;
    let demo = crate::demo::findings()?;
    if let Some(demo) = &demo
        && claims.adopt_text(DEMO_BLOCK, &demo.text, &demo.commit).map_err(refused)?
    {
        eprintln!("bench: {DEMO_BLOCK} is of {} now", demo.commit);
    }
    let of_demo = demo.into_iter().flat_map(|demo| demo.found);
    for found in all.iter().flat_map(|(report, _)| findings(report)).chain(of_demo) {
        for id in claims.adopt(&found) {
            eprintln!("bench: {id} is {} now, measured {} at {}", found.value, found.date, found.commit);
        }
    }
    for path in claims.write().map_err(refused)? {
        eprintln!("bench: {} written", path.display());
    }
    Ok(())
}

/// The figures of a report that have a value.
fn findings(report: &lab::Report) -> Vec<Found> {
    let Some(at) = report.measured_at else { return Vec::new() };
    let found = |figure: &lab::Figure| {
        Some(Found {
            id: figure.id.clone(),
            experiment: report.name.clone(),
            size: report.size.label().to_owned(),
            value: figure.value?,
            spread: figure.spread,
            runs: figure.runs,
            peer: figure.peer.filter(|_| figure.peer_in_this_run),
            remark: sentence(&figure.remark),
            machine: report.machine.clone(),
            commit: report.commit.clone(),
            date: day_of(at),
        })
    };
    report.figures.iter().filter_map(found).collect()
}

/// A remark as pages have it: with a capital letter and a full stop.
fn sentence(remark: &str) -> String {
    let mut letters = remark.trim().trim_end_matches('.').chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

/// Where results go; it is made now, so that a bad one costs no measurement.
fn folder(args: &Bench) -> Result<PathBuf, Failure> {
    let folder = args.out.clone().unwrap_or_else(|| Path::new("results").join(&args.name));
    std::fs::create_dir_all(&folder).map_err(|source| Failure::File { path: folder.clone(), source })?;
    Ok(folder)
}

fn failed(error: LabError) -> Failure {
    match error {
        unknown @ LabError::Unknown { .. } => Failure::Usage(unknown.to_string()),
        other => Failure::Other(other.to_string()),
    }
}

fn list(context: &Context, json: bool) -> Result<(), Failure> {
    let view = |experiment: &lab::Experiment| ExperimentView { name: experiment.name, summary: experiment.summary };
    let experiments: Vec<ExperimentView> = lab::EXPERIMENTS.iter().map(view).collect();
    if json {
        return context.output.json(&experiments);
    }
    let mut table = Table::new(&["EXPERIMENT", "FINDS OUT"]);
    for experiment in experiments {
        table.row([experiment.name.into(), experiment.summary.into()]);
    }
    context.output.table(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_become_sentences() {
        let told = ["merging on hart 1", "On 2 cores.", ""].map(sentence);
        assert_eq!(told, ["Merging on hart 1.", "On 2 cores.", ""]);
    }

    #[test]
    fn a_cause_that_the_table_tells_is_not_told_again() {
        let (short, long) = ("a and b: it is not there".to_owned(), "c: it hung\nits log".to_owned());
        assert_eq!(incomplete(&[], false), None);
        let text = |failures: &[String], is_json| incomplete(failures, is_json).expect("some failed");
        assert!(!text(std::slice::from_ref(&short), false).contains("not there"));
        assert!(text(std::slice::from_ref(&short), true).contains("a and b: it is not there"));
        assert!(text(&[short, long], false).contains("its log"));
    }
}
