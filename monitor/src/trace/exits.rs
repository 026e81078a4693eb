//! The latest exits of one vCPU, for whoever asks what a guest was doing.

use alloc::vec::Vec;
use control::{ExitRecord, ExitTrace};
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// Exits kept.
const CAPACITY: usize = 64;

/// A ring that its owner writes with plain stores and anyone reads. A reader drops what may have been
/// overwritten under its hands.
pub struct ExitRing {
    /// Exits seen.
    written: AtomicU64,
    records: [Slot; CAPACITY],
}

#[derive(Default)]
struct Slot {
    ticks: AtomicU64,
    scause: AtomicU64,
    pc: AtomicU64,
    stval: AtomicU64,
}

impl ExitRing {
    /// An empty ring.
    #[must_use]
    pub fn new() -> Self {
        Self { written: AtomicU64::new(0), records: core::array::from_fn(|_| Slot::default()) }
    }

    /// Adds an exit. Owner only.
    #[inline]
    pub fn push(&self, exit: ExitRecord) {
        let written = self.written.load(Ordering::Relaxed);
        let slot = &self.records[written as usize % CAPACITY];
        // Pairs with the fence in `read`: the number of the last record is out before this one's first word.
        fence(Ordering::Release);
        slot.ticks.store(exit.ticks, Ordering::Relaxed);
        slot.scause.store(exit.scause, Ordering::Relaxed);
        slot.pc.store(exit.pc, Ordering::Relaxed);
        slot.stval.store(exit.stval, Ordering::Relaxed);
        // Release: who sees the number sees the record.
        self.written.store(written.wrapping_add(1), Ordering::Release);
    }

    /// The records that it holds, the oldest first.
    #[must_use]
    pub fn read(&self) -> ExitTrace {
        let end = self.written.load(Ordering::Acquire);
        let first = oldest(end);
        let mut exits: Vec<ExitRecord> = (first..end).map(|at| self.copy(at)).collect();
        // Pairs with the fence in `push`: what was overwritten under the copy shows in the number.
        fence(Ordering::Acquire);
        let overtaken = (oldest(self.written.load(Ordering::Relaxed)) - first).min(exits.len() as u64);
        exits.drain(..overtaken as usize);
        ExitTrace { lost: first + overtaken, exits }
    }
}

impl ExitRing {
    fn copy(&self, at: u64) -> ExitRecord {
        let slot = &self.records[at as usize % CAPACITY];
        ExitRecord {
            ticks: slot.ticks.load(Ordering::Relaxed),
            scause: slot.scause.load(Ordering::Relaxed),
            pc: slot.pc.load(Ordering::Relaxed),
            stval: slot.stval.load(Ordering::Relaxed),
        }
    }

    /// Shows `each` of the latest `most` records, the oldest first. Takes no memory.
    pub fn latest(&self, most: u64, mut each: impl FnMut(ExitRecord)) {
        let end = self.written.load(Ordering::Acquire);
        for at in oldest(end).max(end.saturating_sub(most))..end {
            let record = self.copy(at);
            // Pairs with the fence in `push`, as in `read`.
            fence(Ordering::Acquire);
            if oldest(self.written.load(Ordering::Relaxed)) <= at {
                each(record);
            }
        }
    }
}

/// The oldest record that is whole when so many were written: the owner may be in the middle of the next one, which takes
/// the place of the one before.
const fn oldest(written: u64) -> u64 {
    (written + 1).saturating_sub(CAPACITY as u64)
}

impl core::fmt::Debug for ExitRing {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ExitRing").field("written", &self.written).finish_non_exhaustive()
    }
}
