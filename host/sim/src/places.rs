//! `mirrorball-sim placement`.

use anyhow::{Result, bail};
use clap::Args;
use sim::numa::{By, PlacementReport, PlacementScenario as Scenario};

/// Most nodes of a machine.
const MOST_NODES: usize = 64;

/// What to play.
#[derive(Args)]
pub struct Arguments {
    /// Nodes of the machines.
    #[arg(long, value_delimiter = ',', default_value = "2,8,64")]
    nodes: Vec<usize>,
    /// Milliseconds of machine time.
    #[arg(long, default_value_t = 20_000)]
    ms: u64,
    /// Scenarios; all if none is named.
    #[arg(long, value_delimiter = ',')]
    scenario: Vec<String>,
    /// Find out who uses pages by samples, as on a machine without miss counters.
    #[arg(long, conflicts_with = "still")]
    samples: bool,
    /// Leave pages where they are, for comparison.
    #[arg(long)]
    still: bool,
    /// One JSON object per line instead of a table.
    #[arg(long)]
    json: bool,
}

/// Plays the scenarios and prints what came of each.
///
/// # Errors
/// There is no such scenario or machine.
pub fn run(arguments: &Arguments) -> Result<()> {
    let scenarios = chosen(&arguments.scenario)?;
    if let Some(nodes) = arguments.nodes.iter().find(|nodes| !(1..=MOST_NODES).contains(*nodes)) {
        bail!("--nodes {nodes}: machines have 1 to {MOST_NODES} nodes");
    }
    let by = match (arguments.samples, arguments.still) {
        (true, _) => By::Samples,
        (false, true) => By::Nothing,
        (false, false) => By::Misses,
    };
    if !arguments.json {
        println!(
            "Misses that were local: in the first 0.1 s, on the whole, in the last second; pages; moves of one page."
        );
        println!(
            "{:<18} {:>5} {:>6} {:>6} {:>6} {:>6} {:>7} {:>7} {:>6} {:>7} {:>6} {:>6}",
            "scenario", "nodes", "pages", "first", "all", "last", "moved", "copied", "ended", "refused", "jobs", "most"
        );
    }
    for scenario in scenarios {
        for nodes in &arguments.nodes {
            let report = scenario.measure(*nodes, arguments.ms, by);
            if arguments.json { print_json(scenario, &report) } else { print_row(scenario, &report) }
        }
    }
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<Scenario>> {
    if names.is_empty() {
        return Ok(Scenario::ALL.into());
    }
    let known = Scenario::ALL.map(Scenario::name).join(", ");
    let find = |name: &String| match Scenario::ALL.into_iter().find(|scenario| scenario.name() == name) {
        Some(scenario) => Ok(scenario),
        None => bail!("no scenario {name:?}; there are {known}"),
    };
    names.iter().map(find).collect()
}

fn print_row(scenario: Scenario, report: &PlacementReport) {
    let percent = |permille: u64| format!("{}.{}%", permille / 10, permille % 10);
    println!(
        "{:<18} {:>5} {:>6} {:>6} {:>6} {:>6} {:>7} {:>7} {:>6} {:>7} {:>6} {:>6}",
        scenario.name(),
        report.nodes,
        report.pages,
        percent(report.first_permille),
        percent(report.all_permille),
        percent(report.last_permille),
        report.moved,
        report.copied,
        report.ended,
        report.refused,
        report.jobs,
        report.most_moves
    );
}

fn print_json(scenario: Scenario, report: &PlacementReport) {
    println!(
        "{}",
        serde_json::json!({
            "scenario": scenario.name(),
            "nodes": report.nodes,
            "pages": report.pages,
            "first_permille": report.first_permille,
            "all_permille": report.all_permille,
            "last_permille": report.last_permille,
            "moved": report.moved,
            "copied": report.copied,
            "ended": report.ended,
            "split": report.split,
            "refused": report.refused,
            "jobs": report.jobs,
            "most_pages": report.most_pages,
            "most_moves": report.most_moves,
        })
    );
}
