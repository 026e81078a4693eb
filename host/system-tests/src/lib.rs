//! Tests of the whole system: emulated machines of many shapes, the monitor on them, probe guests and Debian in VMs.
//!
//! Each test boots a machine of its own with [`lab::rig`] and talks to its monitor as any client does. Nothing here
//! waits for a time to pass: tests wait for events, console text and states, and every wait has a watchdog.
//! `./x test` runs them one at a time, as an emulated machine uses every core that there is. They need what `./x build`
//! and `./x image` make.
//!
//! | file | what |
//! | --- | --- |
//! | `probes` | one behaviour after the other from inside, on machines and VMs of many shapes |
//! | `sbi` | suspended vCPUs, firmware features, software events, double traps, and wrong arguments for all of them |
//! | `canaries` | secrets of a guest that no other one finds |
//! | `attacks` | guests that attack or fail, each stopped with its reason while a neighbour computes |
//! | `lifecycle` | VMs that come and go, and their memory |
//! | `programs` | ELF files and flat binaries, and what the monitor refuses of them |
//! | `storms` | lives that change faster than guests get to run |
//! | `disks` | partitions, and who may write them |
//! | `disk_trouble` | blocks that cannot be read or written, disks that shrink, drivers that abuse requests under way, no memory |
//! | `cache` | more reads than the disk cache holds |
//! | `volumes` | disks with overlays: killed machines, snapshots, clones, full stores |
//! | `promises` | memory that is promised, and who ends when others claim theirs |
//! | `refusals` | memory that the monitor does not get though there is some, page by page and list by list |
//! | `disk_times` | disks in the machine model's time, under Linux on the bare machine |
//! | `machines` | the largest machine, uneven ones, holes in memory |
//! | `counters` | miss counters as a device, and nonsense in their place |
//! | `places` | pages that migrate and get replicas, on a modelled machine of two nodes |
//! | `clients` | control clients that ask for more than the monitor has |
//! | `cells` | several monitors on one machine, each with its VMs, on hardware that fails, too |
//! | `crash` | panics of the monitor: the record, and machines that are started again |
//! | `faults` | hardware that fails, seen from HS-mode and from a guest, at random moments |
//! | `gangs` | VMs that run together, and settings that are changed meanwhile |
//! | `balance` | vCPUs that stay where they were moved to, on uneven nodes |
//! | `messages` | messages between vCPUs that move, with interrupt files in hardware and in software |
//! | `inspect` | debuggers at guests, and core files |
//! | `linux` | Debian's kernel to user space, on all shapes; overcommitted |
//! | `loads` | workloads on the bare machine, in a VM and under KVM, with the known results |
//! | `splash` | programs on SPLASHOS, and how it ends |
//! | `system` | whole Debian: U-Boot, persistent disks, partitions, networks, orderly ends |
//!
//! Here: what they share.
#![forbid(unsafe_code)]

pub mod debian;
pub mod network;
pub mod tree;

use control::{DiskMode, DiskSpec, StopReason, VmSpec};
use lab::rig::{Ended, Running, probe_vm};

/// Unwraps with the whole message.
///
/// # Panics
/// If it is an error: that is what a test does.
#[track_caller]
pub fn ok<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

/// A guest's own view of the machine's disk `pattern`.
#[must_use]
pub fn pattern_disk() -> DiskSpec {
    DiskSpec {
        name: ok("data".parse()),
        source: ok("pattern".parse()),
        partition: None,
        mode: DiskMode::CopyOnWrite,
        overlay: None,
        limit_mib: None,
    }
}

/// A VM with the probe guest.
#[track_caller]
#[must_use]
pub fn probe(name: &str, vcpus: u16, cmdline: &str) -> VmSpec {
    ok(probe_vm(name, vcpus, 64, cmdline))
}

/// Asserts that a probe guest ran to its end and found nothing wrong.
#[track_caller]
pub fn assert_passed(ended: &Ended) {
    let verdict = ended.console.lines().find(|line| line.starts_with("PROBES passed="));
    let failures: Vec<_> = ended.console.lines().filter(|line| line.contains("FAILED")).collect();
    let name = &ended.summary.name;
    assert!(
        verdict.is_some_and(|line| line.trim_end().ends_with("failed=0")),
        "{name}: {failures:?}; it stopped: {:?}; its console:\n{}",
        ended.summary.reason,
        ended.console
    );
    assert_eq!(ended.summary.reason, Some(StopReason::PowerOff), "{name}");
}

/// Asserts that no page was lost, and that as much memory is free as `before`, but for what the monitor's heap keeps.
#[track_caller]
pub fn assert_all_returned(machine: &Running, before: u64) {
    /// Heap that the monitor takes in blocks of 2 MiB and keeps for the next VM.
    const KEPT: u64 = 8 << 20;
    let after = ok(machine.free_bytes());
    assert!(after + KEPT >= before, "{before} bytes were free, now only {after}");
    assert_eq!(ok(machine.lost_pages()), 0, "pages did not come back");
}

/// The checksum that the probe guest prints after so many rounds of `figure=checksum`.
#[must_use]
pub fn checksum(rounds: u64) -> String {
    const WORDS: usize = (1 << 20) / 8;
    let (mut state, mut sum) = (0x9e37_79b9_7f4a_7c15_u64, 0_u64);
    let mut words = vec![0; WORDS];
    for _ in 0..rounds {
        for word in &mut words {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *word = state;
        }
        sum = words.iter().fold(sum, |sum, word| sum.rotate_left(5) ^ word);
    }
    format!("CHECKSUM {sum:#018x} {rounds}")
}
