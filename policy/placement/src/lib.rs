//! Where a guest's pages should be: on the node that uses them, on every node that reads them, or where they are.
//!
//! Facts in, proposals out (Disco, section 4.2.3): pages that one node uses migrate to it; pages that several nodes read are
//! replicated; pages that are written by some and used by others stay, because no place is good for all; and no page moves
//! more often than its [`History`] allows. The caller performs a proposal or drops it; a wrong one costs time, nothing else.
//!
//! # Key types
//! - [`PageFacts`] and [`decide`]: one page of 4 KiB that some node misses on often. [`BlockFacts`] and [`decide_block`]: the
//!   2 MiB block that such a page may be part of.
//! - [`Proposal`], [`BlockProposal`], [`Reason`]: what to do, and why or why not; the reason goes into the trace.
//! - [`Thresholds`]: the numbers, with their source.
//! - [`Samples`]: which pages to look at, where nobody counts misses.
//! - [`History`]: how often a page was tried already, and when last; three bytes that the caller keeps with the page.
//!   [`Budget`]: what a VM may spend on trying pages again.
//!
//! # What it promises
//! A page is tried at most [`Thresholds::max_tries`] times, and once more per [`Thresholds::forgive_ticks`], whatever its
//! users do; of all pages of a VM, those that were tried before only as far as its [`Budget`] goes: so an adversary that lets pages
//! follow it back and forth costs a bounded number of moves per second. A page that is written is never replicated. Nothing is proposed for a page that a device uses.
//!
//! # What it refuses
//! It does not know what counted: misses of a counting device, or samples (see [`Thresholds::for_samples`]).
//!
//! # Locking
//! None. Decisions have no state, everything is in the arguments; [`Samples`] have one owner.
//!
//! # Tests
//! Unit tests of the decisions; `tests/adversaries.rs` plays users of a page against the policy (ping-pong, phase changes,
//! readers with a rare writer, random ones) and bounds what they can make it do.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod block;
mod budget;
mod history;
mod page;
mod samples;
mod thresholds;

pub use block::{BlockFacts, BlockProposal, Parts, Uses, decide_block, is_worth_a_copy};
pub use budget::Budget;
pub use history::History;
pub use page::{Backing, PageFacts, Proposal, Reason, Writes, decide, other_readers, sole_user};
pub use samples::{Found, LOOKS, OPEN, Sample, Samples};
pub use thresholds::{Switches, Thresholds};

/// Nodes that can be told apart, as in the machine's miss counters.
pub const NODES: usize = 8;

/// Misses or samples by node.
pub type Misses = [u32; NODES];
