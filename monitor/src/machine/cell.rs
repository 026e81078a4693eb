//! Which cell this monitor is, and what that means.
//!
//! All statics of the monitor are the cell's own: its harts map `.data` and `.bss` to a copy in its memory. Nothing with a
//! pointer crosses cells. Harts and nodes are numbered per cell; hart ids and [`nodes`] are the machine's.

use super::logging;
use addr::NodeId;
use alloc::{
    string::{String, ToString},
    vec::Vec,
};
use control::BootConfig;
use core::sync::atomic::{AtomicBool, Ordering};
use faults::NodeSet;
use rv::sbi;
use spin::Once;

struct Cell {
    index: usize,
    names: Vec<String>,
    /// Its nodes, by the machine's numbers.
    nodes: Vec<NodeId>,
}

static CELL: Once<Cell> = Once::new();
/// Whether another cell started this one.
static IS_STARTED: AtomicBool = AtomicBool::new(false);
/// A hart of this cell has panicked.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Boot, before anything can fail: another cell has started this one.
pub fn set_started() {
    IS_STARTED.store(true, Ordering::Relaxed);
}

/// Boot tells which cell this is of those with these nodes.
pub fn set(index: usize, parts: &[Vec<NodeId>], config: Option<&BootConfig>) {
    let specs = config.map_or(&[][..], |config| &config.cells);
    let name = |at: usize| specs.get(at).map_or_else(|| at.to_string(), |spec| spec.name.to_string());
    let names: Vec<_> = (0..parts.len()).map(name).collect();
    let nodes = parts.get(index).cloned().unwrap_or_default();
    let cell = CELL.call_once(|| Cell { index, names, nodes });
    if let (false, Some(name)) = (is_alone(), cell.names.get(index)) {
        logging::set_cell(name);
    }
}

/// Its position among the machine's cells.
#[must_use]
pub fn index() -> usize {
    CELL.get().map_or(0, |cell| cell.index)
}

/// Whether it is the one with the machine's devices and the control port.
#[must_use]
pub fn is_first() -> bool {
    !IS_STARTED.load(Ordering::Relaxed)
}

/// Whether it is the machine's only one; so it seems until boot has called [`set`].
#[must_use]
pub fn is_alone() -> bool {
    CELL.get().is_none_or(|cell| cell.names.len() <= 1)
}

/// What a cell is called.
#[must_use]
pub fn name_of(index: usize) -> &'static str {
    CELL.get().and_then(|cell| cell.names.get(index)).map_or("", String::as_str)
}

/// This cell's nodes, by the machine's numbers; the position is the cell's own number.
#[must_use]
pub fn nodes() -> &'static [NodeId] {
    CELL.get().map_or(&[], |cell| &cell.nodes)
}

/// Has the hardware, where it can, refuse this cell's stores into other cells' memory. Called when this cell has written all
/// that it hands to others.
pub fn close() {
    if is_alone() || !sbi::probe(faults::sbi::EID as usize) {
        return;
    }
    let own = nodes().iter().fold(NodeSet::EMPTY, |set, node| set.or(NodeSet::one(node.index())));
    let answer = sbi::raw(faults::sbi::EID, faults::sbi::WRITE_FIREWALL, [own.0, 0, 0, 0, 0]);
    if answer.is_ok() {
        log::info!("the hardware refuses this cell's stores into other cells' memory");
    } else {
        log::warn!("no write firewall: SBI error {}", answer.error);
    }
}

/// Whether this cell has failed. Then its harts stop where they look.
#[must_use]
pub fn has_failed() -> bool {
    HAS_FAILED.load(Ordering::Relaxed)
}

/// It has; whether that is news.
pub fn set_failed() -> bool {
    !HAS_FAILED.swap(true, Ordering::SeqCst)
}

/// Takes the calling hart out of use.
pub fn stop_hart() -> ! {
    sbi::hart_stop();
    loop {
        rv::fence::wait_for_interrupt();
    }
}
