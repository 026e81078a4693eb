//! Disks that boot by EFI, as files: how one is made, and whether a stranger's is one.
//!
//! - [`disk::write`] lays out a disk: a GPT with an EFI system partition and a root file system. The builder of images uses it.
//! - [`fat::volume`] makes FAT volumes: that partition, and the seed that tells cloud-init who a VM is.
//! - [`inspect`] says what a disk has: the boot loader for 64-bit RISC-V, or why it cannot boot here.
//!
//! A disk that is inspected is hostile: its table may name any number of partitions anywhere, and its FAT volume may be anything. Reads are
//! bounded, and nothing is executed or mounted.
//!
//! No `unsafe`, no locks. Tested on disks that the tests make, whole and damaged.
#![forbid(unsafe_code)]

pub mod disk;
pub mod fat;
mod inspect;
mod part;

pub use inspect::{BootDisk, Unbootable, inspect};
