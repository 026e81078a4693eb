//! `sim`: the monitor's scheduler on a machine that a file describes.

use std::path::Path;

use sim::play::{Outcome, Play, Scene, svg, trace};

use super::Context;
use crate::args::Sim;
use crate::failure::Failure;
use crate::output::{Cell, Table, units};

/// Microseconds that a picture shows unless it is told otherwise.
const PICTURE_US: u64 = 200_000;

pub fn run(context: &Context, args: &Sim) -> Result<(), Failure> {
    let failed = |source| Failure::File { path: args.file.clone(), source };
    let text = std::fs::read_to_string(&args.file).map_err(failed)?;
    let scene = Scene::parse(&text).map_err(|why| Failure::Other(format!("{}: {why}", args.file.display())))?;
    let mut play = Play::new(&scene);
    if args.svg.is_some() || args.trace.is_some() {
        play = play.with_spans();
    }
    let outcome = play.run();
    if let Some(path) = &args.svg {
        let from = args.from_ms.saturating_mul(1_000);
        let to = args.to_ms.map_or(from.saturating_add(PICTURE_US), |ms| ms.saturating_mul(1_000)).min(outcome.us);
        write(path, svg(play.spans(), outcome.harts, &play.names(), from, to))?;
    }
    if let Some(path) = &args.trace {
        write(path, &trace(play.spans(), &play.names()).map_err(Failure::Output)?)?;
    }
    if args.json.json { context.output.json(&outcome) } else { print(context, &outcome) }
}

fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Failure> {
    std::fs::write(path, content).map_err(|source| Failure::File { path: path.into(), source })
}

fn print(context: &Context, outcome: &Outcome) -> Result<(), Failure> {
    let ms = |us: u64| Cell::from(format!("{:.1}", us as f64 / 1_000.0));
    let mut table =
        Table::new(&["VM", "WEIGHT", "ROUNDS", "RAN MS", "SPUN MS", "WAITED MS", "TURNS", "WAKE P99 US", "ENDED MS"]);
    for vm in &outcome.vms {
        let optional = |us: Option<u64>, cell: fn(u64) -> Cell| us.map_or_else(|| Cell::from("-"), cell);
        table.row([
            Cell::from(vm.name.as_str()),
            Cell::from(vm.weight.to_string()),
            Cell::from(units::count(vm.rounds)),
            ms(vm.ran_us),
            ms(vm.spun_us),
            ms(vm.waited_us),
            Cell::from(units::count(vm.turns)),
            optional(vm.wake_p99_us, |us| Cell::from(units::count(us))),
            vm.ended_us.map_or_else(|| Cell::from("-"), ms),
        ]);
    }
    context.output.table(&table)?;
    context.output.line(format!(
        "{} harts, {:.1} ms; idle while a vCPU waited: {:.3} % of the hart time; {} moves, {} picks",
        outcome.harts,
        outcome.us as f64 / 1_000.0,
        outcome.wasted_ppm as f64 / 10_000.0,
        outcome.moves,
        outcome.picks
    ))
}
