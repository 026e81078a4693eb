//! Machines cut to some of their nodes, from trees that QEMU generated.

mod common;

use addr::{CpuIndex, HartId, MachineAddr, NodeId};
use common::fixture;
use machine_tree::{AddressRange, CutError, Devices, MachineDescription, ReservedKind, find_room, is_inside};

fn machine(name: &str) -> MachineDescription {
    MachineDescription::parse(&fixture(name)).expect("a good tree")
}

fn nodes(numbers: &[u8]) -> Vec<NodeId> {
    numbers.iter().copied().map(NodeId).collect()
}

fn range(start: u64, bytes: u64) -> AddressRange {
    AddressRange::new(MachineAddr::new(start), bytes).expect("no wrap")
}

/// Everything is cut to itself, but for the boot bundle's reservation.
#[test]
fn all_nodes_are_the_machine_itself() {
    for name in ["plic-1-hart", "plic-2-nodes", "aia-4-nodes-after-opensbi", "aia-64-harts", "aplic-wired"] {
        let whole = machine(name);
        let all: Vec<_> = whole.nodes.ids().collect();
        assert_eq!(whole.cut_to(&all, Devices::Ours).as_ref(), Ok(&whole), "{name}");
    }
    let whole = machine("aia-initrd");
    let cut = whole.cut_to(&nodes(&[0]), Devices::Ours).expect("a machine");
    assert_eq!(cut.chosen, whole.chosen);
    assert!(whole.reserved.len() == cut.reserved.len() + 1);
    assert!(cut.reserved.iter().all(|reserved| reserved.kind != ReservedKind::Initrd));
}

#[test]
fn the_second_half_has_its_own_harts_memory_and_files() {
    let whole = machine("aia-4-nodes-after-opensbi");
    // The order in which they are named does not matter.
    let cut = whole.cut_to(&nodes(&[3, 1]), Devices::Theirs).expect("a machine");
    let harts: Vec<_> = cut.harts.iter().map(|hart| (hart.cpu, hart.id, hart.node)).collect();
    let expected = [(0, 2, 0), (1, 3, 0), (2, 6, 1), (3, 7, 1)];
    assert_eq!(harts, expected.map(|(cpu, id, node)| (CpuIndex(cpu), HartId(id), NodeId(node))));
    let memory: Vec<_> = cut.memory.iter().map(|part| (part.range.start().raw(), part.node.0)).collect();
    assert_eq!(memory, [(0x9000_0000, 0), (0xe000_0000, 1)]);
    assert_eq!(cut.nodes.count(), 2);
    assert_eq!(cut.nodes.ids().map(|node| cut.nodes.firmware_id(node)).collect::<Vec<_>>(), [Some(1), Some(3)]);
    let distances: Vec<_> =
        [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(a, b)| cut.nodes.distance(NodeId(a), NodeId(b))).into();
    assert_eq!(distances, [10, 22, 22, 10]);
    let imsic = cut.controllers.imsic.as_ref().expect("files");
    assert_eq!(imsic.files.iter().map(|file| file.hart.0).collect::<Vec<_>>(), [2, 3, 6, 7]);
    // A file's address is the machine's, whoever asks.
    assert_eq!(imsic.file(HartId(6)), whole.controllers.imsic.as_ref().and_then(|all| all.file(HartId(6))));
    // Devices and their controllers are another's.
    assert!(cut.controllers.aplics.is_empty() && cut.controllers.plics.is_empty());
    assert!(cut.virtio_mmio.is_empty() && cut.pcie.is_empty() && cut.uarts.is_empty() && cut.rtc.is_none());
    assert!(cut.free_memory(&[]).iter().all(|free| free.range.start().raw() >= 0x9000_0000));
}

#[test]
fn the_first_half_keeps_all_devices_and_only_its_own_contexts() {
    let whole = machine("plic-2-nodes");
    let cut = whole.cut_to(&nodes(&[0]), Devices::Ours).expect("a machine");
    assert_eq!((cut.virtio_mmio.len(), cut.pcie.len(), cut.rtc.is_some()), (whole.virtio_mmio.len(), 1, true));
    let [first, second] = &cut.controllers.plics[..] else { panic!("two PLICs") };
    assert_eq!(first.contexts.len(), 4);
    // Whose wires lead to the other node only.
    assert!(second.contexts.is_empty());
    let wired = machine("aplic-wired").cut_to(&nodes(&[0]), Devices::Theirs).expect("a machine");
    assert!(wired.controllers.aplics.is_empty());
}

/// Whatever the parts, nothing is in two of them and nothing is lost.
#[test]
fn parts_make_the_whole() {
    let whole = machine("aia-4-nodes-after-opensbi");
    for first in 1_u8..15 {
        let (ours, theirs): (Vec<u8>, Vec<u8>) = (0..4).partition(|node| first & 1 << node != 0);
        let cut = |own: &[u8]| whole.cut_to(&nodes(own), Devices::Theirs).expect("a machine");
        let (a, b) = (cut(&ours), cut(&theirs));
        let mut harts: Vec<_> = a.harts.iter().chain(&b.harts).map(|hart| hart.id).collect();
        harts.sort_unstable();
        assert_eq!(harts, whole.harts.iter().map(|hart| hart.id).collect::<Vec<_>>());
        let mut memory: Vec<_> = a.memory.iter().chain(&b.memory).map(|part| part.range).collect();
        memory.sort_unstable();
        assert_eq!(memory, whole.memory.iter().map(|part| part.range).collect::<Vec<_>>());
        for part in [&a, &b] {
            assert!(part.harts.iter().enumerate().all(|(at, hart)| hart.cpu.index() == at));
            assert!(part.harts.iter().all(|hart| hart.node.index() < part.nodes.count()));
            assert!(part.memory.iter().all(|memory| memory.node.index() < part.nodes.count()));
        }
    }
}

#[test]
fn impossible_parts_are_refused() {
    let whole = machine("plic-2-nodes");
    let refused = |own: &[u8]| whole.cut_to(&nodes(own), Devices::Ours).map(|_| ());
    assert_eq!(refused(&[]), Err(CutError::NoHart));
    assert_eq!(refused(&[2]), Err(CutError::UnknownNode(NodeId(2))));
    assert_eq!(refused(&[0, 200]), Err(CutError::UnknownNode(NodeId(200))));
    assert_eq!(refused(&[1, 1]), Err(CutError::Twice(NodeId(1))));
    let mut bare = whole.clone();
    bare.memory.truncate(1);
    assert_eq!(bare.cut_to(&nodes(&[1]), Devices::Ours), Err(CutError::NoMemory));
}

#[test]
fn room_is_found_where_it_is() {
    let whole = machine("plic-2-nodes");
    let free = whole.free_memory(&[range(0x8000_0000, 0x1000), range(0x8050_0000, 0x1000)]);
    let room = |bytes, align| find_room(&free, bytes, align).map(|found| found.start().raw());
    assert_eq!(room(0x1000, 0x1000), Some(0x8000_1000));
    assert_eq!(room(0x20_0000, 0x20_0000), Some(0x8020_0000));
    assert_eq!(room(0x30_0000, 0x20_0000), Some(0x8020_0000));
    // Up to the hole, and not over it.
    assert_eq!(room(0x30_0001, 0x20_0000), Some(0x8060_0000));
    assert_eq!(room(512 << 20, 0x20_0000), Some(0x9000_0000));
    assert_eq!(room(769 << 20, 0x1000), None);
    assert_eq!(room(u64::MAX, 0x1000), None);
    // Neighbours of one owner hold what lies across them.
    assert!(is_inside(&whole.memory, range(0x8fff_0000, 0x2_0000)));
    assert!(!is_inside(&whole.memory[..1], range(0x8fff_0000, 0x2_0000)));
    assert!(!is_inside(&whole.memory, range(0x7fff_f000, 0x2000)));
    assert!(is_inside(&whole.memory, range(0x8000_0000, 1 << 30)));
}
