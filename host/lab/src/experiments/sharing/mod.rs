//! Experiment `sharing`: what further copies of an operating system cost in memory (Disco, section 5.3 and Fig. 7).
//!
//! Debian guests of 256 MiB, all from one kernel and one disk image that each may write to.
//!
//! - Trial `vms` compiles in one after the other and tells at 1, 2, 4 and 8 of them what there would be without sharing, what there is,
//!   and of what kind.
//! - `served` is the paper's last configuration: all but the first take compiler, sources and objects from that one, by NFS.
//! - `compile-kvm` is their peer: the same guests of KVM on such a machine, with QEMU, KSM and free page reporting.
//! - `nfs` serves files from one guest to others, and tells what of them is there twice.
//! - `idle` starts guests with nothing to do and tells what the last one took of the machine's memory when all had settled (the
//!   third: the monitor leaves one alone to itself, and gives its zeroes back when it has company); `idle-kvm` is its peer.

mod footprint;
mod guests;
mod kvm;
mod measure;
mod nfs;
mod parts;
mod resident;

use crate::compare::Comparison;
use crate::plan::{Artifact, Experiment, MachineSpec, Meter, Plan, Procedure, Size, System, Trial, Work};
use crate::plot::{ChartPlan, Content};
use crate::report::{AtMost, Goal, Target};

const MIB: &str = "MiB";
/// Memory of each guest.
const VM_MIB: u32 = 256;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "sharing",
    summary: "what further Debian guests cost in memory, beside KVM with KSM",
    goals: GOALS,
    plan,
};

const GOALS: &[Goal] = &[
    Goal::new(
        measure::FOOTPRINT,
        "",
        AtMost(1.25),
        "machine memory of kernel text and disk cache with most VMs, over that with one",
    ),
    Goal::new(
        nfs::FOOTPRINT,
        "",
        Target::Compare,
        "the same if all but the first compile over NFS what that one serves",
    ),
    Goal::new("private_mib_per_vm", MIB, AtMost(32.0), "kernel data of a VM of 256 MiB after its workload, all parts"),
    Goal::new(footprint::EXTRA, MIB, Target::Compare, "machine memory for each further VM that has compiled"),
    Goal::new("extra_vm_mib", MIB, AtMost(64.0), "machine memory for one more idle Debian VM"),
    Goal::new("extra_vm_share", "", AtMost(0.40), "the same over that of KVM with KSM"),
    Goal::new(
        "nfs_double_share",
        "",
        AtMost(0.05),
        "of what a client has of files served by NFS, bytes that are there twice 5 s after it has read them",
    ),
    Goal::new("nfs_double_share_later", "", Target::Compare, "the same after 25 s"),
    Goal::new("mapped_read_share", "", Target::AtLeast(0.95), "bytes of disk reads served without copying"),
];

fn plan(size: Size) -> Plan {
    let (most, most_kvm) = (size.pick(2, 8), size.pick(2, 4));
    let trial = |name: &str, count, machine, system, run| Trial {
        name: name.to_owned(),
        work: Work::Procedure(Procedure {
            count,
            version: if name == "nfs" { 3 } else { 1 },
            needs: match system {
                System::Kvm => &[Artifact::Cached("root/root.img"), Artifact::KvmHost],
                _ if matches!(name, "nfs" | "served") => {
                    &[Artifact::Cached("root/root.img"), Artifact::Cached(nfs::TOOLS)]
                }
                _ => &[Artifact::Cached("root/root.img"), Artifact::Cached("kernel/Image")],
            },
            run,
        }),
        machine,
        system,
        meter: Meter::Own,
        seed: 0,
    };
    let trials = vec![
        trial("vms", most, MachineSpec::new(2, 2, 2048), System::Mirrorball, measure::compile),
        trial("served", most, MachineSpec::new(2, 2, 2048), System::Mirrorball, nfs::compile),
        trial("nfs", 3, MachineSpec::new(2, 2, 2048), System::Mirrorball, nfs::serve),
        trial("idle", 3, MachineSpec::new(1, 2, 2048), System::Mirrorball, measure::idle),
        trial("compile-kvm", most_kvm, MachineSpec::new(1, 2, 4096), System::Kvm, kvm::compile),
        trial("idle-kvm", 2, MachineSpec::new(1, 2, 2048), System::Kvm, kvm::idle),
    ];
    let part = |trial: &str, names: &[&str]| Comparison::Parts {
        trial: trial.to_owned(),
        parts: names.iter().map(|name| ((*name).to_owned(), (*name).to_owned())).collect(),
    };
    let comparisons = vec![
        Comparison::Values { trial: "vms".to_owned() },
        Comparison::Peer { trial: "compile-kvm".to_owned() },
        Comparison::Values { trial: "served".to_owned() },
        Comparison::Values { trial: "nfs".to_owned() },
        part("idle", &["extra_vm_mib"]),
        Comparison::Peer { trial: "idle-kvm".to_owned() },
        Comparison::Ratio {
            figure: "extra_vm_share".to_owned(),
            value: "extra_vm_mib".to_owned(),
            of: "idle".to_owned(),
            over: "idle-kvm".to_owned(),
            peer: None,
        },
    ];
    Plan { trials, comparisons, charts: vec![chart(most)] }
}

/// What Fig. 7 shows: memory as if nothing were shared, and as it is.
fn chart(most: u64) -> ChartPlan {
    let configurations =
        measure::counts(most).into_iter().map(|count| count.to_string()).chain([format!("{most}_nfs")]);
    let figures: Vec<_> =
        configurations.flat_map(|name| ["virtual", "machine"].map(|kind| footprint::name(&name, kind))).collect();
    let content = Content::Figures { figures, y: MIB, logarithmic: false };
    ChartPlan { id: "footprint", title: "Memory of Debian guests: virtual and machine".to_owned(), content }
}
