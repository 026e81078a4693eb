//! Guests that attack or fail: each is stopped alone, with its reason, while a neighbour computes.

use control::{EventKind, OnCrash, StopReason, VmSpec};
use lab::rig::{Rig, Running};
use system_tests::{assert_all_returned, checksum, ok, probe};

/// Attacks on virtqueues, each with a word of the reason that must be given.
const ON_QUEUES: &[(&str, &str)] = &[
    ("ring-outside", "outside RAM"),
    ("ring-across-end", "outside RAM"),
    ("ring-wraps", "outside RAM"),
    ("avail-outside", "outside RAM"),
    ("used-outside", "outside RAM"),
    ("ring-misaligned", "misaligned"),
    ("size-odd", "size"),
    ("size-huge", "size"),
    ("loop", "loops"),
    ("loop-self", "loops"),
    ("next-outside", "no descriptor"),
    ("buffer-outside", "outside RAM"),
    ("buffer-in-device", "outside RAM"),
    ("buffer-across-end", "outside RAM"),
    ("buffer-wraps", "outside RAM"),
    ("length-huge", "outside RAM"),
    ("length-zero", "zero length"),
    ("order", "readable descriptor follows"),
    ("index-jump", "index"),
    ("head-outside", "no descriptor"),
    ("indirect-nested", "nested"),
    ("indirect-loop", "loops"),
    ("indirect-empty", "bad length"),
    ("indirect-odd", "bad length"),
    ("indirect-huge", "bad length"),
    ("indirect-outside", "outside RAM"),
];

fn machine(name: &str) -> Running {
    ok(ok(ok(Rig::new(name, 2, 512)).with_probe()).boot())
}

fn attack(machine: &Running, name: &str) -> Option<StopReason> {
    let ended = ok(machine.run(&probe(name, 2, &format!("attack={name}"))));
    assert!(!ended.console.contains("survived"), "{name}: the guest goes on:\n{}", ended.console);
    assert!(ended.console.contains(&format!("ATTACK {name}")), "{name}: it never began:\n{}", ended.console);
    ended.summary.reason
}

#[test]
fn attacks_on_virtqueues_stop_the_guest_alone() {
    let machine = machine("attacks");
    let before = ok(machine.free_bytes());
    // The neighbour works through all of it; that takes longer than one run of it, so it runs again and again.
    let neighbour = probe("neighbour", 1, "figure=checksum n=20");
    ok(machine.client().create_vm(neighbour.clone()));
    ok(machine.client().start_vm(&neighbour.name));
    for (name, word) in ON_QUEUES {
        match attack(&machine, name) {
            Some(StopReason::GuestFault { device, reason, .. }) => {
                assert_eq!(device, "virtio-rng", "{name}: another device is blamed");
                assert!(reason.contains(word), "{name}: {reason:?} does not say {word:?}");
            }
            other => panic!("{name}: stopped with {other:?}"),
        }
    }
    let ended = ok(machine.end_of(&neighbour.name));
    assert_eq!(ended.summary.reason, Some(StopReason::PowerOff));
    assert!(ended.console.contains(&checksum(20)), "the neighbour was disturbed:\n{}", ended.console);
    let faults = ok(machine.events())
        .iter()
        .filter(|event| matches!(&event.kind, EventKind::GuestFault { device, .. } if device == "virtio-rng"))
        .count();
    assert_eq!(faults, ON_QUEUES.len(), "every attack is in the events");
    assert_all_returned(&machine, before);
}

#[test]
fn failures_are_told_apart() {
    let machine = machine("failures");
    assert_eq!(attack(&machine, "panic"), Some(StopReason::GuestFailure { code: 0 }));
    assert_eq!(attack(&machine, "fail-device"), Some(StopReason::GuestFailure { code: 7 }));
    assert_eq!(attack(&machine, "power-off-device"), Some(StopReason::PowerOff));
    for name in ["trap-loop-outside", "trap-loop-device"] {
        let reason = attack(&machine, name);
        assert!(matches!(reason, Some(StopReason::GuestFault { .. })), "{name}: {reason:?}");
    }
}

#[test]
fn a_guest_that_resets_for_ever_is_stopped() {
    let machine = machine("resets");
    let reason = attack(&machine, "reset-loop");
    assert!(matches!(reason, Some(StopReason::ResetLoop { .. })), "{reason:?}");
}

/// A trap loop that never leaves the guest is the guest's own affair: it burns its time and can be killed.
#[test]
fn a_guest_that_traps_into_itself_can_be_killed() {
    let machine = machine("loops");
    let spec = probe("trap-loop-inside", 2, "attack=trap-loop-inside");
    ok(machine.start(&spec));
    ok(machine.wait_text(&spec.name, "ATTACK trap-loop-inside"));
    let neighbour = ok(machine.run(&probe("neighbour", 2, "figure=checksum n=2")));
    assert!(neighbour.console.contains(&checksum(2)));
    ok(machine.client().kill_vm(&spec.name));
    assert_eq!(ok(machine.end_of(&spec.name)).summary.reason, Some(StopReason::Killed));
}

#[test]
fn a_guest_that_fails_may_boot_again() {
    let machine = machine("again");
    let spec = VmSpec { on_crash: OnCrash::Reset, ..probe("again", 1, "attack=panic") };
    // It fails again each time, until that is a loop.
    let ended = ok(machine.run(&spec));
    assert!(matches!(ended.summary.reason, Some(StopReason::ResetLoop { .. })), "{:?}", ended.summary.reason);
    assert!(ended.summary.resets > 0);
    let events = ok(machine.events());
    let count = |wanted: fn(&EventKind) -> bool| events.iter().filter(|event| wanted(&event.kind)).count();
    assert_eq!(count(|kind| matches!(kind, EventKind::VmStopped { .. })), 1, "it stopped once only");
    assert_eq!(count(|kind| matches!(kind, EventKind::VmReset)) + 1, ended.summary.resets as usize);
}
