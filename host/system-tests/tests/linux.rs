//! Debian's kernel, unmodified, to its first programs.

use config::MachineInterrupts;
use control::{Interrupts, StopReason, VmSpec};
use lab::rig::{Rig, Running, debian_vm};
use system_tests::{assert_all_returned, ok};

const TINY: &str = "initrd-tiny.cpio";

fn rig(name: &str, harts: u16, memory_mib: u32) -> Rig {
    ok(ok(Rig::new(name, harts, memory_mib)).sparing_fences().with_debian(TINY))
}

fn tiny(name: &str, vcpus: u16) -> VmSpec {
    ok(debian_vm(name, vcpus, 192, TINY, "quiet"))
}

#[track_caller]
fn assert_came_up(machine: &Running, spec: &VmSpec) {
    let ended = ok(machine.end_of(&spec.name));
    let wanted = format!("MIRRORBALL-GUEST-UP harts={}", spec.vcpus);
    let VmSpec { name, .. } = spec;
    assert!(ended.console.contains(&wanted), "{name}: {:?}\n{}", ended.summary.reason, ended.console);
    assert_eq!(ended.summary.reason, Some(StopReason::PowerOff), "{name}");
}

fn boots(machine: &Running, specs: &[VmSpec]) {
    let before = ok(machine.free_bytes());
    for spec in specs {
        ok(machine.start(spec));
        assert_came_up(machine, spec);
    }
    assert_all_returned(machine, before);
}

#[test]
fn boots_on_one_node_with_1_2_and_8_vcpus() {
    let machine = ok(rig("one-node", 2, 1024).boot());
    boots(&machine, &[tiny("one", 1), tiny("two", 2), tiny("eight", 8)]);
    boots(&machine, &[VmSpec { interrupts: Interrupts::Plic, ..tiny("plic", 2) }]);
}

#[test]
fn boots_on_two_uneven_nodes() {
    let machine = ok(rig("two-nodes", 3, 512).node(1, 1024).boot());
    boots(&machine, &[tiny("one", 1), tiny("eight", 8)]);
}

#[test]
fn boots_on_four_nodes() {
    let machine = ok(rig("four-nodes", 2, 512).node(2, 512).node(2, 512).node(2, 512).boot());
    boots(&machine, &[tiny("two", 2), tiny("eight", 8)]);
}

#[test]
fn boots_without_aia() {
    let machine = ok(rig("plic", 2, 1024).hardware(|hardware| hardware.interrupts = MachineInterrupts::Plic).boot());
    boots(&machine, &[tiny("one", 1), tiny("two", 2)]);
}

#[test]
fn boots_on_the_largest_cpu() {
    let machine = ok(rig("max", 2, 1024).hardware(|hardware| hardware.cpu = "max".into()).boot());
    boots(&machine, &[tiny("two", 2)]);
}

/// Three VMs of two vCPUs on two harts, all at once.
#[test]
fn boots_with_three_times_more_vcpus_than_harts() {
    let machine = ok(rig("overcommit", 2, 1024).boot());
    let specs = [tiny("a", 2), tiny("b", 2), tiny("c", 2)];
    for spec in &specs {
        ok(machine.start(spec));
    }
    for spec in &specs {
        assert_came_up(&machine, spec);
    }
}
