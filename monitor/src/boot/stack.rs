//! The harts' stacks: each in its node's memory, in a region of their own with nothing mapped below them.
//!
//! A stack that overflows hits the hole beneath it. The trap that follows runs on the hart's emergency stack (see
//! `rv::world`), so that the machine says what happened and stops, instead of writing over its neighbour.

use super::{layout, paging};
use crate::machine::memory;
use addr::{BASE_PAGE, CpuIndex, Mfn, NodeId};

/// Base pages of a hart's stack.
const STACK_PAGES: u64 = layout::STACK_BYTES / BASE_PAGE;
/// Base pages of a hart's emergency stack: enough for all that a panic says.
const EMERGENCY_PAGES: u64 = 4;

/// Gives hart `cpu` its stack, mapped in the tables that begin at `root`; the stack's top.
///
/// # Panics
/// When the machine has no memory left at boot.
#[must_use]
pub fn prepare(cpu: CpuIndex, node: NodeId, root: Mfn) -> u64 {
    const { assert!(layout::STACK_BYTES < layout::STACK_SLOT) };
    let frames = memory::take_monitor_run(node, STACK_PAGES).expect("memory for a hart's stack");
    let top = layout::stack_top(cpu.0.into());
    for page in 0..STACK_PAGES {
        let va = top - (page + 1) * BASE_PAGE;
        paging::map_data(node, root, va, Mfn::new(frames.raw() + STACK_PAGES - 1 - page));
    }
    top
}

/// The top of a new emergency stack, in the direct map.
///
/// # Panics
/// As [`prepare`].
#[must_use]
pub fn emergency(node: NodeId) -> u64 {
    let frames = memory::take_monitor_run(node, EMERGENCY_PAGES).expect("memory for a hart's emergency stack");
    layout::direct(frames.addr()) + EMERGENCY_PAGES * BASE_PAGE
}
