//! Experiment `pagecost`: what it costs the monitor to move a page, to copy it for readers of another node, to end its being
//! shared, and to map it from the disk cache; and what guests lose that make the worst of a monitor which moves pages.
//!
//! On a modelled machine of two nodes with a hart each, by the probe guest (`guest/probe/src/figures/moves.rs`), whose marks say
//! what is counted. A cost is all that the monitor executes between the marks on both harts (reports of the miss counters,
//! decisions, messages, shootdowns and waiting for them), less what it executes in the same time when nothing moves any more,
//! by page. The copy is told apart by what its loop has: see [`measure`].

mod measure;

use crate::compare::Comparison;
use crate::plan::{Artifact, Experiment, MachineSpec, Meter, ModelSpec, Plan, Procedure, Size, System, Trial, Work};
use crate::plot::ChartPlan;
use crate::report::{AtMost, Goal, Target};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pagecost",
    summary: "what moving, replicating and sharing a page costs, and what adversaries of placement lose",
    goals: GOALS,
    plan,
};

const INSTRUCTIONS: &str = "instructions";
const RATIO: &str = "ratio";

const GOALS: &[Goal] = &[
    Goal::new("migrate_cost", INSTRUCTIONS, AtMost(1_500.0), "monitor work per page that migrates, without the copy"),
    Goal::new(
        "replicate_cost",
        INSTRUCTIONS,
        AtMost(1_500.0),
        "monitor work per page that is replicated, without the copy",
    ),
    Goal::new("break_cost", INSTRUCTIONS, Target::Compare, "first write to a page that is shared, without the copy"),
    Goal::new("hit_cost", INSTRUCTIONS, Target::Compare, "4 KiB read that the disk cache answers by mapping a page"),
    Goal::new("numa_adversary", RATIO, AtMost(1.02), "time of the worst adversary with placement over first touch"),
];

/// The trials.
const COSTS: &str = "costs";
const STILL: &str = "adversaries-first-touch";
const MOVED: &str = "adversaries-dynamic";

fn plan(size: Size) -> Plan {
    let trial = |name: &str, count, run| Trial {
        name: name.to_owned(),
        work: Work::Procedure(Procedure { count, version: 1, needs: &[Artifact::Probe, Artifact::Model], run }),
        machine: MachineSpec::new(2, 1, 256).modelled(ModelSpec::FLASH),
        system: System::Mirrorball,
        meter: Meter::Own,
        seed: 0,
    };
    let turns = size.pick(100, 400);
    let adversaries = measure::ADVERSARIES;
    let ratio = |name: &&str| Comparison::Ratio {
        figure: format!("adversary_{name}"),
        value: (*name).to_owned(),
        of: MOVED.to_owned(),
        over: STILL.to_owned(),
        peer: None,
    };
    let mut comparisons = vec![Comparison::Values { trial: COSTS.to_owned() }];
    comparisons.extend(adversaries.iter().map(ratio));
    let among = adversaries.iter().map(|name| format!("adversary_{name}")).collect();
    comparisons.push(Comparison::Worst { figure: "numa_adversary".to_owned(), among });
    let part = |trial: &str| Comparison::Parts {
        trial: trial.to_owned(),
        parts: adversaries.iter().map(|name| (format!("{trial}_{name}"), (*name).to_owned())).collect(),
    };
    comparisons.extend([part(STILL), part(MOVED)]);
    let figures = ["migrate_cost", "replicate_cost", "break_cost", "hit_cost"];
    Plan {
        trials: vec![
            trial(COSTS, size.pick(8, 16), measure::costs),
            trial(STILL, turns, measure::without_placement),
            trial(MOVED, turns, measure::with_placement),
        ],
        comparisons,
        charts: vec![ChartPlan::figures("costs", "What pages cost, without copies", &figures, INSTRUCTIONS, false)],
    }
}
