//! How the memmap is laid out over the machine's memory, before it exists.

use alloc::vec::Vec;

use addr::{Mfn, NodeId};
use thiserror::Error;

use crate::{MAX_ORDER, MemMap, MemMapEntry};

/// Frame numbers are at most 44 bits wide on RISC-V (56-bit addresses).
const FRAME_BITS: u32 = 44;
/// log2 of the pages in a section at most: 128 MiB.
const MAX_SECTION_SHIFT: u32 = 15;

/// Some contiguous memory of one node, as the device tree says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeRegion {
    /// Its node.
    pub node: NodeId,
    /// First page.
    pub start: Mfn,
    /// Pages.
    pub pages: u64,
}

/// A stretch of memory whose rows are contiguous: one node's regions, with the small holes between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The node described, in whose memory the rows should live.
    pub node: NodeId,
    /// First page described.
    pub start: Mfn,
    /// Pages described: as many rows are needed.
    pub pages: u64,
}

impl Span {
    /// Bytes that the rows take, 8-byte aligned.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.pages * size_of::<MemMapEntry>() as u64
    }

    const fn last(&self) -> u64 {
        self.start.raw() + self.pages - 1
    }
}

/// Why regions cannot be described.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// No region.
    #[error("no memory is described")]
    Empty,
    /// A region without pages, or one that ends beyond 56-bit addresses.
    #[error("the region {0:?} is empty or lies beyond 56-bit addresses")]
    BadRegion(NodeRegion),
    /// Two regions have a page in common.
    #[error("two regions overlap: one from page {first} and one from page {second}")]
    Overlap {
        /// The lower region's first page.
        first: Mfn,
        /// The higher region's first page.
        second: Mfn,
    },
    /// Two nodes have memory in the same 2 MiB block.
    #[error("two nodes have memory in the 2 MiB block of page {at}")]
    NodesShareBlock {
        /// A page of the block.
        at: Mfn,
    },
    /// The storage given for a span does not have one row per page.
    #[error("{rows} rows were given for the pages of {span:?}")]
    WrongStorage {
        /// The span.
        span: Span,
        /// Rows given.
        rows: usize,
    },
}

/// The memmap's layout: which rows are needed, for which node. Sections are as large as possible (128 MiB) and small
/// enough that none has memory of two nodes.
#[derive(Debug)]
pub struct MemMapPlan {
    spans: Vec<Span>,
    section_shift: u32,
}

impl MemMapPlan {
    /// Plans for these regions, in any order.
    ///
    /// # Errors
    /// When the regions contradict each other; see [`PlanError`].
    pub fn new(regions: &[NodeRegion]) -> Result<Self, PlanError> {
        // Bounded: pieces of memory in the machine's device tree, while it boots.
        let mut spans = Vec::with_capacity(regions.len());
        for &region in regions {
            spans.push(checked_span(region)?);
        }
        if spans.is_empty() {
            return Err(PlanError::Empty);
        }
        order::by_key(&mut spans, |span| span.start);
        let section_shift = section_shift(&spans)?;
        Ok(Self { spans: merged(&spans, section_shift), section_shift })
    }

    /// The stretches, in ascending order; [`MemMapPlan::build`] asks for storage for each.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Builds the memmap. `rows` gives storage for a span: one row per page. All pages start as
    /// [`crate::PageState::Bad`] until they are reserved or donated.
    ///
    /// # Errors
    /// [`PlanError::WrongStorage`].
    pub fn build(self, mut rows: impl FnMut(&Span) -> &'static [MemMapEntry]) -> Result<MemMap, PlanError> {
        // Bounded: the same.
        let mut parts = Vec::with_capacity(self.spans.len());
        for span in self.spans {
            let entries = rows(&span);
            if entries.len() as u64 != span.pages {
                return Err(PlanError::WrongStorage { span, rows: entries.len() });
            }
            entries.iter().for_each(|entry| entry.reset(span.node));
            parts.push((span, entries));
        }
        Ok(MemMap::new(parts, self.section_shift))
    }
}

fn checked_span(region: NodeRegion) -> Result<Span, PlanError> {
    let NodeRegion { node, start, pages } = region;
    match start.raw().checked_add(pages) {
        Some(end) if pages > 0 && end <= 1 << FRAME_BITS => Ok(Span { node, start, pages }),
        _ => Err(PlanError::BadRegion(region)),
    }
}

/// The largest section size at which no two neighbours of different nodes meet in one section.
fn section_shift(sorted: &[Span]) -> Result<u32, PlanError> {
    let mut shift = MAX_SECTION_SHIFT;
    for pair in sorted.windows(2) {
        let (low, high) = (&pair[0], &pair[1]);
        if low.last() >= high.start.raw() {
            return Err(PlanError::Overlap { first: low.start, second: high.start });
        }
        while low.node != high.node && low.last() >> shift == high.start.raw() >> shift {
            shift -= 1;
            if shift < u32::from(MAX_ORDER) {
                return Err(PlanError::NodesShareBlock { at: high.start });
            }
        }
    }
    Ok(shift)
}

/// Joins neighbours that meet in one section (then they are of one node), so that a section's rows are contiguous.
fn merged(sorted: &[Span], section_shift: u32) -> Vec<Span> {
    // Bounded: the same.
    let mut spans: Vec<Span> = Vec::with_capacity(sorted.len());
    for &span in sorted {
        match spans.last_mut() {
            Some(last) if last.last() >> section_shift == span.start.raw() >> section_shift => {
                last.pages = span.last() + 1 - last.start.raw();
            }
            _ => spans.push(span),
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(node: u8, start: u64, pages: u64) -> NodeRegion {
        NodeRegion { node: NodeId(node), start: Mfn::new(start), pages }
    }

    #[test]
    fn uneven_nodes_with_holes_are_described() {
        let plan = MemMapPlan::new(&[region(1, 0xa0000, 0x1000), region(0, 0x80200, 0x4000), region(0, 0x84300, 0x10)]);
        let plan = plan.unwrap();
        let want = [(0, 0x80200, 0x4110), (1, 0xa0000, 0x1000)];
        let got: Vec<_> = plan.spans().iter().map(|s| (s.node.0, s.start.raw(), s.pages)).collect();
        assert_eq!(got, want);
        assert_eq!(plan.section_shift, MAX_SECTION_SHIFT);
    }

    #[test]
    fn sections_shrink_until_nodes_part() {
        let plan = MemMapPlan::new(&[region(0, 0x80000, 0x1200), region(1, 0x81200, 0x200)]).unwrap();
        assert_eq!(plan.section_shift, 9);
        assert_eq!(plan.spans().len(), 2);
    }

    #[test]
    fn contradictions_are_refused() {
        assert_eq!(MemMapPlan::new(&[]).unwrap_err(), PlanError::Empty);
        let empty = region(0, 5, 0);
        assert_eq!(MemMapPlan::new(&[empty]).unwrap_err(), PlanError::BadRegion(empty));
        let beyond = region(0, u64::MAX, 2);
        assert_eq!(MemMapPlan::new(&[beyond]).unwrap_err(), PlanError::BadRegion(beyond));
        let overlap = MemMapPlan::new(&[region(0, 0x100, 0x10), region(0, 0x10f, 1)]).unwrap_err();
        assert_eq!(overlap, PlanError::Overlap { first: Mfn::new(0x100), second: Mfn::new(0x10f) });
        let shared = MemMapPlan::new(&[region(0, 0x200, 0x10), region(1, 0x210, 1)]).unwrap_err();
        assert_eq!(shared, PlanError::NodesShareBlock { at: Mfn::new(0x210) });
    }
}
