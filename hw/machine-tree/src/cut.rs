//! The part of a machine that belongs to some of its nodes.

use alloc::vec::Vec;
use core::fmt;

use addr::{CpuIndex, NodeId};

use crate::{
    InterruptControllers, MachineDescription, MemoryRange, ReservedKind,
    address::AddressRange,
    controllers::{Aplic, Context, Imsic, Plic, Sswi},
    nodes::Nodes,
};

/// Who gets the devices of a machine that is cut: disks, network, consoles, clock, and the controllers of their wires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Devices {
    /// This part.
    Ours,
    /// Another part: here they do not exist.
    Theirs,
}

/// Why a machine cannot be cut to some nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutError {
    /// The machine has no such node.
    UnknownNode(NodeId),
    /// A node is named twice.
    Twice(NodeId),
    /// None of the nodes has a hart.
    NoHart,
    /// None of the nodes has memory.
    NoMemory,
}

impl fmt::Display for CutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownNode(node) => write!(f, "the machine has no node {node}"),
            Self::Twice(node) => write!(f, "node {node} is named twice"),
            Self::NoHart => f.write_str("its nodes have no hart"),
            Self::NoMemory => f.write_str("its nodes have no memory"),
        }
    }
}

impl core::error::Error for CutError {}

impl MachineDescription {
    /// The machine as if it had only these nodes: their harts, memory, distances, and interrupt files and contexts of their
    /// harts. Harts and nodes are numbered anew from 0, in the order that they had; hart ids and
    /// [`Nodes::firmware_id`] stay. Reservations stay, but for that of the boot bundle ([`ReservedKind::Initrd`]): who cuts
    /// knows who has which copy of it.
    ///
    /// # Errors
    /// [`CutError`]: with these nodes there is no machine.
    pub fn cut_to(&self, nodes: &[NodeId], devices: Devices) -> Result<Self, CutError> {
        let mut own = nodes.to_vec();
        order::ascending(&mut own);
        if let Some(node) = own.iter().find(|node| node.index() >= self.nodes.count()) {
            return Err(CutError::UnknownNode(*node));
        }
        if let Some((twin, _)) = own.iter().zip(own.iter().skip(1)).find(|(a, b)| a == b) {
            return Err(CutError::Twice(*twin));
        }
        let new_number = |node: NodeId| own.iter().position(|known| *known == node).map(|at| NodeId(at as u8));
        let mut cut = self.clone();
        cut.nodes = self.nodes.cut_to(&own);
        cut.harts.retain(|hart| own.contains(&hart.node));
        for (index, hart) in (0..).zip(&mut cut.harts) {
            hart.cpu = CpuIndex(index);
            hart.node = new_number(hart.node).unwrap_or_default();
        }
        let memory = self.memory.iter();
        cut.memory = memory.filter_map(|part| Some(MemoryRange { node: new_number(part.node)?, ..*part })).collect();
        cut.reserved.retain(|reserved| reserved.kind != ReservedKind::Initrd);
        if cut.harts.is_empty() {
            return Err(CutError::NoHart);
        }
        if cut.memory.is_empty() {
            return Err(CutError::NoMemory);
        }
        if devices == Devices::Theirs {
            cut.forget_devices();
        }
        let is_ours = |context: &Context| cut.harts.iter().any(|hart| hart.id == context.hart);
        cut.controllers.keep_harts(is_ours, |node| new_number(node).unwrap_or_default());
        Ok(cut)
    }

    fn forget_devices(&mut self) {
        self.uarts.clear();
        self.virtio_mmio.clear();
        self.pcie.clear();
        self.rtc = None;
        self.chosen.stdout_uart = None;
        self.controllers.aplics.clear();
        self.controllers.plics.clear();
    }
}

impl Nodes {
    /// These nodes alone; they exist, in ascending order.
    fn cut_to(&self, own: &[NodeId]) -> Self {
        let firmware_ids = own.iter().filter_map(|node| self.firmware_id(*node)).collect();
        let pairs = own.iter().flat_map(|from| own.iter().map(move |to| (*from, *to)));
        Self::new(firmware_ids, pairs.map(|(from, to)| self.distance(from, to)).collect())
    }
}

impl InterruptControllers {
    /// What leads to other harts is not there.
    fn keep_harts(&mut self, is_ours: impl Fn(&Context) -> bool, new_number: impl Fn(NodeId) -> NodeId) {
        if let Some(Imsic { files, .. }) = &mut self.imsic {
            files.retain(|file| is_ours(&Context { hart: file.hart, index: 0 }));
        }
        for Aplic { contexts, node, .. } in &mut self.aplics {
            contexts.retain(&is_ours);
            *node = new_number(*node);
        }
        for Plic { contexts, node, .. } in &mut self.plics {
            contexts.retain(&is_ours);
            *node = new_number(*node);
        }
        for Sswi { contexts, .. } in &mut self.sswis {
            contexts.retain(&is_ours);
        }
    }
}

/// The first place for `bytes` bytes at a multiple of `align`, a power of two, in `free`; in the first range that has room.
#[must_use]
pub fn find_room(free: &[MemoryRange], bytes: u64, align: u64) -> Option<AddressRange> {
    free.iter().find_map(|part| {
        let start = part.range.start().raw().checked_next_multiple_of(align)?;
        let room = AddressRange::new(addr::MachineAddr::new(start), bytes)?;
        (room.end() <= part.range.end()).then_some(room)
    })
}

/// Whether `memory` holds all of `range`, be it in one piece or in several that adjoin.
#[must_use]
pub fn is_inside(memory: &[MemoryRange], range: AddressRange) -> bool {
    let mut from = range.start();
    let mut parts: Vec<_> = memory.iter().map(|part| part.range).collect();
    order::by_key(&mut parts, AddressRange::start);
    for part in parts {
        if part.contains(from) {
            from = part.end();
        }
    }
    from >= range.end()
}
