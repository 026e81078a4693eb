//! Experiment `machine`: how far the machine model can be believed.
//!
//! Programs without a system underneath measure by the machine's own clock what its description says: latencies from
//! every node to every node, the sizes of caches and TLB, a loop on all harts at once. A kernel boots twice, and what it
//! says must be the same to the microsecond. What the model costs is the host's time for the same boot without it.

mod measure;

use crate::LabError;
use crate::compare::Comparison;
use crate::plan::{Artifact, Experiment, MachineSpec, Meter, ModelSpec, Plan, Procedure, Size, System, Trial, Work};
use crate::plot::ChartPlan;
use crate::report::{AtMost, Goal, Target};
use crate::run::Progress;
use crate::store::Measured;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "machine",
    summary: "the machine model: latencies, caches, TLB, parallel time, determinism, and what it costs the host",
    goals: GOALS,
    plan,
};

const PER_CENT: &str = "%";

const GOALS: &[Goal] = &[
    Goal::new(
        "parallel_error",
        PER_CENT,
        AtMost(1.0),
        "a fixed loop on all harts at once against one alone, worst of 2 to 32",
    ),
    Goal::new(
        "latency_error",
        PER_CENT,
        AtMost(2.0),
        "measured latency against the configured one, worst pair of nodes",
    ),
    Goal::new("determinism", "differences", AtMost(0.0), "lines in which two runs of one seed differ: times, counts"),
    Goal::new(
        "model_slowdown",
        "x",
        AtMost(3.0),
        "host CPU of the full model over plain emulation, worst of 1 and 4 harts",
    ),
    Goal::new("model_off_slowdown", "x", AtMost(1.1), "the same while it is switched off"),
    Goal::new("model_fast_slowdown", "x", Target::Compare, "the same in the fast mode"),
    Goal::new("fast_error", PER_CENT, Target::Compare, "time of a boot in the fast mode against the reference mode"),
    Goal::new("clock_backwards", "times", AtMost(0.0), "a hart that reads an earlier time than another had read"),
    Goal::new("timer_early", "times", AtMost(0.0), "timers that wake a hart before their time"),
];

const CACHES: &[&str] = &[
    "size_8k",
    "size_16k",
    "size_32k",
    "size_64k",
    "size_128k",
    "size_256k",
    "size_512k",
    "size_1m",
    "size_2m",
    "size_4m",
    "size_8m",
];
const SMALL_PAGES: &[&str] = &["pages_16", "pages_32", "pages_64", "pages_128", "pages_256", "pages_512", "pages_1024"];
const LARGE_PAGES: &[&str] = &["mega_16", "mega_32", "mega_64", "mega_128", "mega_256", "mega_512", "mega_1024"];
const LATENCIES: &[&str] = &[
    "chase_0_0",
    "chase_0_1",
    "chase_0_2",
    "chase_0_3",
    "chase_1_0",
    "chase_1_1",
    "chase_1_2",
    "chase_1_3",
    "chase_2_0",
    "chase_2_1",
    "chase_2_2",
    "chase_2_3",
    "chase_3_0",
    "chase_3_1",
    "chase_3_2",
    "chase_3_3",
];

type Run = fn(&Trial, &Progress) -> Result<Measured, LabError>;

fn plan(size: Size) -> Plan {
    let flash = |nodes, harts, memory_mib| MachineSpec::new(nodes, harts, memory_mib).modelled(ModelSpec::FLASH);
    let turns = size.pick(400_000, 4_000_000);
    let mut trials = vec![
        trial("latency", flash(4, 2, 256), 1, measure::latency),
        trial("caches", flash(1, 1, 256), 1, measure::caches),
        trial("tlb", flash(1, 1, 256), 1, measure::tlb),
        trial("clocks", flash(4, 1, 128), size.pick(2_000, 20_000), measure::clocks),
        trial("parallel-2", flash(2, 1, 128), turns, measure::parallel),
        trial("parallel-8", flash(4, 2, 128), turns, measure::parallel),
        // Two nodes: on four the firmware's heap is too small for 32 harts with interrupt files.
        trial("parallel-32", flash(2, 16, 256), turns, measure::parallel),
        trial("determinism", flash(4, 1, 256), size.pick(2, 5), measure::determinism),
    ];
    for (name, nodes, mib) in [("slowdown-1", 1, 1024), ("slowdown-4", 4, 256)] {
        trials.push(trial(name, flash(nodes, 1, mib), size.pick(3, 9), measure::slowdown));
    }
    let mut comparisons: Vec<_> = trials.iter().map(|trial| Comparison::Values { trial: trial.name.clone() }).collect();
    for (figure, among) in [
        ("parallel_error", ["parallel_error_2", "parallel_error_8", "parallel_error_32"].as_slice()),
        ("model_slowdown", &["model_slowdown_1", "model_slowdown_4"]),
        ("model_off_slowdown", &["model_off_slowdown_1", "model_off_slowdown_4"]),
        ("model_fast_slowdown", &["model_fast_slowdown_1", "model_fast_slowdown_4"]),
        ("fast_error", &["fast_error_1", "fast_error_4"]),
    ] {
        let among = among.iter().map(ToString::to_string).collect();
        comparisons.push(Comparison::Worst { figure: figure.to_owned(), among });
    }
    let chart = |id, title, figures| ChartPlan::figures(id, title, figures, "ps", true);
    let charts = vec![
        chart("latency", "Latency from node to node", LATENCIES),
        chart("caches", "Time of a load by the size of what is read", CACHES),
        chart("tlb-4k", "Time of a load by the number of 4 KiB pages read", SMALL_PAGES),
        chart("tlb-2m", "The same in pages of 2 MiB", LARGE_PAGES),
    ];
    Plan { trials, comparisons, charts }
}

fn trial(name: &str, machine: MachineSpec, count: u64, run: Run) -> Trial {
    const NEEDS: &[Artifact] = &[
        Artifact::Probe,
        Artifact::Model,
        Artifact::Cached("kernel/Image"),
        Artifact::Cached("kernel/initrd-tiny.cpio"),
    ];
    Trial {
        name: name.to_owned(),
        work: Work::Procedure(Procedure { count, version: 3, needs: NEEDS, run }),
        machine,
        system: System::Bare,
        meter: Meter::Own,
        seed: 0,
    }
}
