//! The SBI as guests see it: suspended vCPUs, firmware features, software events, and wrong arguments for all of them.

use config::{Firmware, MachineInterrupts};
use control::{StopReason, VmSpec};
use lab::rig::{Rig, Running};
use system_tests::{assert_all_returned, assert_passed, checksum, ok, probe};

const CALLS: &str = "probe=sbi-base,sbi-errors,hsm,hsm-errors,suspend,suspend-states,suspend-awake,system-suspend,features,\
                     pointer-masking,events,events-remote";

fn rig(name: &str, harts: u16) -> Rig {
    ok(ok(Rig::new(name, harts, 512)).with_probe())
}

fn passes(machine: &Running, spec: &VmSpec) -> String {
    let ended = ok(machine.run(spec));
    assert_passed(&ended);
    ended.console
}

/// vCPUs with a hart each, and more vCPUs than harts, which are moved and share harts meanwhile.
#[test]
fn calls_on_few_and_on_many_vcpus() {
    let machine = ok(rig("calls", 2).boot());
    let before = ok(machine.free_bytes());
    for vcpus in [1, 2, 8] {
        let console = passes(&machine, &probe(&format!("vcpus-{vcpus}"), vcpus, CALLS));
        assert!(vcpus == 1 || !console.contains("skipped"), "{console}");
    }
    assert_all_returned(&machine, before);
}

/// Interrupts come another way without interrupt files; what wakes a suspended vCPU must not depend on it.
#[test]
fn calls_without_interrupt_files() {
    for interrupts in [MachineInterrupts::Plic, MachineInterrupts::Aia { guest_files: 0 }] {
        let machine = ok(rig("bare", 2).hardware(|hardware| hardware.interrupts = interrupts).boot());
        passes(&machine, &probe("guest", 3, CALLS));
    }
}

/// Several VMs with features of their own share one hart.
#[test]
fn features_do_not_mix_between_vms() {
    let machine = ok(rig("mixed", 1).boot());
    let specs: Vec<_> = (0..3)
        .map(|vm| probe(&format!("vm-{vm}"), 2, "probe=pointer-masking,features,events,events-remote,suspend-states"))
        .collect();
    specs.iter().for_each(|spec| ok(machine.start(spec)));
    for spec in &specs {
        assert_passed(&ok(machine.end_of(&spec.name)));
    }
}

/// Every wrong argument ends in an error to the guest that gave it.
#[test]
fn wrong_arguments_are_errors_of_that_guest() {
    let machine = ok(rig("hostile", 2).boot());
    let neighbour = probe("neighbour", 1, "figure=checksum n=4");
    ok(machine.start(&neighbour));
    passes(&machine, &probe("hostile", 3, "probe=hostile-calls"));
    let ended = ok(machine.end_of(&neighbour.name));
    assert!(ended.console.contains(&checksum(4)), "the neighbour was disturbed:\n{}", ended.console);
}

/// A trap that the guest's kernel cannot take is an event for it, or its end. The firmware hands it on to the monitor.
#[test]
fn double_traps_are_an_event_or_the_end() {
    let rig = rig("doubled", 2).hardware(|hardware| {
        hardware.cpu = "rva23s64,ssdbltrp=on".into();
        hardware.firmware = Firmware::Faults;
    });
    let machine = ok(rig.boot());
    for vcpus in [1, 3] {
        let console = passes(&machine, &probe(&format!("heard-{vcpus}"), vcpus, "probe=double-traps,features,events"));
        assert!(console.contains("PROBE double-traps ok"), "{console}");
    }
    for attack in ["double-trap-seen", "double-trap-unseen"] {
        let ended = ok(machine.run(&probe(attack, 1, &format!("attack={attack}"))));
        let reason = ended.summary.reason;
        let is_told = matches!(&reason, Some(StopReason::GuestFault { reason, .. }) if reason.contains("double trap"));
        assert!(is_told, "{attack}: {reason:?}:\n{}", ended.console);
    }
    passes(&machine, &probe("afterwards", 2, ""));
}
