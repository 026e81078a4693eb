//! The machine's device tree.

use addr::NodeId;
use machine_tree::{AddressRange, Devices, MAX_HARTS, MAX_NODES, MachineDescription, find_room};

/// A blob.
pub fn machine_tree(bytes: &[u8]) {
    let Ok(machine) = MachineDescription::parse(bytes) else { return };
    assert!(machine.harts.len() <= MAX_HARTS && machine.nodes.count() <= MAX_NODES);
    assert!(machine.harts.is_sorted_by(|a, b| a.id < b.id));
    for pair in machine.memory.windows(2) {
        assert!(pair[0].range.end() <= pair[1].range.start(), "memory overlaps: {pair:?}");
    }
    let taken: Vec<AddressRange> = machine.memory.iter().take(1).map(|memory| memory.range).collect();
    let free = machine.free_memory(&taken);
    let _ = find_room(&free, 3 << 20, 2 << 20);
    let nodes: Vec<NodeId> = machine.nodes.ids().collect();
    // The last ones are as good as all of them, and take less time.
    for (index, node) in nodes.iter().enumerate().skip(nodes.len().saturating_sub(2)) {
        for part in [&nodes[index..=index], &nodes[..index], &[*node, *node]] {
            for devices in [Devices::Ours, Devices::Theirs] {
                if let Ok(cut) = machine.cut_to(part, devices) {
                    assert!(cut.harts.len() <= machine.harts.len() && !cut.harts.is_empty());
                    assert!(!cut.memory.is_empty());
                }
            }
        }
    }
}
