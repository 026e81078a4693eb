//! Operations of the machine's disk that are under way.

use addr::Mfn;
use alloc::vec::Vec;
use slotmap::{Key, KeyData, SlotMap, new_key_type};

use crate::contract::{FailedIo, IoToken, SECTORS_PER_BLOCK};
use crate::request::JobId;

/// Most operations of one disk at a time; requests that need more wait. Bounds pages in flight to 8 MiB.
pub(crate) const MAX_OPS: usize = 64;

new_key_type! {
    /// Names an operation.
    pub(crate) struct OpId;
}

/// An operation.
#[derive(Debug)]
pub(crate) struct Op {
    pub work: Work,
    /// Requests to wake when it ends, besides the one that owns it.
    pub waiters: Vec<JobId>,
}

/// What it does.
#[derive(Debug)]
pub(crate) enum Work {
    /// Fills cache slots, which are loading, with blocks.
    Read { first: u64, count: u64 },
    /// Writes sectors from staging pages, one per block; `job` waits.
    Write { job: JobId, sector: u64, sectors: u64, staging: Vec<Mfn> },
    /// Writes zeroes, all from one staging page; `job` waits.
    Zero { job: JobId, sector: u64, sectors: u64, staging: Mfn },
    /// `job` waits.
    Flush { job: JobId },
}

impl Work {
    /// The sectors that the disk may be writing.
    const fn written(&self) -> Option<(u64, u64)> {
        match self {
            Self::Write { sector, sectors, .. } | Self::Zero { sector, sectors, .. } => Some((*sector, *sectors)),
            Self::Read { .. } | Self::Flush { .. } => None,
        }
    }

    /// What to say if it fails.
    pub const fn failure(&self) -> FailedIo {
        match self {
            Self::Read { first, .. } => FailedIo { sector: *first * SECTORS_PER_BLOCK, is_write: false },
            Self::Write { sector, .. } | Self::Zero { sector, .. } => FailedIo { sector: *sector, is_write: true },
            Self::Flush { .. } => FailedIo { sector: 0, is_write: true },
        }
    }

    /// Pages that belong to the operation.
    fn staging(&self) -> u64 {
        match self {
            Self::Write { staging, .. } => staging.len() as u64,
            Self::Zero { .. } => 1,
            Self::Read { .. } | Self::Flush { .. } => 0,
        }
    }
}

/// All operations of one disk.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    table: SlotMap<OpId, Op>,
}

impl Ops {
    pub fn is_full(&self) -> bool {
        self.table.len() >= MAX_OPS
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub fn staging_pages(&self) -> u64 {
        self.table.values().map(|op| op.work.staging()).sum()
    }

    /// Makes room for an operation before it is submitted, so that its token is known.
    pub fn begin(&mut self, work: Work) -> OpId {
        self.table.insert(Op { work, waiters: Vec::new() })
    }

    /// Ends an operation, or takes one back that the driver refused.
    pub fn end(&mut self, id: OpId) -> Option<Op> {
        self.table.remove(id)
    }

    /// Wakes `job` when the operation ends. `false`: it has ended.
    pub fn wait(&mut self, id: OpId, job: JobId) -> bool {
        let op = self.table.get_mut(id);
        op.map(|op| op.waiters.push(job)).is_some()
    }

    /// The operation that reads `block`.
    pub fn reading(&self, block: u64) -> Option<OpId> {
        let reads = |op: &Op| matches!(op.work, Work::Read { first, count } if (first..first + count).contains(&block));
        self.table.iter().find(|(_, op)| reads(op)).map(|(id, _)| id)
    }

    /// An operation that writes some of these sectors.
    pub fn writing(&self, sector: u64, sectors: u64) -> Option<OpId> {
        let overlaps = |op: &Op| {
            op.work.written().is_some_and(|(first, count)| sector < first + count && first < sector + sectors)
        };
        self.table.iter().find(|(_, op)| overlaps(op)).map(|(id, _)| id)
    }

    /// An operation that writes some of these blocks.
    pub fn writing_blocks(&self, block: u64, count: u64) -> Option<OpId> {
        self.writing(block * SECTORS_PER_BLOCK, count * SECTORS_PER_BLOCK)
    }
}

pub(crate) fn token(id: OpId) -> IoToken {
    IoToken(id.data().as_ffi())
}

pub(crate) fn op_id(token: IoToken) -> OpId {
    KeyData::from_ffi(token.0).into()
}
