//! The nodes that a guest sees, where it asked for any.
//!
//! Each has an equal part of the VM's vCPUs and memory. The vCPUs of one lie together on a node of the machine and belong
//! there: the balancer brings them back when it can. Its memory needs no map of its own: a guest that knows of nodes gives
//! its programs memory of the node they run on, and what a vCPU touches first comes from the node of the machine that the
//! vCPU is on. So the VM's memory stays elastic, and pages that end up elsewhere move as in any other VM.

use crate::{hart, machine};
use ::platform::guest_tree::Numa;
use addr::{CpuIndex, NodeId};
use alloc::vec::Vec;
use control::VmSpec;

/// Memory of a node begins and ends at large pages.
const BLOCK: u64 = 2 << 20;
/// What a guest is told about two nodes that lie on one node of the machine: not quite the same.
const BESIDE: u8 = 11;

/// The nodes of a guest.
pub struct Topology {
    /// The machine's node for each.
    nodes: Vec<NodeId>,
    vcpu_nodes: Vec<u32>,
    memory_bytes: Vec<u64>,
    distances: Vec<u32>,
}

/// How many vCPUs each node of the guest has: all in one where it sees none.
#[must_use]
pub fn parts(spec: &VmSpec) -> Vec<usize> {
    let (vcpus, nodes) = (usize::from(spec.vcpus), usize::from(spec.nodes.max(1)));
    (0..nodes).map(|node| vcpus / nodes + usize::from(node < vcpus % nodes)).collect()
}

impl Topology {
    /// For a VM whose vCPUs start on these harts; nothing where it sees no nodes.
    #[must_use]
    pub fn new(spec: &VmSpec, harts: &[CpuIndex]) -> Option<Self> {
        let parts = parts(spec);
        if parts.len() < 2 {
            return None;
        }
        let numbered = || (0_u32..).zip(&parts);
        let vcpu_nodes: Vec<u32> = numbered().flat_map(|(node, count)| (0..*count).map(move |_| node)).collect();
        let starts = parts.iter().scan(0, |next, count| Some(core::mem::replace(next, *next + count)));
        let node_of = |vcpu: usize| harts.get(vcpu).and_then(|cpu| hart::all().get(cpu.index())).map(|hart| hart.node);
        let nodes: Vec<NodeId> = starts.map(node_of).collect::<Option<_>>()?;
        let blocks = (u64::from(spec.memory_mib) << 20) / BLOCK;
        let count = parts.len() as u64;
        let memory_bytes = (0..count).map(|node| (blocks / count + u64::from(node < blocks % count)) * BLOCK).collect();
        let distance = |from: usize, to: usize| match machine::description().nodes.distance(nodes[from], nodes[to]) {
            own if from == to => own,
            other => other.max(BESIDE),
        };
        let pairs = (0..nodes.len()).flat_map(|from| (0..nodes.len()).map(move |to| (from, to)));
        let distances = pairs.map(|(from, to)| distance(from, to).into()).collect();
        Some(Self { nodes, vcpu_nodes, memory_bytes, distances })
    }

    /// As the guest's device tree has it.
    #[must_use]
    pub fn numa(&self) -> Numa<'_> {
        Numa { vcpu_nodes: &self.vcpu_nodes, memory_bytes: &self.memory_bytes, distances: &self.distances }
    }

    /// The machine's node for the guest's memory at this offset.
    pub fn node_at(&self, offset: u64) -> NodeId {
        let mut end = 0;
        let node = self.memory_bytes.iter().position(|bytes| {
            end += bytes;
            offset < end
        });
        node.and_then(|node| self.nodes.get(node).copied()).unwrap_or(NodeId(0))
    }

    /// The machine's node for each vCPU.
    pub fn homes(&self) -> impl Iterator<Item = NodeId> {
        self.vcpu_nodes.iter().filter_map(|node| self.nodes.get(*node as usize).copied())
    }
}
