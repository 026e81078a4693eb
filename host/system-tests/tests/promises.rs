//! Memory that is promised: who takes more than that gets errors or ends, and who does not never notices.

use std::path::Path;

use control::{ControlError, DiskMode, DiskSpec, EventKind, Request, StopReason, VmSpec};
use lab::rig::{Rig, Running, WATCHDOG, label};
use machine::ClientError;
use system_tests::debian::disk;
use system_tests::{assert_all_returned, ok, probe};

const DISK: &str = "empty";
const BLOCKS_PER_MIB: u64 = 256;
/// Where the probe's unused memory begins, and what is left of it behind that: the device tree is at the end.
const FREE: u64 = 0x8120_0000;
/// Until something has happened that the machine does by itself.
const LOOKS: usize = 100_000;
const IN_USE_MIB: u32 = 20;

/// A machine of 512 MiB with a disk that is larger.
fn boot(machine: &str, dir: &Path) -> Running {
    let image = dir.join("empty.img");
    ok(ok(std::fs::File::create(&image)).set_len(1 << 30));
    ok(ok(ok(ok(Rig::new(machine, 2, 512)).with_probe()).image(DISK, image)).boot())
}

fn with_disk(vm: &str, memory_mib: u32, limit_mib: Option<u32>, script: &str) -> VmSpec {
    let disk = DiskSpec { limit_mib, ..disk("data", DISK, DiskMode::CopyOnWrite) };
    VmSpec { disks: vec![disk], memory_mib, ..probe(vm, 1, &format!("disk={script}")) }
}

/// One that uses all of its memory when a key comes.
fn neighbour(memory_mib: u32) -> VmSpec {
    with_disk("neighbour", memory_mib, Some(8), &format!("k,m{},w1,r1", memory_mib - IN_USE_MIB))
}

/// What it says then.
fn sum(memory_mib: u32) -> String {
    let mib = u64::from(memory_mib - IN_USE_MIB);
    let pages = (FREE..FREE + (mib << 20)).step_by(4096);
    format!("DISK m{mib} sum={:#x}", pages.fold(0_u64, |sum, at| sum.rotate_left(5) ^ at))
}

fn press(machine: &Running, vm: &VmSpec) {
    let (_, keys) = ok(machine.client().console(&vm.name, 0));
    ok(keys.send_all(b"\n", WATCHDOG));
}

/// How many blocks the VM has written.
fn written(console: &str) -> u64 {
    let line = console.lines().find_map(|line| line.trim_end().split_once(" done="));
    ok(line.unwrap_or_else(|| panic!("nothing is said of blocks:\n{console}")).1.parse())
}

/// Lets the neighbour use what it was promised, and hears that it could.
#[track_caller]
fn assert_lives(machine: &Running, vm: &VmSpec) {
    press(machine, vm);
    let ended = ok(machine.end_of(&vm.name));
    assert_eq!(ended.summary.reason, Some(StopReason::PowerOff), "{}", ended.console);
    assert!(ended.console.contains(&sum(vm.memory_mib)), "{}", ended.console);
    assert!(ended.console.contains("DISK w1 status=0") && ended.console.contains("uniform=true"), "{}", ended.console);
}

#[test]
fn who_fills_its_disk_gets_errors_and_a_neighbour_all_of_its_memory() {
    let dir = ok(tempfile::tempdir());
    let machine = boot("filled", dir.path());
    let before = ok(machine.free_bytes());
    let neighbour = neighbour(256);
    ok(machine.start(&neighbour));
    ok(machine.wait_text(&neighbour.name, "DISK k"));
    // As much as the machine has; it may have half as much as it has memory.
    let attacker = with_disk("attacker", 64, None, &format!("a{},r1,w1,k", 512 * BLOCKS_PER_MIB));
    ok(machine.start(&attacker));
    let console = ok(machine.wait_text(&attacker.name, "DISK k"));
    let done = written(&console);
    // What finds the blocks counts, too.
    assert!((31 * BLOCKS_PER_MIB..=32 * BLOCKS_PER_MIB).contains(&done), "{console}");
    assert!(console.contains("DISK w1 status=0"), "what it has it may write again:\n{console}");
    let is_told = |event: control::Event| match event.kind {
        EventKind::DiskFull { disk, store, limit_mib } => (disk.as_str(), store, limit_mib) == ("data", None, Some(32)),
        _ => false,
    };
    assert!(ok(machine.events()).into_iter().any(is_told), "no event names the limit");
    let shown = ok(machine.client().vm(&attacker.name)).disks;
    assert_eq!((shown.len(), shown[0].limit_bytes), (1, Some(32 << 20)));
    assert!((31 << 20..=32 << 20).contains(&shown[0].used_bytes), "{shown:?}");
    assert_lives(&machine, &neighbour);
    ok(machine.client().kill_vm(&attacker.name));
    // Blocks of a disk that is gone come back bit by bit.
    assert!((0..LOOKS).any(|_| ok(machine.free_bytes()) + (8 << 20) >= before), "blocks of a disk did not come back");
    assert_all_returned(&machine, before);
}

/// What does not fit beside others' promises does not begin, unless it is promised less: then it ends when the others claim theirs.
#[test]
fn who_has_more_than_it_was_promised_ends_for_those_who_have_not() {
    let dir = ok(tempfile::tempdir());
    let machine = boot("beyond", dir.path());
    let before = ok(machine.free_bytes());
    let neighbour = neighbour(320);
    ok(machine.start(&neighbour));
    ok(machine.wait_text(&neighbour.name, "DISK k"));
    let mut greedy = with_disk("greedy", 64, Some(384), &format!("a{},k", 384 * BLOCKS_PER_MIB));
    let refused = machine.start(&greedy).expect_err("so much is not left").to_string();
    assert!(refused.contains("MiB are to be kept for it, and"), "{refused}");
    ok(machine.client().destroy_vm(&greedy.name));
    greedy.promised_mib = Some(32);
    ok(machine.start(&greedy));
    // It takes what nobody has claimed, until the machine keeps the rest for who may.
    ok(machine.wait_text(&greedy.name, "DISK"));
    assert_lives(&machine, &neighbour);
    let ended = ok(machine.end_of(&greedy.name));
    assert!(matches!(ended.summary.reason, Some(StopReason::OutOfMemory { .. })), "{:?}", ended.summary.reason);
    assert_all_returned(&machine, before);
}

/// Two that are promised nothing: the one that has more ends, not the one that asks.
#[test]
fn of_two_without_a_promise_the_larger_one_ends() {
    let dir = ok(tempfile::tempdir());
    let machine = boot("unpromised", dir.path());
    let before = ok(machine.free_bytes());
    let unpromised = |vm: VmSpec| VmSpec { promised_mib: Some(0), ..vm };
    let small = unpromised(neighbour(256));
    ok(machine.start(&small));
    ok(machine.wait_text(&small.name, "DISK k"));
    let large = unpromised(VmSpec { memory_mib: 448, ..probe("large", 1, "figure=touch n=400") });
    ok(machine.start(&large));
    ok(machine.wait_text(&large.name, "TOUCHED"));
    assert_lives(&machine, &small);
    let ended = ok(machine.end_of(&large.name));
    assert!(matches!(ended.summary.reason, Some(StopReason::OutOfMemory { .. })), "{:?}", ended.summary.reason);
    assert_all_returned(&machine, before);
}

/// A description that no machine of this size can keep is refused when it comes, whatever runs.
#[test]
fn a_promise_that_can_never_be_kept_is_refused_at_once() {
    let dir = ok(tempfile::tempdir());
    let machine = boot("never", dir.path());
    let error = machine.client().create_vm(VmSpec { memory_mib: 512, ..probe("whole", 1, "figure=idle") });
    match error {
        Err(ClientError::Refused(ControlError::Promised { wanted_mib, left_mib, capacity_mib })) => {
            assert!(wanted_mib > 512 && left_mib == capacity_mib && (400..500).contains(&capacity_mib));
        }
        other => panic!("it was answered {other:?}"),
    }
}

/// What is announced is promised though nothing of it has come: neither a second upload nor a VM begins that would need the same pages, and
/// both do when the upload is given up.
#[test]
fn an_open_upload_keeps_what_it_is_about_to_need() {
    let dir = ok(tempfile::tempdir());
    let machine = boot("announced", dir.path());
    let client = machine.client();
    let announce = |name: &str| client.open(Request::PutModule { name: ok(label(name)), total_len: 250 << 20 });
    let (_, first) = ok(announce("first"));
    let second = announce("second").map(drop);
    assert!(matches!(second, Err(ClientError::Refused(ControlError::Promised { .. }))), "{second:?}");
    let vm = neighbour(256);
    ok(client.create_vm(vm.clone()));
    let began = client.start_vm(&vm.name);
    assert!(matches!(began, Err(ClientError::Refused(ControlError::Promised { .. }))), "{began:?}");
    drop(first);
    let (_, again) = ok(announce("second"));
    drop(again);
    ok(client.start_vm(&vm.name));
    ok(machine.wait_text(&vm.name, "DISK k"));
    assert_lives(&machine, &vm);
}
