//! The lab's workloads: the same files on the bare machine, in a VM and under KVM, each with the known result.

use std::path::PathBuf;
use std::time::Duration;

use config::{Hardware, MachineInterrupts, NodePlan};
use control::VmSpec;
use lab::artifacts;
use lab::rig::{self, Rig, WATCHDOG, debian_vm};
use loads::{KvmGuests, Load, Outcome, Size};
use machine::{BareBoot, BareMachine};
use system_tests::{assert_all_returned, ok};
use tempfile::TempDir;

const INITRD: &str = "loads.cpio";

/// The initial file system of all workloads that need nothing of Debian's.
fn small_initrd(dir: &TempDir) -> PathBuf {
    let bytes = ok(ok(loads::find("compute")).initrd(&ok(artifacts::load_files())));
    let path = dir.path().join(INITRD);
    std::fs::write(&path, bytes).expect("a file in a temporary directory");
    path
}

fn dir() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Boots a machine without the monitor, and gives its console.
fn run_bare(dir: &TempDir, memory_mib: u32, initrd: PathBuf, command_line: &str) -> String {
    let hardware = Hardware {
        cpu: config::DEFAULT_CPU.into(),
        interrupts: MachineInterrupts::Aia { guest_files: 7 },
        nodes: vec![NodePlan { harts: 2, memory_mib }],
        distances: None,
        disks: Vec::new(),
        uplink: None,
        icount: false,
        model: None,
        firmware: config::Firmware::default(),
        qemu: None,
        monitor: None,
        qemu_args: Vec::new(),
    };
    let boot = BareBoot {
        kernel: ok(artifacts::cached("kernel/Image")),
        initrd: Some(initrd),
        cmdline: format!("console=ttyS0 {command_line}"),
        dir: dir.path().into(),
        plugin: None,
        firmware: None,
        faults: Vec::new(),
    };
    let machine = ok(BareMachine::launch(&hardware, &boot));
    let ended = machine.wait_timeout(WATCHDOG);
    assert!(ended.is_some(), "the machine does not end: {}", machine.console());
    machine.console()
}

fn load(name: &str) -> &'static Load {
    ok(loads::find(name))
}

#[test]
fn workloads_give_their_results_in_a_vm() {
    let dir = dir();
    let rig =
        ok(Rig::new("loads", 2, 1024)).sparing_fences().module(rig::KERNEL, ok(artifacts::cached("kernel/Image")));
    let machine = ok(ok(ok(rig).module(INITRD, small_initrd(&dir))).boot());
    let before = ok(machine.free_bytes());
    for (name, vcpus) in [("compute", 2), ("radix", 2), ("faults", 1), ("syscalls", 2)] {
        let load = load(name);
        let line = load.command_line(Size::Small, None);
        let spec: VmSpec = ok(debian_vm(name, vcpus, load.memory_mib(Size::Small), INITRD, &line));
        ok(machine.start(&spec));
        let outcome = ok(Outcome::of(load, &ok(machine.end_of(&spec.name)).console));
        assert_eq!(outcome.parts.len(), load.phases().len() - 1, "{name}: {outcome:?}");
    }
    assert_all_returned(&machine, before);
}

#[test]
#[ignore = "takes minutes and what `./x image --loads` makes: run with --ignored"]
fn workloads_of_debian_packages_give_their_results_in_a_vm() {
    for name in ["compile", "database", "web", "raytrace", "engineering"] {
        let (dir, load) = (dir(), load(name));
        let initrd = dir.path().join(INITRD);
        std::fs::write(&initrd, ok(load.initrd(&ok(artifacts::load_files()))))
            .expect("a file in a temporary directory");
        let rig =
            ok(Rig::new("loads", 2, 2048)).sparing_fences().module(rig::KERNEL, ok(artifacts::cached("kernel/Image")));
        let machine = ok(ok(ok(rig).module(INITRD, initrd)).boot());
        let line = load.command_line(Size::Small, None);
        let spec: VmSpec = ok(debian_vm(name, 2, load.memory_mib(Size::Small), INITRD, &line));
        ok(machine.start(&spec));
        let console = ok(machine.end_of(&spec.name)).console;
        let outcome = ok(Outcome::of(load, &console));
        println!("{name}: {outcome:?}");
        assert!(outcome.nanoseconds.is_some(), "{name} says no time: {console}");
    }
}

#[test]
fn the_same_files_run_on_the_bare_machine() {
    let dir = dir();
    let initrd = small_initrd(&dir);
    let load = load("engineering");
    let console = run_bare(&dir, load.memory_mib(Size::Small), initrd, &load.command_line(Size::Small, None));
    let outcome = ok(Outcome::of(load, &console));
    let elapsed = outcome.nanoseconds.map(Duration::from_nanos);
    assert!(elapsed.is_some_and(|elapsed| elapsed > Duration::from_millis(1)), "{outcome:?}: {console}");
}

#[test]
fn the_same_files_run_under_kvm() {
    let dir = dir();
    let load = load("radix");
    let files = ok(artifacts::load_files());
    let guest = std::fs::read(small_initrd(&dir)).expect("it was written a moment ago");
    let guests = KvmGuests::one(1, load.memory_mib(Size::Small));
    let initrd = dir.path().join("kvm.cpio");
    let bytes = ok(guests.initrd(&files, &ok(artifacts::cached("kernel/Image")), &guest));
    std::fs::write(&initrd, bytes).expect("a file in a temporary directory");
    let line = ok(guests.command_line(&load.command_line(Size::Small, None)));
    let console = run_bare(&dir, guests.host_memory_mib(guest.len()), initrd, &line);
    ok(Outcome::of(load, &console));
    assert!(console.contains("KVM host kernel="), "{console}");
    assert!(console.contains("KVM done") && !console.contains("KVM guest"), "{console}");
}
