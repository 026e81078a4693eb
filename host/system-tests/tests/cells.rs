//! Cells: several monitors on one machine, of which one after the other may be lost.

use std::time::{Duration, Instant};

use config::{Firmware, MachineInterrupts};
use control::{
    CellLoss, CellSpec, CellState, ControlError, EventKind, Followed, NetSpec, OnFailure, PanicBy, StopReason,
    StreamEnd, VmSpec, VmState,
};
use faults::{Fault, NodeSet, Request, Trigger};
use lab::rig::{Rig, Running};
use machine::{ClientError, FaultPort, Injection};
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
    // It answers for the other one, too.
    let later = of_second("later", "");
    let ended = ok(machine.run(&later));
    assert_passed(&ended);
    assert_eq!(ended.summary.cell, 1);
    assert_eq!(ok(machine.lost_pages()), 0);
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

/// A machine of four nodes on hardware that fails, a cell on each, with a VM in each that computes for a while.
fn four(name: &str, rounds: u64) -> Rig {
    let rig = ok(ok(Rig::new(name, 2, 256)).with_probe()).hardware(|hardware| hardware.firmware = Firmware::Faults);
    let rig = (1..4).fold(rig, |rig, _| rig.node(2, 256));
    let cell = |node: u8| CellSpec { name: ok(lab::rig::name(&format!("c{node}"))), nodes: vec![addr::NodeId(node)] };
    let rig = rig.cells((0..4).map(cell).collect());
    let vm = |cell| VmSpec { cell, ..of_second(&format!("vm{cell}"), &format!("figure=checksum n={rounds}")) };
    (0..4).fold(rig, |rig, cell| rig.vm(vm(cell)))
}

/// Waits until a cell is what it is to be, as the first one says.
fn wait_cell(machine: &Running, index: usize, is_so: impl Fn(CellState) -> bool) {
    let begin = Instant::now();
    loop {
        let cells = ok(machine.client().cells());
        if is_so(cells[index].state) {
            return;
        }
        assert!(begin.elapsed() < WATCHDOG, "{cells:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn wait_begun(machine: &Running, cells: usize) {
    (0..cells).for_each(|index| wait_cell(machine, index, |state| state == CellState::In));
}

/// What was lost, of which cause, and who told it, by all cells that have told it.
fn losses(machine: &Running) -> Vec<(String, CellLoss, u8)> {
    let lost = |event: control::Event| match event.kind {
        EventKind::CellLost { cell, cause, .. } => Some((cell.to_string(), cause, event.cell)),
        _ => None,
    };
    ok(machine.events()).into_iter().filter_map(lost).collect()
}

/// Waits until so many losses have been told: each cell that goes on tells each for itself.
fn wait_losses(machine: &Running, count: usize) -> Vec<(String, CellLoss, u8)> {
    let begin = Instant::now();
    loop {
        let told = losses(machine);
        if told.len() >= count {
            return told;
        }
        assert!(begin.elapsed() < WATCHDOG, "only {told:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The first cell's control port answers for all: lists, lives, consoles and counters of VMs in another cell.
#[test]
fn one_control_port_is_enough() {
    let machine = booted(&pair("cells-port").vm(of_second("far", "figure=checksum n=100000")));
    wait_begun(&machine, 2);
    let client = machine.client();
    let far = ok(lab::rig::name("far"));
    let cells = ok(client.cells());
    let of = |index: usize| (cells[index].name.to_string(), cells[index].nodes.clone(), cells[index].harts);
    assert_eq!((of(0), of(1)), (("a".into(), vec![addr::NodeId(0)], 2), ("b".into(), vec![addr::NodeId(1)], 2)));
    assert!(cells.iter().all(|cell| cell.load.is_some_and(|load| load.free_bytes < cell.total_bytes)), "{cells:?}");
    let listed = ok(client.vm(&far));
    assert_eq!((listed.cell, listed.state), (1, VmState::Running));
    assert_eq!(listed.resident.iter().map(|part| part.node).collect::<Vec<_>>(), [addr::NodeId(1)]);
    assert_eq!(ok(client.vm_stats(&far)).vcpus.len(), 2);
    ok(client.pause_vm(&far));
    assert_eq!(ok(client.vm(&far)).state, VmState::Paused);
    ok(client.resume_vm(&far));
    ok(client.kill_vm(&far));
    let ended = ok(machine.end_of(&far));
    assert_eq!(ended.summary.reason, Some(StopReason::Killed));
    assert!(matches!(client.vm(&far), Err(ClientError::Refused(ControlError::UnknownVm { .. }))));
    // A name is taken in all cells, or in none.
    let near = VmSpec { cell: 0, ..of_second("far", "figure=checksum n=3") };
    ok(client.create_vm(of_second("far", "figure=checksum n=3")));
    assert!(matches!(client.create_vm(near), Err(ClientError::Refused(ControlError::VmExists { .. }))));
    ok(client.create_vm(probe("here", 1, "")));
    let there = client.create_vm(of_second("here", ""));
    assert!(matches!(there, Err(ClientError::Refused(ControlError::VmExists { .. }))), "{there:?}");
    ok(client.start_vm(&far));
    let ended = ok(machine.end_of(&far));
    assert!(ended.console.contains(&checksum(3)), "{}", ended.console);
    let told = ok(machine.events()).into_iter().filter(|event| event.cell == 1).map(|event| event.kind);
    assert!(
        told.clone().any(|kind| kind == EventKind::VmStarted)
            && told.clone().any(|kind| kind == EventKind::VmDestroyed)
    );
}

/// A node of the third of four cells fails in one of two ways while a VM computes in each: three VMs finish with the right sums, all
/// three cells tell of the loss, and the control port goes on.
fn three_of_four_go_on(name: &str, fault: Fault) {
    const ROUNDS: u64 = 400;
    let machine = booted(&four(name, ROUNDS));
    wait_begun(&machine, 4);
    let client = machine.client();
    let vm = |index: usize| ok(lab::rig::name(&format!("vm{index}")));
    let (_, console) = ok(client.console(&vm(2), 0));
    assert_eq!(fail(&machine, fault), 1);
    wait_cell(&machine, 2, |state| state == CellState::Lost(CellLoss::MemoryGone));
    for index in [0, 1, 3] {
        let ended = ok(machine.end_of(&vm(index)));
        assert!(ended.console.contains(&checksum(ROUNDS)), "vm{index}: {}", ended.console);
        assert_eq!(ended.summary.reason, Some(StopReason::PowerOff));
    }
    let mut told = wait_losses(&machine, 3);
    told.sort_by_key(|(_, _, by)| *by);
    assert_eq!(told, [0, 1, 3].map(|by| ("c2".to_owned(), CellLoss::MemoryGone, by)));
    let cells = ok(client.cells());
    assert_eq!(cells.iter().map(|cell| cell.epoch).collect::<Vec<_>>(), [1; 4], "{cells:?}");
    // Who was at it hears of it.
    let end = loop {
        match console.recv() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(end, ClientError::StreamEnded(StreamEnd::CellLost { .. })), "{end}");
    let gone = ok(client.vm(&vm(2)));
    assert!(matches!(gone.reason, Some(StopReason::CellLost { .. })), "{gone:?}");
    let refused = client.kill_vm(&vm(2));
    assert!(matches!(refused, Err(ClientError::Refused(ControlError::CellLost { .. }))), "{refused:?}");
    // New VMs find their place.
    assert_passed(&ok(machine.run(&VmSpec { cell: 3, ..probe("later", 2, "") })));
    assert_eq!(ok(machine.lost_pages()), 0);
    assert!(!machine.log().contains("PANIC"), "{}", machine.log());
}

#[test]
fn three_cells_survive_the_power_of_the_fourth() {
    three_of_four_go_on("cells-power", Fault::NodePower(NodeSet::one(2)));
}

#[test]
fn three_cells_survive_the_node_controller_of_the_fourth() {
    three_of_four_go_on("cells-controller", Fault::NodeController(NodeSet::one(2)));
}

/// A VM that is to is started again by the first cell when its own is lost, if it ran.
#[test]
fn a_vm_starts_again_elsewhere() {
    let rig = pair("cells-restart").hardware(|hardware| hardware.firmware = Firmware::Faults);
    let vm = |name: &str, on_failure, autostart| VmSpec {
        on_failure,
        autostart,
        ..of_second(name, "figure=checksum n=500")
    };
    let rig = rig.vm(vm("again", OnFailure::Restart, true)).vm(vm("once", OnFailure::Stop, true));
    let machine = booted(&rig.vm(vm("off", OnFailure::Restart, false)));
    wait_begun(&machine, 2);
    wait_log(&machine, &["cell b: VM again started"]);
    wait_log(&machine, &["cell b: VM once started"]);
    fail(&machine, Fault::NodePower(NodeSet::one(1)));
    // For a moment it is lost.
    let again = ok(lab::rig::name("again"));
    let begin = Instant::now();
    while ok(machine.client().vm(&again)).cell != 0 {
        assert!(begin.elapsed() < WATCHDOG, "it does not start again\n{}", machine.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = ok(machine.end_of(&again));
    assert_eq!((ended.summary.cell, ended.summary.reason), (0, Some(StopReason::PowerOff)));
    assert!(ended.console.contains(&checksum(500)), "{}", ended.console);
    for lost in ["once", "off"] {
        let lost = ok(machine.client().vm(&ok(lab::rig::name(lost))));
        assert!(lost.cell == 1 && matches!(lost.reason, Some(StopReason::CellLost { .. })), "{lost:?}");
    }
    assert_eq!(ok(machine.lost_pages()), 0);
}

/// One cell is lost after the other, until the first one is alone.
#[test]
fn the_first_cell_survives_all_others() {
    let machine = booted(&four("cells-last", 100_000));
    wait_begun(&machine, 4);
    for index in [2, 1, 3] {
        fail(&machine, Fault::NodePower(NodeSet::one(index)));
        wait_cell(&machine, index, |state| matches!(state, CellState::Lost(_)));
    }
    assert_passed(&ok(machine.run(&probe("near", 2, ""))));
    assert_eq!(ok(machine.client().cells())[0].epoch, 3);
}

/// A cut link divides the machine: of two parts of two cells, that with the first cell goes on, and the other one stops.
#[test]
fn of_two_parts_one_goes_on() {
    let machine = booted(&four("cells-link", 100_000));
    wait_begun(&machine, 4);
    fail(&machine, Fault::Link(NodeSet::one(2).or(NodeSet::one(3))));
    for index in [2, 3] {
        wait_cell(&machine, index, |state| state == CellState::Lost(CellLoss::OutOfReach));
        wait_log(&machine, &[&format!("cell c{index}: this cell stops: the others go on without it")]);
    }
    assert_eq!(wait_losses(&machine, 4).len(), 4, "two cells tell of two");
    assert_passed(&ok(machine.run(&probe("near", 2, ""))));
    assert_passed(&ok(machine.run(&VmSpec { cell: 1, ..probe("next", 2, "") })));
    assert!(!machine.log().contains("PANIC"), "{}", machine.log());
}

/// Whoever leads next has the control port, the disks and the networks of the machine, and answers for all that go on.
fn assert_led_by(machine: &Running, leader: u8, left: &[u8]) {
    let begin = Instant::now();
    let cells = loop {
        // Who asks while the machine changes hands is told which cell is lost.
        match machine.client().cells() {
            Ok(cells) => break cells,
            Err(ClientError::Refused(ControlError::CellLost { .. })) => {}
            Err(why) => panic!("{why}"),
        }
        assert!(begin.elapsed() < WATCHDOG, "nobody answers:\n{}", machine.log());
    };
    for cell in cells {
        let goes_on = left.contains(&cell.index);
        assert_eq!(matches!(cell.state, CellState::In), goes_on, "{cell:?}");
    }
    let took_over = |event: &control::Event| matches!(event.kind, EventKind::TookOver { .. });
    assert_eq!(ok(machine.events()).iter().rev().find(|event| took_over(event)).map(|event| event.cell), Some(leader));
    let mut is_first = true;
    for &cell in left {
        let spec = VmSpec { cell, ..probe(&format!("after{leader}on{cell}"), 2, "") };
        let spec = if is_first { with_devices(spec) } else { spec };
        is_first = false;
        let ended = ok(machine.run(&spec));
        assert_passed(&ended);
        assert_eq!(ended.summary.cell, cell);
    }
    assert_eq!(ok(machine.lost_pages()), 0);
}

fn with_devices(spec: VmSpec) -> VmSpec {
    let net = NetSpec { subnet: ok("lan".parse()), mac: None, mtu: 1500 };
    VmSpec { disks: vec![system_tests::pattern_disk()], nets: vec![net], ..spec }
}

/// The cell with the devices and the control port is lost: the next one takes them over, and everything goes on, VMs, clients and disks.
#[test]
fn the_others_survive_the_first_cell() {
    const ROUNDS: u64 = 300;
    let pattern = ok(tempfile::NamedTempFile::new());
    ok(std::fs::write(pattern.path(), vec![0x5a; 4 << 20]));
    let rig = ok(four("cells-first", ROUNDS).image("pattern", pattern.path().to_owned()));
    let again = VmSpec { cell: 0, on_failure: OnFailure::Restart, ..of_second("again", "figure=checksum n=300") };
    let machine = booted(&ok(rig.subnet("lan", false)).vm(with_devices(again.clone())));
    wait_begun(&machine, 4);
    let events = ok(machine.client().follow_events(0, Followed::Lives));
    fail(&machine, Fault::NodePower(NodeSet::one(0)));
    for index in 1..4 {
        wait_log(&machine, &[&format!("cell c{index}: cell c0 is lost (MemoryGone), epoch 1")]);
        wait_log(&machine, &[&format!("cell c{index}: vm{index}| "), &checksum(ROUNDS)]);
    }
    assert_led_by(&machine, 1, &[1, 2, 3]);
    let ended = ok(machine.end_of(&again.name));
    assert!(ended.summary.cell == 1 && ended.console.contains(&checksum(ROUNDS)), "{ended:?}");
    fail(&machine, Fault::NodePower(NodeSet::one(1)));
    wait_log(&machine, &["cell c2: cell c1 is lost (MemoryGone), epoch 2"]);
    assert_led_by(&machine, 2, &[2, 3]);
    // Who followed what the first one told has heard of its loss.
    let end = loop {
        match events.recv() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    let of_first = |cell: &control::Name| cell.as_str() == "c0";
    assert!(matches!(&end, ClientError::StreamEnded(StreamEnd::CellLost { cell }) if of_first(cell)), "{end}");
}

/// The first cell's monitor panics: the others go on. When the last one has stopped, too, the machine ends.
#[test]
fn a_panic_of_the_first_cell_is_its_own() {
    let rig = four("cells-panic-first", 300).options(|options| options.allow_panic = true);
    let machine = booted(&rig);
    wait_begun(&machine, 4);
    ok(machine.client().panic(addr::CpuIndex(1), PanicBy::Statement));
    for index in 1..4 {
        wait_log_of_panic(&machine, &format!("cell c{index}: cell c0 is lost (Stopped), epoch 1"));
        wait_log_of_panic(&machine, &format!("cell c{index}: vm{index}| {}", checksum(300)));
    }
}

/// As [`wait_log`], where a panic is to be expected.
fn wait_log_of_panic(machine: &Running, text: &str) {
    let begin = Instant::now();
    while !machine.log().lines().any(|line| line.contains(text)) {
        assert!(begin.elapsed() < WATCHDOG, "no {text:?} in\n{}", machine.log());
        std::thread::sleep(Duration::from_millis(20));
    }
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
    wait_log_of_panic(&machine, "MONITOR PANIC: b: ");
    wait_cell(&machine, 1, |state| matches!(state, CellState::Lost(_)));
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
