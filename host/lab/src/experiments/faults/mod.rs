//! Experiment `faults`: what cells are for. Hardware fails at random moments while a VM computes in each cell; who used nothing of what was
//! lost finishes with the right result. And how long it takes until the cells that are left have agreed to go on.
//!
//! The campaign runs on plain emulation: it counts, and times nothing. The first cell is spared, because it has the
//! control port that tells what became of the others. Times are those of the modelled machine.

mod campaign;
mod recovery;

use crate::compare::Comparison;
use crate::plan::{Artifact, Experiment, MachineSpec, Meter, ModelSpec, Plan, Procedure, Size, System, Trial, Work};
use crate::plot::{ChartPlan, Content, Line};
use crate::report::{AtMost, Goal, Target};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "faults",
    summary: "hardware that fails under cells: whose VMs finish all the same, and how soon the others go on",
    goals: GOALS,
    plan,
};

const GOALS: &[Goal] = &[
    Goal::new(
        campaign::CONTAINED,
        "%",
        Target::AtLeast(100.0),
        "faults that hurt nobody who did not use what was lost",
    )
    .paper(100.0, "Cellular Disco, section 6: 1,000 of 1,000"),
    Goal::new(
        recovery::RECOVERY,
        "ms",
        AtMost(10.0),
        "from a node's loss until the last cell of eight has agreed to go on",
    )
    .paper(500.0, "Cellular Disco, section 6: 100 to 500 ms for 8 cells"),
];

/// Cells of the campaign's machines, one for each node.
const CELLS: usize = 4;
/// Cells of the machines whose recovery is timed.
const TIMED: [usize; 3] = [2, 4, 8];

fn plan(size: Size) -> Plan {
    let trial = |name: String, machine, count, run| Trial {
        name,
        work: Work::Procedure(Procedure { count, version: 2, needs: &[Artifact::Probe], run }),
        machine,
        system: System::Mirrorball,
        meter: Meter::Own,
        seed: 0,
    };
    let faults = size.pick(50, 1000);
    let mut trials = vec![trial("campaign".to_owned(), machine(CELLS, 2), faults, campaign::contained)];
    let mut comparisons = vec![Comparison::Values { trial: "campaign".to_owned() }];
    for cells in TIMED {
        let machine = machine(cells, 1).modelled(ModelSpec::FLASH);
        trials.extend(trial(timed(cells), machine, 1, recovery::time).repeated(size.pick(1, 5)));
    }
    let part = |cells: usize| {
        let figure = if cells == 8 { recovery::RECOVERY.to_owned() } else { format!("{}_{cells}", recovery::RECOVERY) };
        let notice = (format!("notice_ms_{cells}"), recovery::NOTICE.to_owned());
        Comparison::Parts { trial: timed(cells), parts: vec![(figure, recovery::RECOVERY.to_owned()), notice] }
    };
    comparisons.extend(TIMED.into_iter().rev().map(part));
    let line = Line {
        label: "the last cell has agreed".to_owned(),
        value: recovery::RECOVERY.to_owned(),
        trials: TIMED.map(|cells| (cells as f64, timed(cells))).into(),
    };
    let charts = vec![ChartPlan {
        id: "recovery",
        title: "From a node's loss until all others go on".to_owned(),
        content: Content::Curve { x: "cells", y: "ms, modelled", logarithmic: false, lines: vec![line] },
    }];
    Plan { trials, comparisons, charts }
}

fn timed(cells: usize) -> String {
    format!("cells-{cells}")
}

/// A machine with a node for each cell, started by the firmware that can fail.
fn machine(cells: usize, harts: u16) -> MachineSpec {
    MachineSpec::new(cells, harts, 256).with_own_firmware()
}
