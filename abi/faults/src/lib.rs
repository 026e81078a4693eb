//! How hardware is made to fail: what the firmware, the host and the monitor share.
//!
//! The fault firmware (`machine/firmware`) plays the part of hardware that contains faults (Cellular Disco, section 6;
//! FLASH's MAGIC). Two pages at the end of its memory are its registers:
//!
//! - the *status page* ([`STATUS_AT`], readable in S-mode): which nodes each node still reaches, the poisoned pages, the
//!   epoch, and what was injected so far. [`Status::read`] gives a consistent view.
//! - the *mailbox* ([`MAILBOX_AT`], the firmware's and the host's): [`SLOTS`] requests to fail something, now, at a time, or
//!   when a hart has executed so many instructions.
//!
//! # Key types
//! [`Fault`] says what fails, [`Trigger`] when, [`Request`] both; [`Refusal`] why not. [`NodeSet`] is a set of nodes.
//!
//! # What it refuses
//! [`Request::decode`] takes any words: whatever is wrong has a [`Refusal`]. What depends on the machine (a node that does
//! not exist) is refused by the firmware with the same type.
//!
//! The words and what they mean are described in `docs/abi/faults.md`. No `unsafe`, no locks: callers bring the accesses.
//! Unit and property tests run on the host.
#![no_std]
#![forbid(unsafe_code)]

mod mailbox;
mod nodes;
mod refusal;
mod request;
pub mod sbi;
mod status;

pub use mailbox::{
    DEFAULT_POLL_TICKS, MAILBOX_MAGIC, MAILBOX_WORDS, MAX_POLL_TICKS, MIN_POLL_TICKS, SLOT_WORDS, SLOTS, SlotState,
    empty_mailbox, poll_ticks, slot_at, slot_words, word,
};
pub use nodes::{MAX_NODES, NodeSet};
pub use refusal::Refusal;
pub use request::{Fault, Kind, REQUEST_WORDS, Request, Trigger};
pub use status::{HISTORY, MAX_POISONED, RECORD_WORDS, Record, STATUS_MAGIC, STATUS_WORDS, Status, status_word};

/// First byte of the firmware's memory: the first of RAM.
pub const FIRMWARE_AT: u64 = 0x8000_0000;
/// Bytes of it: nobody but the firmware may use them.
pub const FIRMWARE_BYTES: u64 = 2 << 20;
/// The status page.
pub const STATUS_AT: u64 = FIRMWARE_AT + FIRMWARE_BYTES - 0x2000;
/// The mailbox.
pub const MAILBOX_AT: u64 = FIRMWARE_AT + FIRMWARE_BYTES - 0x1000;
/// Bytes of each of the two.
pub const PAGE_BYTES: u64 = 0x1000;
/// Ticks of the emulated machine's time in a second.
pub const TICKS_PER_SECOND: u64 = 10_000_000;
/// Version of all that this crate describes.
pub const VERSION: u64 = 1;
/// What the device tree's node for the status page is compatible with.
pub const COMPATIBLE: &str = "mirrorball,fault-node";
