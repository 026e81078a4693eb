//! The peer: KVM guests on the same machine, of the same kernel, initial file system and disk image.

use std::collections::BTreeMap;

use image::Archive;
use machine::{BareBoot, BareMachine};

use super::footprint;
use super::guests::most;
use super::{MIB, VM_MIB};
use crate::compare::ratio;
use crate::experiments::debian::{COMPILE, DISK, INITRD};
use crate::plan::{Artifact, Trial};
use crate::rig::{Rig, WATCHDOG};
use crate::run::{Progress, kvm_settings};
use crate::store::{Measured, Value};
use crate::{LabError, artifacts};

const INIT: &str = include_str!("kvm-init.sh");
/// Longest run, in [`WATCHDOG`]s: a guest boots in minutes, one level further down.
const PATIENCE: u32 = 12;
/// Has a guest's shell tell how that ended.
const TELL: &str = "status=$?; echo; echo worked=$status";

/// Idle guests; what the last one takes of the host's memory, as long as it is there.
///
/// # Errors
/// [`LabError::Guest`] if the host does not get to its end.
pub fn idle(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    run(trial, progress, None, &|console| taken_by_last(&free(console)))
}

/// Guests that compile; what they take of the host's memory.
///
/// # Errors
/// [`LabError::Guest`] if the host does not get to its end.
pub fn compile(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    run(trial, progress, Some(&format!("{COMPILE}; {TELL}")), &compiled)
}

fn run(
    trial: &Trial,
    progress: &Progress,
    work: Option<&str>,
    values: &dyn Fn(&str) -> Vec<Value>,
) -> Result<Measured, LabError> {
    let guests = most(trial);
    // Guests that work with it on found pages of their modules zeroed, and panicked: Debian's KVM on this emulated machine.
    let reporting = if work.is_some() { "off" } else { "on" };
    progress.say(&format!("KVM, {guests} VMs"));
    let dir = tempfile::Builder::new().prefix("mb-sharing-").tempdir().map_err(LabError::io("a directory"))?;
    let initrd = dir.path().join("host.cpio");
    std::fs::write(&initrd, host_files(work)?).map_err(LabError::io("the KVM host"))?;
    let root = artifacts::cached("root/root.img")?;
    let hardware = Rig::of("bench-sharing-kvm", trial)?.sparing_fences().image(DISK, root)?.into_hardware();
    let boot = BareBoot {
        kernel: artifacts::cached("kernel/Image")?,
        initrd: Some(initrd),
        cmdline: format!("console=ttyS0 quiet guests={guests} memory={VM_MIB} reporting={reporting}"),
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
fn host_files(work: Option<&str>) -> Result<Vec<u8>, LabError> {
    let read = |path: std::path::PathBuf| std::fs::read(&path).map_err(LabError::io(path.display().to_string()));
    let mut bytes = read(Artifact::KvmHost.path()?)?;
    let mut files = Archive::new();
    files.file("init", 0o755, INIT.as_bytes()).directory("guest");
    files.file("guest/Image", 0o644, &read(artifacts::cached("kernel/Image")?)?);
    files.file("guest/initrd", 0o644, &read(artifacts::cached(&format!("kernel/{INITRD}"))?)?);
    if let Some(line) = work {
        files.file("guest/work", 0o644, format!("{line}\n").as_bytes());
    }
    bytes.extend(files.finish());
    Ok(bytes)
}

/// A word's number in a line of the console.
fn word(line: &str, key: &str) -> Option<u64> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
}

fn lines<'a>(console: &'a str, kind: &'a str) -> impl Iterator<Item = &'a str> {
    console.lines().filter_map(move |line| line.trim().strip_prefix("KVM ")?.strip_prefix(kind))
}

/// The host's free memory in KiB, by the number of guests.
fn free(console: &str) -> BTreeMap<u64, u64> {
    lines(console, "free ").filter_map(|line| Some((word(line, "guests")?, word(line, "kib")?))).collect()
}

/// MiB of the host's memory that some guests take, beyond what fewer do.
fn taken(free: &BTreeMap<u64, u64>, fewer: u64, guests: u64) -> Option<f64> {
    Some(ratio(free.get(&fewer)?.checked_sub(*free.get(&guests)?)?, 1024))
}

fn taken_by_last(free: &BTreeMap<u64, u64>) -> Vec<Value> {
    let of = |guests: u64| taken(free, guests.checked_sub(1)?, guests);
    let last = free.keys().last().copied().unwrap_or(0);
    let named = |guests| of(guests).map(|mib| Value::new(&format!("guest_{guests}_mib"), mib, MIB, 1));
    let mut values: Vec<_> = (1..=last).filter_map(named).collect();
    values.push(match of(last).filter(|_| last > 1) {
        Some(mib) => Value::new("extra_vm_mib", mib, MIB, 1),
        None => Value::missing("extra_vm_mib", "the host has not told its memory with two guests"),
    });
    values
}

/// What they take at each number of guests, if all have compiled.
fn compiled(console: &str) -> Vec<Value> {
    let free = free(console);
    let last = free.keys().last().copied().unwrap_or(0);
    let done = lines(console, "work ").filter(|line| word(line, "worked") == Some(0)).count() as u64;
    let machine: Vec<_> = (1..=last).filter_map(|guests| Some((guests, taken(&free, 0, guests)?))).collect();
    let named = |(guests, mib): &(u64, f64)| Value::new(&footprint::name(&guests.to_string(), "machine"), *mib, MIB, 1);
    let mut values: Vec<_> = machine.iter().map(named).collect();
    values.push(match footprint::extra(&machine).filter(|_| done == last) {
        Some(mib) => Value::new(footprint::EXTRA, mib, MIB, 1),
        None => Value::missing(footprint::EXTRA, "not all guests have compiled"),
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
        let found = taken_by_last(&free(console));
        let numbers: Vec<_> = found.iter().map(|value| (value.name.as_str(), value.number)).collect();
        assert_eq!(
            numbers,
            [("guest_1_mib", Some(200.0)), ("guest_2_mib", Some(100.0)), ("extra_vm_mib", Some(100.0))]
        );
        let none = taken_by_last(&free("KVM free guests=0 kib=5"));
        assert_eq!(none.last().and_then(|value| value.number), None);
    }

    #[test]
    fn what_guests_take_counts_if_all_have_compiled() {
        let console = "KVM work guest=1 worked=0\r\nKVM work guest=2 worked=0\r\nKVM free guests=0 kib=1024000 ksm=0\r\n\
                       KVM free guests=2 kib=716800 ksm=3\r\nKVM free guests=1 kib=819200 ksm=9\r\nWORKLOAD done";
        let found = compiled(console);
        let numbers: Vec<_> = found.iter().map(|value| (value.name.as_str(), value.number)).collect();
        assert_eq!(
            numbers,
            [("machine_1_mib", Some(200.0)), ("machine_2_mib", Some(300.0)), ("extra_busy_vm_mib", Some(100.0))]
        );
        for other in [console.replacen("worked=0", "worked=1", 1), console.replacen("KVM work", "", 1)] {
            assert_eq!(compiled(&other).last().and_then(|value| value.number), None, "{other}");
        }
    }
}
