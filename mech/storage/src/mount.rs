//! Virtual disks: who sees which part of a machine disk, and who may write it.

use alloc::collections::VecDeque;
use alloc::string::String;

use thiserror::Error;

use crate::contract::SECTORS_PER_BLOCK;
use crate::overlay::Overlay;
use crate::request::JobId;

/// Who sees what a guest writes to its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only this VM, until it is unmounted: modified blocks live in memory. Many VMs may share the disk.
    CopyOnWrite {
        /// Most pages of modified blocks, with the memory that finds them; `u64::MAX` for as many as there are.
        limit_pages: u64,
    },
    /// The machine's disk is written. Nobody else has the disk or partition meanwhile.
    Persistent,
    /// Nobody: writes fail.
    ReadOnly,
}

/// What a VM is to get.
#[derive(Clone, Copy, Debug)]
pub struct MountSpec<'a> {
    /// The VM's name, for those who are refused because of it.
    pub holder: &'a str,
    /// The partition's label; the whole disk if `None`.
    pub partition: Option<&'a str>,
    /// Who sees what it writes.
    pub mode: Mode,
}

/// Why a disk cannot be mounted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MountError {
    /// No partition has the label.
    #[error("the disk has no partition {label:?}")]
    NoPartition {
        /// The label.
        label: String,
    },
    /// Several partitions have the label.
    #[error("the disk has {count} partitions {label:?}")]
    AmbiguousPartition {
        /// The label.
        label: String,
        /// How many.
        count: usize,
    },
    /// The machine's disk refuses writes.
    #[error("the machine's disk is read-only")]
    ReadOnlyDisk,
    /// Somebody has it, and one of the two wants to write it for good.
    #[error("VM {holder:?} has it {}", if *.is_persistent { "persistently" } else { "mounted" })]
    InUse {
        /// The VM that has it.
        holder: String,
        /// Whether that VM writes it; otherwise it shares it with others.
        is_persistent: bool,
    },
}

/// A mounted virtual disk.
#[derive(Debug)]
pub(crate) struct Mount {
    pub holder: String,
    /// First sector on the machine's disk.
    pub first_sector: u64,
    pub sectors: u64,
    pub backing: Backing,
    pub streams: Streams,
    /// Its woken requests, in order. Some may be gone by now.
    pub ready: VecDeque<JobId>,
    /// It waits for its turn to go on with these.
    pub has_turn: bool,
}

/// Where writes go.
#[derive(Debug)]
pub(crate) enum Backing {
    Private(Overlay),
    Through,
    Nowhere,
}

impl Mount {
    /// The block after the last one.
    pub const fn end_block(&self) -> u64 {
        (self.first_sector + self.sectors).div_ceil(SECTORS_PER_BLOCK)
    }

    pub const fn is_persistent(&self) -> bool {
        matches!(self.backing, Backing::Through)
    }

    /// Whether the sectors `[first, first + sectors)` of the machine's disk overlap this mount.
    pub const fn overlaps(&self, first: u64, sectors: u64) -> bool {
        first < self.first_sector + self.sectors && self.first_sector < first + sectors
    }
}

/// Recognises sequential readers, to read ahead of them. A guest has several at a time: one file each.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    slots: [Stream; STREAMS],
    /// The slot that a new stream takes.
    next_slot: usize,
    /// Window of the last request's stream.
    window: u64,
}

/// One sequential reader.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Block at which the next read would continue the last one.
    next: u64,
    window: u64,
}

const STREAMS: usize = 4;
/// Blocks read at once where nothing is known: 32 KiB. An operation of the machine's disk costs far more than the
/// extra bytes.
const FIRST_WINDOW: u64 = 8;
/// Most blocks read at once.
const MAX_WINDOW: u64 = crate::contract::MAX_OP_BLOCKS as u64;

impl Streams {
    /// A read of blocks `[first, end)` begins.
    #[inline]
    pub fn observe(&mut self, first: u64, end: u64) {
        // The block before counts: requests that are not whole blocks touch it twice.
        let known = self.slots.iter_mut().find(|stream| first == stream.next || first + 1 == stream.next);
        if let Some(stream) = known {
            stream.window = (stream.window * 2).clamp(FIRST_WINDOW, MAX_WINDOW);
            stream.next = end;
            self.window = stream.window;
            return;
        }
        if let Some(slot) = self.slots.get_mut(self.next_slot) {
            *slot = Stream { next: end, window: FIRST_WINDOW };
        }
        self.next_slot = (self.next_slot + 1) % STREAMS;
        self.window = FIRST_WINDOW;
    }

    /// Blocks to read when one is missing.
    pub const fn window(&self) -> u64 {
        self.window
    }
}
