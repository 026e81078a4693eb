//! The device tree that tells a guest what machine it is on.
//!
//! It has the nodes and spellings of QEMU's `virt` tree, so that the same drivers bind, less what a guest does not have:
//! M-mode and its controllers, PCI, flash, fw_cfg.

mod cpus;
mod soc;
mod spec;
#[cfg(test)]
mod tests;
mod write;

use crate::map;
use alloc::format;
use alloc::vec::Vec;
pub use spec::{CacheBlocks, Interrupts, MmuType, Numa, NumaPart, PlatformSpec, TreeError};
use write::NodeWriter;

/// Names of nodes that others point to.
mod phandle {
    /// The controller of wired interrupts: PLIC or APLIC.
    pub(super) const WIRED: u32 = 1;
    /// The interrupt files.
    pub(super) const IMSICS: u32 = 2;
    /// The power-off and reset device.
    pub(super) const SYSCON: u32 = 3;

    /// A vCPU.
    pub(super) const fn cpu(vcpu: u16) -> u32 {
        0x100 + vcpu as u32
    }

    /// A vCPU's local interrupt controller.
    pub(super) const fn cpu_interrupts(vcpu: u16) -> u32 {
        0x200 + vcpu as u32
    }
}

/// Unused bytes at the tree's end. A boot loader adds to the tree where it lies, as firmware on a real machine has made
/// room for it to do: U-Boot keeps its own variables right behind it.
const SLACK_BYTES: usize = 4096;

/// A device tree for a guest without header and names: a step of its own for who must not take long at a time.
#[derive(Debug)]
pub struct TreeDraft(Vec<u8>);

impl TreeDraft {
    /// The tree of a machine.
    ///
    /// # Errors
    /// [`TreeError`] when the description contradicts itself.
    pub fn new(spec: &PlatformSpec<'_>) -> Result<Self, TreeError> {
        spec.check()?;
        Ok(Self(root(spec).finish()))
    }

    /// Flattens it.
    #[must_use]
    pub fn flatten(&self) -> GuestTree {
        // What is behind the last block belongs to nobody.
        GuestTree { blob: write::flatten(&self.0, SLACK_BYTES) }
    }
}

/// A flattened device tree for a guest.
#[derive(Clone, Debug)]
pub struct GuestTree {
    blob: Vec<u8>,
}

impl GuestTree {
    /// Writes the tree of a machine.
    ///
    /// # Errors
    /// [`TreeError`] when the description contradicts itself.
    pub fn build(spec: &PlatformSpec<'_>) -> Result<Self, TreeError> {
        Ok(TreeDraft::new(spec)?.flatten())
    }

    /// The flattened tree, to be put into guest memory at a multiple of 8.
    #[must_use]
    pub fn blob(&self) -> &[u8] {
        &self.blob
    }
}

fn root(spec: &PlatformSpec<'_>) -> NodeWriter {
    let serial = format!("/soc/serial@{:x}", map::UART.base);
    NodeWriter::root()
        .cell("#address-cells", 2)
        .cell("#size-cells", 2)
        .with("compatible", "riscv-virtio")
        .with("model", "riscv-virtio,mirrorball")
        .child(NodeWriter::new("aliases").with("serial0", serial.as_str()))
        .child(chosen(spec, &serial))
        // By this node guests know that they are virtual.
        .child(NodeWriter::new("hypervisor").with("compatible", "mirrorball,monitor"))
        .children(memory(spec))
        .child(cpus::cpus(spec))
        .children(distance_map(spec))
        .child(power("poweroff", "syscon-poweroff", 0x5555))
        .child(power("reboot", "syscon-reboot", 0x7777))
        .child(soc::soc(spec))
}

fn chosen(spec: &PlatformSpec<'_>, serial: &str) -> NodeWriter {
    let mut chosen = NodeWriter::new("chosen").with("stdout-path", serial);
    if !spec.bootargs.is_empty() {
        chosen = chosen.with("bootargs", spec.bootargs);
    }
    if let Some(initrd) = spec.initrd {
        chosen = chosen.with("linux,initrd-start", initrd.start).with("linux,initrd-end", initrd.end);
    }
    if !spec.rng_seed.is_empty() {
        chosen = chosen.with("rng-seed", spec.rng_seed);
    }
    chosen
}

/// One memory node, or one per node that has memory.
fn memory(spec: &PlatformSpec<'_>) -> Vec<NodeWriter> {
    let node =
        |base: u64, size| NodeWriter::new(format!("memory@{base:x}")).with("device_type", "memory").reg(base, size);
    let Some(numa) = spec.numa else { return Vec::from([node(map::RAM_BASE, spec.ram_bytes)]) };
    let mut base = map::RAM_BASE;
    let mut nodes = Vec::new();
    for (id, &bytes) in (0..).zip(numa.memory_bytes) {
        if bytes != 0 {
            nodes.push(node(base, bytes).cell("numa-node-id", id));
            base += bytes;
        }
    }
    nodes
}

/// Triples of node, node, distance.
fn distance_map(spec: &PlatformSpec<'_>) -> Option<NodeWriter> {
    let numa = spec.numa?;
    let nodes = numa.memory_bytes.len() as u32;
    let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
    let matrix: Vec<u32> = pairs.zip(numa.distances).flat_map(|((from, to), distance)| [from, to, *distance]).collect();
    let node = NodeWriter::new("distance-map").with("compatible", "numa-distance-map-v1");
    Some(node.with("distance-matrix", matrix))
}

/// A node that says which store to the power device does what.
fn power(name: &str, compatible: &str, value: u32) -> NodeWriter {
    NodeWriter::new(name)
        .with("compatible", compatible)
        .cell("regmap", phandle::SYSCON)
        .cell("offset", 0)
        .cell("value", value)
}
