//! VMs of any cell use the machine's disks and networks, which one cell drives; another one does when that is lost.

use std::time::{Duration, Instant};

use config::Firmware;
use control::{CellSpec, CellState, EventKind, VmSpec};
use faults::{Fault, NodeSet, Request, Trigger};
use lab::rig::{Rig, Running};
use machine::{FaultPort, Injection};
use system_tests::debian::{Shell, debian, net, with_debian};
use system_tests::network::{exchange, exchange_with_outside};
use system_tests::ok;

/// Longest wait for the machine: only a watchdog.
const WATCHDOG: Duration = Duration::from_secs(300);

/// A Debian VM in a cell, on the subnet.
fn in_cell(cell: u8, name: &str) -> VmSpec {
    VmSpec { cell, autostart: false, nets: vec![net("lan", Some(65_535))], ..debian(name, 1) }
}

/// A machine of three nodes whose hardware fails when it is asked to, each a cell; a Debian VM in those that do not drive the devices.
fn three() -> (Running, [VmSpec; 2]) {
    let rig = with_debian(ok(Rig::new("cell-devices", 1, 512))).node(1, 640).node(1, 640);
    let rig = rig.hardware(|hardware| hardware.firmware = Firmware::Faults);
    let cell = |node: u8| CellSpec { name: ok(lab::rig::name(&format!("c{node}"))), nodes: vec![addr::NodeId(node)] };
    let rig = ok(rig.cells((0..3).map(cell).collect()).subnet("lan", true)).reach_host();
    let specs = [in_cell(1, "second"), in_cell(2, "third")];
    let machine = ok(specs.iter().fold(rig, |rig, spec| rig.vm(spec.clone())).boot());
    let begin = Instant::now();
    while !ok(machine.client().cells()).iter().all(|cell| cell.state == CellState::In) {
        assert!(begin.elapsed() < WATCHDOG, "cells do not begin:\n{}", machine.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    (machine, specs)
}

/// Reads much of the disk past the guest's caches; the sum of what was read.
fn read_disk(shell: &mut Shell) -> String {
    shell.run("echo 3 >/proc/sys/vm/drop_caches; find /usr/lib/systemd -type f | sort | xargs cat | md5sum")
}

/// Two VMs read one disk, write their own blocks of it, and reach each other and the world, all through a cell that neither of them is
/// in. That cell is lost while they read: nothing of what they read is wrong or missing, and everything goes on.
#[test]
fn disks_and_networks_reach_every_cell_and_survive_the_first() {
    let (machine, specs) = three();
    let mut shells = Shell::start_all(&machine, specs.each_ref());
    let sums = shells.each_mut().map(read_disk);
    assert_eq!(sums[0], sums[1], "a disk is the same in all cells");
    for shell in &mut shells {
        shell.run("head -c 4M /dev/urandom >/var/own; sync; md5sum /var/own >/var/own.sum");
    }
    let [second, third] = &mut shells;
    exchange(second, third, 2);
    exchange_with_outside(second, 1);
    for shell in &mut shells {
        let read = "echo 3 >/proc/sys/vm/drop_caches; find /usr/bin -type f | sed -n 1,500p | xargs cat | wc -c";
        shell.run(&format!("({read}; echo rc $?) >/run/read 2>&1 &"));
    }
    let port = ok(FaultPort::of(machine.machine().dir()));
    let request = Request { fault: Fault::NodePower(NodeSet::one(0)), trigger: Trigger::Now };
    assert!(matches!(ok(port.inject(request, WATCHDOG)), Injection::Done { .. }));
    let begin = Instant::now();
    let goes_on = || {
        machine.log().contains("cell c1: this cell drives the machine's devices") && machine.client().cells().is_ok()
    };
    while !goes_on() {
        assert!(begin.elapsed() < WATCHDOG, "nobody takes over:\n{}", machine.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut shells = specs.each_ref().map(|spec| Shell::connect(&machine, spec.name.clone()));
    for shell in &mut shells {
        let end = shell.run("until grep -q rc /run/read; do sleep 1; done; cat /run/read");
        assert!(end.ends_with("rc 0") && !end.contains("error"), "{end}");
        assert_eq!(read_disk(shell), sums[0]);
        shell.run("echo 3 >/proc/sys/vm/drop_caches; md5sum -c --quiet /var/own.sum");
        assert_eq!(shell.run("dmesg | grep -ciE 'i/o error|ext4.*error' || true"), "0");
    }
    let [second, third] = &mut shells;
    exchange(third, second, 2);
    exchange_with_outside(third, 1);
    let took_over = |event: &control::Event| matches!(event.kind, EventKind::TookOver { .. }) && event.cell == 1;
    assert!(ok(machine.events()).iter().any(took_over));
    assert!(!machine.log().contains("PANIC"), "{}", machine.log());
    shells.into_iter().for_each(|shell| shell.stop(&machine));
    assert_eq!(ok(machine.lost_pages()), 0);
}
