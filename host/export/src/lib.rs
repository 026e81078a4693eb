//! What other tools read of running machines.
//!
//! # Key types
//! - [`metrics::Snapshot`]: all counters at a moment, as OpenMetrics text.
//! - [`http::serve`]: HTTP on a Unix socket or on this host's own address, with bounds on connections, sizes and times.
//!
//! # What it refuses
//! Clients of HTTP are hostile: a connection that says nothing is cut off, and so is one too many.
//!
//! No `unsafe`, no locks. Tested on a played machine.
#![forbid(unsafe_code)]

pub mod http;
pub mod metrics;
