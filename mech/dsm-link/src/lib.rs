//! Messages between machines over a wire that loses, doubles, reorders and lies.
//!
//! A [`Wire`] is one machine's end of all its connections. Messages go in, frames come out, and the other way round. It has no clock:
//! time is an argument, in whatever unit the caller's [`Setup::patience`] has.
//!
//! # Key types
//! - [`Wire`]: takes messages ([`Wire::send`]) and frames ([`Wire::receive`]), and gives them ([`Wire::next_message`], [`Wire::next_frame`]).
//! - [`Seal`]: the cluster's key. Frames are sealed with XChaCha20-Poly1305; on a private wire that may be off.
//! - [`Drops`]: what was not taken, by reason.
//!
//! # What it promises
//! Between two machines that both live, each message arrives once and in order, if not all frames are lost. Frames of somebody who has not
//! the key, frames seen before, and frames of a machine's earlier life have no effect. A peer that does not answer after [`TRIES`] tries
//! counts as gone ([`State::Gone`]); one that began again too, for what it knew is lost.
//!
//! # What it refuses
//! Memory for a peer is bounded: [`WINDOW`] frames each way, a message in parts, and [`QUEUE`] messages that wait.
//!
//! # Tests
//! `tests/wire.rs`: every loss, repetition and reordering of a few frames, and random ones of many.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod peer;
mod records;
mod replay;
mod seal;
mod wire;

pub use peer::State;
pub use seal::Seal;
pub use wire::{Drops, Full, Setup, Wire};

/// Frames that have been sent to a peer and not been confirmed, at most; and frames that came before an earlier one.
pub const WINDOW: usize = 32;
/// Messages to a peer that wait, at most.
pub const QUEUE: usize = 1_024;
/// How often a frame is sent before its receiver counts as gone.
pub const TRIES: u32 = 16;
