//! Which cell this monitor is, and what that means.
//!
//! All statics of the monitor are the cell's own: its harts map `.data` and `.bss` to a copy in its memory. Nothing with a
//! pointer crosses cells. Harts and nodes are numbered per cell; hart ids and [`nodes`] are the machine's.

use super::{layout::DIRECT_SIZE, logging};
use addr::{HartId, NodeId};
use alloc::{string::ToString, vec::Vec};
use control::{BootConfig, Name};
use core::sync::atomic::{AtomicBool, Ordering};
use faults::NodeSet;
use machine_tree::{AddressRange, MachineDescription};
use rv::sbi;
use spin::Once;

struct Cell {
    index: usize,
    /// All cells of the machine.
    facts: Vec<Facts>,
}

/// What every cell knows of each one from the beginning. It is the reader's own copy: it stays when that cell is lost.
#[derive(Debug)]
pub struct Facts {
    /// What it is called.
    pub name: Name,
    /// Its nodes, by the machine's numbers, in the order of its own.
    pub nodes: Vec<NodeId>,
    /// Its harts, in the order of its own numbers: the first does its duties.
    pub harts: Vec<HartId>,
    /// Bytes of memory of its nodes.
    pub bytes: u64,
    /// Where that memory is.
    memory: Vec<AddressRange>,
}

impl Facts {
    /// Its nodes as the fault firmware counts them.
    #[must_use]
    pub fn node_set(&self) -> NodeSet {
        self.nodes.iter().fold(NodeSet::EMPTY, |set, node| set.or(NodeSet::one(node.index())))
    }

    /// Whether these bytes are memory of its nodes, in one piece, which each cell's direct map shows.
    #[must_use]
    pub fn has(&self, bytes: AddressRange) -> bool {
        let holds = |part: &AddressRange| part.start() <= bytes.start() && bytes.end() <= part.end();
        bytes.end().raw() <= DIRECT_SIZE && self.memory.iter().any(holds)
    }
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
pub fn set(index: usize, parts: &[Vec<NodeId>], whole: &MachineDescription, config: Option<&BootConfig>) {
    let specs = config.map_or(&[][..], |config| &config.cells);
    let number = |at: usize| Name::new(at.to_string()).expect("a number is a name");
    let facts = |(at, nodes): (usize, &Vec<NodeId>)| {
        let harts = whole.harts.iter().filter(|hart| nodes.contains(&hart.node)).map(|hart| hart.id);
        let memory = whole.memory.iter().filter(|memory| nodes.contains(&memory.node)).map(|memory| memory.range);
        let memory: Vec<_> = memory.collect();
        // In the order that the cell's own description has them.
        let mut own = nodes.clone();
        order::ascending(&mut own);
        Facts {
            name: specs.get(at).map_or_else(|| number(at), |spec| spec.name.clone()),
            harts: harts.collect(),
            bytes: memory.iter().map(AddressRange::bytes).sum(),
            memory,
            nodes: own,
        }
    };
    let facts = parts.iter().enumerate().map(facts).collect();
    let cell = CELL.call_once(|| Cell { index, facts });
    if let (false, Some(facts)) = (is_alone(), cell.facts.get(index)) {
        logging::set_cell(facts.name.as_str());
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
    CELL.get().is_none_or(|cell| cell.facts.len() <= 1)
}

/// What is known of cell `index` from the beginning.
#[must_use]
pub fn facts(index: usize) -> Option<&'static Facts> {
    CELL.get().and_then(|cell| cell.facts.get(index))
}

/// How many cells the machine began with.
#[must_use]
pub fn count() -> usize {
    CELL.get().map_or(1, |cell| cell.facts.len())
}

/// What a cell is called.
#[must_use]
pub fn name_of(index: usize) -> &'static str {
    facts(index).map_or("", |facts| facts.name.as_str())
}

/// A cell's nodes, by the machine's numbers; the position is the cell's own number.
#[must_use]
pub fn nodes_of(index: usize) -> &'static [NodeId] {
    facts(index).map_or(&[], |facts| &facts.nodes)
}

/// This cell's nodes, by the machine's numbers; the position is the cell's own number.
#[must_use]
pub fn nodes() -> &'static [NodeId] {
    nodes_of(index())
}

/// Has the hardware, where it can, refuse this cell's stores into other cells' memory. Called when this cell has written all
/// that it hands to others.
pub fn close() {
    if is_alone() || !sbi::probe(faults::sbi::EID as usize) {
        return;
    }
    let own = facts(index()).map_or(NodeSet::EMPTY, Facts::node_set);
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
