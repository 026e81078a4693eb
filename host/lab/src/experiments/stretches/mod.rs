//! Experiment `stretches`: for how long a hart is in the monitor at a time. So long no interrupt is taken, and a guest on it waits.
//!
//! Debian's kernel and compiler in as many guests as the machine has nodes, with more vCPUs than there are harts: they boot, compile,
//! and then rest while their equal pages are merged. Each guest's vCPUs are on more than one node, so that its pages move and get
//! copies. The monitor keeps a histogram for each hart; this adds them up. Time is the model's: what else the host does changes no
//! stretch. The monitor's own boot is in it, and so is the end of the guests.

mod measure;

use crate::compare::Comparison;
use crate::plan::{Artifact, Experiment, MachineSpec, Meter, ModelSpec, Plan, Procedure, Size, System, Trial, Work};
use crate::report::{AtMost, Goal, Target};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "stretches",
    summary: "how long harts are in the monitor at a time while guests boot and compile, and pages move and merge",
    goals: GOALS,
    plan,
};

const GOALS: &[Goal] = &[
    Goal::new(
        measure::SHARE,
        "%",
        Target::AtLeast(99.9),
        "stretches in the monitor with interrupts off that took at most 50 us",
    ),
    Goal::new(measure::WORST, "us", AtMost(1_000.0), "the longest of them"),
];

/// Memory of a node.
const NODE_MIB: u32 = 1_024;
/// Harts of a node.
const HARTS: u16 = 2;

fn plan(size: Size) -> Plan {
    let nodes = match size {
        Size::Quick => 2,
        Size::Full => 4,
    };
    let trial = Trial {
        name: "compile".to_owned(),
        work: Work::Procedure(Procedure {
            // Sources that each job compiles.
            count: size.pick(1, 6),
            version: 1,
            needs: &[Artifact::Cached("kernel/Image"), Artifact::Cached("loads-compile/compile.cpio")],
            run: measure::stretches,
        }),
        machine: MachineSpec::new(nodes, HARTS, NODE_MIB).modelled(ModelSpec::FLASH),
        system: System::Mirrorball,
        meter: Meter::Own,
        seed: 0,
    };
    let comparisons = vec![Comparison::Values { trial: trial.name.clone() }];
    Plan { trials: trial.repeated(size.pick(1, 3)), comparisons, charts: Vec::new() }
}
