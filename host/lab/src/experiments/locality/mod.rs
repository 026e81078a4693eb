//! Experiment `locality`: what it is worth that pages go where they are used, and get copies where they are read (Disco, sections
//! 5.4 and 5.5, Fig. 9).
//!
//! Two workloads whose memory one thread has filled, so that it lies on one node: `designs`, in which each of eight threads works on
//! memory of its own and all read a library, and `shadows`, in which all read one scene. On a modelled machine of four nodes with two
//! harts each, under Linux on the machine itself without and with AutoNUMA, and under Linux in one VM of eight vCPUs whose pages
//! stay, or move. The bound is Linux on a machine whose memory is all as near as a node's own.
//!
//! The time is that of the part between loading and the end: how long loading takes is no question of where pages are.

use control::Placement;

use crate::compare::Comparison;
use crate::plan::{Experiment, MachineSpec, Meter, ModelSpec, Plan, Size, System, Trial, Work, Workload};
use crate::plot::{Bar, ChartPlan};
use crate::report::{AtMost, Goal, Target};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "locality",
    summary: "workloads of eight threads on four nodes whose pages stay, move and get copies, beside Linux's AutoNUMA",
    goals: GOALS,
    plan,
};

const RATIO: &str = "ratio";
const FIGURE_9: &str = "Disco, Fig. 9";

const GOALS: &[Goal] = &[
    Goal::new("numa_engineering", RATIO, AtMost(1.15), "designs: pages move and have copies, over uniform memory")
        .paper(1.40, FIGURE_9),
    Goal::new("numa_raytrace", RATIO, AtMost(1.15), "shadows: pages move and have copies, over uniform memory")
        .paper(1.26, FIGURE_9),
    Goal::new(
        "numa_gain_engineering",
        RATIO,
        AtMost(0.65),
        "designs: pages move and have copies, over pages that stay",
    )
    .paper(0.67, FIGURE_9),
    Goal::new("numa_gain_raytrace", RATIO, AtMost(0.65), "shadows: pages move and have copies, over pages that stay")
        .paper(0.62, FIGURE_9),
    Goal::new("autonuma_engineering", RATIO, Target::Compare, "designs: bare Linux with AutoNUMA over without"),
    Goal::new("autonuma_raytrace", RATIO, Target::Compare, "shadows: bare Linux with AutoNUMA over without"),
];

/// Workloads, the part of them that counts, what figures call them, and the size of second-level caches in KiB if it is not
/// FLASH's. The paper ran its ray tracer with 256 KiB, since most of its scene would have been in 1 MiB.
const LOADS: [(&str, &str, &str, Option<u64>); 2] =
    [("designs", "simulate", "engineering", None), ("shadows", "light", "raytrace", Some(256))];
const NODES: usize = 4;
const HARTS: u16 = 2;
const NODE_MIB: u32 = 512;
/// What FLASH's own memory takes.
const LOCAL_NS: u64 = 300;

/// A configuration: its name, the system, whether Linux moves pages, whether the monitor does, whether memory is uniform.
const CONFIGURATIONS: [(&str, System, bool, Placement, bool); 5] = [
    ("bare", System::Bare, false, Placement::FirstTouch, false),
    ("autonuma", System::Bare, true, Placement::FirstTouch, false),
    ("first-touch", System::Mirrorball, false, Placement::FirstTouch, false),
    ("dynamic", System::Mirrorball, false, Placement::Dynamic, false),
    ("uniform", System::Bare, false, Placement::FirstTouch, true),
];

/// Parts of a bar: time without stalls, then the stalls.
const PARTS: [(&str, &str); 8] = [
    ("user", "user_busy"),
    ("user stalls", "user_stall"),
    ("kernel", "kernel_busy"),
    ("kernel stalls", "kernel_stall"),
    ("monitor", "monitor_busy"),
    ("its stalls", "monitor_stall"),
    ("firmware", "firmware"),
    ("idle", "idle"),
];

fn plan(size: Size) -> Plan {
    let mut plan = Plan::default();
    let mut bars = Vec::new();
    for (name, phase, figure, l2_kib) in LOADS {
        let Ok(load) = loads::find(name) else { continue };
        let named = |configuration: &str| format!("{name}-{configuration}");
        for (configuration, system, autonuma, placement, is_uniform) in CONFIGURATIONS {
            let model = ModelSpec { remote_ns: is_uniform.then_some(LOCAL_NS), l2_kib, ..ModelSpec::FLASH.by_marks() };
            let machine = MachineSpec::new(NODES, HARTS, NODE_MIB).modelled(model);
            let mut workload = Workload { placement, ..Workload::load(load, size, machine.harts()) };
            workload.cmdline.push_str(if autonuma { " numa_balancing=enable" } else { " numa_balancing=disable" });
            plan.trials.push(Trial {
                name: named(configuration),
                work: Work::Guest(workload),
                machine,
                system,
                meter: Meter::Model,
                seed: 0,
            });
            bars.push(Bar {
                label: format!("{name} {configuration}"),
                phase,
                trial: named(configuration),
                base: named("bare"),
            });
            let part = |part: &str| (format!("{name}_{configuration}_{part}"), format!("{phase}.{part}"));
            let parts = ["total", "user", "kernel", "monitor", "idle", "stall_local", "stall_remote", "local_share"];
            plan.comparisons.push(Comparison::Parts { trial: named(configuration), parts: parts.map(part).into() });
        }
        let ratio = |figure: String, of: &str, over: &str| Comparison::Ratio {
            figure,
            value: format!("{phase}.total"),
            of: named(of),
            over: named(over),
            peer: None,
        };
        plan.comparisons.push(ratio(format!("numa_{figure}"), "dynamic", "uniform"));
        plan.comparisons.push(ratio(format!("numa_gain_{figure}"), "dynamic", "first-touch"));
        plan.comparisons.push(ratio(format!("autonuma_{figure}"), "autonuma", "bare"));
    }
    plan.charts.push(ChartPlan::split("locality", "Where the time goes (Disco, Fig. 9)", bars, &PARTS, "% of bare"));
    plan
}
