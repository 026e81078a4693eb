//! Experiment `bootscale`: how the monitor's start and its own memory grow with the machine and with its VMs.
//!
//! On the modelled machine, so that harts start at once and time means something. Times are those of the monitor's events:
//! from reset to the takeover of the machine with all harts online, and from there until the last of many VMs, all started together
//! at boot, has ended. The guests are probes that power off at once: what a guest's kernel takes to boot is not the
//! monitor's. Memory is the monitor's own, all of it, with guests that stay.

mod measure;

use crate::compare::Comparison;
use crate::plan::{Artifact, Experiment, MachineSpec, Meter, ModelSpec, Plan, Procedure, Size, System, Trial, Work};
use crate::plot::{ChartPlan, Content, Line};
use crate::report::{Goal, Target};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bootscale",
    summary: "time and monitor memory from 1 to 64 harts, and from 1 to 32 VMs",
    goals: GOALS,
    plan,
};

const GOALS: &[Goal] = &[
    Goal::new(
        "boot_most_harts",
        "ms",
        Target::Compare,
        "reset to the takeover of the machine with all its harts, most harts",
    ),
    Goal::new("memory_per_hart", "KiB", Target::Compare, "monitor memory per hart beyond the first"),
    Goal::new("start_most_vms", "ms", Target::Compare, "takeover until the last guest has run and ended, most VMs"),
    Goal::new("memory_per_vm", "KiB", Target::Compare, "monitor memory per VM of 32 MiB beyond the first"),
];

/// Memory of the whole machine: the same for all, so that what grows with memory stays the same.
const MACHINE_MIB: u32 = 4096;
/// What the emulator's machine has room for.
const MOST_NODES: u16 = 4;
/// The machine of many VMs.
const VM_HARTS: u16 = 8;

fn plan(size: Size) -> Plan {
    let (harts, vms): (&[u16], &[u16]) = match size {
        Size::Quick => (&[1, 4, 16], &[1, 8]),
        Size::Full => (&[1, 2, 4, 8, 16, 32, 64], &[1, 2, 4, 8, 16, 32]),
    };
    let trial = |name: String, harts, vms: u16| Trial {
        name,
        work: Work::Procedure(Procedure {
            count: vms.into(),
            version: 1,
            needs: &[Artifact::Probe],
            run: measure::boot,
        }),
        machine: machine(harts),
        system: System::Mirrorball,
        meter: Meter::Own,
        seed: 0,
    };
    let mut plan = Plan::default();
    plan.trials.extend(harts.iter().map(|harts| trial(harts_trial(*harts), *harts, 0)));
    plan.trials.extend(vms.iter().map(|vms| trial(vms_trial(*vms), VM_HARTS, *vms)));
    let (first, most) = (ends(harts), ends(vms));
    plan.comparisons = comparisons(first, most);
    for (count, name) in harts.iter().map(|n| (n, harts_trial(*n))).chain(vms.iter().map(|n| (n, vms_trial(*n)))) {
        let kind = if name.starts_with("vms") { "vms" } else { "harts" };
        let part = |value: &str| (format!("{kind}_{count}_{value}"), value.to_owned());
        let values = if kind == "vms" { vec!["vms_ms", "monitor_kib"] } else { vec!["boot_ms", "monitor_kib"] };
        plan.comparisons.push(Comparison::Parts { trial: name, parts: values.into_iter().map(part).collect() });
    }
    plan.charts = charts(harts, vms);
    plan
}

fn harts_trial(harts: u16) -> String {
    format!("harts-{harts}")
}

fn vms_trial(vms: u16) -> String {
    format!("vms-{vms}")
}

/// As many nodes as there are harts for, up to four.
fn machine(harts: u16) -> MachineSpec {
    let nodes = harts.min(MOST_NODES);
    MachineSpec::new(nodes.into(), harts / nodes, MACHINE_MIB / u32::from(nodes)).modelled(ModelSpec::FLASH)
}

fn ends(counts: &[u16]) -> (u16, u16) {
    (counts.first().copied().unwrap_or(1), counts.last().copied().unwrap_or(1))
}

fn comparisons(harts: (u16, u16), vms: (u16, u16)) -> Vec<Comparison> {
    let value = |figure: &str, value: &str, trial: String| Comparison::Parts {
        trial,
        parts: vec![(figure.to_owned(), value.to_owned())],
    };
    let each = |figure: &str, (few, many): (u16, u16), trial: fn(u16) -> String| Comparison::Each {
        figure: figure.to_owned(),
        value: "monitor_kib".to_owned(),
        few: (trial(few), few.into()),
        many: (trial(many), many.into()),
    };
    vec![
        value("boot_most_harts", "boot_ms", harts_trial(harts.1)),
        each("memory_per_hart", harts, harts_trial),
        value("start_most_vms", "vms_ms", vms_trial(vms.1)),
        each("memory_per_vm", vms, vms_trial),
    ]
}

fn charts(harts: &[u16], vms: &[u16]) -> Vec<ChartPlan> {
    let line = |label: &str, value: &str, counts: &[u16], trial: fn(u16) -> String| Line {
        label: label.to_owned(),
        value: value.to_owned(),
        trials: counts.iter().map(|count| (f64::from(*count), trial(*count))).collect(),
    };
    let chart = |id, title: &str, x, y, lines| ChartPlan {
        id,
        title: title.to_owned(),
        content: Content::Curve { x, y, logarithmic: false, lines },
    };
    let boot = vec![line("machine taken over", "boot_ms", harts, harts_trial)];
    let start = vec![line("last guest ended", "vms_ms", vms, vms_trial)];
    vec![
        chart("boot", "From reset to the takeover of the machine", "harts", "ms, modelled", boot),
        chart("start", "VMs started together on 8 harts", "VMs", "ms, modelled", start),
        chart(
            "memory-harts",
            "The monitor's own memory",
            "harts",
            "KiB",
            vec![line("monitor", "monitor_kib", harts, harts_trial)],
        ),
        chart(
            "memory-vms",
            "The monitor's own memory",
            "VMs",
            "KiB",
            vec![line("monitor", "monitor_kib", vms, vms_trial)],
        ),
    ]
}
