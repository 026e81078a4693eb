//! G-stage tables: what the harts of one node see of a VM's memory.
//!
//! A VM has one [`NodeTable`] per node, so that two nodes can map one guest page to two copies of it. The tables are a
//! cache of the pmap (crate `pmap`), which is the truth: a leaf may be missing at any time, and the next fault brings it
//! back. A leaf must never allow *more* than the pmap does; so whoever takes something away from the pmap removes or
//! weakens the leaves after it, in all tables, and waits for the shootdown before the machine page goes on.
//!
//! # Key types
//! - [`NodeTable`]: a table of one of the G-stage modes (Sv39x4, Sv48x4, Sv57x4). [`NodeTable::install`] is the fault
//!   path: one compare and one store when the fault lies in the block of the last one. [`NodeTable::remove`],
//!   [`NodeTable::exchange`], [`NodeTable::weaken`], [`NodeTable::split`] and [`NodeTable::collapse`] are the rest of a
//!   leaf's life.
//! - [`Dismantling`]: the end of a table, in steps.
//! - [`Installed`], [`TableError`]: what came of it. On an error nothing has changed.
//! - `testing::FakeMachine` (feature `testing`): harts whose TLBs keep all that they may keep, and that record every
//!   fence, interrupt and entry.
//!
//! # What it refuses
//! A leaf that names another machine page than the one that is there, or that silently takes rights away
//! ([`TableError::Occupied`]): both need a shootdown, so they have calls of their own. Guest pages beyond what the mode
//! translates ([`TableError::OutOfRange`]).
//!
//! # What hardware sees
//! Tables change under running walkers. Every change is one store of eight bytes, after the contents that it points to
//! (that is promised by [`frames::MachineMemory::write_u64`]), so a walker finds the old entry or the new one. Pages of
//! tables leave through a [`frames::DyingList`], behind a shootdown, like guest pages.
//!
//! # Locking
//! None inside: a table is guarded by its VM's memory lock. It takes node locks of `frames` (leaf locks) for pages.
//!
//! # Tests
//! `tests::model` runs random operations in all modes against a map of leaves, `tests::shootdown` frees memory under
//! adversarial TLBs and asserts who was fenced and interrupted.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod change;
mod dismantle;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use dismantle::Dismantling;
pub use table::{Installed, LeafFound, NodeTable, TableError};
