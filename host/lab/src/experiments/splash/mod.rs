//! Experiment `splash`: parallel programs on SPLASHOS in a VM of the whole machine, beside the same programs under Linux on the bare
//! machine, pinned (Disco, sections 4.4 and 5.4, Fig. 8); what SPLASHOS takes to start, and of memory.
//!
//! Both run the same source with the same number of threads, and must give the same result. The time is that of the program alone, from
//! its first instruction to its result: neither the boot of a system nor the making of a process.

mod measure;

use control::Placement;

use crate::compare::Comparison;
use crate::plan::{
    Artifact, Content, Experiment, Initrd, MachineSpec, Meter, ModelSpec, Plan, Procedure, Size, System, Trial, Work,
    Workload,
};
use crate::plot::{Bar, ChartPlan};
use crate::report::{AtMost, Goal, Target};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "splash",
    summary: "parallel programs of eight threads on SPLASHOS in a VM, beside Linux on the bare machine",
    goals: GOALS,
    plan,
};

const RATIO: &str = "ratio";

const GOALS: &[Goal] = &[
    Goal::new("radix_splashos", RATIO, AtMost(0.85), "radix sort in a VM over Linux on the bare machine, pinned")
        .paper(0.67, "Disco, Fig. 8"),
    Goal::new("splash_all", RATIO, AtMost(0.95), "the other programs, the same: geometric mean"),
    Goal::new("boot_ms", "ms", AtMost(5.0), "from the first instruction of SPLASHOS to the program"),
    Goal::new("image_kib", "KiB", AtMost(256.0), "SPLASHOS with all these programs in one image"),
    Goal::new("footprint_kib", "KiB", AtMost(2048.0), "memory touched before the program's, 8 vCPUs"),
    Goal::new("footprint_blocks_kib", "KiB", Target::Compare, "the same where the monitor gives blocks of 2 MiB"),
];

/// Programs, and what their loads under Linux are called.
const PROGRAMS: [(&str, &str); 7] = [
    ("radix", "splash-radix"),
    ("fft", "splash-fft"),
    ("lu", "splash-lu"),
    ("ocean", "splash-ocean"),
    ("barnes", "splash-barnes"),
    ("water", "splash-water"),
    ("raytrace", "splash-raytrace"),
];
const NODES: usize = 4;
const HARTS: u16 = 2;
const NODE_MIB: u32 = 512;
const START: &str = "start";

/// Parts of a bar: time without stalls, then the stalls. What runs in S-mode of the VM is program and system in one.
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
    let machine = MachineSpec::new(NODES, HARTS, NODE_MIB).modelled(ModelSpec::FLASH.by_marks());
    for (program, load) in PROGRAMS {
        let Ok(load) = loads::find(load) else { continue };
        let linux = Workload::load(load, size, machine.harts());
        let own = on_splashos(program, size, machine.harts(), &linux);
        let (bare, vm) = (format!("{program}-bare"), format!("{program}-splashos"));
        for (name, system, work) in [(&bare, System::Bare, linux), (&vm, System::Mirrorball, own)] {
            plan.trials.push(Trial {
                name: name.clone(),
                work: Work::Guest(work),
                machine: machine.clone(),
                system,
                meter: Meter::Model,
                seed: 0,
            });
            bars.push(Bar { label: name.clone(), phase: "program", trial: name.clone(), base: bare.clone() });
            let part = |part: &str| (format!("{name}_{part}").replace('-', "_"), format!("program.{part}"));
            let parts = ["total", "user", "kernel", "monitor", "idle", "stall_local", "stall_remote", "stall_walk"];
            plan.comparisons.push(Comparison::Parts { trial: name.clone(), parts: parts.map(part).into() });
        }
        plan.comparisons.push(Comparison::Ratio {
            figure: figure(program),
            value: "program.total".to_owned(),
            of: vm,
            over: bare,
            peer: None,
        });
    }
    let others = PROGRAMS.iter().skip(1).map(|(program, _)| figure(program)).collect();
    plan.comparisons.push(Comparison::Mean { figure: "splash_all".to_owned(), among: others });
    plan.trials.push(start(&machine));
    plan.comparisons.push(Comparison::Values { trial: START.to_owned() });
    plan.charts.push(ChartPlan::split("splash", "Where the time goes (Disco, Fig. 8)", bars, &PARTS, "% of bare"));
    plan
}

fn figure(program: &str) -> String {
    format!("{program}_splashos")
}

/// The same program on SPLASHOS. As under Linux, pages stay where they are touched first.
fn on_splashos(program: &str, size: Size, threads: u16, linux: &Workload) -> Workload {
    let word = match size {
        Size::Quick => "small",
        Size::Full => "full",
    };
    Workload {
        name: "splashos",
        kernel: Artifact::Splash,
        initrd: Initrd::Made(nothing),
        cmdline: format!("program={program} size={word} threads={threads}"),
        placement: Placement::FirstTouch,
        ..linux.clone()
    }
}

/// SPLASHOS has no files.
fn nothing(_: &crate::run::Scratch) -> Result<Content, crate::LabError> {
    Ok(Content { bytes: image::Archive::new().finish(), without: Vec::new() })
}

fn start(machine: &MachineSpec) -> Trial {
    let needs = &[Artifact::Splash, Artifact::Monitor, Artifact::Model];
    let machine = MachineSpec { nodes: machine.nodes.clone(), ..MachineSpec::new(0, 0, 0).modelled(ModelSpec::FLASH) };
    Trial {
        name: START.to_owned(),
        work: Work::Procedure(Procedure { count: 1, version: 1, needs, run: measure::start }),
        machine,
        system: System::Mirrorball,
        meter: Meter::Own,
        seed: 0,
    }
}
