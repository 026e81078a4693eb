//! Over trees that QEMU gives machines of two uneven nodes: one hart, and three.

use std::vec::Vec;

use super::*;
use crate::fix_up;

const AIA: &[u8] = include_bytes!("../../tests/trees/aia.dtb");
const PLIC: &[u8] = include_bytes!("../../tests/trees/plic.dtb");

fn read(tree: &[u8]) -> Hardware {
    Hardware::read(tree).expect("QEMU's tree")
}

fn doorbells(hardware: &Hardware) -> Vec<Doorbell> {
    hardware.harts().filter_map(|(_, hart)| hart.doorbell).collect()
}

fn timers(hardware: &Hardware) -> Vec<u64> {
    hardware.harts().filter_map(|(_, hart)| hart.timer).map(|timer| timer.compare).collect()
}

#[test]
fn interrupt_files_are_found_across_groups() {
    let hardware = read(AIA);
    let files = [0x2400_0000, 0x2500_0000, 0x2500_1000, 0x2500_2000].map(Doorbell::File);
    assert_eq!(doorbells(&hardware), files);
    assert_eq!(timers(&hardware), [0x200_0000, 0x200_8000, 0x200_8008, 0x200_8010]);
    assert_eq!(hardware.aplics.len(), 2);
    let [machine, supervisor] = hardware.msi.expect("interrupt files of both levels");
    assert_eq!((machine.base, machine.guest_bits, machine.hart_bits), (0x2400_0000, 0, 2));
    assert_eq!((supervisor.base, supervisor.guest_bits, supervisor.group_shift), (0x2800_0000, 3, 24));
}

#[test]
fn registers_of_each_socket_are_found() {
    let hardware = read(PLIC);
    let registers = [0x200_0000, 0x201_0000, 0x201_0004, 0x201_0008].map(Doorbell::Register);
    assert_eq!(doorbells(&hardware), registers);
    assert_eq!(timers(&hardware), [0x200_4000, 0x201_4000, 0x201_4008, 0x201_4010]);
    assert_eq!((hardware.uart, hardware.finisher), (Some(0x1000_0000), Some(0x10_0000)));
}

#[test]
fn nodes_have_harts_and_memory() {
    let hardware = read(PLIC);
    assert_eq!(hardware.nodes, 2);
    assert_eq!(
        hardware.harts().map(|(id, hart)| (id, hart.node)).collect::<Vec<_>>(),
        [(0, 0), (1, 1), (2, 1), (3, 1)]
    );
    let memory: Vec<_> = hardware.memory.iter().map(|part| (part.start, part.end, part.node)).collect();
    assert_eq!(memory, [(0x8000_0000, 0x8c00_0000, 0), (0x8c00_0000, 0xa000_0000, 1)]);
    assert!(hardware.is_open_memory(0x8020_0000, 16) && !hardware.is_open_memory(0x801f_f000, 0x2000));
    assert!(!hardware.is_open_memory(u64::MAX, 2) && !hardware.is_open_memory(0x1000_0000, 1));
}

#[test]
fn the_fixed_tree_says_what_is_not_to_be_used() {
    for tree in [AIA, PLIC] {
        let mut room = tree.to_vec();
        room.resize(tree.len() + 4096, 0xa5);
        fix_up(&mut room).expect("there is room");
        let fixed = Fdt::new(live_part(&room).expect("a tree")).expect("a tree");
        let reserved = fixed.find_node("/reserved-memory/firmware@80000000").expect("reserved");
        assert_eq!(ranges(&reserved).next(), Some((faults::FIRMWARE_AT, faults::FIRMWARE_BYTES)));
        assert!(bytes(&reserved, "no-map").is_some());
        let status = fixed.find_node("/fault-node@801fe000").expect("the status page");
        assert!(is_compatible(&status, faults::COMPATIBLE));
        assert_eq!(ranges(&status).next(), Some((faults::STATUS_AT, faults::PAGE_BYTES)));
        let soc = fixed.find_node("/soc").expect("devices");
        for device in soc.children().filter(is_machine_level) {
            assert!(!is_enabled(&device), "{} is left to the supervisor", device.name());
        }
        assert_eq!(
            Fdt::new(tree).map(|tree| tree.root().children().count() + 2).ok(),
            Some(fixed.root().children().count())
        );
    }
}

#[test]
fn trees_without_room_or_sense_are_refused() {
    use crate::FixupError;
    assert_eq!(fix_up(&mut AIA.to_vec()), Err(FixupError::NoRoom));
    assert_eq!(fix_up(&mut [0; 64]), Err(FixupError::NotATree));
    assert_eq!(Hardware::read(&[]).err(), Some(TreeError::NotATree));
    for length in [0, 7, 8, 40, 100, AIA.len() - 1] {
        assert!(Hardware::read(&AIA[..length]).is_err(), "{length} bytes");
        assert!(fix_up(&mut AIA[..length].to_vec()).is_err(), "{length} bytes");
    }
}

mod any_bytes {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A damaged tree is read or refused, without a panic.
        #[test]
        fn damage_is_survived(at in 0..AIA.len(), value: u8) {
            let mut tree = AIA.to_vec();
            tree[at] = value;
            let _ = Hardware::read(&tree);
        }
    }
}
