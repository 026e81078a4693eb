//! The non-virtio part of the virtual machine that a guest sees: a subset of QEMU's `virt` board.
//!
//! Operating systems built for that board boot unmodified: same addresses ([`map`]), same registers, and a device tree
//! ([`GuestTree`]) that names what is there. A guest has no M-mode, so what belongs to it (CLINT, M-level interrupt
//! controllers) is absent; timers, IPIs and fences come from the SBI.
//!
//! # Key types
//! - [`Uart`] (16550A), [`Rtc`] (goldfish), [`Syscon`] (power-off and reset): models behind [`device::Device`].
//! - [`InterruptController`]: a [`Plic`] or an [`Aplic`]. Lines go in, a [`Delivery`] comes out: an MSI for a vCPU's
//!   interrupt file or new external-interrupt levels. The caller delivers; nothing here knows a vCPU.
//! - [`ImsicFile`]: an interrupt file in software, for a vCPU without a hardware guest file; [`ImsicState`] moves
//!   between the two.
//! - [`Scrollback`]: what a guest has printed lately.
//! - [`pmu::Pmu`]: the SBI's performance counters of a vCPU.
//! - [`map::Region::decode`]: which of these a guest-physical address means.
//!
//! # What it refuses
//! A register access of a width or at an offset that the board does not have reads as zero and writes nothing, as on
//! QEMU; no access stops the guest. APLIC delivery is by MSI alone: a guest without interrupt files gets a PLIC.
//! [`GuestTree::build`] refuses a description that contradicts itself.
//!
//! # Locking
//! None inside. The monitor holds one lock around each device and one around the interrupt controller of a VM; devices
//! call into the latter (through [`device::Env`]), never the other way. [`Levels`] are applied before the controller's
//! lock is free again: applied in another order than they came, an old level would stay.
//!
//! # Tests
//! On the host: behaviour per register, the sequences of Linux's and U-Boot's drivers, random accesses, and the
//! device tree through `dtc` where it is installed.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod aplic;
mod byte_ring;
mod controller;
pub mod guest_tree;
mod imsic;
pub mod map;
mod plic;
pub mod pmu;
mod rtc;
mod scrollback;
mod syscon;
#[cfg(test)]
mod testing;
mod uart16550;

pub use aplic::Aplic;
pub use controller::{Delivery, InterruptController, Levels, MAX_VCPUS, Msi};
pub use guest_tree::{GuestTree, PlatformSpec};
pub use imsic::{ExternalLine, FilePlace, ImsicFile, ImsicState, MAX_IDS, NoSuchRegister, Register, Shown, decode_msi};
pub use plic::Plic;
pub use pmu::Pmu;
pub use rtc::Rtc;
pub use scrollback::Scrollback;
pub use syscon::{PowerEvent, Syscon};
pub use uart16550::{Uart, UartMetrics};
