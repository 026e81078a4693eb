//! Guests that use each of their devices as no driver would, on all vCPUs at once, for as long as they are let. Meanwhile the machine
//! answers, the guest ends when it is told to, a neighbour computes what it always does, and no page is lost.

use control::{NetSpec, StopReason, VmSpec, VmState};
use lab::rig::{Rig, Running};
use system_tests::{assert_all_returned, checksum, ok, pattern_disk, probe};

/// What is done to each virtio device.
const TO_VIRTIO: [&str; 12] = [
    "refill",
    "rewrite",
    "wild",
    "alias",
    "indirect",
    "nested",
    "long",
    "index",
    "reset",
    "move",
    "features",
    "registers",
];
/// What is done to others.
const OTHERS: [&str; 8] = [
    "uart-registers",
    "rtc-registers",
    "power-registers",
    "plic-registers",
    "aplic-registers",
    "imsic-registers",
    "nothing-registers",
    "sbi-calls",
];
/// Exits of a guest that has begun.
const AT_WORK: u64 = 200;
/// Exits of a guest that has had its go, if it has not ended before.
const EXITS: u64 = 20_000;
/// The machine's time that is enough in any case, in ticks of its clock of 10 MHz.
const ENOUGH: u64 = 3_000_000;
/// Looks at a guest until then. Each is a question that the monitor answers.
const LOOKS: usize = 20_000;

/// A guest with every device that there is.
fn attacker(name: &str, vcpus: u16) -> VmSpec {
    let net = NetSpec { subnet: ok("lan".parse()), mac: None, mtu: 1500 };
    let ports = vec![ok("one".parse()), ok("two".parse())];
    let spec = probe(&name.replace('-', ""), vcpus, &format!("attack=hostile-{name}"));
    VmSpec { disks: vec![pattern_disk()], nets: vec![net], ports, ..spec }
}

/// Lets the guest do its worst for a while, beside a neighbour that computes, and ends it, unless it has ended by what it did.
fn withstand(machine: &Running, name: &str, vcpus: u16) {
    let spec = attacker(name, vcpus);
    ok(machine.start(&spec));
    // Where the console is attacked, or written by wild SBI calls, what it showed at first need not be kept.
    let is_console = ["console", "uart", "sbi"].iter().any(|of| name.starts_with(of));
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
    let has_begun = is_console || ended.console.contains(&format!("HOSTILE {name}"));
    assert!(has_begun, "{name} never began:\n{}", ended.console);
    match ended.summary.reason {
        Some(StopReason::Killed) => ok(killed),
        // Its own doing: a device stopped it, it overwrote itself and failed, or it used the power switch.
        Some(
            StopReason::GuestFault { .. }
            | StopReason::GuestFailure { .. }
            | StopReason::PowerOff
            | StopReason::ResetLoop { .. },
        ) => {}
        reason => panic!("{name} ended with {reason:?}"),
    }
    assert_eq!(ok(machine.lost_pages()), 0, "{name}: pages did not come back");
}

fn withstand_all(machine: &str, vcpus: u16, names: &[String]) {
    let dir = ok(tempfile::tempdir());
    let path = dir.path().join("pattern.img");
    ok(std::fs::write(&path, vec![0x5a; 4 << 20]));
    let rig = ok(ok(Rig::new(machine, 2, 768)).with_probe());
    // Without a gateway: QEMU's own network, which such frames can crash, is not what is tested.
    let machine = ok(ok(ok(rig.image("pattern", path)).subnet("lan", false)).boot());
    // What the disk cache and the heap keep is there from now on.
    withstand(&machine, "block-refill", vcpus);
    let before = ok(machine.free_bytes());
    names.iter().for_each(|name| withstand(&machine, name, vcpus));
    assert_all_returned(&machine, before);
    let log = machine.log();
    assert!(!log.contains("ERROR"), "the monitor found a fault of its own:\n{log}");
}

fn attacks_on(device: &str) -> Vec<String> {
    TO_VIRTIO.iter().map(|behaviour| format!("{device}-{behaviour}")).collect()
}

#[test]
fn hostile_drivers_of_disks() {
    withstand_all("block", 2, &attacks_on("block"));
}

#[test]
fn hostile_drivers_of_networks() {
    withstand_all("net", 2, &attacks_on("net"));
}

#[test]
fn hostile_drivers_of_consoles() {
    withstand_all("console", 3, &attacks_on("console"));
}

#[test]
fn hostile_drivers_of_entropy_devices() {
    withstand_all("rng", 3, &attacks_on("rng"));
}

#[test]
fn hostile_drivers_of_balloons() {
    withstand_all("balloon", 2, &attacks_on("balloon"));
}

#[test]
fn hostile_accesses_of_other_devices() {
    withstand_all("others", 2, &OTHERS.map(str::to_owned));
}
