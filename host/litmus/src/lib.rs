//! RISC-V litmus tests.
//!
//! # Key types
//! - [`Test`]: threads of a few instructions, what memory begins with, and a condition on the end ([`parse()`] reads the usual format).
//! - [`allowed`]: every end that RVWMO allows, by going through all executions.
//! - [`run`]: the ends that machines with one memory come to ([`dsm`]), in random orders of messages and steps.
//! - [`generate::all`]: the classic shapes with each way to order their accesses.
//!
//! # What it does not do
//! The format is the part of it that these tests use: loads and stores of 4 and 8 bytes, AMOs, LR and SC, fences, a few arithmetic
//! instructions and forward branches. The harts that it plays run in program order: they show what the memory of several machines does
//! to them, not what a hart's own reordering adds.
//!
//! # Tests
//! `tests/set` has the generated tests; each runs on the protocol, and nothing forbidden may come. Known verdicts check the model.
#![forbid(unsafe_code)]

pub mod generate;
mod model;
mod parse;
mod play;
mod test;
mod trace;

pub use model::allowed;
pub use parse::{Problem, parse};
pub use play::{Lay, run};
pub use test::{Arithmetic, Compare, Fence, Instruction, Observable, Test};
