//! The monitor's policies on synthetic machines of any size.
//!
//! The policy crates are sans-I/O, so the scheduler that is measured here at 1,024 harts is byte for byte the one that
//! runs in the monitor. What is synthetic is the rest: vCPUs are programs of "run so long, sleep so long", time goes in
//! steps, moving a vCPU takes effect at the next step and costs nothing.
//!
//! # Key types
//! - [`Machine`]: nodes of harts, each with a `sched::RunQueue`; [`Machine::run`] lets time pass, balancing by the
//!   functions that the monitor calls, as often as it does.
//! - [`Program`]: what a vCPU does.
//! - [`Report`]: how fairly it went, who waited, which harts idled for nothing, what moved.
//! - [`scenario`]: the standard questions.
//! - [`play`]: a machine and VMs as a file says, from event to event: barriers, locks and sleep, gangs, pictures of time.
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
mod vcpu;

pub use machine::{Machine, TICKS_PER_MS};
pub use report::Report;
pub use vcpu::Program;
