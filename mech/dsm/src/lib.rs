//! One memory over several machines.
//!
//! Each machine of a cluster has a [`Dsm`] for a VM that runs on all of them. It takes what harts need and what other machines say, and
//! gives messages to send and things to do to pages. It has no clock, no lock and no memory of the guest's: the caller owns the pages
//! ([`Pages`]) and carries the messages.
//!
//! # Key types
//! - [`Dsm`]: one machine's part. [`Dsm::load`], [`Dsm::store`], [`Dsm::atomic`] and their like serve a hart's access; the answer is
//!   [`Outcome::Done`], or [`Outcome::Wait`]: the hart tries again when [`Dsm::take_wakes`] names it.
//! - [`Pages`]: the caller's pages: their bytes and what harts may do to them without asking ([`Rights`]).
//! - [`Config`]: who takes part, and how stores become visible ([`Visibility`]).
//!
//! # What it promises
//! Between machines that all run this, over channels that deliver each message once and in order (`dsm-link` makes
//! such ones of a lossy wire): what harts see is what RVWMO allows. A hart that waits for a page gets it, and retires an instruction before it leaves.
//!
//! # What it refuses
//! Messages that no machine of this protocol sends ([`Refused`]): nothing changes, and the caller should give up that peer. Lists that a
//! peer makes long have bounds: one request of each machine waits at a page's home, and [`LOG`] stores of each wait for their place.
//!
//! # Tests
//! `tests/model`: every order of messages between three machines and two pages, for small programs. The
//! crate `litmus` runs the RISC-V litmus tests on it, in random orders.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "testing"))]
extern crate std;

mod atomics;
mod choice;
mod config;
mod counters;
mod harts;
mod home;
mod log;
mod machine;
mod member;
mod owner;
mod pages;
mod state;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use atomics::{Atomic, Operation};
pub use config::{Config, Protocol, Visibility};
pub use counters::Counters;
pub use dsm_wire::{Content, Envelope, History, MachineId, Machines, Message, Mode, Page, Store, Want};
pub use harts::{Fence, Outcome};
pub use log::LOG;
pub use machine::{Dsm, Refused};
pub use pages::{Pages, Rights};
