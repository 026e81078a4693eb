//! Guests that use each of their devices as no driver would, on all vCPUs at once, for as long as they are let. Meanwhile the machine
//! answers, the guest ends when it is told to, a neighbour computes what it always does, and no page is lost.

use control::{StopReason, VmState};
use lab::attacks::{self, Attack};
use lab::rig::{Rig, Running};
use system_tests::{assert_all_returned, checksum, ok, probe};

/// Exits of a guest that has begun.
const AT_WORK: u64 = 200;
/// Exits of a guest that has had its go, if it has not ended before.
const EXITS: u64 = 20_000;
/// The machine's time that is enough in any case, in ticks of its clock of 10 MHz.
const ENOUGH: u64 = 3_000_000;
/// Looks at a guest until then. Each is a question that the monitor answers.
const LOOKS: usize = 20_000;

/// Lets the guest do its worst for a while, beside a neighbour that computes, and ends it, unless it has ended by what it did.
fn withstand(machine: &Running, name: &Attack) {
    let spec = ok(name.spec());
    ok(machine.start(&spec));
    // What it showed at first need not be kept then.
    let is_console = name.is_on_console();
    let shows = |text: &str| is_console || ok(machine.console(&spec.name)).contains(text);
    let stats = || ok(machine.client().vm_stats(&spec.name));
    let exits = || -> u64 { stats().vcpus.iter().map(|vcpu| vcpu.exits.total()).sum() };
    let has_ended = || ok(machine.client().vm(&spec.name)).state == VmState::Stopped;
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        let is_so = |_| is_so() || has_ended();
        assert!((0..LOOKS).any(is_so), "{name}: {what}, never:\n{}", ok(machine.console(&spec.name)));
    };
    wait("at work", &|| exits() > AT_WORK && shows("HOSTILE at work"));
    let neighbour = probe("neighbour", 1, "figure=checksum n=2");
    ok(machine.start(&neighbour));
    let begin = stats().now_ticks;
    wait("enough done", &|| exits() > EXITS || stats().now_ticks - begin > ENOUGH);
    let computed = ok(machine.end_of(&neighbour.name));
    assert!(computed.console.contains(&checksum(2)), "{name}: the neighbour was disturbed:\n{}", computed.console);
    let killed = machine.client().kill_vm(&spec.name);
    let ended = ok(machine.end_of(&spec.name));
    let has_begun = is_console || ended.console.contains(&format!("HOSTILE {}", name.behaviour()));
    assert!(has_begun, "{name} never began:\n{}", ended.console);
    let reason = ended.summary.reason.as_ref();
    assert!(reason.is_some_and(Attack::may_end), "{name} ended with {reason:?}");
    if reason == Some(&StopReason::Killed) {
        ok(killed);
    }
    assert_eq!(ok(machine.lost_pages()), 0, "{name}: pages did not come back");
}

fn withstand_all(device: &str, vcpus: u16) {
    withstand_each(device, &attacks::on(device, vcpus));
}

fn withstand_each(name: &str, them: &[Attack]) {
    let dir = ok(tempfile::tempdir());
    let path = dir.path().join("pattern.img");
    ok(std::fs::write(&path, vec![0x5a; 4 << 20]));
    let rig = ok(ok(Rig::new(name, 2, 768)).with_probe());
    let machine = ok(ok(ok(rig.image(attacks::DISK, path)).subnet(attacks::SUBNET, false)).boot());
    // What the disk cache and the heap keep is there from now on.
    attacks::on("block", 2).iter().take(1).for_each(|attack| withstand(&machine, attack));
    let before = ok(machine.free_bytes());
    them.iter().for_each(|attack| withstand(&machine, attack));
    assert_all_returned(&machine, before);
    let log = machine.log();
    assert!(!log.contains("ERROR"), "the monitor found a fault of its own:\n{log}");
}

#[test]
fn hostile_drivers_of_disks() {
    withstand_all("block", 2);
}

#[test]
fn hostile_drivers_of_networks() {
    withstand_all("net", 2);
}

#[test]
fn hostile_drivers_of_consoles() {
    withstand_all("console", 3);
}

#[test]
fn hostile_drivers_of_entropy_devices() {
    withstand_all("rng", 3);
}

#[test]
fn hostile_drivers_of_balloons() {
    withstand_all("balloon", 2);
}

#[test]
fn hostile_accesses_of_other_devices() {
    let devices = ["uart", "rtc", "power", "plic", "aplic", "imsic", "nothing", "sbi", "csr", "memory"];
    withstand_each("others", &devices.map(|device| attacks::on(device, 2)).concat());
}
