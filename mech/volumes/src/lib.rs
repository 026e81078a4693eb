//! Disks of VMs that are copy-on-write and last: volumes, snapshots and clones in a partition.
//!
//! # Key types
//! - [`Store`]: one partition. It holds *volumes* (what a VM has written over a disk of the machine) and *snapshots* (volumes
//!   that do not change any more). Both are layers: a block is looked for in the volume, then in the snapshot that it
//!   continues, and so on, then on the disk below. So a snapshot, and a volume that begins as one (a clone), cost a record.
//! - [`Backend`]: the disks, as `storage` serves them: reads of volumes are mapped from its cache as any others.
//! - [`Base`]: the disk below, by name and size. A volume is not shown over another one.
//!
//! # On the disk
//! Data blocks, two logs of which one counts, two superblocks that say which (see `layout`). A block's first write goes to a
//! free data block, later ones over it, as on any disk. The log names it when the data is durable: a *commit* flushes, appends
//! checksummed blocks with all changes since the last one, flushes again. A guest's flush ends with a commit. When a log is
//! full, and for the first commit after opening, the whole index goes to the other log, then the superblock is written.
//!
//! # What it promises
//! - What a guest wrote before a flush that ended well is there when the store is opened again, whenever the power went. Of
//!   later writes each sector is old or new. A log's torn end is dropped; a record is believed only with its checksum, its
//!   epoch and its log's nonce.
//! - A snapshot shows the volume between two writes.
//! - A data block is given to another volume only when the log has that it is free, and nobody reads it any more.
//! - No space, or an error of the disk: the request that needs it fails, nobody else. What is kept for a volume ([`Store::keep`])
//!   no other one gets. If the log cannot be written, all writes
//!   and flushes of the store fail from then on, what was durable stays.
//!
//! # What it refuses
//! A partition with something else in it, a store that is larger than its partition, a log that contradicts itself or says
//! more than a store of its size can, a volume over another disk than its own, a second user of a volume, the removal of what
//! others continue. What a log says is believed only as far as it is checked: whoever wrote it knew the checksums.
//!
//! # Limits
//! [`MAX_LAYERS`] volumes and snapshots. A snapshot can be removed only when nothing continues it. Eight bytes of memory for
//! each modified block where they lie together, half a kilobyte where each is alone in its 256 KiB and 2.5 where it is alone in
//! its 64 MiB, within the bound given to [`Store::open`]: beyond it the store is full for writes that need more. Changes
//! that the log does not have yet are bounded too: writes wait for it. A search for free blocks looks at one number
//! for each 128 MiB of the store, and into the bitmap of at most two of these.
//!
//! # Locking
//! None inside. Guest memory is touched only in [`Store::submit`] and [`Store::resume`].
//!
//! # Tests
//! Random requests, completion orders, snapshots and crashes at every point on a disk that loses what was not flushed, in any
//! subset, against a model of what each volume must or may show; damage of every kind to what is on the disk; logs with the
//! right checksums that say anything.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod commit;
mod contract;
mod error;
mod held;
mod job;
mod layers;
mod layout;
mod read;
mod record;
mod recover;
mod settle;
mod share;
mod snapshot;
mod space;
mod store;
mod table;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;
mod write;

pub use contract::{Backend, Target};
pub use error::{OpenError, VolumeError};
pub use job::{Owner, Ready};
pub use layout::MIN_BLOCKS;
pub use record::{Base, MAX_NAME};
pub use recover::ReadBlock;
pub use share::Share;
pub use store::{Answer, LayerInfo, MAX_LAYERS, Store, StoreMetrics, VolumeId};
