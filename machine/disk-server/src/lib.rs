//! A disk in virtual time: an NBD server for one emulator, which answers a request when the machine's clock has reached
//! the time that a [`disk_model::Disk`] gives.
//!
//! # Key types
//! - [`DiskServer`]: a disk that is served by a thread of this process; dropping it ends that.
//! - [`Image`]: the file behind it.
//! - [`MachineClock`]: the machine's time, and the server's hold on it.
//! - [`negotiate`], [`Requests`] and [`Service`]: the protocol's parts, for tests that have no socket.
//!
//! # How time and data meet
//! Data is read and written at once, in the order of the requests. The *answer* waits: the server closes its gate at the
//! time of the next completion, so that the machine's clock stops there until the emulator has read the answer, however long
//! that takes in real time ([`ANSWER_TIMEOUT`] at most).
//! A request counts from the moment at which the machine rang the device's doorbell, if the model says when that was.
//!
//! # What it refuses
//! Anything but the fixed newstyle handshake and simple replies; requests outside the image, of odd length, or larger
//! than [`MAX_REQUEST`]; a second client. A client that breaks the protocol loses its connection. Errors of the image's
//! file become errors of the request.
//!
//! # Not deterministic
//! While harts run, the interrupt comes some microseconds of real time after the answer was read. Without doorbells from the model, a request counts from the moment at which it was read.
//!
//! # Locking
//! None: one thread owns all. Tested with a client of its own against a clock that stands still until it is moved.
#![deny(unsafe_code)]

mod clock;
mod connection;
mod handshake;
mod image;
mod pending;
mod protocol;
mod server;
mod service;
mod unread;

pub use clock::MachineClock;
pub use connection::Requests;
pub use handshake::negotiate;
pub use image::Image;
pub use protocol::{Command, Head, MAX_REQUEST};
pub use server::{ANSWER_TIMEOUT, DiskServer, ServerError};
pub use service::Service;
