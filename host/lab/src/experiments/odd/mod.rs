//! Experiment `odd`: what the monitor takes of each hart on a machine that fits nothing: nodes of one, three and one hart, a PLIC
//! in place of AIA, and guests of five and three vCPUs, so that every hart has more than one.
//!
//! On plain emulation. The figures are shares of a hart's busy time, so the speed of the host cancels out; but the emulator's harts
//! share its cores, and one that waits for a core may do so in the monitor. Nothing else should run beside it.

mod measure;

use crate::compare::Comparison;
use crate::plan::{
    Artifact, Experiment, MachineSpec, Meter, NodeSpec, Plan, Procedure, Size, System, Time, Trial, Work,
};
use crate::report::{AtMost, Goal};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "odd",
    summary: "the monitor's part of each hart's busy time on a machine of odd nodes with a PLIC, guests idle and compiling",
    goals: GOALS,
    plan,
};

const GOALS: &[Goal] = &[
    Goal::new(measure::IDLE, "%", AtMost(4.0), "the monitor's part of the busy time of the worst hart, guests idle"),
    Goal::new(measure::COMPILING, "%", AtMost(4.0), "the same while they compile"),
];

/// Memory of a node.
const NODE_MIB: u32 = 768;
/// Harts of the nodes.
const HARTS: [u16; 3] = [1, 3, 1];

fn plan(size: Size) -> Plan {
    let nodes = HARTS.map(|harts| NodeSpec { harts, memory_mib: NODE_MIB }).into();
    let trial = Trial {
        name: "plic".to_owned(),
        work: Work::Procedure(Procedure {
            count: 60,
            version: 1,
            needs: &[Artifact::Cached("root/root.img"), Artifact::Cached("kernel/Image")],
            run: measure::shares,
        }),
        machine: MachineSpec { nodes, time: Time::Host, own_firmware: false },
        system: System::Mirrorball,
        meter: Meter::Own,
        seed: 0,
    };
    let comparisons = vec![Comparison::Values { trial: trial.name.clone() }];
    Plan { trials: trial.repeated(size.pick(1, 3)), comparisons, charts: Vec::new() }
}
