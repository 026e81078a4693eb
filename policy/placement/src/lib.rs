//! Where a guest's pages should be: on the node that uses them, on every node that reads them, or where they are.
//!
//! Facts in, proposals out (Disco, section 4.2.3): pages that one node uses migrate to it; pages that several nodes read are
//! replicated; pages that are written by some and used by others stay, because no place is good for all; and no page moves
//! more often than its [`History`] allows. The caller performs a proposal or drops it; a wrong one costs time, nothing else.
//!
//! # Key types
//! - [`Planner`]: the whole of it. It is told of hot pages or takes samples, judges pages and blocks, and leaves harts jobs. What it has
//!   to ask meanwhile it asks through [`Facts`], and [`Hands`] take what it proposes: the monitor has both, and so has the simulator.
//! - [`PageFacts`] and [`decide`]: one page of 4 KiB that some node misses on often. [`BlockFacts`] and [`decide_block`]: the
//!   2 MiB block that such a page may be part of.
//! - [`Proposal`], [`BlockProposal`], [`Reason`]: what to do, and why or why not; the reason goes into the trace.
//! - [`Thresholds`]: the numbers, with their source.
//! - [`Samples`]: which pages to look at, where nobody counts misses.
//! - [`History`]: how often a page was tried already, and when last; three bytes that the caller keeps with the page.
//!   [`Budget`]: what a VM may spend on trying pages again.
//!
//! # What it promises
//! A look is bounded: so many reports, so many blocks, one job for a hart, two jobs with pages of a VM at a time, and a bounded number
//! of pages that wait. Facts that make no sense lead to no proposal.
//!
//! A page is tried at most [`Thresholds::max_tries`] times, and once more per [`Thresholds::forgive_ticks`], whatever its
//! users do; of all pages of a VM, those that were tried before only as far as its [`Budget`] goes: so an adversary that lets pages
//! follow it back and forth costs a bounded number of moves per second. A page that is written is never replicated. Nothing is proposed for a page that a device uses.
//!
//! # What it refuses
//! It does not know what counted: misses of a counting device, or samples (see [`Thresholds::for_samples`]).
//!
//! # Locking
//! None. Decisions have no state, everything is in the arguments; a [`Planner`] and [`Samples`] have one owner.
//!
//! # Tests
//! Unit tests of the decisions; `tests/adversaries.rs` plays users of a page against the policy (ping-pong, phase changes,
//! readers with a rare writer, random ones) and bounds what they can make it do. `tests/planner.rs` tells the planner what each test
//! wants, `tests/hostile.rs` nonsense. The crate `sim` plays it on whole machines of up to 64 nodes.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod block;
mod budget;
mod facts;
mod history;
mod page;
mod planner;
mod samples;
mod thresholds;

pub use block::{BlockFacts, BlockProposal, Parts, Uses, decide_block, is_worth_a_copy};
pub use budget::Budget;
pub use facts::{
    Backed, Facts, Guest, Hands, Hart, Hot, Job, Located, Look, Machine, Order, SHARERS, Shared, Sharer, Wish, Work,
};
pub use history::History;
pub use page::{Backing, PageFacts, Proposal, Reason, Writes, decide, other_readers, sole_user};
pub use planner::{AT_ONCE, BATCH, BLOCK_MOVES, IDLE_HZ, Planner};
pub use samples::{Found, LOOKS, OPEN, Sample, Samples};
pub use thresholds::{Switches, Thresholds};

/// Nodes that can be told apart, as in the machine's miss counters. Types and functions that count by node take another number, of 64
/// at most, as their parameter.
pub const NODES: usize = 8;

/// Misses or samples by node.
pub type Misses<const N: usize = NODES> = [u32; N];

/// Nodes by bit: bit `n` for node `n`.
pub type NodeBits = u64;
