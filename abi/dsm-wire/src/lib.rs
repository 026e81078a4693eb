//! What machines that share a VM's memory say to each other.
//!
//! # Key types
//! - [`Message`]: one step of the coherence protocol. [`Envelope`] adds how far its sender has followed the order of updates.
//! - [`encode`], [`decode`]: an envelope as bytes, little-endian, and back.
//! - [`Header`]: the first bytes of each frame, in the clear but authenticated.
//!
//! # What it refuses
//! [`decode`] refuses unknown kinds, bytes too few or too many, lists longer than [`MAX_STORES`], pages of another size than the
//! caller's, and masks of no byte ([`Malformed`]). It allocates only through `scarce`, and never more than it was given bytes for.
//!
//! # Tests
//! Unit tests here go through every message; the fuzz target `dsm` gives it anything.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod codec;
mod frame;
mod message;

pub use codec::{MAX_STORES, Malformed, decode, encode};
pub use frame::{HEADER_BYTES, Header, Kind, MAGIC, TAG_BYTES, VERSION};
pub use message::{Content, Envelope, History, MachineId, Machines, Message, Mode, Page, Store, Want};
