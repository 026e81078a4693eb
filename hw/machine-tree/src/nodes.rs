//! NUMA nodes: dense ids and distances.

use alloc::{vec, vec::Vec};

use addr::NodeId;

use crate::{
    MAX_NODES,
    error::{Problem, TreeError},
    tree::{Tree, TreeNode},
};

/// Distance from a node to itself, by definition (ACPI SLIT, `numa-distance-map-v1`).
const LOCAL: u8 = 10;
/// Distance to any other node where the tree says nothing.
const REMOTE: u8 = 20;

/// The nodes of the machine: dense ids, firmware ids and distances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// The `numa-node-id` of each node, ascending; the position is the dense id.
    firmware_ids: Vec<u32>,
    /// Row by row; `LOCAL` on the diagonal.
    distances: Vec<u8>,
}

impl Nodes {
    pub(crate) fn read(tree: &Tree<'_>) -> Result<Self, TreeError> {
        let mut firmware_ids = Vec::new();
        for node in tree.nodes().filter(|node| is_cpu_or_memory(node) && node.is_enabled()) {
            firmware_ids.extend(node.u32("numa-node-id")?);
        }
        order::ascending(&mut firmware_ids);
        firmware_ids.dedup();
        if firmware_ids.is_empty() {
            firmware_ids.push(0);
        }
        if firmware_ids.len() > MAX_NODES {
            let problem = Problem::TooMany { found: firmware_ids.len(), limit: MAX_NODES };
            return Err(tree.root().error("numa-node-id", problem));
        }
        let mut nodes = Self { distances: default_distances(firmware_ids.len()), firmware_ids };
        if let Some(map) = tree.compatible(&["numa-distance-map-v1"]).next() {
            nodes.read_distances(&map)?;
        }
        Ok(nodes)
    }

    /// Nodes with these ids of the firmware, ascending, and these distances, row by row.
    pub(crate) const fn new(firmware_ids: Vec<u32>, distances: Vec<u8>) -> Self {
        Self { firmware_ids, distances }
    }

    /// Number of nodes, at least 1.
    #[must_use]
    pub fn count(&self) -> usize {
        self.firmware_ids.len()
    }

    /// All nodes.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        // At most MAX_NODES of them.
        (0..self.firmware_ids.len() as u8).map(NodeId)
    }

    /// What the firmware calls a node.
    #[must_use]
    pub fn firmware_id(&self, node: NodeId) -> Option<u32> {
        self.firmware_ids.get(node.index()).copied()
    }

    /// The distance between two nodes: 10 is local, 20 is twice as far. Unknown nodes are infinitely far (255).
    #[must_use]
    pub fn distance(&self, from: NodeId, to: NodeId) -> u8 {
        match from.index() < self.count() && to.index() < self.count() {
            true => self.distances[from.index() * self.count() + to.index()],
            false => u8::MAX,
        }
    }

    /// The dense id of the node that `node`'s `numa-node-id` names. What belongs to no node belongs to the first.
    pub(crate) fn of(&self, node: &TreeNode<'_, '_>) -> Result<NodeId, TreeError> {
        let firmware_id = node.u32("numa-node-id")?;
        Ok(firmware_id.and_then(|id| self.dense(id)).unwrap_or_default())
    }

    fn dense(&self, firmware_id: u32) -> Option<NodeId> {
        let position = self.firmware_ids.binary_search(&firmware_id).ok()?;
        u8::try_from(position).ok().map(NodeId)
    }

    fn read_distances(&mut self, map: &TreeNode<'_, '_>) -> Result<(), TreeError> {
        const NAME: &str = "distance-matrix";
        let cells = map.cells(NAME)?;
        let mut cells = map.required(NAME, cells)?;
        let mut given = vec![false; self.distances.len()];
        while !cells.is_empty() {
            let (Some(from), Some(to), Some(value)) = (cells.cell(), cells.cell(), cells.cell()) else {
                return Err(map.cut_short(NAME, 3));
            };
            // Rows for nodes with neither harts nor memory are legal and of no interest.
            let (Some(from), Some(to)) = (self.dense(from), self.dense(to)) else { continue };
            let legal = if from == to { value == u32::from(LOCAL) } else { value > u32::from(LOCAL) };
            let refused = || map.error(NAME, Problem::OutOfRange { value: u64::from(value) });
            let value = u8::try_from(value).ok().filter(|_| legal).ok_or_else(refused)?;
            let (there, back) = (from.index() * self.count() + to.index(), to.index() * self.count() + from.index());
            self.distances[there] = value;
            given[there] = true;
            // The binding lets a map give one direction only.
            if !given[back] {
                self.distances[back] = value;
            }
        }
        Ok(())
    }
}

fn is_cpu_or_memory(node: &TreeNode<'_, '_>) -> bool {
    matches!(node.bytes("device_type"), Some(b"cpu\0" | b"memory\0"))
}

fn default_distances(count: usize) -> Vec<u8> {
    (0..count * count).map(|cell| if cell % (count + 1) == 0 { LOCAL } else { REMOTE }).collect()
}
