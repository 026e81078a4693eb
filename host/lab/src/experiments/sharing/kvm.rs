//! The peer: KVM guests on the same machine, of the same kernel, initial file system and disk image.

use std::collections::BTreeMap;

use image::Archive;
use machine::{BareBoot, BareMachine};

use super::measure::quick;
use super::{DISK, INITRD, MIB, VM_MIB};
use crate::compare::ratio;
use crate::plan::{Artifact, Trial, Work};
use crate::rig::{Rig, WATCHDOG};
use crate::run::{Progress, kvm_settings};
use crate::store::{Measured, Value};
use crate::{LabError, artifacts};

const INIT: &str = include_str!("kvm-init.sh");
/// Longest run: a guest boots in minutes, one level further down.
const PATIENCE: u32 = 6;

/// Idle guests; what the last one takes of the host's memory, as long as it is there.
///
/// # Errors
/// [`LabError::Guest`] if the host does not get to its end.
pub fn idle(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    let guests = match &trial.work {
        Work::Procedure(procedure) => procedure.count,
        Work::Guest(_) => 1,
    };
    progress.say(&format!("KVM, {guests} VMs"));
    let dir = tempfile::Builder::new().prefix("mb-sharing-").tempdir().map_err(LabError::io("a directory"))?;
    let initrd = dir.path().join("host.cpio");
    std::fs::write(&initrd, host_files()?).map_err(LabError::io("the KVM host"))?;
    let root = artifacts::cached("root/root.img")?;
    let hardware = quick(Rig::of("bench-sharing-kvm", trial)?).image(DISK, root)?.into_hardware();
    let boot = BareBoot {
        kernel: artifacts::cached("kernel/Image")?,
        initrd: Some(initrd),
        cmdline: format!("console=ttyS0 quiet guests={guests} memory={VM_MIB}"),
        dir: dir.path().to_owned(),
        plugin: None,
        firmware: None,
        faults: Vec::new(),
    };
    let machine = BareMachine::launch(&hardware, &boot)?;
    let ended = (0..PATIENCE).any(|_| machine.wait_timeout(WATCHDOG).is_some());
    machine.kill();
    let console = machine.console();
    if !console.contains("WORKLOAD done") {
        let reason = if ended { "the KVM host failed" } else { "it still ran when time was up" };
        return Err(LabError::Guest { experiment: trial.label(), reason: reason.to_owned(), console });
    }
    let settings = kvm_settings(&console).unwrap_or_default();
    let text = format!("virt: {} harts, {} MiB, KVM: {settings}", trial.machine.harts(), trial.machine.memory_mib());
    Ok(Measured { machine: text, commit: String::new(), values: values(&console) })
}

/// The KVM host of the lab's workloads, with another first process, and the guests' files.
fn host_files() -> Result<Vec<u8>, LabError> {
    let read = |path: std::path::PathBuf| std::fs::read(&path).map_err(LabError::io(path.display().to_string()));
    let mut bytes = read(Artifact::KvmHost.path()?)?;
    let mut files = Archive::new();
    files.file("init", 0o755, INIT.as_bytes()).directory("guest");
    files.file("guest/Image", 0o644, &read(artifacts::cached("kernel/Image")?)?);
    files.file("guest/initrd", 0o644, &read(artifacts::cached(&format!("kernel/{INITRD}"))?)?);
    bytes.extend(files.finish());
    Ok(bytes)
}

/// The host's free memory by the number of guests, as memory taken by each further one.
fn values(console: &str) -> Vec<Value> {
    let lines = console.lines().filter_map(|line| line.trim().strip_prefix("KVM free "));
    let word = |line: &str, key: &str| {
        let mut words = line.split_whitespace();
        words.find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse::<u64>().ok())
    };
    let free: BTreeMap<u64, u64> = lines.filter_map(|line| Some((word(line, "guests")?, word(line, "kib")?))).collect();
    let taken = |guests: u64| {
        let kib = free.get(&guests.checked_sub(1)?)?.checked_sub(*free.get(&guests)?)?;
        Some(ratio(kib, 1024))
    };
    let last = free.keys().last().copied().unwrap_or(0);
    let named = |guests| taken(guests).map(|mib| Value::new(&format!("guest_{guests}_mib"), mib, MIB, 1));
    let mut values: Vec<_> = (1..=last).filter_map(named).collect();
    values.push(match taken(last).filter(|_| last > 1) {
        Some(mib) => Value::new("extra_vm_mib", mib, MIB, 1),
        None => Value::missing("extra_vm_mib", "the host has not told its memory with two guests"),
    });
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_guests_memory_is_told() {
        let console = "KVM host kernel=6.12\r\nKVM free guests=0 kib=1024000 ksm=0\r\nKVM free guests=2 kib=716800 ksm=3\r\n\
                       KVM free guests=1 kib=819200 ksm=9\r\nWORKLOAD done";
        let found = values(console);
        let numbers: Vec<_> = found.iter().map(|value| (value.name.as_str(), value.number)).collect();
        assert_eq!(
            numbers,
            [("guest_1_mib", Some(200.0)), ("guest_2_mib", Some(100.0)), ("extra_vm_mib", Some(100.0))]
        );
        assert_eq!(values("KVM free guests=0 kib=5").last().and_then(|value| value.number), None);
    }
}
