//! Drivers for the machine's interrupt controllers: IMSIC, APLIC and PLIC.
//!
//! # Key types
//! [`MachineInterrupts`] puts all controllers of a machine behind one face: attach a device's source to a hart, open a
//! hart, take what is pending, complete it, send an IPI where the hardware can. The drivers under it ([`Plic`],
//! [`Aplic`], [`OwnFile`], [`FilePages`]) can be used alone. Registers are reached through two small traits,
//! [`Registers`] (memory) and [`FileRegisters`] (CSRs), so that tests put a model of the hardware behind the drivers.
//!
//! # What it refuses
//! Register blocks that are too small for what the tree announces, sources that do not exist or that the firmware did
//! not delegate, harts that a controller has no wire to: each an [`IntcError`]. It never decides who serves an
//! interrupt; where a wire cannot reach the wanted hart it says which hart it took.
//!
//! # Locking
//! Attaching needs `&mut`. Afterwards everything goes by `&self` without locks: a hart only touches registers of its
//! own contexts, and registers that the hardware makes atomic (`seteipnum`, `setipnum`).
//!
//! # Tests
//! Models of a PLIC, an APLIC and interrupt files on the host; on the emulated machine through `machine-io`'s probe.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

mod aplic;
mod csr;
mod error;
mod imsic;
mod machine;
mod mmio;
mod plic;

pub use aplic::{Aplic, AplicContext, Delivery, MsiTarget};
pub use csr::FileRegisters;
#[cfg(target_arch = "riscv64")]
pub use csr::HartFile;
pub use error::IntcError;
pub use imsic::{FilePages, Identity, OwnFile};
pub use machine::{Claim, MachineInterrupts, Pending};
pub use mmio::{MmioRegion, Registers};
pub use plic::{Plic, PlicContext};
