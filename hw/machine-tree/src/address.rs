//! `reg` and `ranges`: from bus addresses to machine addresses.

use alloc::vec::Vec;

use addr::MachineAddr;

use crate::{
    error::{Problem, TreeError},
    tree::TreeNode,
};

/// A range of machine addresses. Never wraps; may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddressRange {
    start: MachineAddr,
    bytes: u64,
}

impl AddressRange {
    /// `bytes` bytes from `start`, or `None` if that wraps around.
    #[must_use]
    pub const fn new(start: MachineAddr, bytes: u64) -> Option<Self> {
        match start.checked_add(bytes) {
            Some(_) => Some(Self { start, bytes }),
            None => None,
        }
    }

    /// First address.
    #[must_use]
    pub const fn start(&self) -> MachineAddr {
        self.start
    }

    /// Length in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// First address behind the range.
    #[must_use]
    pub const fn end(&self) -> MachineAddr {
        MachineAddr::new(self.start.raw() + self.bytes)
    }

    /// Whether the range holds `address`.
    #[must_use]
    pub const fn contains(&self, address: MachineAddr) -> bool {
        address.raw() >= self.start.raw() && address.raw() < self.end().raw()
    }

    /// Whether the two ranges share an address.
    #[must_use]
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.start.raw() < other.end().raw() && other.start.raw() < self.end().raw()
    }
}

impl<'t, 'a> TreeNode<'t, 'a> {
    /// `#address-cells` of this node for its children; more than three cells are refused.
    pub(crate) fn address_cells(&self) -> Result<u32, TreeError> {
        self.cell_count("#address-cells", 2)
    }

    pub(crate) fn size_cells(&self) -> Result<u32, TreeError> {
        self.cell_count("#size-cells", 1)
    }

    pub(crate) fn cell_count(&self, name: &str, default: u32) -> Result<u32, TreeError> {
        match self.u32(name)? {
            Some(cells @ 4..) => Err(self.error(name, Problem::UnsupportedCells { cells })),
            cells => Ok(cells.unwrap_or(default)),
        }
    }

    /// The `reg` of a node on a memory-mapped bus, in machine addresses. Empty when there is none.
    pub(crate) fn reg(&self) -> Result<Vec<AddressRange>, TreeError> {
        let mut found = Vec::new();
        let (Some(mut cells), Some(parent)) = (self.cells("reg")?, self.parent()) else { return Ok(found) };
        let (address_cells, size_cells) = (parent.address_cells()?, parent.size_cells()?);
        for cells in [address_cells, size_cells] {
            if cells > 2 || address_cells == 0 {
                return Err(self.error("reg", Problem::UnsupportedCells { cells }));
            }
        }
        while !cells.is_empty() {
            let entry = cells.number(address_cells).zip(cells.number(size_cells));
            let (start, bytes) = entry.ok_or_else(|| self.cut_short("reg", address_cells + size_cells))?;
            let start = parent
                .translate(start, bytes)
                .ok_or_else(|| self.error("reg", Problem::NotTranslatable { address: start }))?;
            let range = AddressRange::new(MachineAddr::new(start), bytes);
            found.push(range.ok_or_else(|| self.error("reg", Problem::Wraps { start, bytes }))?);
        }
        Ok(found)
    }

    /// The first entry of `reg`, which must be there and not empty.
    pub(crate) fn first_reg(&self) -> Result<AddressRange, TreeError> {
        let first = self.reg()?.first().copied();
        let first = self.required("reg", first)?;
        if first.bytes == 0 {
            return Err(self.error("reg", Problem::OutOfRange { value: 0 }));
        }
        Ok(first)
    }

    /// A child's address on this bus as a machine address.
    pub(crate) fn translate(&self, address: u64, bytes: u64) -> Option<u64> {
        let Some(parent) = self.parent() else { return Some(address) };
        let ranges = self.bytes("ranges")?;
        if ranges.is_empty() {
            return parent.translate(address, bytes);
        }
        let (child_cells, size_cells) = (self.address_cells().ok()?, self.size_cells().ok()?);
        let parent_cells = parent.address_cells().ok()?;
        let mut cells = self.cells("ranges").ok()??;
        while !cells.is_empty() {
            let child = cells.number(child_cells)?;
            let target = cells.number(parent_cells)?;
            let length = cells.number(size_cells)?;
            if let Some(offset) = address.checked_sub(child)
                && offset.checked_add(bytes).is_some_and(|end| end <= length)
            {
                return parent.translate(target.checked_add(offset)?, bytes);
            }
        }
        None
    }
}
