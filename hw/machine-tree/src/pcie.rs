//! PCI Express host bridges with memory-mapped configuration space (binding `pci-host-ecam-generic`).

use alloc::vec::Vec;

use addr::MachineAddr;

use crate::{
    address::AddressRange,
    controllers::InterruptControllers,
    error::{Problem, TreeError},
    interrupts::InterruptSource,
    tree::{Tree, TreeNode},
};

/// Which address space a window opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PciSpace {
    /// Port I/O.
    Io,
    /// Memory that 32-bit BARs can reach.
    Memory32,
    /// Memory for 64-bit BARs.
    Memory64,
}

/// A window of the machine's address space through which the bridge reaches its bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PciWindow {
    /// Address space.
    pub space: PciSpace,
    /// May be read ahead.
    pub is_prefetchable: bool,
    /// First bus address.
    pub bus_address: u64,
    /// The same place as the machine sees it.
    pub range: AddressRange,
}

/// A host bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcieHost {
    /// Configuration space: 4 KiB per function, from `first_bus` on.
    pub ecam: AddressRange,
    /// First bus number.
    pub first_bus: u8,
    /// Last bus number.
    pub last_bus: u8,
    /// Windows for BARs.
    pub windows: Vec<PciWindow>,
    routes: Vec<Route>,
    /// Bits of (first address cell, pin) that the routes compare.
    mask: (u32, u32),
}

/// A row of `interrupt-map`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Route {
    /// First address cell: device and function number in bits 8..16.
    address: u32,
    /// Interrupt pin, 1 = INTA.
    pin: u32,
    source: InterruptSource,
}

impl PcieHost {
    /// Where pin `pin` (1 = INTA to 4 = INTD) of `device` on the root bus arrives.
    #[must_use]
    pub fn interrupt(&self, device: u8, function: u8, pin: u8) -> Option<InterruptSource> {
        let address = (u32::from(device & 0x1f) << 11 | u32::from(function & 7) << 8) & self.mask.0;
        let pin = u32::from(pin) & self.mask.1;
        self.routes.iter().find(|route| route.address == address && route.pin == pin).map(|route| route.source)
    }
}

pub(crate) fn read_hosts(tree: &Tree<'_>, controllers: &InterruptControllers) -> Result<Vec<PcieHost>, TreeError> {
    tree.compatible(&["pci-host-ecam-generic"]).map(|node| read_host(&node, controllers)).collect()
}

fn read_host(node: &TreeNode<'_, '_>, controllers: &InterruptControllers) -> Result<PcieHost, TreeError> {
    let (first_bus, last_bus) = read_buses(node)?;
    let mask = read_mask(node)?;
    let ecam = node.first_reg()?;
    // Buses beyond what `reg` covers cannot be reached.
    let covered = (ecam.bytes() >> 20).clamp(1, 256) - 1;
    let last_bus = u64::from(last_bus).min(u64::from(first_bus) + covered);
    Ok(PcieHost {
        ecam,
        first_bus,
        last_bus: u8::try_from(last_bus).unwrap_or(u8::MAX),
        windows: read_windows(node)?,
        routes: read_routes(node, controllers, mask)?,
        mask,
    })
}

fn read_buses(node: &TreeNode<'_, '_>) -> Result<(u8, u8), TreeError> {
    let Some(mut cells) = node.cells("bus-range")? else { return Ok((0, u8::MAX)) };
    let (Some(first), Some(last)) = (cells.cell(), cells.cell()) else {
        return Err(node.cut_short("bus-range", 2));
    };
    match (u8::try_from(first), u8::try_from(last)) {
        (Ok(low), Ok(high)) if low <= high => Ok((low, high)),
        _ => Err(node.error("bus-range", Problem::OutOfRange { value: u64::from(last) })),
    }
}

fn read_windows(node: &TreeNode<'_, '_>) -> Result<Vec<PciWindow>, TreeError> {
    const NAME: &str = "ranges";
    let mut found = Vec::new();
    let (Some(mut cells), Some(parent)) = (node.cells(NAME)?, node.parent()) else { return Ok(found) };
    expect_cells(node)?;
    let parent_cells = parent.address_cells()?;
    while !cells.is_empty() {
        let entry = (cells.cell(), cells.number(2), cells.number(parent_cells), cells.number(2));
        let (Some(kind), Some(bus_address), Some(target), Some(bytes)) = entry else {
            return Err(node.cut_short(NAME, 5 + parent_cells));
        };
        let space = match kind >> 24 & 3 {
            1 => PciSpace::Io,
            2 => PciSpace::Memory32,
            3 => PciSpace::Memory64,
            _ => continue,
        };
        let start = parent.translate(target, bytes);
        let start = start.ok_or_else(|| node.error(NAME, Problem::NotTranslatable { address: target }))?;
        let range = AddressRange::new(MachineAddr::new(start), bytes);
        let range = range.filter(|_| bus_address.checked_add(bytes).is_some());
        let range = range.ok_or_else(|| node.error(NAME, Problem::Wraps { start, bytes }))?;
        found.push(PciWindow { space, is_prefetchable: kind & 1 << 30 != 0, bus_address, range });
    }
    Ok(found)
}

fn read_mask(node: &TreeNode<'_, '_>) -> Result<(u32, u32), TreeError> {
    const NAME: &str = "interrupt-map-mask";
    let Some(mut cells) = node.cells(NAME)? else { return Ok((u32::MAX, u32::MAX)) };
    match (cells.cell(), cells.skip(2), cells.cell()) {
        (Some(address), Some(()), Some(pin)) => Ok((address, pin)),
        _ => Err(node.cut_short(NAME, 4)),
    }
}

fn read_routes(
    node: &TreeNode<'_, '_>,
    controllers: &InterruptControllers,
    mask: (u32, u32),
) -> Result<Vec<Route>, TreeError> {
    const NAME: &str = "interrupt-map";
    let mut found = Vec::new();
    let Some(mut cells) = node.cells(NAME)? else { return Ok(found) };
    expect_cells(node)?;
    while !cells.is_empty() {
        let entry = (cells.cell(), cells.skip(2), cells.cell(), cells.cell());
        let (Some(address), Some(()), Some(pin), Some(phandle)) = entry else {
            return Err(node.cut_short(NAME, 5));
        };
        let parent = node.tree.by_phandle(phandle);
        let parent = parent.ok_or_else(|| node.error(NAME, Problem::UnknownPhandle { phandle }))?;
        // Interrupt controllers without #address-cells have none: the default of 2 is for buses.
        let unit_cells = parent.cell_count("#address-cells", 0)?;
        cells.skip(unit_cells).ok_or_else(|| node.cut_short(NAME, 5 + unit_cells))?;
        if let Some(source) = node.specifier(controllers, NAME, phandle, &mut || cells.cell())? {
            found.push(Route { address: address & mask.0, pin: pin & mask.1, source });
        }
    }
    Ok(found)
}

/// PCI addresses are three cells, sizes two, interrupt pins one.
fn expect_cells(node: &TreeNode<'_, '_>) -> Result<(), TreeError> {
    let wrong = |name: &str, cells| Err(node.error(name, Problem::UnsupportedCells { cells }));
    match (node.address_cells()?, node.size_cells()?, node.cell_count("#interrupt-cells", 1)?) {
        (3, 2, 1) => Ok(()),
        (3, 2, cells) => wrong("#interrupt-cells", cells),
        (3, cells, _) => wrong("#size-cells", cells),
        (cells, ..) => wrong("#address-cells", cells),
    }
}
