//! Codec of RISC-V page-table entries and of the registers that name a root table.
//!
//! Pure: it turns bits into values and back, and touches neither memory nor registers, so the monitor's own
//! tables (Sv39), G-stage tables (Sv39x4 ... Sv57x4) and software walks of a guest's tables all share it.
//!
//! # Key types
//! - [`Mode`]: the paging schemes; how many levels, how wide each index is, how large the root is.
//! - [`Level`]: a level of a table, 0 = the one whose leaves are 4 KiB.
//! - [`Pte`]: one raw entry; [`Pte::leaf`] and [`Pte::table`] encode, [`Pte::decode`] decodes.
//! - [`Satp`], [`Hgatp`]: root registers.
//! - [`walk`]: what one-stage tables say of an address.
//!
//! # What it refuses
//! [`Pte::decode`] accepts exactly what the specification lets hardware accept and says why not otherwise:
//! reserved permission combinations, misaligned superpages, reserved bits, leaf attributes in pointers.
//! Encoders take only values that decode again; a misaligned superpage cannot be encoded.
//!
//! Bit positions follow the RISC-V Privileged Architecture, version 20240411: "Sv39", "Sv48", "Sv57",
//! "Svnapot", "Svpbmt" and "Two-Stage Address Translation".
//!
//! # Tests
//! Unit tests with hand-computed words, and round trips of random words (proptest). No locks, no allocation.
#![no_std]
#![forbid(unsafe_code)]

mod mode;
mod pte;
mod root;
mod walk;

pub use mode::{Level, Mode};
pub use pte::{Decoded, Leaf, Pbmt, Pte, PteError, PteFlags};
pub use root::{Hgatp, RootError, Satp};
pub use walk::walk;
