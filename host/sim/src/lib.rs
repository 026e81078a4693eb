//! The monitor's policies on synthetic machines of any size.
//!
//! The policy crates are sans-I/O, so the scheduler that is measured here at 1,024 harts is byte for byte the one that
//! runs in the monitor. What is synthetic is the rest: vCPUs are programs of steps, and time goes from event to event.
//!
//! # Key types
//! - [`play::Play`]: nodes of harts, each with a `sched::RunQueue`, and VMs as a file says: barriers, locks and sleep, gangs,
//!   pictures of time. It picks and balances by the functions that the monitor calls, as often as that does.
//! - [`Machine`]: the same for vCPUs that only compute or sleep ([`Program`]), without a file.
//! - [`Report`]: how fairly it went, who waited, which harts idled for nothing, what moved.
//! - [`scenario`]: the standard questions.
//! - [`sharing`]: one memory over several machines, by the crate `dsm` over modelled links.
//! - [`numa`]: the same for placement: nodes with memory and miss counters, played by the monitor's planner.
//!
//! # Tests
//! `tests/gangs.rs`: what running together gains, and that nobody gains by pretending. `tests/fairness.rs`: the promises of the crate `sched` on whole machines. `tests/stays.rs`: who has moved is left
//! alone for a while. `tests/placement.rs`: the promises of the crate `placement`.
#![forbid(unsafe_code)]

mod machine;
pub mod numa;
pub mod play;
mod report;
pub mod scenario;
pub mod sharing;

pub use machine::{Machine, Program};
pub use report::Report;

/// Ticks in a millisecond: a timebase of 10 MHz, as on QEMU `virt`.
pub const TICKS_PER_MS: u64 = 10_000;
