//! `overhead` in instructions: a QEMU plugin counts all of them, by privilege mode, between marks that the workload guest sets. So
//! the VM's counts hold everything that the monitor does for it, and the breakdown tells what part of them is the
//! monitor's own.

use control::Placement;

use crate::compare::Comparison;
use crate::plan::{Artifact, Initrd, MachineSpec, Mark, Meter, Phase, Plan, Size, System, Trial, Work, Workload};
use crate::plot::{Bar, ChartPlan};
use crate::workloads;

/// Trials.
const BARE: &str = "instructions-bare";
const VM: &str = "instructions-mirrorball";
const KVM: &str = "instructions-kvm";
/// Memory of the guest, bare or in the VM.
const MEMORY_MIB: u32 = 256;
const MACHINE_MIB: u32 = 1024;
/// Room for the KVM host with the guest's files.
const KVM_MACHINE_MIB: u32 = 1536;

/// Phases of the workload guest, and the figures that they give: its workload k lies between marks 2k and 2k + 1.
const PHASES: [(&str, u16, &str); 9] = [
    ("compute", 1, "cpu_ratio"),
    ("getppid", 2, "getppid_ratio"),
    ("pipe", 3, "pipe_ratio"),
    ("fork", 4, "fork_ratio"),
    ("fork_exec", 5, "fork_exec_ratio"),
    ("mmap_touch", 6, "mmap_touch_ratio"),
    ("sched_yield", 7, "sched_yield_ratio"),
    ("sleep", 8, "sleep_ratio"),
    ("compile", 9, "compile_ratio"),
];
/// The phase before all others, to the first program's first mark.
const BOOT: Phase = Phase { name: "boot", from: Mark::Kernel, to: Mark::Hint(1) };

/// Trials, comparisons and charts.
pub fn plan(size: Size) -> Plan {
    let trial = |name: &str, system, memory_mib| Trial {
        name: name.to_owned(),
        work: Work::Guest(operations(size)),
        machine: MachineSpec::new(1, 1, memory_mib).counting(),
        system,
        meter: Meter::Instructions,
        seed: 0,
    };
    Plan {
        trials: vec![
            trial(BARE, System::Bare, MEMORY_MIB),
            trial(VM, System::Mirrorball, MACHINE_MIB),
            trial(KVM, System::Kvm, KVM_MACHINE_MIB),
        ],
        comparisons: comparisons(),
        charts: charts(),
    }
}

fn operations(size: Size) -> Workload {
    let phase = |(name, number, _)| Phase { name, from: Mark::Hint(2 * number), to: Mark::Hint(2 * number + 1) };
    Workload {
        name: "operations",
        kernel: Artifact::LINUX,
        initrd: Initrd::Made(workloads::operations),
        cmdline: format!("quiet scale={}", size.pick(2, 1)),
        memory_mib: MEMORY_MIB,
        placement: Placement::FirstTouch,
        vms: 1,
        subnet: false,
        phases: PHASES.into_iter().map(phase).chain([BOOT]).collect(),
    }
}

fn comparisons() -> Vec<Comparison> {
    let ratio = |figure: &str, phase: &str| Comparison::Ratio {
        figure: figure.to_owned(),
        value: format!("{phase}.total"),
        of: VM.to_owned(),
        over: BARE.to_owned(),
        peer: Some(KVM.to_owned()),
    };
    let mut all: Vec<_> = PHASES.iter().map(|(phase, _, figure)| ratio(figure, phase)).collect();
    all.push(ratio("boot_ratio", "boot"));
    let calls = PHASES.iter().filter(|(_, number, _)| (2..=7).contains(number));
    let among = calls.map(|(_, _, figure)| (*figure).to_owned()).collect();
    all.push(Comparison::Worst { figure: "syscall_ratios".to_owned(), among });
    for phase in PHASES.iter().map(|(phase, ..)| *phase).chain(["boot"]) {
        let part = |figure: &str, value: &str| (format!("{phase}_{figure}"), format!("{phase}.{value}"));
        all.push(Comparison::Parts { trial: BARE.to_owned(), parts: vec![part("bare", "total")] });
        let parts = ["guest", "monitor", "firmware"].map(|name| part(name, name)).into();
        all.push(Comparison::Parts { trial: VM.to_owned(), parts });
        let parts = [part("kvm_guest", "guest"), part("kvm_host", "monitor")].into();
        all.push(Comparison::Parts { trial: KVM.to_owned(), parts });
    }
    all
}

fn charts() -> Vec<ChartPlan> {
    let bar = |phase, trial: &str, who: &str| Bar {
        label: format!("{phase} {who}"),
        phase,
        trial: trial.to_owned(),
        base: BARE.to_owned(),
    };
    let phases = ["compute", "fork_exec", "mmap_touch", "sleep", "compile", "boot"];
    let bars = phases
        .into_iter()
        .flat_map(|phase| [bar(phase, BARE, "bare"), bar(phase, VM, "VM"), bar(phase, KVM, "KVM")])
        .collect();
    let parts = [("user", "user"), ("kernel", "kernel"), ("monitor", "monitor"), ("firmware", "firmware")];
    vec![ChartPlan::split("instructions", "Where the instructions are", bars, &parts, "% of bare")]
}
