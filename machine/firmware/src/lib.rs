//! What the firmware decides without touching a hart: what the machine consists of, who reaches whom after a fault, and the
//! protection entries that make it so.
//!
//! # Key types
//! - [`Hardware`]: the machine as its device tree describes it; [`fix_up`] adds to the tree what programs above the firmware
//!   must know.
//! - [`Containment`]: nodes, links and pages that still work. [`Containment::after`] is the state after a fault, or a refusal;
//!   nothing changes when a fault is refused.
//! - [`Plan`]: the PMP entries of one node's harts, highest priority first, that deny what the node no longer reaches.
//!   [`Plan::allows`] is what the hardware makes of them.
//! - [`Counters`]: the SBI's performance counters, over any [`Registers`].
//!
//! # What it refuses
//! Trees that describe something else than QEMU's `virt` machine with up to [`MAX_HARTS`] harts; faults that name what does
//! not exist, leave nobody alive, or need more than the harts' 16 PMP entries.
//!
//! No `unsafe`, no locks, no heap. Unit and property tests run on the host; the firmware itself is `main.rs`.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod counters;
mod fixup;
mod hardware;
mod pmp;
mod state;

pub use counters::{COUNTERS, CounterError, Counters, EventMap, FIRST_FIRMWARE, Registers};
pub use fixup::{FixupError, fix_up};
pub use hardware::{Aplic, Doorbell, Hardware, HartPlace, MAX_HARTS, Memory, MsiTarget, Timer, TreeError};
pub use pmp::{Access, ENTRIES, Entry, Plan};
pub use state::Containment;
