//! What the hardware says has failed, where it is hardware that says so: the fault firmware's status page. Elsewhere nothing is
//! known, and memory that cannot be read counts as lost.

use super::{cell, direct};
use ::cell::{CellId, CellSet};
use addr::{BASE_PAGE, MachineAddr};
use faults::{Fault, NodeSet, Status};
use rv::sbi;
use spin::Once;

static PAGE: Once<Option<MachineAddr>> = Once::new();

/// Boot, where it may matter: asks the firmware for its page.
pub fn init() {
    PAGE.call_once(|| {
        if !sbi::probe(faults::sbi::EID as usize) {
            return None;
        }
        let answer = sbi::raw(faults::sbi::EID, faults::sbi::STATUS_ADDRESS, [0; 5]);
        let is_page = answer.is_ok()
            && answer.value.is_multiple_of(BASE_PAGE)
            && answer.value < super::layout::DIRECT_SIZE - BASE_PAGE;
        is_page.then(|| MachineAddr::new(answer.value))
    });
}

/// A word of the page; 0 where it has none, or cannot be read.
fn word(index: usize) -> u64 {
    let page = PAGE.get().copied().flatten();
    page.and_then(|page| direct::try_read_u64(MachineAddr::new(page.raw() + 8 * index as u64))).unwrap_or(0)
}

/// From which cells cut links divide a cell, whatever else has happened to these.
#[must_use]
pub fn cut_from(cell: CellId) -> CellSet {
    let mut cut = CellSet::EMPTY;
    for record in Status::history(word) {
        let Fault::Link(side) = record.fault else { continue };
        let others = CellId::all().filter(|other| *other != cell && divides(side, cell, *other));
        cut = others.fold(cut, CellSet::with);
    }
    cut
}

/// Whether cutting this side off divides two cells. Where all nodes of both are on one side, it does not.
fn divides(side: NodeSet, one: CellId, other: CellId) -> bool {
    let sets = cell::facts(one.index()).zip(cell::facts(other.index()));
    let Some(both) = sets.map(|(one, other)| one.node_set().or(other.node_set())) else { return false };
    !both.and(side).is_empty() && !both.without(side).is_empty()
}

/// Whether the cell's own nodes all live and reach each other. If not, the cell cannot go on.
#[must_use]
pub fn is_whole() -> bool {
    let Some(own) = cell::facts(cell::index()).map(cell::Facts::node_set) else { return true };
    let Some(status) = Status::read(word) else { return true };
    own.iter().all(|node| status.reach.get(node).is_none_or(|reach| own.without(*reach).is_empty()))
}
