//! The drivers against models of the hardware.

mod models;

use std::{cell::RefCell, rc::Rc};

use addr::{CpuIndex, HartId};
use intc::{IntcError, MachineInterrupts, MsiTarget, Pending, Registers as _};
use machine_tree::{AddressRange, Controller, InterruptSource, MachineDescription, Trigger};
use models::{AplicModel, Block, Board, FileModel, Model, PlicModel};

/// A tree from `machine-tree`'s fixtures.
fn machine(name: &str) -> MachineDescription {
    let path = format!("{}/../machine-tree/tests/fixtures/{name}.dtb.gz", env!("CARGO_MANIFEST_DIR"));
    let mut blob = Vec::new();
    let file = std::fs::File::open(&path).unwrap_or_else(|why| panic!("{path}: {why}"));
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut blob).expect("fixture is gzip");
    MachineDescription::parse(&blob).expect("a good tree")
}

type Interrupts = MachineInterrupts<Model, FileModel>;

struct Bench {
    board: Rc<RefCell<Board>>,
    file: FileModel,
    machine: MachineDescription,
    interrupts: Interrupts,
    blocks: Vec<Model>,
}

fn bench(name: &str) -> Bench {
    let machine = machine(name);
    let (board, file) = (Rc::<RefCell<Board>>::default(), FileModel::default());
    let mut blocks = Vec::new();
    let map = |range: AddressRange| {
        let block = match range.start().raw() {
            0x0c00_0000..0x0d00_0000 => Block::Plic(PlicModel::default()),
            0x0d00_0000..0x0e00_0000 => Block::Aplic(AplicModel::without(77)),
            base => Block::Files(base, range.bytes() as usize),
        };
        blocks.push(Model { board: board.clone(), block: Rc::new(RefCell::new(block)) });
        blocks.last().cloned()
    };
    let interrupts = Interrupts::new(&machine, file.clone(), map).expect("controllers fit");
    Bench { board, file, machine, interrupts, blocks }
}

fn device(pending: Option<Pending>) -> intc::Claim {
    match pending {
        Some(Pending::Device(claim)) => claim,
        other => panic!("a device interrupt, not {other:?}"),
    }
}

fn source(controller: Controller, number: u32) -> InterruptSource {
    InterruptSource { controller, number, trigger: Trigger::LevelHigh }
}

#[test]
fn a_plic_source_is_quiet_until_completed() {
    let mut bench = bench("plic-1-hart");
    let uart = bench.machine.uarts[0].interrupt.expect("wired");
    assert_eq!(bench.interrupts.attach(uart, CpuIndex(0)), Ok(CpuIndex(0)));
    assert_eq!(bench.interrupts.claim(CpuIndex(0)), None);
    bench.board.borrow_mut().wires.insert(uart.number);
    let claim = device(bench.interrupts.claim(CpuIndex(0)));
    assert_eq!(claim.source(), uart);
    assert_eq!(bench.interrupts.claim(CpuIndex(0)), None);
    bench.interrupts.complete(claim);
    assert_eq!(device(bench.interrupts.claim(CpuIndex(0))).source(), uart, "the wire is still active");
}

/// Firmware closes a hart's context when it starts the hart: OpenSBI disables its sources and sets the threshold to 7.
#[test]
fn a_hart_opens_its_plic_context_again_when_it_is_up() {
    let mut bench = bench("plic-1-hart");
    let uart = bench.machine.uarts[0].interrupt.expect("wired");
    assert_eq!(bench.interrupts.attach(uart, CpuIndex(0)), Ok(CpuIndex(0)));
    let context = bench.machine.controllers.plics[0].contexts[0].index as usize;
    let registers = &bench.blocks[0];
    for word in 0..4 {
        registers.write(0x2000 + 0x80 * context + 4 * word, 0);
    }
    registers.write(0x20_0000 + 0x1000 * context, 7);
    bench.board.borrow_mut().wires.insert(uart.number);
    assert_eq!(bench.interrupts.claim(CpuIndex(0)), None);
    bench.interrupts.open_current(CpuIndex(0));
    assert!(plic_calls(registers, context), "what came in between would call the hart only with the next interrupt");
    assert_eq!(device(bench.interrupts.claim(CpuIndex(0))).source(), uart);
}

/// Boot takes devices into use before it attaches them.
#[test]
fn a_plic_source_calls_if_it_was_up_when_attached() {
    let mut bench = bench("plic-1-hart");
    let uart = bench.machine.uarts[0].interrupt.expect("wired");
    bench.board.borrow_mut().wires.insert(uart.number);
    assert_eq!(bench.interrupts.attach(uart, CpuIndex(0)), Ok(CpuIndex(0)));
    let context = bench.machine.controllers.plics[0].contexts[0].index as usize;
    assert!(plic_calls(&bench.blocks[0], context));
}

fn plic_calls(registers: &Model, context: usize) -> bool {
    match &*registers.block.borrow() {
        Block::Plic(plic) => plic.calls(context),
        _ => panic!("not a PLIC"),
    }
}

#[test]
fn a_plic_that_cannot_reach_the_hart_takes_one_it_can() {
    let mut bench = bench("plic-2-nodes");
    let far = source(Controller::Plic(1), 3);
    assert_eq!(bench.interrupts.attach(far, CpuIndex(0)), Ok(CpuIndex(4)));
    bench.board.borrow_mut().wires.insert(3);
    assert_eq!(bench.interrupts.claim(CpuIndex(0)), None);
    assert_eq!(device(bench.interrupts.claim(CpuIndex(4))).source(), far);
    assert!(!bench.interrupts.send_ipi(CpuIndex(1)), "no interrupt files: the caller uses SBI");
}

#[test]
fn an_aplic_source_arrives_as_a_message() {
    let mut bench = bench("aia-4-nodes-after-opensbi");
    let disk = bench.machine.virtio_mmio[4].interrupt.expect("wired");
    assert_eq!(bench.interrupts.attach(disk, CpuIndex(5)), Ok(CpuIndex(5)));
    assert_eq!(bench.interrupts.attach(disk, CpuIndex(1)), Ok(CpuIndex(5)), "shared sources are attached once");
    bench.interrupts.open_current(CpuIndex(5));
    // The device raises its wire: the domain would send identity 2, the first for devices.
    bench.file.0.borrow_mut().pending.insert(2);
    let claim = device(bench.interrupts.claim(CpuIndex(5)));
    assert_eq!(claim.source(), disk);
    // Still active when it is completed: the message is sent again, to group 2, hart 1, file 0.
    bench.board.borrow_mut().wires.insert(disk.number);
    bench.interrupts.complete(claim);
    assert_eq!(bench.board.borrow().messages, [(0b101 << 6, 2)]);
    assert_eq!(bench.interrupts.claim(CpuIndex(5)), None);
}

#[test]
fn messages_to_harts_and_guests() {
    let bench = bench("aia-4-nodes-after-opensbi");
    let identity = 9.try_into().expect("not zero");
    assert!(bench.interrupts.send_ipi(CpuIndex(3)));
    assert!(bench.interrupts.send(CpuIndex(3), 7, identity));
    assert!(!bench.interrupts.send(CpuIndex(3), 8, identity), "no such file");
    assert!(!bench.interrupts.send_ipi(CpuIndex(8)), "no such hart");
    assert_eq!(bench.board.borrow().messages, [(0x2900_8000, 1), (0x2900_f000, 9)]);
    bench.interrupts.open_current(CpuIndex(3));
    bench.file.0.borrow_mut().pending.extend([1, 40]);
    assert_eq!(bench.interrupts.claim(CpuIndex(3)), Some(Pending::Ipi));
    assert_eq!(bench.interrupts.claim(CpuIndex(3)), None, "an identity that nobody attached is not enabled");
}

#[test]
fn opening_clears_what_firmware_left() {
    let bench = bench("aia-initrd");
    bench.file.0.borrow_mut().pending.extend([1, 63, 64, 255]);
    bench.interrupts.open_current(CpuIndex(0));
    assert!(bench.file.0.borrow().pending.is_empty());
    let registers = &bench.file.0.borrow().registers;
    assert_eq!((registers[&0x70], registers[&0x72], registers[&0xc0]), (1, 0, 1 << 1));
}

#[test]
fn a_wired_aplic_delivers_to_its_context() {
    let mut bench = bench("aplic-wired");
    let uart = bench.machine.uarts[0].interrupt.expect("wired");
    assert_eq!(bench.interrupts.attach(uart, CpuIndex(2)), Ok(CpuIndex(2)));
    bench.board.borrow_mut().wires.insert(uart.number);
    assert_eq!(bench.interrupts.claim(CpuIndex(0)), None);
    let claim = device(bench.interrupts.claim(CpuIndex(2)));
    assert_eq!(claim.source(), uart);
    bench.interrupts.complete(claim);
    bench.board.borrow_mut().wires.clear();
    assert_eq!(bench.interrupts.claim(CpuIndex(2)), None);
}

#[test]
fn what_cannot_be_is_refused() {
    let mut bench = bench("aia-initrd");
    let interrupts = &mut bench.interrupts;
    let attach =
        |interrupts: &mut Interrupts, number| interrupts.attach(source(Controller::Aplic(0), number), CpuIndex(0));
    assert_eq!(attach(interrupts, 0), Err(IntcError::NoSuchSource { source: 0 }));
    assert_eq!(attach(interrupts, 97), Err(IntcError::NoSuchSource { source: 97 }));
    assert_eq!(attach(interrupts, 77), Err(IntcError::NotDelegated { source: 77 }));
    let nowhere = Controller::Plic(0);
    assert_eq!(interrupts.attach(source(nowhere, 1), CpuIndex(0)), Err(IntcError::Unreachable { controller: nowhere }));
    let cpu = CpuIndex(99);
    assert_eq!(interrupts.attach(source(Controller::Aplic(0), 1), cpu), Err(IntcError::NoSuchCpu { cpu }));
    assert_eq!(attach(interrupts, 76), Ok(CpuIndex(0)), "refusals leave nothing behind");
}

#[test]
fn targets_split_addresses_as_the_tree_says() {
    let machine = machine("aia-4-nodes-after-opensbi");
    let layout = machine.controllers.imsic.as_ref().expect("S-level files");
    let mut seen = std::collections::BTreeSet::new();
    for hart in &machine.harts {
        let base = layout.file(hart.id).expect("a file").raw() >> 12;
        for guest in 0..8 {
            let target = MsiTarget::of_page(layout, base + guest);
            assert!(seen.insert(format!("{target:?}")), "{:?} guest {guest} is not alone", hart.id);
        }
    }
    let last = layout.file(HartId(7)).expect("a file").raw() >> 12;
    assert_eq!(format!("{:?}", MsiTarget::of_page(layout, last + 5)), "MsiTarget { hart_index: 7, guest_index: 5 }");
}
