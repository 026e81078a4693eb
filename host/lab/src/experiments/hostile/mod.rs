//! Experiment `hostile`: whether anybody else feels what hostile guests do, and how much.
//!
//! The attacks of [`crate::attacks`], one after the other beside a neighbour that computes, on a modelled machine: what else the host
//! does changes nothing. In the trials named after a device each vCPU has a hart for itself. In those that begin with `shared` all share
//! one. See [`siege`] for what is measured and how. An attack that has ended is kept: a run that is interrupted goes on behind it.
//!
//! The small size has each behaviour once, by two or four vCPUs in turn, and a few from a shared hart.

mod siege;

use crate::LabError;
use crate::attacks::TARGETS;
use crate::compare::Comparison;
use crate::plan::{Artifact, Experiment, MachineSpec, Meter, ModelSpec, Plan, Procedure, Size, System, Trial, Work};
use crate::report::{AtMost, Goal, Target};
use crate::run::Progress;
use crate::store::Measured;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "hostile",
    summary: "what a neighbour, a client and the monitor feel of guests that do their worst to every device",
    goals: GOALS,
    plan,
};

const GOALS: &[Goal] = &[
    Goal::new("hostile_attacks", "attacks", Target::AtLeast(200.0), "device x behaviour x vCPUs"),
    Goal::new(
        "hostile_harmful",
        "attacks",
        AtMost(0.0),
        "after which something was late, wrong, or lost: kill, answer, checksum, page",
    ),
    Goal::new("hostile_stretch", "us", AtMost(1_000.0), "the longest stretch in HS-mode during all of them"),
    Goal::new("hostile_kill", "ms", AtMost(100.0), "from the order to end an attacker to its end, its pages counted"),
    Goal::new("hostile_answer", "ms", AtMost(100.0), "until the control port answers"),
    Goal::new("hostile_pause", "ms", Target::Compare, "the longest pause of a neighbour with a hart for itself"),
    Goal::new("hostile_loss", "%", AtMost(2.0), "of the work of a neighbour with a hart for itself"),
    Goal::new("hostile_loss_shared", "%", AtMost(2.0), "the same where it shares one, above the attacker's weight"),
];

/// Harts where nobody shares one: four vCPUs of an attacker, the neighbour, and the monitor's own duties.
const HARTS: u16 = 6;
const MEMORY_MIB: u32 = 768;

/// Milliseconds of the machine's time that an attack lasts.
const APART_MS: u64 = 20;
const SHARED_MS: u64 = 500;

/// What runs a trial.
type Run = fn(&Trial, &Progress) -> Result<Measured, LabError>;

fn plan(size: Size) -> Plan {
    let trial = |name: String, harts, count, run: Run| Trial {
        name,
        work: Work::Procedure(Procedure { count, version: 2, needs: &[Artifact::Probe, Artifact::Model], run }),
        machine: MachineSpec::new(1, harts, MEMORY_MIB).modelled(ModelSpec::FLASH),
        system: System::Mirrorball,
        meter: Meter::Own,
        seed: 0,
    };
    let is_quick = size == Size::Quick;
    let devices = || TARGETS.iter().map(|target| target.device);
    let apart = devices().map(|device| {
        trial(
            device.to_owned(),
            HARTS,
            size.pick(1, 5) * APART_MS,
            if is_quick { siege::apart_quick } else { siege::apart },
        )
    });
    let wanted = |device: &&str| !is_quick || siege::is_shared_in_quick(device);
    let shared_run: Run = if is_quick { siege::shared_quick } else { siege::shared };
    let shared = devices().filter(wanted).map(|device| trial(format!("shared-{device}"), 1, SHARED_MS, shared_run));
    let trials: Vec<_> = apart.chain(shared).collect();
    let mut comparisons: Vec<_> = trials.iter().map(|trial| Comparison::Values { trial: trial.name.clone() }).collect();
    let among = |part: &str| trials.iter().map(|trial| siege::figure(&trial.name, part)).collect::<Vec<_>>();
    let sum = |part: &str| Comparison::Sum { figure: format!("hostile_{part}"), among: among(part) };
    let worst = |part: &str| Comparison::Worst { figure: format!("hostile_{part}"), among: among(part) };
    comparisons.extend(["attacks", "harmful"].map(sum));
    comparisons.extend(["stretch", "kill", "answer", "pause", "loss", "loss_shared"].map(worst));
    Plan { trials, comparisons, charts: Vec::new() }
}
