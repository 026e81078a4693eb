//! The same operations in a guest of Linux KVM, on the same machine, by the same probe guest: what stands beside ours.
//!
//! KVM gives its guests no counter of instructions, so the probe counts by time, a tick of which is 100 instructions on
//! this machine. All but halt polling is as Debian sets it: with transparent huge pages the host fetches memory 2 MiB at a time, and
//! the clock that `mmio` reads is a device of the VMM.

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

/// What is measured; all that need the second vCPU to stand still come first, for once started it turns for ever.
const FIGURES: [&str; 8] =
    ["sbi_null", "sbi_full", "mmio", "mmio_store", "wfi_alone", "first_touch", "wfi_wake", "vcpu_switch"];
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
    let dir = tempfile::Builder::new().prefix("mb-bench-").tempdir().map_err(LabError::io("a directory"))?;
    // With halt polling, as Debian has it, a vCPU that waits keeps the hart: `wfi_wake` would be the length of the wait.
    let guests = KvmGuests { halt_poll_ns: Some(0), ..KvmGuests::one(VCPUS, GUEST_MIB) };
    // The probe boots without an initial file system, which the host wants all the same.
    let host = guests.initrd(&artifacts::load_files()?, &artifacts::probe_program()?, b"none")?;
    let initrd = dir.path().join("host.cpio");
    crate::store::write_whole(&initrd, &host)?;
    let guest = format!("figure={} n={} ticks={TICK}", FIGURES.join(","), repetitions(trial).min(400));
    let boot = BareBoot {
        kernel: artifacts::cached("kernel/Image")?,
        initrd: Some(initrd),
        cmdline: format!("console=ttyS0 {}", guests.command_line(&guest)?),
        dir: dir.path().to_owned(),
        plugin: None,
        firmware: None,
        faults: Vec::new(),
    };
    let machine = BareMachine::launch(&Rig::of("bench-exits-kvm", trial)?.into_hardware(), &boot)?;
    let ended = machine.wait_timeout(WATCHDOG).is_some();
    machine.kill();
    let console = machine.console();
    let Some(settings) = crate::run::kvm_settings(&console).filter(|_| ended) else {
        let reason = if ended { "the host did not start its guest" } else { "it still ran when time was up" };
        return Err(LabError::Guest { experiment: "exits under KVM".into(), reason: reason.into(), console });
    };
    Ok(Measured { machine: format!("virt, KVM: {settings}"), commit: String::new(), values: values(&console) })
}

/// All figures, in the order of the list; those that the guest did not give are missing.
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
        assert_eq!((of("sbi_null"), of("wfi_wake")), (Some(1169.0), None));
        assert_eq!(values.len(), FIGURES.len());
    }
}
