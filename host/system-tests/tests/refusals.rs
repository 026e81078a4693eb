//! Memory that the monitor does not get, though there is some: the machine lives, somebody hears of it, and nothing is lost.

use control::{ControlError, DiskMode, Memory, StopReason, VmSpec};
use lab::rig::{Rig, Running, WATCHDOG, label};
use machine::ClientError;
use system_tests::debian::disk;
use system_tests::{assert_all_returned, ok, probe};

const DISK: &str = "scratch";
/// What the guest does with its disk, and what it says if all is well.
const SCRIPT: &str = "m4,w2,r2,a64,f";
const ALL_WELL: [&str; 3] = ["DISK m4 sum=", "DISK r2 status=0", "DISK f status=0"];

fn boot(machine: &str, nodes: u16) -> Running {
    let mut rig = ok(ok(ok(Rig::new(machine, 1, 256)).with_probe()).scratch(DISK, 64));
    for _ in 1..nodes {
        rig = rig.node(1, 256);
    }
    ok(rig.options(|options| options.allow_panic = true).boot())
}

fn with_disk(vm: &str, script: &str) -> VmSpec {
    VmSpec { disks: vec![disk("data", DISK, DiskMode::CopyOnWrite)], ..probe(vm, 1, &format!("disk={script}")) }
}

/// More than a VM takes to begin, by itself and by whom it asks.
const MANY: u64 = 200;

/// A VM's whole life while memory is refused, as far as it gets. Whether all was well.
fn live(machine: &Running, spec: &VmSpec) -> bool {
    let client = machine.client();
    match client.create_vm(spec.clone()).and_then(|()| client.start_vm(&spec.name)) {
        Ok(()) => {}
        Err(ClientError::Refused(ControlError::OutOfMemory { .. })) => {
            drop(client.destroy_vm(&spec.name));
            return false;
        }
        Err(error) => panic!("{error}"),
    }
    let ended = ok(machine.end_of(&spec.name));
    match ended.summary.reason {
        Some(StopReason::PowerOff) => ALL_WELL.iter().all(|text| ended.console.contains(text)),
        Some(StopReason::OutOfMemory { .. }) => false,
        other => panic!("{other:?}: {}", ended.console),
    }
}

/// Refuses each page in turn, and so many after it, while VMs live; how many lives were well and how many were not.
fn sweep(machine: &Running, memory: Memory, count: u64, act: impl Fn() -> bool) -> (u64, u64) {
    let client = machine.client();
    let (mut well, mut not) = (0, 0);
    for first in 0.. {
        ok(client.refuse_memory(memory, first, count));
        let is_well = act();
        let asked = ok(client.refuse_memory(memory, 0, 0));
        well += u64::from(is_well);
        not += u64::from(!is_well);
        assert_eq!(ok(machine.lost_pages()), 0, "pages did not come back after {first} were given");
        if asked <= first {
            println!("{memory:?}, {count} at a time: {asked} asked, {well} lives were well and {not} not");
            assert!(is_well, "nothing was refused");
            return (well, not);
        }
    }
    unreachable!("numbers do not end")
}

#[test]
fn no_machine_for_use_refuses_memory_that_it_has() {
    let machine = ok(ok(Rig::new("refusals-none", 1, 256)).boot());
    let refused = machine.client().refuse_memory(Memory::Pages, 0, 1);
    assert!(matches!(refused, Err(ClientError::Refused(ControlError::Unsupported { .. }))), "{refused:?}");
}

/// A page that is refused is looked for elsewhere: most lives go on as if nothing was.
#[test]
fn any_page_may_be_refused() {
    let machine = boot("refusals-page", 2);
    let before = ok(machine.free_bytes());
    let (well, not) = sweep(&machine, Memory::Pages, 1, || live(&machine, &with_disk("vm", SCRIPT)));
    assert!(well > not, "{well} of {not}");
    assert_all_returned(&machine, before);
}

/// Nobody gets a page for a while, from any moment on. (Not for ever: what is free by the monitor's own count comes back some time, and
/// who needs it waits.) A neighbour that has what it needs never notices.
#[test]
fn many_pages_may_be_refused() {
    let machine = boot("refusals-many", 1);
    let neighbour = with_disk("neighbour", "m8,k,m8");
    ok(machine.start(&neighbour));
    ok(machine.wait_text(&neighbour.name, "DISK k"));
    let before = ok(machine.free_bytes());
    let (_, not) = sweep(&machine, Memory::Pages, MANY, || live(&machine, &with_disk("vm", SCRIPT)));
    assert!(not > 0, "nobody noticed");
    assert_all_returned(&machine, before);
    let (_, keys) = ok(machine.client().console(&neighbour.name, 0));
    ok(keys.send_all(b"\n", WATCHDOG));
    let console = ok(machine.end_of(&neighbour.name)).console;
    let sums: Vec<_> = console.lines().filter(|line| line.starts_with("DISK m8 sum=")).collect();
    assert!(sums.len() == 2 && sums[0] == sums[1], "{console}");
}

/// The heap, while a client sends a program, and a VM prints, uses its disk and ends.
#[test]
fn any_list_may_be_refused() {
    let machine = boot("refusals-heap", 1);
    let client = machine.client();
    let upload = ok(label("upload"));
    let (well, not) = sweep(&machine, Memory::Heap, 1, || {
        let is_sent = match client.put_module(&upload, 100_000, [7; 100_000].as_slice(), |_| ()) {
            Ok(()) => {
                ok(client.drop_module(&upload));
                true
            }
            Err(ClientError::Refused(ControlError::OutOfMemory { .. })) => false,
            Err(error) => panic!("{error}"),
        };
        is_sent & live(&machine, &with_disk("vm", SCRIPT))
    });
    assert!(well > 0 && not > 0, "{well} and {not}");
}
