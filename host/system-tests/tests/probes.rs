//! The probe guest's checks, in VMs of many shapes on machines of many shapes.

use config::{Firmware, MachineInterrupts};
use control::{DiskMode, DiskSpec, ExitCause, Interrupts, Pages, VmSpec};
use lab::rig::{Rig, Running};
use system_tests::{assert_all_returned, assert_passed, ok, probe};

fn rig(name: &str, harts: u16) -> Rig {
    ok(ok(Rig::new(name, harts, 512)).with_probe())
}

fn all_checks(machine: &Running, spec: &VmSpec) {
    assert_passed(&ok(machine.run(spec)));
}

/// One, two and eight vCPUs: fewer than harts, as many, and four times more.
fn every_size(machine: &Running) {
    let before = ok(machine.free_bytes());
    for vcpus in [1, 2, 8] {
        all_checks(machine, &probe(&format!("vcpus-{vcpus}"), vcpus, ""));
    }
    assert_all_returned(machine, before);
}

/// A machine that has all that probes are about, and a VM that has all of it.
#[test]
fn no_check_is_left_out_where_everything_is_there() {
    let rig = rig("complete", 2).hardware(|hardware| {
        // Double traps need a CPU that has them and a firmware that hands them on.
        hardware.cpu = "rva23s64,ssdbltrp=on".into();
        hardware.firmware = Firmware::Faults;
    });
    let machine = ok(ok(rig.scratch("scratch", 16)).boot());
    let ended = ok(machine.run(&with_disk(probe("complete", 4, ""))));
    assert_passed(&ended);
    assert!(!ended.console.contains("skipped"), "{}", ended.console);
}

/// The VM with a view of the disk `scratch`.
fn with_disk(spec: VmSpec) -> VmSpec {
    let (data, source) = (ok(lab::rig::name("data")), ok(lab::rig::name("scratch")));
    let disk =
        DiskSpec { name: data, source, partition: None, mode: DiskMode::CopyOnWrite, overlay: None, limit_mib: None };
    VmSpec { disks: vec![disk], ..spec }
}

#[test]
fn on_a_machine_with_guest_interrupt_files() {
    let machine = ok(rig("aia", 2).boot());
    every_size(&machine);
    all_checks(&machine, &VmSpec { interrupts: Interrupts::Plic, ..probe("plic", 2, "") });
    all_checks(&machine, &VmSpec { pages: Pages::Base, ..probe("base-pages", 2, "") });
}

#[test]
fn on_a_machine_with_a_plic_only() {
    let machine = ok(rig("plic", 2).hardware(|hardware| hardware.interrupts = MachineInterrupts::Plic).boot());
    every_size(&machine);
}

#[test]
fn on_a_machine_without_guest_interrupt_files() {
    let aia = MachineInterrupts::Aia { guest_files: 0 };
    let machine = ok(rig("no-files", 2).hardware(|hardware| hardware.interrupts = aia).boot());
    every_size(&machine);
}

/// Another VM has the only file of the hart: these VMs' files are software.
#[test]
fn with_interrupt_files_in_software() {
    let aia = MachineInterrupts::Aia { guest_files: 1 };
    let machine = ok(rig("one-file", 1).hardware(|hardware| hardware.interrupts = aia).boot());
    let holder = probe("holder", 1, "figure=idle");
    ok(machine.start(&holder));
    ok(machine.wait_text(&holder.name, "IDLE"));
    for vcpus in [1, 3] {
        let ended = ok(machine.run(&probe(&format!("vcpus-{vcpus}"), vcpus, "")));
        assert_passed(&ended);
        for check in ["imsic", "user-imsic"] {
            assert!(ended.console.contains(&format!("PROBE {check} ok")), "{}", ended.console);
        }
    }
}

#[test]
fn on_the_largest_cpu() {
    let machine = ok(rig("max", 2).hardware(|hardware| hardware.cpu = "max".into()).boot());
    every_size(&machine);
}

/// The monitor is built for bit manipulation: its first instructions find out, and say so.
#[test]
fn not_without_bit_manipulation() {
    let refused = rig("no-bits", 1).hardware(|hardware| hardware.cpu = "max,zbb=false".into()).boot();
    let told = refused.err().map(|why| format!("{why:#}")).expect("it cannot run");
    assert!(told.contains("the harts lack the Zba, Zbb or Zbs extension"), "{told}");
}

#[test]
fn on_one_hart() {
    let machine = ok(rig("one-hart", 1).boot());
    every_size(&machine);
}

#[test]
fn on_two_uneven_nodes() {
    let machine = ok(rig("uneven", 1).node(2, 256).boot());
    every_size(&machine);
}

#[test]
fn on_four_nodes() {
    let machine = ok(rig("four", 2).node(1, 256).node(2, 512).node(1, 128).boot());
    every_size(&machine);
}

/// Several VMs at once on fewer harts: registers must not mix.
#[test]
fn registers_are_kept_while_vms_share_a_hart() {
    let machine = ok(rig("shared", 1).boot());
    let specs: Vec<_> = (0..3)
        .map(|vm| probe(&format!("vm-{vm}"), 2, "probe=fp,vector,all-registers,timer,wfi-timer,ipi,hsm,memory"))
        .collect();
    for spec in &specs {
        ok(machine.start(spec));
    }
    for spec in &specs {
        assert_passed(&ok(machine.end_of(&spec.name)));
    }
}

/// The monitor copies by the vector registers of whoever runs, of different lengths.
#[test]
fn vector_registers_survive_disk_requests() {
    for cpu in ["rva23s64", "rva23s64,vlen=512", "rva23s64,vlen=1024"] {
        let machine = rig("vector", 1).hardware(|hardware| hardware.cpu = cpu.into());
        let machine = ok(ok(machine.scratch("scratch", 16)).boot());
        let ended = ok(machine.run(&with_disk(probe("reader", 1, "probe=vector-disk"))));
        assert_passed(&ended);
        assert!(ended.console.contains("PROBE vector-disk ok"), "{cpu}: {}", ended.console);
    }
}

/// Guests' random numbers come from the firmware's seed, and from the machine's entropy device if there is one.
#[test]
fn entropy_of_the_machine() {
    let device = ["-device", "virtio-rng-pci,disable-legacy=on"];
    for (arguments, bytes) in [(&device[..], 32 + 64), (&[], 32)] {
        let words = arguments.iter().map(ToString::to_string).collect();
        let machine = ok(rig("entropy", 1).hardware(|hardware| hardware.qemu_args = words).boot());
        all_checks(&machine, &probe("guest", 1, "probe=entropy"));
        let told = format!("{bytes} random bytes");
        assert!(machine.log().contains(&told), "{arguments:?}: no {told:?} in:\n{}", machine.log());
    }
}

/// A hart has something to do in its rest once the guest has taken memory: waiting for a lock is no rest, and no exit each time.
#[test]
fn who_waits_for_a_lock_alone_is_left_alone() {
    let machine = ok(rig("locks", 1).boot());
    let ended = ok(machine.run(&probe("vm", 1, "figure=lock_waits n=2000")));
    assert!(ended.console.contains("FIGURE lock_waits 8000 waits"), "{}", ended.console);
    let exits = ended.stats.vcpus[0].exits;
    let waits = exits.get(ExitCause::VirtualInstruction);
    assert!(waits < 100, "{waits} exits for 8000 waits: {exits:?}");
}
