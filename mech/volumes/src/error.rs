//! Why a store or a volume cannot be had.

use alloc::string::String;

use thiserror::Error;

use crate::record::Base;

/// Why a volume, a snapshot or a removal is refused. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum VolumeError {
    /// Somebody has it.
    #[error("VM {holder:?} has it")]
    InUse {
        /// Who.
        holder: String,
    },
    /// The volume was made over another disk, or over one of another size.
    #[error(
        "it was made over {} with {} sectors, not over {} with {}",
        Shown(.recorded), .recorded.sectors, Shown(.given), .given.sectors
    )]
    OtherBase {
        /// What it was made over.
        recorded: Base,
        /// What it should lie on now.
        given: Base,
    },
    /// The volume is there, and does not continue the snapshot.
    #[error("the volume {name:?} is there already and is no clone of snapshot {snapshot:?}")]
    NotACloneOf {
        /// The volume.
        name: String,
        /// The snapshot.
        snapshot: String,
    },
    /// No volume or snapshot has the name.
    #[error("there is no volume or snapshot {name:?}")]
    NoSuchVolume {
        /// The name.
        name: String,
    },
    /// No snapshot has the name.
    #[error("there is no snapshot {name:?}")]
    NoSuchSnapshot {
        /// The name.
        name: String,
    },
    /// A snapshot has the name.
    #[error("there is a snapshot {name:?} already")]
    SnapshotExists {
        /// The name.
        name: String,
    },
    /// A volume or snapshot continues it.
    #[error("{child:?} continues {name:?}")]
    HasChild {
        /// What was to go.
        name: String,
        /// What needs it.
        child: String,
    },
    /// There are as many volumes and snapshots as there can be.
    #[error("a store has at most {most} volumes and snapshots")]
    TooMany {
        /// How many.
        most: usize,
    },
    /// No number is left for a new layer.
    #[error("the store has given out all its numbers for volumes and snapshots; copy what it holds into a new one")]
    NoNumber,
    /// So much room cannot be kept for a volume.
    #[error(
        "{} KiB are to be kept for the volume, and {} KiB are free beside what is kept for others; give it a lower          `limit_mib`, or remove a volume", wanted * 4, left * 4
    )]
    TooLittle {
        /// Blocks of 4 KiB to be kept.
        wanted: u64,
        /// Blocks that are free and not kept for others.
        left: u64,
    },
    /// A name that is none.
    #[error("{name:?} is empty or longer than {most} bytes")]
    BadName {
        /// The name.
        name: String,
        /// Longest, in bytes.
        most: usize,
    },
    /// A write of a VM that is gone is still under way.
    #[error("a write of a VM that is gone is still under way; try again")]
    Busy,
    /// The store's log could not be written.
    #[error("the store has failed: its log could not be written")]
    Broken,
}

/// A base in a sentence.
struct Shown<'a>(&'a Base);

impl core::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match &self.0.partition {
            Some(partition) => write!(f, "partition {partition:?} of disk {:?}", self.0.disk),
            None => write!(f, "disk {:?}", self.0.disk),
        }
    }
}

/// Why a partition's store cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// It is too small.
    #[error("{blocks} blocks of 4 KiB are too few for a store, at least {least} are needed")]
    TooSmall {
        /// Its size.
        blocks: u64,
        /// Least size.
        least: u64,
    },
    /// The store is larger than its partition.
    #[error("the store has {recorded} blocks of 4 KiB, its partition only {blocks}")]
    Shrunk {
        /// The store's size.
        recorded: u64,
        /// The partition's.
        blocks: u64,
    },
    /// There is something else in it.
    #[error("it holds something else than a store; zero its first 8 KiB to give it up")]
    NotAStore,
    /// Finding its blocks would take more memory than it may have.
    #[error(
        "the index of its blocks needs more than {limit} bytes of the monitor's memory; give the machine more memory"
    )]
    IndexTooLarge {
        /// What it may have.
        limit: u64,
    },
    /// It cannot be read.
    #[error("block {block} cannot be read")]
    Unreadable {
        /// The block.
        block: u64,
    },
    /// What the log says cannot be.
    #[error("the log contradicts itself: {what} {value}")]
    Corrupt {
        /// What is wrong.
        what: &'static str,
        /// The value.
        value: u64,
    },
}
