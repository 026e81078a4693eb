//! `bench`: experiments of crate `lab`.

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

pub fn run(context: &Context, args: &Bench) -> Result<(), Failure> {
    if args.name == "list" {
        return list(context, args.json.json);
    }
    // Its progress goes to standard error.
    let options = lab::Options { quick: args.quick, verbose: true };
    let report = lab::run(&args.name, options).map_err(|error| match error {
        unknown @ lab::LabError::Unknown { .. } => Failure::Usage(unknown.to_string()),
        other => Failure::Other(other.to_string()),
    })?;
    context.output.line(if args.json.json { report.to_json() } else { report.to_string() })
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
