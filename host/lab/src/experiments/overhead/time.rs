//! `overhead` in time: the same guests bare, in a VM and under KVM, on the machine model.

use crate::compare::Comparison;
use crate::plan::{MachineSpec, Meter, ModelSpec, Plan, Size, System, Trial, Work, Workload};
use crate::plot::{Bar, ChartPlan};

/// Room for the KVM host with the largest guest; the machine is the same for all.
const MACHINE_MIB: u32 = 2048;
/// The machine of `overhead_smp`.
const NODES: usize = 4;
const HARTS: u16 = 8;
/// Starts of it that are measured.
const PARALLEL_SEEDS: u64 = 7;
/// The systems, and what trials and charts call them.
const SYSTEMS: [(System, &str); 3] = [(System::Bare, "bare"), (System::Mirrorball, "mirrorball"), (System::Kvm, "kvm")];
/// Parts of a bar: time without stalls, then the stalls.
const PARTS: [(&str, &str); 9] = [
    ("user", "user_busy"),
    ("user stalls", "user_stall"),
    ("kernel", "kernel_busy"),
    ("kernel stalls", "kernel_stall"),
    ("monitor, host kernel", "monitor_busy"),
    ("their stalls", "monitor_stall"),
    ("KVM's user side", "vmm"),
    ("firmware", "firmware"),
    ("idle", "idle"),
];

/// Trials, comparisons and charts.
pub fn plan(size: Size) -> Plan {
    let mut plan = Plan::default();
    let mut bars = Vec::new();
    let uniprocessor = || MachineSpec::new(1, 1, MACHINE_MIB).modelled(ModelSpec::FLASH.by_marks());
    for load in workloads(size) {
        add(&mut plan, &mut bars, load, &format!("{load}-1"), &format!("overhead_{load}"), &uniprocessor(), size);
    }
    let harts = HARTS / u16::try_from(NODES).unwrap_or(1);
    let nodes = MachineSpec::new(NODES, harts, MACHINE_MIB / 4).modelled(ModelSpec::FLASH.by_marks());
    let (load, name) = parallel(size);
    add(&mut plan, &mut bars, load, name, "overhead_smp", &nodes, size);
    plan.comparisons.extend(kernel_time());
    for service in services(size) {
        add_services(&mut plan, service, &uniprocessor(), size);
    }
    plan.charts.push(ChartPlan::split("time", "Where the time goes (Disco, Fig. 6)", bars, &PARTS, "% of bare"));
    let figures = ["overhead_compile", "overhead_database", "overhead_compute", "overhead_smp"];
    let title = "Modelled time over the bare machine";
    plan.charts.push(ChartPlan::figures("ratios", title, &figures, "ratio", false));
    plan
}

/// Workloads of one vCPU.
fn workloads(size: Size) -> Vec<&'static str> {
    match size {
        Size::Quick => vec!["compile", "database", "compute"],
        Size::Full => vec!["compile", "database", "compute", "engineering", "raytrace"],
    }
}

/// The workload of `overhead_smp`: a pmake takes the model an hour of the host's time, the radix sort minutes.
const fn parallel(size: Size) -> (&'static str, &'static str) {
    match size {
        Size::Quick => ("radix", "radix-8"),
        Size::Full => ("compile", "compile-8"),
    }
}

/// Suites whose parts are compared one by one: Disco's Table 2 has kernel services.
fn services(size: Size) -> &'static [&'static str] {
    match size {
        Size::Quick => &[],
        Size::Full => &["syscalls", "faults"],
    }
}

fn trial(system: (System, &str), load: &'static loads::Load, name: &str, machine: &MachineSpec, size: Size) -> Trial {
    let mut workload = Workload::load(load, size, machine.harts());
    if system.0 == System::Bare && machine.nodes.len() == 1 {
        // As much as the guests have: Linux takes and gives pages in larger lots where it has more. On several nodes it would
        // be all of the first.
        workload.cmdline.push_str(&format!(" mem={}M", workload.memory_mib));
    }
    Trial {
        name: format!("{name}-{}", system.1),
        work: Work::Guest(workload),
        machine: machine.clone(),
        system: system.0,
        meter: Meter::Model,
        seed: 0,
    }
}

/// How many starts of a workload are measured. Harts that wait for each other make a small difference a large one, so several
/// harts take more, but for the peer, which is far away.
fn seeds(system: System, machine: &MachineSpec, size: Size) -> u64 {
    if machine.harts() > 1 && system != System::Kvm { PARALLEL_SEEDS } else { size.pick(1, 3) }
}

/// A workload under all systems, the ratio of its time, and its parts.
fn add(
    plan: &mut Plan,
    bars: &mut Vec<Bar>,
    load: &'static str,
    name: &str,
    figure: &str,
    machine: &MachineSpec,
    size: Size,
) {
    let Ok(load) = loads::find(load) else { return };
    let named = |system: &str| format!("{name}-{system}");
    for system in SYSTEMS {
        plan.trials.extend(trial(system, load, name, machine, size).repeated(seeds(system.0, machine, size)));
        bars.push(Bar {
            label: format!("{name} {}", system.1),
            phase: "all",
            trial: named(system.1),
            base: named("bare"),
        });
        let part = |part: &str| (format!("{name}_{}_{part}", system.1), format!("all.{part}"));
        let parts = ["total", "user", "kernel", "monitor", "vmm", "firmware", "idle", "stall_walk", "stall_remote"];
        plan.comparisons.push(Comparison::Parts { trial: named(system.1), parts: parts.map(part).into() });
    }
    plan.comparisons.push(ratio(figure, "all.total", name));
}

fn ratio(figure: &str, value: &str, name: &str) -> Comparison {
    Comparison::Ratio {
        figure: figure.to_owned(),
        value: value.to_owned(),
        of: format!("{name}-mirrorball"),
        over: format!("{name}-bare"),
        peer: Some(format!("{name}-kvm")),
    }
}

/// What the paper calls system time: kernel and monitor.
fn kernel_time() -> Vec<Comparison> {
    vec![ratio("compile_kernel", "all.system", "compile-1")]
}

/// A suite under all systems, and the ratio of the time of each of its parts.
fn add_services(plan: &mut Plan, suite: &'static str, machine: &MachineSpec, size: Size) {
    let Ok(load) = loads::find(suite) else { return };
    plan.trials.extend(SYSTEMS.into_iter().map(|system| trial(system, load, suite, machine, size)));
    let parts = load.phases().into_iter().skip(1);
    plan.comparisons
        .extend(parts.map(|phase| ratio(&format!("{suite}_{}", phase.name), &format!("{}.total", phase.name), suite)));
}
