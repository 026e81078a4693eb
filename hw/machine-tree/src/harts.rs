//! `/cpus`: harts, what they can do, and how their local interrupt controllers are named.

use alloc::vec::Vec;

use addr::{CpuIndex, HartId, NodeId};

use crate::{
    MAX_HARTS,
    error::{Problem, TreeError},
    isa::ExtensionSet,
    nodes::Nodes,
    tree::{Tree, TreeNode},
};

/// The largest virtual address translation mode of a hart (`mmu-type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MmuType {
    /// No translation, or none that this monitor knows.
    None,
    /// `riscv,sv39`
    Sv39,
    /// `riscv,sv48`
    Sv48,
    /// `riscv,sv57`
    Sv57,
}

/// A processor of the machine that the firmware lets us use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hart {
    /// Dense index; harts are ordered by hart id.
    pub cpu: CpuIndex,
    /// The SBI hart id.
    pub id: HartId,
    /// The node it belongs to.
    pub node: NodeId,
    /// Largest translation mode.
    pub mmu: MmuType,
    /// Known extensions.
    pub extensions: ExtensionSet,
    /// Bytes that one `cbo.clean`/`flush`/`inval` acts on.
    pub cbom_block_bytes: Option<u32>,
    /// Bytes that one `cbo.zero` acts on.
    pub cboz_block_bytes: Option<u32>,
    /// Bytes that one `prefetch` acts on.
    pub cbop_block_bytes: Option<u32>,
}

pub(crate) struct Cpus {
    pub(crate) harts: Vec<Hart>,
    pub(crate) disabled: Vec<HartId>,
    pub(crate) timebase_hz: u64,
}

impl Cpus {
    pub(crate) fn read(tree: &Tree<'_>, nodes: &Nodes) -> Result<Self, TreeError> {
        let cpus = tree.at("/cpus").ok_or_else(|| tree.root().error("cpus", Problem::Missing))?;
        let common_timebase = cpus.u64("timebase-frequency")?;
        let mut found = Self { harts: Vec::new(), disabled: Vec::new(), timebase_hz: 0 };
        let mut own_timebase = None;
        for node in cpus.children().filter(|node| node.bytes("device_type") == Some(b"cpu\0")) {
            if node.is_enabled() {
                own_timebase = own_timebase.or(node.u64("timebase-frequency")?);
                found.harts.push(read_hart(&node, nodes)?);
            } else {
                found.disabled.push(hart_id(&node)?);
            }
        }
        let timebase = common_timebase.or(own_timebase);
        found.timebase_hz = cpus.required("timebase-frequency", timebase)?;
        if found.timebase_hz == 0 {
            return Err(cpus.error("timebase-frequency", Problem::OutOfRange { value: 0 }));
        }
        found.number(&cpus)?;
        Ok(found)
    }

    /// Orders the harts and gives them their dense indices.
    fn number(&mut self, cpus: &TreeNode<'_, '_>) -> Result<(), TreeError> {
        match self.harts.len() {
            0 => return Err(cpus.error("cpu", Problem::Missing)),
            found if found > MAX_HARTS => {
                return Err(cpus.error("cpu", Problem::TooMany { found, limit: MAX_HARTS }));
            }
            _ => order::by_key(&mut self.harts, |hart| hart.id),
        }
        let twins = self.harts.iter().zip(self.harts.iter().skip(1)).find(|(a, b)| a.id == b.id);
        if let Some((twin, _)) = twins {
            return Err(cpus.error("reg", Problem::Duplicate { value: twin.id.0 }));
        }
        for (index, hart) in (0..).zip(&mut self.harts) {
            hart.cpu = CpuIndex(index);
        }
        Ok(())
    }
}

fn read_hart(node: &TreeNode<'_, '_>, nodes: &Nodes) -> Result<Hart, TreeError> {
    Ok(Hart {
        cpu: CpuIndex(0),
        id: hart_id(node)?,
        node: nodes.of(node)?,
        mmu: mmu_type(node)?,
        extensions: extensions(node)?,
        cbom_block_bytes: block_bytes(node, "riscv,cbom-block-size")?,
        cboz_block_bytes: block_bytes(node, "riscv,cboz-block-size")?,
        cbop_block_bytes: block_bytes(node, "riscv,cbop-block-size")?,
    })
}

/// The hart id in a cpu node's `reg`.
pub(crate) fn hart_id(node: &TreeNode<'_, '_>) -> Result<HartId, TreeError> {
    let id = node.u64("reg")?;
    node.required("reg", id).map(HartId)
}

/// The hart whose local interrupt controller has this phandle. Errors name `user`'s property.
pub(crate) fn hart_of_local_controller(
    user: &TreeNode<'_, '_>,
    property: &str,
    phandle: u32,
) -> Result<HartId, TreeError> {
    let controller = user.tree.by_phandle(phandle);
    let controller = controller.ok_or_else(|| user.error(property, Problem::UnknownPhandle { phandle }))?;
    match controller.parent() {
        Some(cpu) if controller.is_compatible(&["riscv,cpu-intc"]) => hart_id(&cpu),
        _ => Err(user.error(property, Problem::WrongTarget { phandle })),
    }
}

fn mmu_type(node: &TreeNode<'_, '_>) -> Result<MmuType, TreeError> {
    Ok(match node.text("mmu-type")? {
        Some("riscv,sv39") => MmuType::Sv39,
        Some("riscv,sv48") => MmuType::Sv48,
        Some("riscv,sv57") => MmuType::Sv57,
        _ => MmuType::None,
    })
}

/// The list is the newer and exact form; the string is what older firmware gives.
fn extensions(node: &TreeNode<'_, '_>) -> Result<ExtensionSet, TreeError> {
    if node.has("riscv,isa-extensions") {
        return Ok(ExtensionSet::from_names(node.texts("riscv,isa-extensions")));
    }
    let text = node.text("riscv,isa")?;
    let text = node.required("riscv,isa", text)?;
    ExtensionSet::from_isa_string(text).ok_or_else(|| node.error("riscv,isa", Problem::UnsupportedBase))
}

fn block_bytes(node: &TreeNode<'_, '_>, name: &str) -> Result<Option<u32>, TreeError> {
    match node.u32(name)? {
        Some(bytes) if !bytes.is_power_of_two() || bytes > 4096 => {
            Err(node.error(name, Problem::OutOfRange { value: u64::from(bytes) }))
        }
        bytes => Ok(bytes),
    }
}
