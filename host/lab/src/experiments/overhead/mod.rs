//! Experiment `overhead`: whole programs in a VM against the same kernel and files on the bare machine (Disco, Fig. 6,
//! Tables 2 and 3; Cellular Disco, Fig. 4).
//!
//! Twice: in time on the modelled machine, where page walks, cache misses and idle harts count, beside KVM on the same
//! machine; and in instructions.

mod instructions;
mod time;

use crate::plan::{Experiment, Plan, Size};
use crate::report::{AtMost, Goal, Target};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "overhead",
    summary: "whole programs in a VM against the same kernel and files on the bare machine and under KVM, in modelled \
              time and in instructions",
    goals: GOALS,
    plan,
};

const RATIO: &str = "ratio";
const FIGURE_6: &str = "Disco, Fig. 6";

/// Peers of the instruction counts: Linux 6.12 KVM with kvmtool, measured apart.
const GOALS: &[Goal] = &[
    Goal::new("overhead_compile", RATIO, AtMost(1.04), "pmake, 1 vCPU, modelled time over the bare machine")
        .below_peer()
        .paper(1.16, "Disco, Fig. 6: Pmake"),
    Goal::new("overhead_database", RATIO, AtMost(1.04), "decision-support queries, 1 vCPU, over the bare machine")
        .below_peer()
        .paper(1.16, "Disco, Fig. 6: Database"),
    Goal::new("overhead_compute", RATIO, AtMost(1.01), "compute-bound mix, 1 vCPU, over the bare machine")
        .below_peer()
        .paper(1.03, "Disco, Fig. 6: Raytrace"),
    Goal::new(
        "overhead_smp",
        RATIO,
        AtMost(1.05),
        "one VM of 8 vCPUs on 4 nodes, over the bare machine: pmake (quick: radix sort)",
    )
    .paper(1.20, "Cellular Disco, 3.3: the worst of 8 and 32 processors"),
    Goal::new("overhead_engineering", RATIO, Target::Compare, "engineering, 1 vCPU, over the bare machine")
        .paper(1.07, "Disco, Table 3"),
    Goal::new("overhead_raytrace", RATIO, Target::Compare, "ray tracer, 1 vCPU, over the bare machine")
        .paper(1.03, FIGURE_6),
    Goal::new("compile_kernel", RATIO, Target::Compare, "pmake: kernel and monitor in the VM over the kernel, bare")
        .paper(2.15, "Disco, 5.2: system time of Pmake; 1.62 with IRIX 6.2"),
    Goal::new(
        "overhead_quick_minutes",
        "min",
        AtMost(10.0),
        "wall time of the small size, of a run that measured everything while the host did nothing else",
    ),
    Goal::new("compile_ratio", RATIO, AtMost(1.003), "compile workload, over the bare machine").peer(1.0035),
    Goal::new("cpu_ratio", RATIO, AtMost(1.001), "CPU-bound workload, over the bare machine").peer(1.002),
    Goal::new("syscall_ratios", RATIO, AtMost(1.02), "the worst system-call loop, over the bare machine").peer(1.045),
    Goal::new("sleep_ratio", RATIO, AtMost(1.5), "1,000 sleeps of 50 us, over the bare machine").peer(2.38),
    Goal::new("boot_ratio", RATIO, AtMost(1.05), "boot to the first user program, over the bare machine").peer(1.21),
];

fn plan(size: Size) -> Plan {
    let (mut plan, instructions) = (time::plan(size), instructions::plan(size));
    plan.trials.extend(instructions.trials);
    plan.comparisons.extend(instructions.comparisons);
    plan.charts.extend(instructions.charts);
    plan
}
