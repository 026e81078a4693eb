//! The machine's disks as VMs share them: disk cache, copy-on-write overlays, exclusive mounts, partitions.
//!
//! # Key types
//! - [`SharedDisk`]: one disk of the machine. A tree from ranges of blocks to machine pages caches it for all VMs;
//!   each block is read once, whoever asks for it, and however many do while it is read.
//! - [`Mode`]: what a VM has of a disk or partition. *Copy-on-write*: a second tree with that VM's modified blocks,
//!   in memory, gone with the VM (Disco, section 4.2.2). *Persistent*: written through, exclusively. *Read-only*.
//! - [`Request`], [`Outcome`], [`Ready`]: a request is finished at once or goes on when the machine's disk has
//!   answered. [`SharedDisk::on_io_complete`] does no guest work: it makes requests ready, and
//!   [`SharedDisk::resume`] advances one of them, with its own guest's memory at hand.
//! - [`PageStore`], [`GuestCopy`], [`DiskIo`]: what the monitor provides.
//! - [`gpt`]: partition tables.
//!
//! # What it promises
//! - A VM never sees another VM's data, nor what a page held before: a private page shows only sectors that its VM
//!   wrote. Sectors of 512 bytes are tracked one by one, so that a small write needs no read.
//! - After a persistent write has finished, every read of any VM shows it; overlapping operations of the machine's
//!   disk are never under way together. After it has failed, the cache has forgotten the blocks.
//! - An error of the machine's disk reaches only requests that need the failing block; a read that failed with others
//!   merged in front of it is tried again alone.
//! - A block that a guest reads whole into one of its pages is not copied: its page stands for the guest's, read-only,
//!   until the guest writes to it. A page that guests map is never written again; a block that changes gets another.
//! - No page left: the request that needs one fails with [`Status::NoSpace`], nobody else.
//!
//! # What it refuses
//! Requests outside the virtual disk, writes to a read-only one, segment lists that are too short or name memory that
//! the guest does not have: an I/O error to that guest. A second mounter of what somebody writes persistently.
//!
//! # Limits
//! Reads of whole blocks of 4 KiB only: one bad sector makes its block unreadable. Disks beyond 8 TiB are cut.
//!
//! # Locking
//! None inside; one lock per [`SharedDisk`]. No call does unbounded work: long requests come back as
//! [`Ready`], unmounted overlays are freed by [`SharedDisk::clean_up`]. A hit takes no allocation.
//!
//! # Tests
//! Unit tests per module; random requests, failures, cancellations and completion orders against a plain array of
//! bytes (proptest), with every page accounted for at the end.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod cache;
mod claim;
mod contract;
mod description;
mod disk;
pub mod gpt;
mod index;
mod metrics;
mod mount;
mod ops;
mod overlay;
mod read;
mod request;
#[cfg(test)]
mod tests;
mod turns;
mod write;

pub use contract::{
    BLOCK, BLOCKS_PER_CALL, BadGuestMemory, Context, DiskIo, FailedIo, GuestCopy, IoRefused, IoToken, MAX_OP_BLOCKS,
    PageStore, Piece, SECTOR, SECTORS_PER_BLOCK, Segments,
};
pub use description::DiskDescription;
pub use disk::{MAX_SECTORS, SharedDisk};
pub use index::{BlockIndex, RANGE_BLOCKS};
pub use metrics::DiskMetrics;
pub use mount::{Mode, MountError, MountSpec};
pub use request::{Kind, MountId, Outcome, Ready, Request, Status};
