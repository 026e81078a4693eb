//! Experiment `scalability`: what it is worth to split a machine among several VMs (Disco, section 5.4, Fig. 8).
//!
//! The same compile jobs, one for each hart, under Linux on the machine itself, and in one, two, four VMs and so on up to one
//! VM for each hart, each with an equal part of harts, memory and jobs. The jobs are many short processes, so much of their time is the
//! kernel's. As in the paper pages stay where they are touched first. The machine is the model's: four nodes of FLASH.
//! On more than eight harts a job compiles one source instead of two, because a model of many harts is slow: times compare
//! within a machine.
//!
//! Several VMs begin at the same moment of the machine's clock, and the time is that until the last one has ended.
//!
//! The time is split as in the paper: programs, kernel, what the kernel does for its locks, monitor, and idle.
//!
//! The paper's last configuration: as many VMs as harts, and what they compile and write over NFS. The first VM serves it from
//! its memory and compiles, too; of what the others read, nothing is in their memory when the measured part begins. There are no
//! disks, here as in the others: the host's have no part in the model's time.

use control::Placement;
use image::Archive;
use loads::Load;

use crate::compare::Comparison;
use crate::plan::{
    Content, Experiment, Initrd, MachineSpec, Meter, ModelSpec, Plan, Size, System, Trial, Work, Workload,
};
use crate::plot::{Bar, ChartPlan};
use crate::report::{Goal, Target};
use crate::run::Scratch;
use crate::{LabError, artifacts};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "scalability",
    summary: "compilations on a machine of many harts under one kernel, and split among more and more VMs",
    goals: GOALS,
    plan,
};

const RATIO: &str = "ratio";
const FIGURE_8: &str = "Disco, Fig. 8: over IRIX, on 8 processors";

const GOALS: &[Goal] = &[
    Goal::new("scale_8", RATIO, Target::Compare, "8 harts: time of one VM for each, over one VM of all"),
    Goal::new("scale_16", RATIO, Target::Compare, "16 harts: the same"),
    Goal::new("scale_32", RATIO, Target::Compare, "32 harts: the same"),
    Goal::new("scale_8_bare", RATIO, Target::Compare, "8 harts: one VM for each, over Linux on the machine itself")
        .paper(0.60, FIGURE_8),
    Goal::new("scale_16_bare", RATIO, Target::Compare, "16 harts: the same"),
    Goal::new("scale_32_bare", RATIO, Target::Compare, "32 harts: the same"),
    Goal::new(
        "scale_8_nfs",
        RATIO,
        Target::Compare,
        "8 harts: one VM for each, files over NFS, over Linux on the machine",
    ),
    Goal::new("scale_16_nfs", RATIO, Target::Compare, "16 harts: the same"),
    Goal::new("scale_32_nfs", RATIO, Target::Compare, "32 harts: the same"),
];

const INIT: &str = include_str!("init.sh");
const PMAKE: &str = include_str!("pmake.sh");
const SHARE: &str = include_str!("share.sh");
/// Debian's NFS programs and the kernel's modules, as a part of an initial file system.
const NFS: &str = "loads-nfs/nfs.cpio";
const NODES: usize = 4;
/// What the emulator's own firmware starts on as many nodes.
const FEW_HARTS: u16 = 16;
/// Each VM's least: with less Linux uses no huge pages.
const VM_MIB: u32 = 640;
/// The machine has more than its VMs, for the monitor and for what they boot from.
const SPARE_MIB: u32 = 256;

/// Parts of a bar: time without stalls, then the stalls. What is for locks is no part of the kernel's time and of idle time here.
const PARTS: [(&str, &str); 9] = [
    ("user", "user_busy"),
    ("user stalls", "user_stall"),
    ("kernel", "kernel_rest_busy"),
    ("kernel stalls", "kernel_rest_stall"),
    ("locks", "sync"),
    ("monitor", "monitor_busy"),
    ("its stalls", "monitor_stall"),
    ("firmware", "firmware"),
    ("idle", "idle_rest"),
];

fn plan(size: Size) -> Plan {
    let mut plan = Plan::default();
    let machines: &[(u16, &'static str)] = match size {
        Size::Quick => &[(8, "scale-8")],
        Size::Full => &[(8, "scale-8"), (16, "scale-16"), (32, "scale-32")],
    };
    machines.iter().for_each(|(harts, chart)| add(&mut plan, *harts, chart));
    plan
}

/// All configurations of a machine of so many harts.
fn add(plan: &mut Plan, harts: u16, chart: &'static str) {
    let Ok(compile) = loads::find("compile") else { return };
    let nodes = u16::try_from(NODES).unwrap_or(1);
    let memory = u32::from(harts / nodes) * VM_MIB + SPARE_MIB;
    let machine = MachineSpec::new(NODES, harts / nodes, memory).modelled(ModelSpec::FLASH.by_marks());
    let machine = if harts > FEW_HARTS { machine.with_own_firmware() } else { machine };
    let sources = if harts > 8 { 1 } else { 2 };
    let counts = std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|count| *count <= harts);
    let mut bars = Vec::new();
    let mut configuration = |name: String, system, work: Workload| {
        plan.trials.push(Trial {
            name: name.clone(),
            work: Work::Guest(work),
            machine: machine.clone(),
            system,
            meter: Meter::Model,
            seed: 0,
        });
        bars.push(Bar { label: name.clone(), phase: "all", trial: name.clone(), base: bare(harts) });
        let part = |part: &str| (format!("{name}_{part}"), format!("all.{part}"));
        let parts = [
            "total",
            "user",
            "kernel",
            "sync",
            "monitor",
            "firmware",
            "idle_rest",
            "kernel_stall",
            "monitor_stall",
            "stall_walk",
            "stall_remote",
        ];
        plan.comparisons.push(Comparison::Parts { trial: name.clone(), parts: parts.map(part).into() });
    };
    let work = |vms| pmake(compile, harts, vms, sources);
    configuration(bare(harts), System::Bare, work(1));
    counts.for_each(|count| configuration(split(harts, count), System::Mirrorball, work(count)));
    configuration(over_nfs(harts), System::Mirrorball, served(work(harts)));
    let ratio = |figure: String, of: String, over: String| Comparison::Ratio {
        figure,
        value: "all.total".to_owned(),
        of,
        over,
        peer: None,
    };
    plan.comparisons.push(ratio(format!("scale_{harts}"), split(harts, harts), split(harts, 1)));
    plan.comparisons.push(ratio(format!("scale_{harts}_bare"), split(harts, harts), bare(harts)));
    plan.comparisons.push(ratio(format!("scale_{harts}_nfs"), over_nfs(harts), bare(harts)));
    let title = format!("Where the time goes on {harts} harts (Disco, Fig. 8)");
    plan.charts.push(ChartPlan::split(chart, &title, bars, &PARTS, "% of bare"));
}

fn bare(harts: u16) -> String {
    format!("bare-{harts}")
}

/// The trial of so many harts among so many VMs.
fn split(harts: u16, vms: u16) -> String {
    format!("vms-{vms}-of-{harts}")
}

/// The trial of one VM for each of so many harts, with files over NFS.
fn over_nfs(harts: u16) -> String {
    format!("nfs-{harts}")
}

/// The work of one VM of `vms`: it has the marks of workload `compile`.
fn pmake(compile: &Load, harts: u16, vms: u16, sources: u16) -> Workload {
    let together = if vms > 1 { " together=1" } else { "" };
    let harts_each = harts / vms;
    Workload {
        name: "scalability",
        initrd: Initrd::Made(files),
        cmdline: format!("quiet nokaslr jobs={harts_each} harts={harts_each} sources={sources}{together}"),
        memory_mib: VM_MIB * u32::from(harts_each),
        placement: Placement::FirstTouch,
        vms,
        ..Workload::load(compile, Size::Quick, harts)
    }
}

/// The same with files over NFS.
fn served(work: Workload) -> Workload {
    Workload { name: "scalability-nfs", initrd: Initrd::Made(files_to_share), subnet: true, ..work }
}

fn files(_: &Scratch) -> Result<Content, LabError> {
    Ok(Content { bytes: compiler()?, without: Vec::new() })
}

/// The files of workload `compile`, with another first process and other work.
///
/// # Errors
/// [`LabError`] if a part has not been made.
pub fn compiler() -> Result<Vec<u8>, LabError> {
    let mut bytes = loads::find("compile")?.initrd(&artifacts::load_files()?)?;
    let mut own = Archive::new();
    own.file("init", 0o755, INIT.as_bytes()).file("pmake", 0o755, PMAKE.as_bytes());
    bytes.extend(own.finish());
    Ok(bytes)
}

/// The same, and what serves and mounts.
fn files_to_share(scratch: &Scratch) -> Result<Content, LabError> {
    let mut content = files(scratch)?;
    let path = artifacts::cached_load(NFS)?;
    content.bytes.extend(std::fs::read(&path).map_err(LabError::io(path.display().to_string()))?);
    let mut own = Archive::new();
    own.file("share", 0o755, SHARE.as_bytes());
    content.bytes.extend(own.finish());
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Harts, memory and words of a trial's VMs, all together.
    fn sums(trial: &Trial) -> (u16, u32, u64, u64) {
        let Work::Guest(work) = &trial.work else { panic!("{} is no guest", trial.name) };
        let word = |name: &str| {
            let word = work.cmdline.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            word.and_then(|number| number.parse::<u64>().ok())
                .unwrap_or_else(|| panic!("no {name} in {}", work.cmdline))
        };
        let (harts, jobs) = (word("harts") * u64::from(work.vms), word("jobs") * u64::from(work.vms));
        assert_eq!(harts, u64::from(trial.machine.harts()), "{}", trial.name);
        (trial.machine.harts(), work.memory_mib * u32::from(work.vms), jobs, jobs * word("sources"))
    }

    #[test]
    fn all_configurations_of_a_machine_do_the_same_with_the_same() {
        let plan = plan(Size::Full);
        for harts in [8, 16, 32] {
            let trials: Vec<_> = plan.trials.iter().filter(|trial| trial.machine.harts() == harts).collect();
            // Linux, 1, 2, 4 ... VMs, and over NFS.
            assert_eq!(trials.len(), 3 + harts.ilog2() as usize, "{harts} harts");
            let all: Vec<_> = trials.iter().map(|trial| sums(trial)).collect();
            assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{all:?}");
            assert_eq!(all[0].2, u64::from(harts), "a job for each hart");
        }
    }
}
