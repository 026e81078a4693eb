//! The same operations in a guest of Linux KVM, on the same machine, by the same probe guest: what stands beside ours.
//!
//! KVM gives its guests no counter of instructions, so the probe counts by time, a tick of which is 100 instructions on
//! this machine. All but halt polling is as Debian sets it: with transparent huge pages the host fetches memory 2 MiB at a time, and
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

/// What is measured, each line in a guest of its own: a second vCPU that was started turns for ever, and a guest that
/// has done other things before wakes up dearer.
const GUESTS: [&[&str]; 3] =
    [&["sbi_null", "sbi_full", "mmio", "mmio_store", "first_touch"], &["wfi_wake"], &["vcpu_switch"]];
/// Nanoseconds per tick of the machine's clock, which are instructions.
const TICK: u32 = 100;
const VCPUS: u16 = 2;
const GUEST_MIB: u32 = 64;

/// What single operations cost a guest of KVM.
///
/// # Errors
/// [`LabError`] if the host does not come up. A figure that the guest does not give is missing.
pub fn operations(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    // With halt polling, as Debian has it, a vCPU that waits keeps the hart: `wfi_wake` would be the length of the wait.
    let guests = KvmGuests { halt_poll_ns: Some(0), ..KvmGuests::one(VCPUS, GUEST_MIB) };
    let dir = tempfile::Builder::new().prefix("mb-bench-").tempdir().map_err(LabError::io("a directory"))?;
    // The probe boots without an initial file system, which the host wants all the same.
    let host = guests.initrd(&artifacts::load_files()?, &artifacts::probe_program()?, b"none")?;
    let initrd = dir.path().join("host.cpio");
    crate::store::write_whole(&initrd, &host)?;
    let mut measured = Measured::default();
    for figures in GUESTS {
        progress.say(&format!("{} under KVM", figures.join(", ")));
        let guest = format!("figure={} n={} ticks={TICK}", figures.join(","), repetitions(trial).min(400));
        let console = run(trial, dir.path(), &initrd, &guests.command_line(&guest)?)?;
        let Some(settings) = crate::run::kvm_settings(&console) else {
            let reason = "the host did not start its guest in time".to_owned();
            return Err(LabError::Guest { experiment: "exits under KVM".into(), reason, console });
        };
        measured.machine = format!("virt, KVM: {settings}");
        measured.values.extend(values(&console, figures));
    }
    Ok(measured)
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

/// The figures that a guest gave, and missing ones for those of `wanted` that it did not.
fn values(console: &str, wanted: &[&str]) -> Vec<Value> {
    let mut found = without_zeroing(console.lines().filter_map(parse).collect());
    for name in wanted {
        if found.iter().all(|value| value.name != *name) {
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
        let values = values(
            "KVM host kernel=6.12\r\nFIGURE sbi_null 1169 instructions 200\r\nKVM done",
            &["sbi_null", "wfi_wake"],
        );
        let of = |name: &str| values.iter().find(|value| value.name == name).expect("listed").number;
        assert_eq!((of("sbi_null"), of("wfi_wake")), (Some(1169.0), None));
        assert_eq!(values.len(), 2);
    }
}
