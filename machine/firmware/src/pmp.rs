//! Physical memory protection (privileged specification, "Physical Memory Protection"): entries, and what they allow.
//!
//! The entry with the lowest number that matches an address decides. No entry is locked, as a locked one would bind the
//! firmware itself. All bounds are multiples of 4 KiB: finer ones make the emulator check every access.

use arrayvec::ArrayVec;
use faults::{FIRMWARE_AT, FIRMWARE_BYTES, PAGE_BYTES, Refusal, STATUS_AT};

/// Entries of a hart.
pub const ENTRIES: usize = 16;

const READ: u8 = 1 << 0;
const WRITE: u8 = 1 << 1;
const EXECUTE: u8 = 1 << 2;
/// Matches from the address before this one's up to this one's.
const TOP_OF_RANGE: u8 = 1 << 3;
/// Matches a power of two at a multiple of itself.
const POWER_OF_TWO: u8 = 3 << 3;
const MODE: u8 = 3 << 3;

/// How memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// A fetch.
    Execute,
}

/// A PMP entry: `pmpaddrN` and its byte of `pmpcfg`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The address register.
    pub address: u64,
    /// The configuration byte; 0 for an entry that is off.
    pub config: u8,
}

/// The entries of a hart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    entries: ArrayVec<Entry, ENTRIES>,
}

impl Plan {
    /// The entries that every hart has: the status page may be read, the firmware's memory is closed.
    pub(crate) fn new() -> Self {
        let mut plan = Self { entries: ArrayVec::new() };
        for (start, bytes, rights) in [(STATUS_AT, PAGE_BYTES, READ), (FIRMWARE_AT, FIRMWARE_BYTES, 0)] {
            plan.entries.push(Entry { address: power_of_two(start, bytes), config: POWER_OF_TWO | rights });
        }
        plan
    }

    /// Nobody may access this range.
    pub(crate) fn deny(&mut self, start: u64, end: u64) -> Result<(), Refusal> {
        self.range(start, end, 0)
    }

    /// Nobody may write this range.
    pub(crate) fn forbid_writing(&mut self, start: u64, end: u64) -> Result<(), Refusal> {
        self.range(start, end, READ | EXECUTE)
    }

    /// The last entry: everything else is open.
    pub(crate) fn finish(mut self) -> Result<Self, Refusal> {
        let all = Entry { address: u64::MAX >> 10, config: POWER_OF_TWO | READ | WRITE | EXECUTE };
        self.entries.try_push(all).map_err(|_| Refusal::NoEntries)?;
        Ok(self)
    }

    fn range(&mut self, start: u64, end: u64, rights: u8) -> Result<(), Refusal> {
        let bytes = end - start;
        let is_one = bytes.is_power_of_two() && start.is_multiple_of(bytes);
        if is_one {
            let entry = Entry { address: power_of_two(start, bytes), config: POWER_OF_TWO | rights };
            return self.entries.try_push(entry).map_err(|_| Refusal::NoEntries);
        }
        // The lower bound is the register before, whatever that entry itself does.
        if self.entries.last().is_none_or(|last| last.config & MODE != TOP_OF_RANGE || last.address != start >> 2) {
            let bound = Entry { address: start >> 2, config: 0 };
            self.entries.try_push(bound).map_err(|_| Refusal::NoEntries)?;
        }
        let entry = Entry { address: end >> 2, config: TOP_OF_RANGE | rights };
        self.entries.try_push(entry).map_err(|_| Refusal::NoEntries)
    }

    /// The value of every register, in their order; those that are not needed are off.
    #[must_use]
    pub fn registers(&self) -> [Entry; ENTRIES] {
        core::array::from_fn(|index| self.entries.get(index).copied().unwrap_or_default())
    }

    /// Whether the hardware allows S-mode this access: the first entry that matches decides, and without one it
    /// refuses.
    #[must_use]
    pub fn allows(&self, address: u64, access: Access) -> bool {
        let right = match access {
            Access::Read => READ,
            Access::Write => WRITE,
            Access::Execute => EXECUTE,
        };
        let mut below = 0;
        for entry in &self.entries {
            let is_match = match entry.config & MODE {
                TOP_OF_RANGE => below <= address >> 2 && address >> 2 < entry.address,
                POWER_OF_TWO => {
                    let mask = !(entry.address ^ entry.address.wrapping_add(1));
                    address >> 2 & mask == entry.address & mask
                }
                _ => false,
            };
            if is_match {
                return entry.config & right != 0;
            }
            below = entry.address;
        }
        false
    }
}

/// The address register for `bytes`, a power of two, at a multiple of itself.
const fn power_of_two(start: u64, bytes: u64) -> u64 {
    start >> 2 | ((bytes >> 3) - 1)
}
