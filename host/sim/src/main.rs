//! `mirrorball-sim`: the scheduler, and the placement of pages, on machines that nobody here has.

mod places;
mod shared;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use sim::Report;
use sim::scenario::Scenario;

/// Run the monitor's scheduler on synthetic machines and print how fair it is.
#[derive(Parser)]
#[command(name = "mirrorball-sim", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Harts of the machines, in nodes of 8.
    #[arg(long, value_delimiter = ',', default_value = "8,64,256,1024")]
    harts: Vec<usize>,
    /// Milliseconds of machine time that count, after one second to settle.
    #[arg(long, default_value_t = 5_000)]
    ms: u64,
    /// Scenarios; all if none is named.
    #[arg(long, value_delimiter = ',')]
    scenario: Vec<String>,
    /// One JSON object per line instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Run the monitor's placement of pages instead, and print what it comes to.
    Placement(places::Arguments),
    /// Run the memory of several machines instead, and print how often each protocol stalls.
    Dsm(shared::Arguments),
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match &arguments.command {
        Some(Command::Placement(arguments)) => return places::run(arguments),
        Some(Command::Dsm(arguments)) => return shared::run(arguments),
        None => {}
    }
    let scenarios = chosen(&arguments.scenario)?;
    if let Some(harts) = arguments.harts.iter().find(|harts| !(1..=2_000).contains(*harts)) {
        bail!("--harts {harts}: machines have 1 to 2000 harts");
    }
    if !arguments.json {
        println!(
            "Service of computing vCPUs relative to their average; hart time; moves per second and\nhart; moves back to a hart that was left less than a second before."
        );
        println!(
            "{:<13} {:>6} {:>7} {:>7} {:>7} {:>6} {:>6} {:>7} {:>9} {:>8} {:>8}",
            "scenario", "harts", "vcpus", "worst", "best", "jain", "busy", "wasted", "wake us", "moves/s", "returns"
        );
    }
    for scenario in scenarios {
        for harts in &arguments.harts {
            let report = scenario.measure(*harts, arguments.ms);
            if arguments.json { print_json(scenario, &report) } else { print_row(scenario, &report, arguments.ms) }
        }
    }
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<Scenario>> {
    if names.is_empty() {
        return Ok(Scenario::ALL.into());
    }
    let find = |name: &String| Scenario::ALL.into_iter().find(|scenario| scenario.name() == name);
    let known = Scenario::ALL.map(Scenario::name).join(", ");
    let find = |name: &String| match find(name) {
        Some(scenario) => Ok(scenario),
        None => bail!("no scenario {name:?}; there are {known}"),
    };
    names.iter().map(find).collect()
}

fn print_row(scenario: Scenario, report: &Report, ms: u64) {
    let percent = |permille: u64| format!("{}.{}%", permille / 10, permille % 10);
    let moves = report.moved() as f64 * 1_000.0 / ms as f64 / report.harts as f64;
    println!(
        "{:<13} {:>6} {:>7} {:>7} {:>7} {:>6.3} {:>6} {:>7} {:>9} {:>8.2} {:>8}",
        scenario.name(),
        report.harts,
        report.computing,
        percent(report.worst_permille),
        percent(report.best_permille),
        report.jain_permille as f64 / 1_000.0,
        percent(report.busy_permille),
        percent(report.wasted_permille),
        report.worst_wake_us,
        moves,
        report.returns
    );
}

fn print_json(scenario: Scenario, report: &Report) {
    let moves: serde_json::Map<_, _> =
        report.moves.iter().map(|(reason, count)| (format!("{reason:?}"), (*count).into())).collect();
    println!(
        "{}",
        serde_json::json!({
            "scenario": scenario.name(),
            "harts": report.harts,
            "computing": report.computing,
            "worst_permille": report.worst_permille,
            "best_permille": report.best_permille,
            "jain_permille": report.jain_permille,
            "busy_permille": report.busy_permille,
            "wasted_permille": report.wasted_permille,
            "worst_wake_us": report.worst_wake_us,
            "moves": moves,
            "returns": report.returns,
            "most_moves_in_a_second": report.most_moves_in_a_second,
        })
    );
}
