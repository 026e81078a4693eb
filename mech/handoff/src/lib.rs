//! What harts leave for each other without waiting.
//!
//! A vCPU belongs to one hart. Whoever wants something of it leaves a bit ([`Requests`]) and rings at its hart ([`Doorbell`]); the hart looks
//! before it sleeps and before it lets a guest run. A vCPU that is stopped is started with [`Life::claim_start`]. Who waits until harts have
//! left a VM says so ([`Waiters`]). Messages to a vCPU go to its file of the hardware, or to one in software while it has none
//! ([`FilePlace`]). What a VM owes for work that was done for it outside its turns is in its [`Debt`].
//!
//! Each is a few atomics, and each rests on an order of steps that its documentation names. The monitor adds what rings and what is asked.
//!
//! # Locking
//! [`Life`] has a lock of a few instructions around the entry. [`FilePlace`] is to be locked by its user.
//!
//! # Tests
//! `tests/loom.rs` runs these very files under the `loom` model checker: in no interleaving, and with no value that the memory model allows,
//! is a request missed by a hart that sleeps, a start lost or done twice, a message lost or told twice, a vCPU left waiting, or a
//! tick of a debt lost or paid twice.
#![no_std]
#![forbid(unsafe_code)]

mod bell;
mod debt;
mod file;
mod life;
mod requests;
mod waiters;

/// What the model checker replaces.
mod sync {
    pub use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
    pub use spin::Mutex;
}

pub use bell::Doorbell;
pub use debt::Debt;
pub use file::FilePlace;
pub use life::Life;
pub use requests::Requests;
pub use waiters::Waiters;
