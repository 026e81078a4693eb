//! Launches the emulated machine, supervises it, and talks to its monitor and its guests.
//!
//! # Key types
//! - [`Client`]: a session with a running machine, typed calls and [`Stream`]s.
//! - [`RunRoot`] and [`RunDir`]: where running machines are found.
//!
//! No `unsafe`.
#![forbid(unsafe_code)]

mod client;
mod rundir;

pub use client::{Client, ClientError, DEFAULT_TIMEOUT, Stream, find};
pub use rundir::{Claim, Phase, RUNTIME_DIR_VARIABLE, RunDir, RunDirError, RunRoot, State};
