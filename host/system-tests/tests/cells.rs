//! Cells: isolated monitors on one machine.

use std::time::{Duration, Instant};

use config::{Firmware, MachineInterrupts};
use control::{CellSpec, VmSpec};
use faults::{Fault, NodeSet, Request, Trigger};
use lab::rig::{Rig, Running};
use machine::{FaultPort, Injection};
use system_tests::{assert_passed, checksum, ok, probe};

/// Longest wait for a line of the log: only a watchdog.
const WATCHDOG: Duration = Duration::from_secs(300);

/// A machine of two nodes with two harts each, a cell on each.
fn pair(name: &str) -> Rig {
    let rig = ok(ok(Rig::new(name, 2, 256)).with_probe()).node(2, 256);
    let cell = |name: &str, node| CellSpec { name: ok(lab::rig::name(name)), nodes: vec![addr::NodeId(node)] };
    rig.cells(vec![cell("a", 0), cell("b", 1)])
}

/// A VM of the second cell, which begins with the machine.
fn of_second(name: &str, cmdline: &str) -> VmSpec {
    VmSpec { cell: 1, autostart: true, ..probe(name, 2, cmdline) }
}

/// Waits for a line of the machine's log with all these texts.
fn wait_log(machine: &Running, texts: &[&str]) -> String {
    let begin = Instant::now();
    loop {
        let log = machine.log();
        if let Some(line) = log.lines().find(|line| texts.iter().all(|text| line.contains(text))) {
            return line.to_owned();
        }
        assert!(!log.contains("PANIC"), "{log}");
        assert!(begin.elapsed() < WATCHDOG, "no line with {texts:?} in\n{log}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Boots the machine, and again where OpenSBI, which draws lots, has begun on a hart outside the first cell: all of the machine is one cell
/// then (docs/CAVEATS.md).
fn booted(rig: &Rig) -> Running {
    for _ in 0..10 {
        let machine = ok(rig.clone().boot());
        if !machine.log().contains("not in the first cell") {
            return machine;
        }
    }
    panic!("the firmware never began on a hart of the first cell");
}

/// Two cells boot, each with its harts, its memory and its VM, and both VMs find all as it should be.
fn both_cells_run_their_vms(rig: Rig) {
    let machine = booted(&rig.vm(of_second("far", "")));
    wait_log(&machine, &["cell a: nodes [0], harts [0, 1], 256 MiB"]);
    wait_log(&machine, &["cell b: nodes [1], harts [2, 3], 256 MiB"]);
    assert_passed(&ok(machine.run(&probe("near", 2, ""))));
    let verdict = wait_log(&machine, &["cell b: far| PROBES passed="]);
    assert!(verdict.ends_with("failed=0"), "{verdict}");
    wait_log(&machine, &["cell b: VM far stopped: "]);
    // The first cell knows of its own node and harts only.
    let info = ok(machine.client().machine_info());
    assert_eq!((info.nodes.len(), info.harts.len()), (1, 2));
    let elsewhere = machine.client().create_vm(of_second("later", ""));
    assert!(elsewhere.is_err_and(|error| error.to_string().contains("another cell")));
}

#[test]
fn two_cells_boot_with_aia() {
    both_cells_run_their_vms(pair("cells-aia"));
}

#[test]
fn two_cells_boot_with_a_plic() {
    both_cells_run_their_vms(pair("cells-plic").hardware(|hardware| {
        (hardware.cpu, hardware.interrupts) = ("max".into(), MachineInterrupts::Plic);
    }));
}

/// The same with more cells than nodes of one kind, and with one of two nodes that do not follow each other.
#[test]
fn cells_may_have_any_nodes() {
    let rig = ok(ok(Rig::new("cells-many", 2, 256)).with_probe()).node(1, 128).node(2, 192).node(1, 128);
    let cell = |name: &str, nodes: &[u8]| CellSpec {
        name: ok(lab::rig::name(name)),
        nodes: nodes.iter().copied().map(addr::NodeId).collect(),
    };
    let rig = rig.cells(vec![cell("x", &[0]), cell("y", &[1, 3]), cell("z", &[2])]);
    let of_third = VmSpec { cell: 2, ..of_second("third", "figure=checksum n=3") };
    let machine = booted(&rig.vm(of_second("far", "")).vm(of_third));
    wait_log(&machine, &["cell y: nodes [1, 3], harts [2, 5], 256 MiB"]);
    wait_log(&machine, &["cell z: nodes [2], harts [3, 4], 192 MiB"]);
    assert_passed(&ok(machine.run(&probe("near", 2, ""))));
    assert!(wait_log(&machine, &["cell y: far| PROBES passed="]).ends_with("failed=0"));
    wait_log(&machine, &["cell z: third| ", &checksum(3)]);
}

/// As many cells as there may be, which begin at the same time; each computes.
#[test]
fn eight_cells_boot() {
    let rig = ok(ok(Rig::new("cells-eight", 2, 256)).with_probe());
    let rig = (1..8).fold(rig, |rig, _| rig.node(2, 128));
    let cell = |node: u8| CellSpec { name: ok(lab::rig::name(&format!("c{node}"))), nodes: vec![addr::NodeId(node)] };
    let rig = rig.cells((0..8).map(cell).collect());
    let vm = |cell| VmSpec { cell, ..of_second(&format!("vm{cell}"), &format!("figure=checksum n={cell}")) };
    let machine = booted(&(1..8).fold(rig, |rig, cell| rig.vm(vm(cell))));
    assert_passed(&ok(machine.run(&probe("near", 2, ""))));
    for cell in 1..8_u64 {
        wait_log(&machine, &[&format!("cell c{cell}: vm{cell}| "), &checksum(cell)]);
    }
}

/// Where the cells of a description are not those of the machine, it is one.
#[test]
fn cells_that_do_not_fit_are_none() {
    let rig = ok(ok(Rig::new("cells-wrong", 2, 256)).with_probe());
    let cell = |name: &str, node| CellSpec { name: ok(lab::rig::name(name)), nodes: vec![addr::NodeId(node)] };
    let machine = booted(&rig.cells(vec![cell("a", 0), cell("b", 1)]).vm(of_second("far", "")));
    wait_log(&machine, &["the cells do not fit this machine, all of it is one: ", "no node 1"]);
    assert_passed(&ok(machine.run(&probe("near", 2, ""))));
    assert!(!machine.log().contains("cell b"), "{}", machine.log());
}

/// A cell whose memory does not hold what it needs stays off; the first goes on.
#[test]
fn a_cell_without_room_does_not_start() {
    let file = ok(tempfile::NamedTempFile::new());
    ok(file.as_file().set_len(80 << 20));
    let rig = ok(ok(Rig::new("cells-room", 2, 384)).with_probe()).node(1, 64);
    let cell = |name: &str, node| CellSpec { name: ok(lab::rig::name(name)), nodes: vec![addr::NodeId(node)] };
    let rig = ok(rig.cells(vec![cell("a", 0), cell("b", 1)]).module("large", file.path().to_owned()));
    let kernel = ok(lab::rig::label("large"));
    let boot = control::Boot::Kernel { kernel, initrd: None, cmdline: String::new() };
    let machine = booted(&rig.vm(VmSpec { boot, ..of_second("far", "") }));
    wait_log(&machine, &["cell a: cell b does not start: no room for its bundle"]);
    assert_passed(&ok(machine.run(&probe("near", 2, ""))));
}

/// A cell that has begun needs nothing of the other: stores into each other's memory are refused from the beginning, then
/// all else, too.
#[test]
fn cells_that_do_not_reach_each_other_go_on() {
    let rig = pair("cells-cut").hardware(|hardware| hardware.firmware = Firmware::Faults);
    let machine = booted(&rig.vm(of_second("far", "")).vm(of_second("sum", "figure=checksum n=300")));
    for cell in ["a", "b"] {
        wait_log(&machine, &[&format!("cell {cell}: the hardware refuses this cell's stores")]);
    }
    let epoch = fail(&machine, Fault::Link(NodeSet::one(1)));
    assert!(!machine.log().contains("CHECKSUM"), "the link was cut too late to show anything");
    assert_eq!(epoch, 1);
    assert_passed(&ok(machine.run(&probe("near", 2, ""))));
    assert!(wait_log(&machine, &["cell b: far| PROBES passed="]).ends_with("failed=0"));
    wait_log(&machine, &["cell b: sum| ", &checksum(300)]);
}

/// The second cell loses its power while its VM and one of the first cell compute: the first goes on, and takes more.
#[test]
fn the_first_cell_survives_the_second() {
    let rig = pair("cells-power").hardware(|hardware| hardware.firmware = Firmware::Faults);
    let machine = booted(&rig.vm(of_second("far", "figure=checksum n=100000")));
    wait_log(&machine, &["cell b: VM far started"]);
    let near = probe("near", 2, "figure=checksum n=300");
    ok(machine.start(&near));
    fail(&machine, Fault::NodePower(NodeSet::one(1)));
    let ended = ok(machine.end_of(&near.name));
    assert!(ended.console.contains(&checksum(300)), "{}", ended.console);
    assert_passed(&ok(machine.run(&probe("later", 2, ""))));
    assert_eq!(ok(machine.lost_pages()), 0);
    let log = machine.log();
    assert!(!log.contains("PANIC") && !log.contains("cell b: VM far stopped"), "{log}");
}

/// The second cell's monitor loses pages of its own data and panics: its harts stop, and the first cell goes on.
#[test]
fn a_cell_that_panics_ends_alone() {
    const IMAGE_ALIGN: u64 = 2 << 20;
    let rig = pair("cells-panic").hardware(|hardware| hardware.firmware = Firmware::Faults);
    let machine = booted(&rig.vm(of_second("far", "figure=checksum n=100000")));
    wait_log(&machine, &["cell b: VM far started"]);
    let line = wait_log(&machine, &["cell a: cell b begins on hart 2"]);
    let entry = line.rsplit_once("0x").and_then(|(_, digits)| u64::from_str_radix(digits.trim(), 16).ok());
    let image = entry.unwrap_or_else(|| panic!("no address in {line:?}")) / IMAGE_ALIGN * IMAGE_ALIGN;
    for page in 0..2 {
        fail(&machine, Fault::Page(image + offset_of_data() + page * faults::PAGE_BYTES));
    }
    let begin = Instant::now();
    while !machine.log().contains("MONITOR PANIC: b: ") {
        assert!(begin.elapsed() < WATCHDOG, "cell b does not miss its data\n{}", machine.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_passed(&ok(machine.run(&probe("near", 2, ""))));
    assert_eq!(machine.log().matches("PANIC").count(), 1, "{}", machine.log());
}

/// Where the monitor's data begins in its image: the loadable piece of its ELF file that may be written.
fn offset_of_data() -> u64 {
    const IMAGE_BASE: u64 = 0xffff_ffff_8000_0000;
    let elf = ok(std::fs::read(ok(lab::artifacts::monitor()).with_extension("")));
    let number =
        |at: usize, bytes: usize| elf[at..at + bytes].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let (table, size, count) = (number(32, 8) as usize, number(54, 2) as usize, number(56, 2) as usize);
    let mut pieces = (0..count).map(|index| table + index * size);
    // PT_LOAD, with PF_W among its flags.
    let data = pieces.find(|at| number(*at, 4) == 1 && number(at + 4, 4) & 2 != 0);
    number(data.expect("a writable piece") + 16, 8) - IMAGE_BASE
}

/// Makes hardware fail, now; the epoch that it began.
fn fail(machine: &Running, fault: Fault) -> u64 {
    let port = ok(FaultPort::of(machine.machine().dir()));
    match ok(port.inject(Request { fault, trigger: Trigger::Now }, WATCHDOG)) {
        Injection::Done { epoch, .. } => epoch,
        Injection::Armed => panic!("{fault} is to happen now"),
    }
}
