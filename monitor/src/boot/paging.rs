//! The monitor's own page tables, one set per node: text and read-only data from the node's copy, everything in
//! tables that lie in the node's memory, so that a hart runs on without touching any other node's memory for them.

use super::{
    image,
    layout::{DIRECT_BASE, DIRECT_SIZE, IMAGE_BASE, direct},
};
use crate::machine::{direct as dm, memory};
use addr::{BASE_PAGE, MachineAddr, Mfn, NodeId};
use rv_pte::{Level, Mode, Pbmt, Pte, PteFlags, Satp};

const MODE: Mode = Mode::Sv39;

/// Builds node `node`'s tables and its copy of text and read-only data; returns their root.
///
/// # Panics
/// When the node has not even the few dozen pages that this takes: such a node cannot be used.
#[must_use]
pub fn build_node(node: NodeId) -> Mfn {
    let root = table_page(node);
    for gigapage in 0..DIRECT_SIZE >> 30 {
        let frame = MachineAddr::new(gigapage << 30).mfn();
        let leaf = Pte::leaf(frame, Level::GIGA, PteFlags::RW | PteFlags::AD | PteFlags::G, Pbmt::Pma);
        set(root, Level::GIGA, DIRECT_BASE + (gigapage << 30), leaf.expect("gigapages are aligned"));
    }
    let parts = image::parts();
    let mut va = parts.start;
    while va < parts.end {
        let loaded = image::machine_of(va).mfn();
        let (frame, flags) = if va < parts.text_end {
            (copy_of(loaded, node), PteFlags::RX)
        } else if va < parts.rodata_end {
            (copy_of(loaded, node), PteFlags::R)
        } else {
            (loaded, PteFlags::RW)
        };
        map_page(node, root, va, frame, flags);
        va += BASE_PAGE;
    }
    debug_assert!(parts.start == IMAGE_BASE && direct(MachineAddr::new(0)) == DIRECT_BASE);
    root
}

/// The `satp` value for the tables that begin at `root`.
#[must_use]
pub fn satp(root: Mfn) -> u64 {
    Satp { mode: MODE, asid: 0, root }.encode().expect("a table frame fits satp")
}

/// Maps one page of data.
pub fn map_data(node: NodeId, root: Mfn, va: u64, frame: Mfn) {
    map_page(node, root, va, frame, PteFlags::RW);
}

fn copy_of(loaded: Mfn, node: NodeId) -> Mfn {
    let copy = memory::take_monitor_page(node).expect("memory for the node's copy of the image");
    dm::copy_page(copy, loaded);
    copy
}

fn table_page(node: NodeId) -> Mfn {
    let page = memory::take_monitor_page(node).expect("memory for the node's page tables");
    dm::zero(page, addr::PageSize::Base);
    page
}

fn slot(table: Mfn, level: Level, va: u64) -> MachineAddr {
    MachineAddr::new(table.addr().raw() + 8 * MODE.index(level, va) as u64)
}

fn set(table: Mfn, level: Level, va: u64, pte: Pte) {
    dm::write_u64(slot(table, level, va), pte.raw());
}

fn map_page(node: NodeId, root: Mfn, va: u64, frame: Mfn, flags: PteFlags) {
    let mut table = root;
    for level in [Level::GIGA, Level::LARGE] {
        let entry = Pte::from_raw(dm::read_u64(slot(table, level, va)));
        table = if entry.is_table() {
            entry.frame()
        } else {
            let below = table_page(node);
            set(table, level, va, Pte::table(below).expect("a frame fits a pointer"));
            below
        };
    }
    let leaf = Pte::leaf(frame, Level::BASE, flags | PteFlags::AD | PteFlags::G, Pbmt::Pma);
    set(table, Level::BASE, va, leaf.expect("flags are one of three constants"));
}
