//! The machine's own devices: disks, network interfaces, the control port and entropy, all virtio, on PCI Express or
//! MMIO; and miss counters, which are shared memory on PCI Express.
//!
//! # Key types
//! [`discover`] finds every device that the machine's description leads to: it looks into virtio-mmio slots,
//! walks PCI root buses, gives BARs addresses and follows interrupt pins to their controller's source. Each [`Found`]
//! device then becomes a [`MachineDisk`], a [`MachineNic`] or a [`ControlPort`], or gives [`read_entropy`] its bytes. What
//! they need from the monitor is a [`Platform`]: contiguous memory, and mappings of device registers.
//!
//! `virtio-drivers` brings the transports (PCI, MMIO old and new). The queues are our own, because its queues take
//! Rust slices, allocate per request, and lose a notification when an event index wraps; ours name memory by machine
//! address, so that a page of the disk cache goes to the device as it is.
//!
//! # What it refuses
//! Waiting, except a bounded time while a device is set up. Requests outside the disk, on a full queue, or of odd
//! length. A device that reports errors or short reads is believed, request by request; one that breaks the rules of
//! its queue is reset and given up, and says so with every further call. Nothing a device does makes a driver panic.
//! PCI buses behind bridges, and windows that translate addresses, are left out.
//!
//! # Locking
//! None: each device is `&mut` for whoever uses it, and `Send`. Interrupts are not handled here, only
//! acknowledged at the device: attach [`Found::interrupt`] with the crate `intc`.
//!
//! # Tests
//! A model of the device's side of a queue on the host, honest and broken; `machine-io-probe` drives QEMU's devices
//! on the emulated machine.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

mod control;
mod counters;
mod device;
mod discover;
mod disk;
mod dma;
mod entropy;
mod error;
mod nic;
mod pci;
mod platform;
mod ring;

pub use control::ControlPort;
pub use counters::{CountersError, MissCounters, MissedPage};
pub use discover::{Discovered, Found, Place, Trouble, discover};
pub use disk::{Completion, DiskFault, MAX_SEGMENTS, MachineDisk, SECTOR_BYTES, Segment};
pub use entropy::read_entropy;
pub use error::{DeviceFault, IoError};
pub use nic::{MAX_FRAME_BYTES, MachineNic};
pub use platform::Platform;
pub use virtio_drivers::transport::DeviceType;
