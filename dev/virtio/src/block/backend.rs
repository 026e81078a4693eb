//! What a disk is to the block device.

use device::GuestMemory;

use crate::queue::GuestSegment;

/// A disk, or a view of one. Called with the device's lock held; must not call back into the device.
pub trait BlockBackend: Send {
    /// Size in 512-byte sectors. Constant while a driver is live.
    fn capacity_sectors(&self) -> u64;

    /// Whether the disk refuses writes. Constant.
    fn is_read_only(&self) -> bool;

    /// Whether the disk can discard and zero ranges. Constant.
    fn can_discard(&self) -> bool {
        false
    }

    /// Serial number, ASCII, padded with zeroes.
    fn id(&self) -> [u8; 20];

    /// Starts one request and, if it can, finishes it. What does not finish now is finished by
    /// [`crate::VirtioMmio::complete`] with the same `tag`. `request.segments` is borrowed for this call only.
    fn submit(&mut self, tag: BlockTag, request: BlockRequest<'_>, memory: &dyn GuestMemory) -> Outcome;

    /// The driver is gone. Pending requests need no completion and must not touch guest memory from now on (a late
    /// completion is recognised by its tag and ignored).
    fn cancel_all(&mut self);
}

/// What the guest wants of the disk. Checked against capacity, alignment and read-only-ness before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest<'a> {
    /// The command.
    pub kind: BlockKind,
    /// First sector of 512 bytes. 0 for a flush.
    pub sector: u64,
    /// Number of sectors, never 0 but for a flush.
    pub sectors: u64,
    /// Where the data goes or comes from; all in guest RAM, `sectors * 512` bytes together. Empty for commands
    /// without data.
    pub segments: &'a [GuestSegment],
}

/// Commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Fill the segments from the disk.
    Read,
    /// Write the segments to the disk.
    Write,
    /// Make all finished writes durable.
    Flush,
    /// The sectors' content is no longer needed.
    Discard,
    /// The sectors shall read as zero; with `unmap` their space may be given up.
    WriteZeroes {
        /// Whether the disk may give the space up.
        unmap: bool,
    },
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockStatus {
    /// Done.
    Ok = 0,
    /// Failed, or refused.
    IoError = 1,
    /// No such command here.
    Unsupported = 2,
}

/// What became of a submitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is finished.
    Done(BlockStatus),
    /// It will be completed later.
    Pending,
}

/// Names a pending request. Unique over driver resets, so that a late completion finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockTag(u64);

impl BlockTag {
    pub(super) const fn new(epoch: u32, head: u16) -> Self {
        Self((epoch as u64) << 16 | head as u64)
    }

    pub(super) const fn epoch(self) -> u32 {
        (self.0 >> 16) as u32
    }

    pub(super) const fn head(self) -> u16 {
        self.0 as u16
    }

    /// The tag as a number, for tables of the backend.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The tag of that number.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }
}
