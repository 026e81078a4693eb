//! The machine's device tree, where the emulator's own does not say what the machine is.
//!
//! The emulator has at most [`MOST_SOCKETS`] nodes. A machine of more is one of it with two nodes in each, whose tree is
//! changed before it boots: the emulator gives all its memory the same latency, so what the tree says about nodes is as
//! true as what it says itself, and a machine model goes by the nodes of the machine, not by the emulator's.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use config::{Hardware, NodePlan};
use dtoolkit::Node as _;
use dtoolkit::fdt::Fdt;
use dtoolkit::model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty};
use thiserror::Error;

use super::Emulator;

/// Most nodes that the emulator has.
pub const MOST_SOCKETS: usize = 4;
/// First byte of memory.
const RAM: u64 = 0x8000_0000;
/// The distance of a node to itself, and to others where nothing else is said, as the emulator has them.
const NEAR: u8 = 10;
const FAR: u8 = 20;

/// A range of memory, in bytes from the beginning of all memory, and its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// Where it begins.
    pub start: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The node that has it.
    pub node: u32,
}

/// What a device tree says about nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// All memory.
    pub memory: Vec<MemoryRange>,
    /// The node of each hart.
    pub harts: Vec<u32>,
    /// How far node `to` is from node `from`; the usual distances otherwise.
    pub distances: Option<Vec<Vec<u8>>>,
}

/// Why there is no device tree.
#[derive(Debug, Error)]
pub enum TreeError {
    /// The emulator did not write one.
    #[error("the emulator does not give its device tree: {reason}")]
    Emulator {
        /// Why.
        reason: String,
    },
    /// It is not understood.
    #[error("the emulator's device tree is not understood: {reason}")]
    Unknown {
        /// Why.
        reason: String,
    },
}

/// The nodes that the emulator is told of: two of the machine's in one where it has too few.
#[must_use]
pub fn sockets(nodes: &[NodePlan]) -> Vec<NodePlan> {
    if nodes.len() <= MOST_SOCKETS {
        return nodes.to_vec();
    }
    let join = |pair: &[NodePlan]| NodePlan {
        harts: pair.iter().map(|node| node.harts).sum(),
        memory_mib: pair.iter().map(|node| node.memory_mib).sum(),
    };
    nodes.chunks(2).map(join).collect()
}

impl Topology {
    /// Of this hardware: harts and memory in the order of the nodes.
    #[must_use]
    pub fn of(hardware: &Hardware) -> Self {
        let (mut memory, mut harts, mut start) = (Vec::new(), Vec::new(), 0);
        for (node, plan) in (0..).zip(&hardware.nodes) {
            let bytes = u64::from(plan.memory_mib) << 20;
            memory.push(MemoryRange { start, bytes, node });
            harts.extend((0..plan.harts).map(|_| node));
            start += bytes;
        }
        Self { memory, harts, distances: hardware.distances.clone() }
    }

    /// Writes it into a device tree.
    ///
    /// # Errors
    /// [`TreeError::Unknown`] if the tree is not of such a machine.
    pub fn write_into(&self, blob: &[u8]) -> Result<Vec<u8>, TreeError> {
        let fdt = Fdt::new(blob).map_err(|error| TreeError::Unknown { reason: error.to_string() })?;
        let mut tree = DeviceTree::from_fdt(&fdt);
        self.set_memory(&mut tree.root);
        self.set_harts(&mut tree.root)?;
        self.set_distances(&mut tree.root);
        Ok(tree.to_dtb())
    }

    fn set_memory(&self, root: &mut DeviceTreeNode) {
        let names = root.children().map(|child| child.name().to_owned());
        let old: Vec<_> = names.filter(|name| name.starts_with("memory@")).collect();
        old.iter().for_each(|name| drop(root.remove_child(name)));
        for range in &self.memory {
            let start = RAM + range.start;
            let mut node = DeviceTreeNode::new_unchecked(format!("memory@{start:x}"));
            set(&mut node, "device_type", b"memory\0");
            set(&mut node, "reg", &[start.to_be_bytes(), range.bytes.to_be_bytes()].concat());
            set(&mut node, "numa-node-id", &range.node.to_be_bytes());
            root.add_child(node);
        }
    }

    fn set_harts(&self, root: &mut DeviceTreeNode) -> Result<(), TreeError> {
        let missing = |what: &str| TreeError::Unknown { reason: format!("it has no {what}") };
        let cpus = root.child_mut("cpus").ok_or_else(|| missing("cpus"))?;
        for (hart, node) in self.harts.iter().enumerate() {
            let name = format!("cpu@{hart}");
            let cpu = cpus.child_mut(&name).ok_or_else(|| missing(&name))?;
            set(cpu, "numa-node-id", &node.to_be_bytes());
        }
        Ok(())
    }

    fn set_distances(&self, root: &mut DeviceTreeNode) {
        let nodes = self.memory.iter().map(|range| range.node).chain(self.harts.iter().copied());
        let nodes = nodes.max().map_or(1, |last| last + 1);
        let given: BTreeMap<(u32, u32), u8> = (0..)
            .zip(self.distances.iter().flatten())
            .flat_map(|(from, row)| (0..).zip(row).map(move |(to, distance)| ((from, to), *distance)))
            .collect();
        let distance = |from, to| given.get(&(from, to)).copied().unwrap_or(if from == to { NEAR } else { FAR });
        let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
        let triples = pairs.flat_map(|(from, to)| [from, to, distance(from, to).into()]);
        let matrix: Vec<u8> = triples.flat_map(u32::to_be_bytes).collect();
        root.remove_child("distance-map");
        let mut map = DeviceTreeNode::new_unchecked("distance-map");
        set(&mut map, "compatible", b"numa-distance-map-v1\0");
        set(&mut map, "distance-matrix", &matrix);
        root.add_child(map);
    }
}

fn set(node: &mut DeviceTreeNode, name: &str, value: &[u8]) {
    node.remove_property(name);
    node.add_property(DeviceTreeProperty::new_unchecked(name, value.to_vec()));
}

/// The tree that the emulator would boot with these arguments; it is written to `file` on the way.
///
/// # Errors
/// [`TreeError::Emulator`] with what the emulator said.
pub fn of_emulator(emulator: &Emulator, arguments: &[OsString], file: &Path) -> Result<Vec<u8>, TreeError> {
    // The tree says nothing of disks and ports: without them nothing is opened or bound.
    const OF_INTEREST: [&str; 6] = ["-M", "-cpu", "-smp", "-m", "-object", "-numa"];
    let failed = |reason: String| TreeError::Emulator { reason };
    let of_interest = arguments.windows(2).filter(|pair| OF_INTEREST.iter().any(|flag| pair[0] == *flag));
    let mut dump = OsString::from("dumpdtb=");
    dump.push(file);
    let output = Command::new(&emulator.program)
        .args(of_interest.flatten())
        .args(["-display", "none", "-bios", "none", "-machine"])
        .arg(dump)
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    std::fs::read(file).map_err(|error| failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use dtoolkit::Property as _;

    use super::*;

    fn nodes(count: u32) -> Vec<NodePlan> {
        (1..=count).map(|node| NodePlan { harts: 1, memory_mib: 128 * node }).collect()
    }

    #[test]
    fn two_nodes_share_a_socket_where_there_are_too_many() {
        assert_eq!(sockets(&nodes(4)), nodes(4));
        let shape: Vec<_> = sockets(&nodes(7)).iter().map(|node| (node.harts, node.memory_mib)).collect();
        assert_eq!(shape, [(2, 384), (2, 896), (2, 1408), (1, 896)]);
    }

    fn small_tree() -> Vec<u8> {
        let mut root = DeviceTreeNode::new_unchecked("");
        let mut cpus = DeviceTreeNode::new_unchecked("cpus");
        for hart in 0..11 {
            cpus.add_child(DeviceTreeNode::new_unchecked(format!("cpu@{hart}")));
        }
        root.add_child(cpus);
        root.add_child(DeviceTreeNode::new_unchecked("memory@80000000"));
        let mut tree = DeviceTree::from_fdt(&Fdt::new(&DeviceTree::new().to_dtb()).expect("an empty tree"));
        tree.root = root;
        tree.to_dtb()
    }

    #[test]
    fn a_tree_says_what_the_machine_is() {
        let memory = (0..5).map(|node| MemoryRange { start: u64::from(node) << 27, bytes: 1 << 27, node }).collect();
        let harts = (0..11).map(|hart| hart / 2 % 5).collect();
        let distances = Some(vec![vec![10, 33], vec![44, 10]]);
        let blob = Topology { memory, harts, distances }.write_into(&small_tree()).expect("it has all harts");
        let tree = DeviceTree::from_fdt(&Fdt::new(&blob).expect("a tree"));
        let ranges = tree.root.children().filter(|child| child.name().starts_with("memory@")).count();
        assert_eq!(ranges, 5);
        let property = |path: &[&str], name: &str| {
            let node = path.iter().fold(&tree.root, |node, name| node.child(name).expect("a node"));
            node.property(name).expect("a property").value().to_vec()
        };
        assert_eq!(property(&["cpus", "cpu@10"], "numa-node-id"), 0_u32.to_be_bytes());
        assert_eq!(property(&["memory@a0000000"], "numa-node-id"), 4_u32.to_be_bytes());
        let matrix = property(&["distance-map"], "distance-matrix");
        let triple = |at: usize| matrix[at * 12..][..12].chunks(4).map(|word| word[3]).collect::<Vec<_>>();
        assert_eq!((matrix.len(), triple(1), triple(5)), (25 * 12, vec![0, 1, 33], vec![1, 0, 44]));
        assert_eq!((triple(0), triple(24), triple(23)), (vec![0, 0, 10], vec![4, 4, 10], vec![4, 3, 20]));
    }

    #[test]
    fn trees_of_other_machines_are_refused() {
        let topology = Topology { memory: Vec::new(), harts: vec![0; 12], distances: None };
        let text = |blob: &[u8]| topology.write_into(blob).expect_err("it is not of this machine").to_string();
        assert!(text(&small_tree()).ends_with("it has no cpu@11"));
        assert!(text(b"nonsense").starts_with("the emulator's device tree is not understood"));
    }
}
