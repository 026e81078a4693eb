//! What the machine consists of, as far as the probe cares; every node has its own copy of this.

use arrayvec::ArrayVec;
use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::{Node as _, Property as _};
use spin::Once;

/// Nodes and harts at most.
pub const MAX_NODES: usize = 8;
pub const MAX_HARTS: usize = 64;

/// Where a node's memory begins, rounded up to a large page; behind it lie the program's copy and the page that all access.
#[derive(Clone, Copy)]
pub struct NodeMemory {
    pub node: usize,
    start: u64,
}

/// Distance from the beginning of a node's memory to its copy of the program, and to its page that all harts access.
const COPY: u64 = 2 << 20;
const PAGE: u64 = 8 << 20;

impl NodeMemory {
    /// Where the node's copy of the program is.
    pub const fn copy(self) -> u64 {
        self.start + COPY
    }

    /// The page that all harts access.
    pub const fn page(self) -> u64 {
        self.start + PAGE
    }
}

pub struct Machine {
    pub nodes: ArrayVec<NodeMemory, MAX_NODES>,
    /// The node of each hart.
    pub harts: ArrayVec<(usize, usize), MAX_HARTS>,
}

static MACHINE: Once<Machine> = Once::new();

/// The machine, from this node's copy.
pub fn get() -> &'static Machine {
    MACHINE.get().expect("the first hart reads the tree before it makes copies")
}

/// Reads the tree.
///
/// # Panics
/// On a tree that is not QEMU's.
pub fn read(tree: &[u8]) {
    let tree = Fdt::new(tree).expect("a device tree");
    let mut machine = Machine { nodes: ArrayVec::new(), harts: ArrayVec::new() };
    for memory in tree.root().children().filter(|node| node.name_without_address() == "memory") {
        let reg: [u8; 16] = property(&memory, "reg").and_then(|reg| reg.get(..16)?.try_into().ok()).expect("memory");
        let start = u64::from_be_bytes(reg[..8].try_into().expect("eight bytes"));
        let node = number(&memory, "numa-node-id").unwrap_or(0);
        machine.nodes.push(NodeMemory { node, start: start.next_multiple_of(COPY) });
    }
    machine.nodes.sort_unstable_by_key(|memory| memory.node);
    let cpus = tree.find_node("/cpus").expect("harts");
    for cpu in cpus.children().filter(|node| node.name_without_address() == "cpu") {
        machine.harts.push((number(&cpu, "reg").expect("a number"), number(&cpu, "numa-node-id").unwrap_or(0)));
    }
    MACHINE.call_once(|| machine);
}

impl Machine {
    /// All harts as a mask.
    pub fn mask(&self) -> u64 {
        self.harts.iter().fold(0, |mask, (hart, _)| mask | 1 << hart)
    }

    /// The memory of a hart's node.
    pub fn home(&self, hart: usize) -> NodeMemory {
        let node = self.harts.iter().find(|(id, _)| *id == hart).map_or(0, |(_, node)| *node);
        *self.nodes.iter().find(|memory| memory.node == node).unwrap_or(&self.nodes[0])
    }
}

fn property<'a>(node: &FdtNode<'a>, name: &str) -> Option<&'a [u8]> {
    node.properties().find(|property| property.name() == name)?.value_as::<&'a [u8]>().ok()
}

fn number(node: &FdtNode<'_>, name: &str) -> Option<usize> {
    let bytes = property(node, name)?.get(..4)?.try_into().ok()?;
    Some(u32::from_be_bytes(bytes) as usize)
}
