//! The virtual subnet: a learning switch between VMs, with a gateway port.
//!
//! # Key types
//! - [`Subnet`]: the switch. A frame goes from one port into the queues of the ports that should have it.
//! - [`FrameBuf`], [`Frame`]: a frame while its sender fills it, and afterwards: then it is immutable and shared by all
//!   receivers of a flood. With each goes a header of a type that the caller chooses (the offload work that the sender
//!   has left undone); the switch hands it on and never looks.
//! - [`FrameAllocator`]: memory for frames, within a bound. A clone in each sender, used without the switch's lock.
//! - [`PortSpec`], [`PortKind`]: a VM's interface, which may use its own address only; a promiscuous one (a VM that is
//!   itself a bridge); the uplink to the machine's network.
//! - [`ReadySet`]: the ports that have something to take, kept by the caller outside the switch's lock.
//! - [`derive_mac`]: addresses for interfaces that were given none.
//!
//! # Where frames go
//! To a known address: to its port alone. The addresses of VMs are known from the start and cannot be taken by others;
//! those behind promiscuous ports and the uplink are learned, and forgotten when not heard for a while. To an unknown
//! address: to promiscuous ports and uplinks only, because nobody else could have it. Broadcasts and multicasts: to
//! everybody else. There is no MTU: a frame may have up to [`MAX_FRAME`] bytes.
//!
//! # What it refuses
//! Frames shorter than an Ethernet header or longer than [`MAX_FRAME`], from a group address, from an address that is
//! not the port's, or to the addresses that bridges do not forward (IEEE 802.1Q, "Reserved addresses"): dropped and
//! counted by reason ([`DropReason`]). A full queue drops at its tail: a VM that does not take its frames harms itself
//! only, for the bound on frame memory is the sum of what the ports may hold.
//!
//! # Locking
//! None inside; the monitor holds one lock per subnet, always after a device's own and never during a copy from or to
//! a guest: frames are filled before [`Subnet::send`] and read after [`Subnet::peek`].
//!
//! # Tests
//! Unit tests for each rule; random traffic on random ports against a naive switch (proptest), with all memory back at
//! the end.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod addresses;
mod ethernet;
mod frame;
mod naming;
mod port;
mod ready;
mod switch;
#[cfg(test)]
mod tests;

pub use ethernet::{MAX_FRAME, MIN_FRAME};
pub use frame::{Frame, FrameAllocator, FrameBuf, FrameRefused};
pub use naming::derive_mac;
pub use port::{PortId, PortKind, PortMetrics, PortSpec, QueueLimits};
pub use ready::ReadySet;
pub use switch::{AttachError, DropReason, MAX_PORTS, Subnet};
