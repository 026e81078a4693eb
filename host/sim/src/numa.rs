//! Placement of pages on synthetic machines: nodes with memory and miss counters, guests whose threads miss on pages in known ways.
//!
//! The planner that is played here is byte for byte the one that runs in the monitor. What is synthetic is the rest: a thread misses
//! on each page of its working set a few times per step, a job is done by the next step, moving a page costs nothing but its job.
//! Pages, copies, blocks on their way and watches follow the rules of the monitor's memory: a write ends the copies of a page and
//! the watch of a block, and a job that finds something else than it expects leaves the page alone.
//!
//! # Key types
//! - [`Numa`]: the machine and its planner; [`Numa::run`] lets time pass.
//! - [`Access`]: what a thread does in a step; [`Load`]s are made of it.
//! - [`PlacementReport`]: how much of the misses were local, what moved, and how often the same page did.
//! - [`PlacementScenario`]: the standard questions.

mod carry;
mod facts;
mod guest;
mod load;
mod machine;
mod memory;
mod report;
mod scenario;

pub use load::{Access, Load};
pub use machine::{By, Numa};
pub use report::PlacementReport;
pub use scenario::PlacementScenario;

/// Milliseconds of a step: as long as the planner's shortest pause between looks.
pub const STEP_MS: u64 = 5;
