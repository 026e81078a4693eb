//! Experiment `exits`: what single operations of a guest cost, in instructions and exits.
//!
//! All on one machine of one hart (two for what needs running neighbours), with time counting instructions, by the probe
//! guest. Exits are counted by the monitor: the difference of two runs that differ only in their repetitions, so that
//! boot and console cancel.

mod kvm;
mod measure;

use crate::compare::Comparison;
use crate::plan::{Artifact, Experiment, MachineSpec, Meter, Plan, Procedure, Size, System, Trial, Work};
use crate::plot::ChartPlan;
use crate::report::{AtMost, Goal};

const INSTRUCTIONS: &str = "instructions";
const EXITS: &str = "exits";
const BYTES: &str = "bytes";

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "exits",
    summary: "what single operations of a guest cost, in instructions and exits, and the monitor's sizes",
    goals: GOALS,
    plan,
};

/// Peers where KVM is not measured in the same run: Linux 6.12 KVM with kvmtool, measured apart.
const GOALS: &[Goal] = &[
    Goal::new("sbi_null", INSTRUCTIONS, AtMost(150.0), "null SBI call, exit to re-entry").peer(1_150.0),
    Goal::new("timer_exits", EXITS, AtMost(0.0), "exits per guest timer").peer(0.0),
    Goal::new("ipi_exits", EXITS, AtMost(0.0), "exits per IPI between running vCPUs").peer(1.0),
    Goal::new("rfence_exits", EXITS, AtMost(0.0), "exits per remote fence between running vCPUs").peer(1.0),
    Goal::new("wfi_wake", INSTRUCTIONS, AtMost(1_500.0), "WFI, descheduled, woken by its timer, running again")
        .peer(12_500.0),
    Goal::new("first_touch", INSTRUCTIONS, AtMost(600.0), "first touch of a 4 KiB page, without zeroing").peer(9_300.0),
    Goal::new("mmio", INSTRUCTIONS, AtMost(400.0), "trapped access to a device model").peer(1_474.0),
    Goal::new("blk_read_4k", INSTRUCTIONS, AtMost(3_000.0), "4 KiB read served from memory, below the guest")
        .peer(28_900.0),
    Goal::new("vcpu_switch", INSTRUCTIONS, AtMost(800.0), "switch between two vCPUs on a hart"),
    Goal::new("vm_overhead_mib", "MiB", AtMost(1.0), "monitor memory per 256 MiB VM beyond its own pages").peer(3.1),
    Goal::new("monitor_bytes", BYTES, AtMost(524_288.0), "monitor image, text and read-only data"),
    Goal::new("memmap_bytes", BYTES, AtMost(32.0), "memmap per 4 KiB page").peer(64.0),
];

/// What the chart shows: all in instructions.
const COSTS: &[&str] = &["sbi_null", "wfi_wake", "first_touch", "mmio", "blk_read_4k", "vcpu_switch"];

fn plan(size: Size) -> Plan {
    let count = size.pick(200, 2_000);
    let trial = |name: &str, machine, run| Trial {
        name: name.to_owned(),
        work: Work::Procedure(Procedure { count, version: 2, needs: &[Artifact::Probe], run }),
        machine,
        system: System::Mirrorball,
        meter: Meter::Own,
        seed: 0,
    };
    // Time counts nothing on two harts: counting would make them take turns of millions of instructions.
    let trials = vec![
        trial("one-hart", MachineSpec::new(1, 1, 768).counting(), measure::one_hart),
        trial("two-harts", MachineSpec::new(1, 2, 512), measure::two_harts),
    ];
    let peer = Trial {
        name: "kvm".to_owned(),
        work: Work::Procedure(Procedure { count, version: 1, needs: kvm::NEEDS, run: kvm::operations }),
        machine: MachineSpec::new(1, 1, 1024).counting(),
        system: System::Kvm,
        meter: Meter::Own,
        seed: 0,
    };
    let mut comparisons: Vec<_> = trials.iter().map(|trial| Comparison::Values { trial: trial.name.clone() }).collect();
    comparisons.push(Comparison::Peer { trial: peer.name.clone() });
    let trials = trials.into_iter().chain([peer]).collect();
    let title = "What single operations cost";
    Plan { trials, comparisons, charts: vec![ChartPlan::figures("costs", title, COSTS, INSTRUCTIONS, true)] }
}
