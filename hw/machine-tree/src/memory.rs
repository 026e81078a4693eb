//! Memory, what is reserved in it, and what is left.

use alloc::{borrow::ToOwned, string::String, vec::Vec};

use addr::{BASE_PAGE, MachineAddr, NodeId};
use dtoolkit::fdt::Fdt;

use crate::{
    address::AddressRange,
    error::{Problem, TreeError},
    nodes::Nodes,
    tree::Tree,
};

/// A run of machine memory that belongs to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// Where.
    pub range: AddressRange,
    /// Whose.
    pub node: NodeId,
}

/// Why a range must not be used as ordinary memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReservedKind {
    /// A child of `/reserved-memory`, with its name: mostly the firmware's own memory.
    Node {
        /// Name of the node.
        name: String,
        /// It must not even be mapped: touching it traps.
        no_map: bool,
    },
    /// An entry of the blob's memory reservation block.
    Block,
    /// The boot bundle (`linux,initrd-start`).
    Initrd,
}

/// A reserved range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Where.
    pub range: AddressRange,
    /// Why.
    pub kind: ReservedKind,
}

/// Every enabled memory node, sorted by address; overlaps are refused.
pub(crate) fn read_memory(tree: &Tree<'_>, nodes: &Nodes) -> Result<Vec<MemoryRange>, TreeError> {
    let mut found = Vec::new();
    for node in tree.root().children() {
        if node.bytes("device_type") != Some(b"memory\0") || !node.is_enabled() {
            continue;
        }
        let owner = nodes.of(&node)?;
        let ranges = node.reg()?;
        found.extend(
            ranges.into_iter().filter(|range| range.bytes() > 0).map(|range| MemoryRange { range, node: owner }),
        );
    }
    if found.is_empty() {
        return Err(tree.root().error("memory", Problem::Missing));
    }
    order::by_key(&mut found, |memory| memory.range);
    let overlap = found.iter().zip(found.iter().skip(1)).find(|(a, b)| a.range.overlaps(&b.range));
    if let Some((_, second)) = overlap {
        return Err(tree.root().error("memory", Problem::Duplicate { value: second.range.start().raw() }));
    }
    Ok(found)
}

/// Static reservations, sorted by address; they may overlap. Reservations by size alone (`alloc-ranges`) are a
/// request to the operating system, not a place, and are left out.
pub(crate) fn read_reserved(
    fdt: Fdt<'_>,
    tree: &Tree<'_>,
    initrd: Option<AddressRange>,
) -> Result<Vec<Reserved>, TreeError> {
    let mut found = Vec::new();
    if let Some(parent) = tree.at("/reserved-memory") {
        for node in parent.children().filter(|node| node.is_enabled()) {
            let no_map = node.has("no-map");
            for range in node.reg()? {
                found.push(Reserved { range, kind: ReservedKind::Node { name: node.name().to_owned(), no_map } });
            }
        }
    }
    for entry in fdt.memory_reservations() {
        let (start, bytes) = (entry.address(), entry.size());
        let range = AddressRange::new(MachineAddr::new(start), bytes);
        let range = range.ok_or_else(|| tree.root().error("memreserve", Problem::Wraps { start, bytes }))?;
        found.push(Reserved { range, kind: ReservedKind::Block });
    }
    found.extend(initrd.map(|range| Reserved { range, kind: ReservedKind::Initrd }));
    order::by_key(&mut found, |reserved| reserved.range);
    Ok(found)
}

/// What is left of `memory` without `taken`, in whole pages, in ascending order.
pub(crate) fn subtract(memory: &[MemoryRange], taken: impl IntoIterator<Item = AddressRange>) -> Vec<MemoryRange> {
    let mut taken: Vec<(u64, u64)> =
        taken.into_iter().filter(|range| range.bytes() > 0).filter_map(whole_pages_around).collect();
    order::ascending(&mut taken);
    let mut left = Vec::new();
    for part in memory {
        let Some(mut start) = part.range.start().raw().checked_next_multiple_of(BASE_PAGE) else { continue };
        let end = part.range.end().raw() & !(BASE_PAGE - 1);
        for &(taken_start, taken_end) in &taken {
            if taken_start < end && taken_end > start {
                push_range(&mut left, start, taken_start, part.node);
                start = taken_end;
            }
        }
        push_range(&mut left, start, end, part.node);
    }
    left
}

/// First and last-plus-one address of the pages that `range` touches.
fn whole_pages_around(range: AddressRange) -> Option<(u64, u64)> {
    let end = range.end().raw().checked_next_multiple_of(BASE_PAGE).unwrap_or(!(BASE_PAGE - 1));
    Some((range.start().raw() & !(BASE_PAGE - 1), end))
}

fn push_range(left: &mut Vec<MemoryRange>, start: u64, end: u64, node: NodeId) {
    if let Some(bytes) = end.checked_sub(start).filter(|&bytes| bytes > 0)
        && let Some(range) = AddressRange::new(MachineAddr::new(start), bytes)
    {
        left.push(MemoryRange { range, node });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, bytes: u64) -> AddressRange {
        AddressRange::new(MachineAddr::new(start), bytes).expect("test range")
    }

    fn left(memory: &[(u64, u64)], taken: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let memory: Vec<_> = memory.iter().map(|&(s, b)| MemoryRange { range: range(s, b), node: NodeId(0) }).collect();
        let rest = subtract(&memory, taken.iter().map(|&(s, b)| range(s, b)));
        rest.iter().map(|part| (part.range.start().raw(), part.range.bytes())).collect()
    }

    #[test]
    fn reservations_cut_whole_pages_out() {
        assert_eq!(left(&[(0x1000, 0x5000)], &[(0x2800, 0x10)]), [(0x1000, 0x1000), (0x3000, 0x3000)]);
        assert_eq!(left(&[(0x1000, 0x5000)], &[(0, 0x1001)]), [(0x2000, 0x4000)]);
        assert_eq!(left(&[(0x1000, 0x5000)], &[(0, 0x10000)]), []);
    }

    #[test]
    fn reservations_may_overlap_and_cross_ranges() {
        let taken = [(0x3000, 0x6000), (0x2000, 0x2000), (0x3000, 0x1000)];
        assert_eq!(left(&[(0x1000, 0x4000), (0x8000, 0x4000)], &taken), [(0x1000, 0x1000), (0x9000, 0x3000)]);
    }

    #[test]
    fn ragged_memory_is_rounded_inward() {
        assert_eq!(left(&[(0x1800, 0x2000)], &[]), [(0x2000, 0x1000)]);
        assert_eq!(left(&[(0x1800, 0x100)], &[]), []);
    }
}
