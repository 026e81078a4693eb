//! Virtio 1.2 device models over virtio-mmio (register layout version 2), written for hostile guests.
//!
//! A device is a [`VirtioMmio`] transport around a [`VirtioModel`]: [`block::Block`], [`net::Net`],
//! [`console::Console`], [`rng::Rng`] or [`balloon::Balloon`]. The transport owns the register file, the split
//! virtqueues ([`Queue`]) and the interrupt; the model owns the protocol and speaks to the world through a small
//! backend trait of its own, so that the same model runs in the monitor, in host tests and under a fuzzer.
//!
//! # What is refused, and how
//! Everything that the guest writes is an allegation. Three kinds of nonsense get three answers:
//! - *Malformed rings* (ring addresses outside RAM or misaligned, indices out of range, loops, over-long chains,
//!   bad indirect tables, buffers outside RAM, an available index that runs ahead of the queue): a
//!   [`device::GuestFault`] that stops that guest with a reason, see [`RingError`].
//! - *Well-formed chains that cannot be answered* (a block request without a status byte): `DEVICE_NEEDS_RESET`
//!   and a configuration interrupt, see [`ProtocolError`]; the driver recovers by a reset.
//! - *Requests that can be refused by the device's own protocol* (sector out of range, unknown command): the
//!   status that the specification has for it.
//!
//! Register accesses of the wrong width and unknown registers are ignored or read as zero.
//!
//! # Bounded work
//! One call serves a bounded number of chains and bytes. What is left is announced by
//! [`VirtioMmio::has_backlog`] and continued by [`VirtioMmio::poll`].
//!
//! # Interrupts
//! See [`Trigger`]: an edge on every notification that the driver has not suppressed, or a level that follows the
//! interrupt status register.
//!
//! # Locking
//! None here. The monitor holds the device's own lock around every call, completions included. Backends are called
//! with that lock held and must not call back into the device.
//!
//! # Cost
//! The common paths allocate nothing: scratch space is taken when the device is made. Guest memory accesses are the
//! expensive part, so they are few, and tests count them.
//!
//! # Tests
//! On the host, with the split-ring driver in `testing` (feature `testing`): protocol tests per device, malformed
//! input per interface, and property tests with random rings and register writes.
//!
//! Citations are of *Virtual I/O Device (VIRTIO) Version 1.2*, Committee Specification 01.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod balloon;
pub mod block;
pub mod console;
mod error;
#[cfg(test)]
mod hostile_tests;
mod model;
pub mod net;
pub mod offload;
mod queue;
pub mod rng;
mod spec;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod transport;

pub use error::{DeviceError, ProtocolError, RingError};
pub use model::{Budget, Io, VirtioModel, read_config};
pub use queue::{Chain, Checkpoint, GuestSegment, MAX_SEGMENTS, Queue, ReadError};
pub use spec::{DeviceId, F_EVENT_IDX, F_INDIRECT_DESC, F_VERSION_1, Status};
pub use transport::{Trigger, VirtioMmio};
