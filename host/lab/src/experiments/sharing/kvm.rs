//! The peer: KVM guests on the same machine, of the same kernel, initial file system and disk image.

use std::collections::BTreeMap;

use image::Archive;
use machine::{BareBoot, BareMachine};

use super::footprint;
use super::measure::{COMPILE, FOOTPRINT, most, quick};
use super::{DISK, INITRD, MIB, VM_MIB};
use crate::compare::ratio;
use crate::plan::{Artifact, Trial};
use crate::rig::{Rig, WATCHDOG};
use crate::run::{Progress, kvm_settings};
use crate::store::{Measured, Value};
use crate::{LabError, artifacts};

const INIT: &str = include_str!("kvm-init.sh");
/// Longest run, in [`WATCHDOG`]s: a guest boots in minutes, one level further down.
const PATIENCE: u32 = 12;
/// Has a guest tell its shell's last status and KiB of what it could share with others.
const TELL: &str = r#"perl -e '
    my ($status, $kib) = (shift, 0);
    open(my $memory, "<", "/proc/meminfo") or die;
    while (<$memory>) { $kib += $2 * ($1 eq "Shmem" ? -1 : 1) if /^(Cached|Buffers|Shmem): *([0-9]+)/ }
    open(my $places, "<", "/proc/iomem") or die;
    while (<$places>) { $kib += (hex($2) - hex($1) + 1) >> 10 if /([0-9a-f]+)-([0-9a-f]+) : Kernel (code|rodata)/ }
    print "\nworked=$status shareable_kib=$kib\n"' $?"#;

/// Idle guests; what the last one takes of the host's memory, as long as it is there.
///
/// # Errors
/// [`LabError::Guest`] if the host does not get to its end.
pub fn idle(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    run(trial, progress, None, &|console| taken_by_last(&free(console)))
}

/// Guests that compile; what they take of the host's memory, and how much of that they could have in common.
///
/// # Errors
/// [`LabError::Guest`] if the host does not get to its end.
pub fn compile(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    // One line: while a shell reads several, what is typed may wait for ever in the terminal.
    let work = format!("{COMPILE}; {TELL}").replace('\n', " ");
    run(trial, progress, Some(&work), &compiled)
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
    let hardware = quick(Rig::of("bench-sharing-kvm", trial)?).image(DISK, root)?.into_hardware();
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

/// What can be shared is what guests say of their page caches and of their kernels' code and constants. All that KSM saves is taken to be of
/// that, and the first guest to have nothing twice: both are in its favour.
fn compiled(console: &str) -> Vec<Value> {
    let free = free(console);
    let last = free.keys().last().copied().unwrap_or(0);
    let machine = |guests| {
        let mib = taken(&free, 0, guests)?;
        Some(Value::new(&footprint::name(&guests.to_string(), "machine"), mib, MIB, 1))
    };
    let mut values: Vec<_> = (1..=last).filter_map(machine).collect();
    let told: Vec<u64> = lines(console, "work ")
        .filter(|line| word(line, "worked") == Some(0))
        .filter_map(|line| word(line, "shareable_kib"))
        .collect();
    let saved = lines(console, "free ").find(|line| word(line, "guests") == Some(last));
    let saved = saved.and_then(|line| word(line, "ksm_saved_pages")).map(|pages| pages * 4);
    let all = told.iter().sum::<u64>();
    let is_whole = told.len() as u64 == last && last > 1;
    values.push(match saved.and_then(|saved| all.checked_sub(saved)).filter(|_| is_whole) {
        Some(kept) => Value::new(FOOTPRINT, ratio(kept, told[0]), "", 1),
        None => Value::missing(FOOTPRINT, "the host or a guest has not told its memory"),
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
    fn what_guests_could_share_is_told() {
        let console = "KVM work guest=1 worked=0 shareable_kib=40960\r\nKVM work guest=2 worked=0 shareable_kib=51200\r\n\
                       KVM free guests=0 kib=1024000 ksm_saved_pages=0\r\n\
                       KVM free guests=2 kib=716800 ksm_saved_pages=2560 zero_pages=7\r\n\
                       KVM free guests=1 kib=819200 ksm_saved_pages=2560\r\nWORKLOAD done";
        let found = compiled(console);
        let numbers: Vec<_> = found.iter().map(|value| (value.name.as_str(), value.number)).collect();
        // Of 90 MiB in the guests 10 are saved, and one has 40.
        assert_eq!(
            numbers,
            [("machine_1_mib", Some(200.0)), ("machine_2_mib", Some(300.0)), ("shared_footprint_8", Some(2.0))]
        );
        let cut = console.split_once("\r\n").unwrap().1;
        assert_eq!(compiled(cut).last().and_then(|value| value.number), None, "a guest has said nothing");
    }
}
