//! Trees that QEMU generated, as they are (`tests/fixtures/README.md` has the command lines).

mod common;

use addr::{CpuIndex, HartId, MachineAddr, NodeId};
use common::fixture;
use machine_tree::{
    AddressRange, Controller, Extension, InterruptSource, MachineDescription, MmuType, PciSpace, ReservedKind, Trigger,
};

fn machine(name: &str) -> MachineDescription {
    MachineDescription::parse(&fixture(name)).expect("a good tree")
}

fn range(start: u64, bytes: u64) -> AddressRange {
    AddressRange::new(MachineAddr::new(start), bytes).expect("no wrap")
}

fn level(controller: Controller, number: u32) -> Option<InterruptSource> {
    Some(InterruptSource { controller, number, trigger: Trigger::LevelHigh })
}

#[test]
fn one_hart_with_plic() {
    let machine = machine("plic-1-hart");
    assert_eq!(machine.model, "riscv-virtio,qemu");
    assert_eq!(machine.timebase_hz, 10_000_000);
    assert_eq!(machine.nodes.count(), 1);
    assert_eq!(machine.nodes.distance(NodeId(0), NodeId(0)), 10);
    let [hart] = &machine.harts[..] else { panic!("{:?}", machine.harts) };
    assert_eq!((hart.id, hart.node, hart.mmu), (HartId(0), NodeId(0), MmuType::Sv57));
    assert_eq!((hart.cbom_block_bytes, hart.cboz_block_bytes), (Some(64), Some(64)));
    for extension in [Extension::H, Extension::V, Extension::Sstc, Extension::Svadu, Extension::Svinval] {
        assert!(hart.extensions.has(extension), "{}", extension.name());
    }
    // The CPU could take MSIs, the machine has no interrupt files to take them in.
    assert!(hart.extensions.has(Extension::Ssaia));
    let [plic] = &machine.controllers.plics[..] else { panic!("one PLIC") };
    assert_eq!(plic.registers, range(0xc00_0000, 0x60_0000));
    assert_eq!(plic.num_sources, 95);
    // Context 0 is the hart's machine mode.
    assert_eq!(plic.contexts.iter().map(|c| (c.hart, c.index)).collect::<Vec<_>>(), [(HartId(0), 1)]);
    assert_eq!(machine.controllers.imsic, None);
    let [uart] = &machine.uarts[..] else { panic!("one UART") };
    assert_eq!(uart.registers.start(), MachineAddr::new(0x1000_0000));
    assert_eq!(uart.interrupt, level(Controller::Plic(0), 10));
    assert_eq!((uart.clock_hz, uart.reg_shift, uart.access_bytes), (Some(3_686_400), 0, 1));
    assert_eq!(machine.chosen.stdout_uart, Some(0));
    assert_eq!(machine.chosen.rng_seed.len(), 32);
    assert_eq!(machine.rtc.as_ref().map(|rtc| rtc.registers.start().raw()), Some(0x10_1000));
    assert_eq!(machine.virtio_mmio.len(), 8);
    assert_eq!(machine.virtio_mmio[7].interrupt, level(Controller::Plic(0), 8));
}

#[test]
fn pci_host_bridge_windows_and_interrupts() {
    let machine = machine("plic-1-hart");
    let [host] = &machine.pcie[..] else { panic!("one host bridge") };
    assert_eq!(host.ecam, range(0x3000_0000, 0x1000_0000));
    assert_eq!((host.first_bus, host.last_bus), (0, 255));
    let spaces: Vec<_> = host.windows.iter().map(|w| (w.space, w.bus_address, w.range)).collect();
    assert_eq!(
        spaces,
        [
            (PciSpace::Io, 0, range(0x300_0000, 0x1_0000)),
            (PciSpace::Memory32, 0x4000_0000, range(0x4000_0000, 0x4000_0000)),
            (PciSpace::Memory64, 0x4_0000_0000, range(0x4_0000_0000, 0x4_0000_0000)),
        ]
    );
    // Pins rotate with the device number, over four sources.
    for (device, pin, number) in [(0, 1, 32), (1, 1, 33), (3, 2, 32), (4, 1, 32), (31, 4, 34)] {
        assert_eq!(host.interrupt(device, 0, pin), level(Controller::Plic(0), number), "device {device} pin {pin}");
    }
    assert_eq!(host.interrupt(0, 0, 0), None);
}

#[test]
fn two_uneven_nodes_have_a_plic_each() {
    let machine = machine("plic-2-nodes");
    assert_eq!(machine.nodes.count(), 2);
    assert_eq!(machine.nodes.distance(NodeId(0), NodeId(1)), 20);
    let owners: Vec<_> = machine.harts.iter().map(|hart| hart.node.0).collect();
    assert_eq!(owners, [0, 0, 0, 0, 1, 1]);
    let memory: Vec<_> = machine.memory.iter().map(|memory| (memory.range, memory.node.0)).collect();
    assert_eq!(memory, [(range(0x8000_0000, 256 << 20), 0), (range(0x9000_0000, 768 << 20), 1)]);
    let [first, second] = &machine.controllers.plics[..] else { panic!("two PLICs") };
    assert_eq!(
        first.contexts.iter().map(|c| (c.hart.0, c.index)).collect::<Vec<_>>(),
        [(0, 1), (1, 3), (2, 5), (3, 7)]
    );
    assert_eq!(second.contexts.iter().map(|c| (c.hart.0, c.index)).collect::<Vec<_>>(), [(4, 1), (5, 3)]);
    assert_eq!((first.node, second.node), (NodeId(0), NodeId(1)));
    assert!(machine.harts[0].extensions.has(Extension::Svade));
    assert_eq!(machine.harts[0].mmu, MmuType::Sv39);
}

#[test]
fn four_nodes_with_aia_as_opensbi_hands_them_on() {
    let machine = machine("aia-4-nodes-after-opensbi");
    assert_eq!(machine.nodes.count(), 4);
    let from_first: Vec<_> = machine.nodes.ids().map(|to| machine.nodes.distance(NodeId(0), to)).collect();
    assert_eq!(from_first, [10, 16, 22, 22]);
    assert_eq!(machine.harts.iter().map(|hart| hart.cpu).collect::<Vec<_>>(), (0..8).map(CpuIndex).collect::<Vec<_>>());
    let imsic = machine.controllers.imsic.as_ref().expect("S-level files");
    assert_eq!((imsic.guest_index_bits, imsic.hart_index_bits), (3, 1));
    assert_eq!((imsic.group_index_bits, imsic.group_index_shift), (2, 24));
    assert_eq!((imsic.num_ids, imsic.num_guest_ids, imsic.regions.len()), (255, 255, 4));
    assert_eq!(imsic.file(HartId(0)), Some(MachineAddr::new(0x2800_0000)));
    assert_eq!(imsic.file(HartId(5)), Some(MachineAddr::new(0x2a00_8000)));
    assert_eq!(imsic.guest_file(HartId(7), 7), Some(MachineAddr::new(0x2b00_f000)));
    assert_eq!(imsic.guest_file(HartId(7), 8), None);
    assert_eq!(imsic.file(HartId(8)), None);
    // The four machine-level domains are disabled; the supervisor ones remain.
    let aplics: Vec<_> = machine.controllers.aplics.iter().map(|a| (a.registers.start().raw(), a.is_msi)).collect();
    assert_eq!(aplics, [(0xd00_0000, true), (0xd00_8000, true), (0xd01_0000, true), (0xd01_8000, true)]);
    // QEMU wires virtio slots to the second socket's controller and PCI to the third's.
    assert_eq!(machine.virtio_mmio[0].interrupt, level(Controller::Aplic(1), 1));
    assert_eq!(machine.pcie[0].interrupt(1, 0, 1), level(Controller::Aplic(2), 33));
    assert_eq!(machine.uarts[0].interrupt, level(Controller::Aplic(0), 10));
}

#[test]
fn the_firmwares_memory_is_left_out() {
    let machine = machine("aia-4-nodes-after-opensbi");
    assert_eq!(machine.reserved.len(), 2);
    assert!(
        matches!(&machine.reserved[0].kind, ReservedKind::Node { no_map: true, name } if name.starts_with("mmode"))
    );
    let taken = [range(0x8020_0000, 0x10_0001)];
    let free: Vec<_> =
        machine.free_memory(&taken).iter().map(|m| (m.range.start().raw(), m.range.end().raw(), m.node.0)).collect();
    assert_eq!(
        free,
        [
            (0x8008_0000, 0x8020_0000, 0),
            (0x8030_1000, 0x9000_0000, 0),
            (0x9000_0000, 0xc000_0000, 1),
            (0xc000_0000, 0xe000_0000, 2),
            (0xe000_0000, 0x1_0000_0000, 3),
        ]
    );
}

#[test]
fn sixty_four_harts() {
    let machine = machine("aia-64-harts");
    assert_eq!(machine.harts.len(), 64);
    assert!(machine.harts.iter().enumerate().all(|(n, hart)| hart.id == HartId(n as u64) && hart.cpu.index() == n));
    let imsic = machine.controllers.imsic.as_ref().expect("S-level files");
    assert_eq!(imsic.file(HartId(63)), Some(MachineAddr::new(0x2800_0000 + 63 * 4 * 4096)));
    assert_eq!(machine.hart(HartId(63)).map(|hart| hart.cpu), Some(CpuIndex(63)));
    assert!(machine.common_extensions().has(Extension::Ssaia));
}

#[test]
fn wired_aplic_has_a_context_per_hart() {
    let machine = machine("aplic-wired");
    let [aplic] = &machine.controllers.aplics[..] else { panic!("{:?}", machine.controllers.aplics) };
    assert!(!aplic.is_msi);
    assert_eq!(aplic.registers.start(), MachineAddr::new(0xd00_0000));
    assert_eq!(
        aplic.contexts.iter().map(|c| (c.hart.0, c.index)).collect::<Vec<_>>(),
        [(0, 0), (1, 1), (2, 2), (3, 3)]
    );
}

#[test]
fn boot_bundle_and_command_line() {
    let machine = machine("aia-initrd");
    assert_eq!(machine.chosen.bootargs.as_deref(), Some("console=x y"));
    let initrd = machine.chosen.initrd.expect("an initrd");
    assert_eq!(initrd.bytes(), 1_000_000);
    assert!(machine.reserved.iter().any(|r| r.kind == ReservedKind::Initrd && r.range == initrd));
    assert!(machine.free_memory(&[]).iter().all(|free| !free.range.overlaps(&initrd)));
}
