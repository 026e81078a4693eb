//! The same operations in a guest of Linux KVM, on the same machine, by the same probe guest: what stands beside ours.
//!
//! KVM gives its guests no counter of instructions, so the probe counts by time, a tick of which is 100 instructions on
//! this machine. Everything is as Debian sets it: with transparent huge pages the host fetches memory 2 MiB at a time, and
//! the clock that `mmio` reads is a device of the VMM.

use std::path::Path;

use loads::KvmGuests;
use machine::{BareBoot, BareMachine};

use super::measure::{parse, repetitions, without_zeroing};
use crate::plan::{Artifact, Trial};
use crate::rig::{Rig, WATCHDOG};
use crate::run::Progress;
use crate::store::{Measured, Value};
use crate::{LabError, artifacts};

/// What the host is made of.
pub const NEEDS: &[Artifact] = &[Artifact::ProbeProgram, Artifact::KvmHost, Artifact::Cached("kernel/Image")];

/// What is measured. The last one's second vCPU, once started, turns for ever. Not `wfi_wake`: beside a neighbour it was
/// between 14,000 and 75,000 here, for reasons that are not understood, so what was measured apart stands there.
const FIGURES: [&str; 6] = ["sbi_null", "sbi_full", "mmio", "mmio_store", "first_touch", "vcpu_switch"];
/// Nanoseconds per tick of the machine's clock, which are instructions.
const TICK: u32 = 100;
const VCPUS: u16 = 2;
const GUEST_MIB: u32 = 64;

/// What single operations cost a guest of KVM.
///
/// # Errors
/// [`LabError`] if the host does not come up. A figure that the guest does not give is missing.
pub fn operations(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    progress.say("a Debian host and KVM");
    let guests = KvmGuests::one(VCPUS, GUEST_MIB);
    let dir = tempfile::Builder::new().prefix("mb-bench-").tempdir().map_err(LabError::io("a directory"))?;
    // The probe boots without an initial file system, which the host wants all the same.
    let host = guests.initrd(&artifacts::load_files()?, &artifacts::probe_program()?, b"none")?;
    let initrd = dir.path().join("host.cpio");
    crate::store::write_whole(&initrd, &host)?;
    let guest = format!("figure={} n={} ticks={TICK}", FIGURES.join(","), repetitions(trial).min(400));
    let console = run(trial, dir.path(), &initrd, &guests.command_line(&guest)?)?;
    let Some(settings) = crate::run::kvm_settings(&console) else {
        let reason = "the host did not start its guest in time".to_owned();
        return Err(LabError::Guest { experiment: "exits under KVM".into(), reason, console });
    };
    Ok(Measured { machine: format!("virt, KVM: {settings}"), commit: String::new(), values: values(&console) })
}

/// Boots the host, and gives what it said until it powered off.
fn run(trial: &Trial, dir: &Path, initrd: &Path, cmdline: &str) -> Result<String, LabError> {
    let boot = BareBoot {
        kernel: artifacts::cached("kernel/Image")?,
        initrd: Some(initrd.to_owned()),
        cmdline: format!("console=ttyS0 {cmdline}"),
        dir: dir.to_owned(),
        plugin: None,
        firmware: None,
        faults: Vec::new(),
    };
    let machine = BareMachine::launch(&Rig::of("bench-exits-kvm", trial)?.into_hardware(), &boot)?;
    // A host that hangs leaves figures out, which the caller sees.
    let _ = machine.wait_timeout(WATCHDOG);
    machine.kill();
    Ok(machine.console())
}

/// The figures that the guest gave, and missing ones for those that it did not.
fn values(console: &str) -> Vec<Value> {
    let mut found = without_zeroing(console.lines().filter_map(parse).collect());
    for name in FIGURES {
        if found.iter().all(|value| value.name != name) {
            found.push(Value::missing(name, "the guest under KVM did not give it"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_guest_does_not_give_is_missing() {
        let values = values("KVM host kernel=6.12\r\nFIGURE sbi_null 1169 instructions 200\r\nKVM done");
        let of = |name: &str| values.iter().find(|value| value.name == name).expect("listed").number;
        assert_eq!((of("sbi_null"), of("vcpu_switch")), (Some(1169.0), None));
        assert_eq!(values.len(), FIGURES.len());
    }
}
