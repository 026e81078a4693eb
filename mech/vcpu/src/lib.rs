//! What a guest's hart asks for, as far as it takes no hart to know.
//!
//! A guest's registers are allegations. This crate turns them into typed requests whose arguments have been checked once:
//! a vCPU that a request names exists, an address lies in RAM, a count is small. The monitor carries requests out and
//! has nothing left to refuse for a bad argument.
//!
//! # Key types
//! - [`sbi::Request`]: an SBI call ([`sbi::decode`]), and [`sbi::Error`]: why it is refused. [`sbi::HartMask`] walks vCPUs.
//! - [`hsm::HartState`]: the states of hart state management, and which change follows which.
//! - [`fwft::Features`]: firmware features of one vCPU, with their locks.
//! - [`sse::LocalEvents`] and [`sse::Event`]: supervisor software events, their priorities, and what delivery changes in
//!   a hart.
//! - [`trap::Trapped`] and [`trap::CsrRequest`]: instructions that trap, and what the guest's mode lets them ask for.
//!
//! The SBI is that of specification 3.0 (RISC-V Supervisor Binary Interface Specification). Sections are cited by title.
//!
//! # What it refuses
//! Whatever the specification names an error for, by that error. Nothing here panics, loops longer than there are vCPUs, or
//! allocates.
//!
//! # Locking
//! None. States that one vCPU owns have one owner. The global event lies behind a lock of its VM.
//!
//! # Tests
//! On the host: each error of each call, each edge of the state machines, and random registers (`tests/`).
#![no_std]
#![forbid(unsafe_code)]

pub mod fwft;
pub mod hsm;
pub mod sbi;
pub mod sse;
#[cfg(feature = "testing")]
pub mod testing;
pub mod trap;
