//! Decoding a request: everything is checked here, so that a backend sees only what it can do.

use super::backend::BlockKind;
use super::spec;

/// Why a request is refused without asking the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Answered with `IOERR`.
    IoError,
    /// Answered with `UNSUPP`.
    Unsupported,
}

/// What the device knows about its disk.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Size in sectors.
    pub capacity: u64,
    /// Writes are refused.
    pub is_read_only: bool,
    /// Discard and write-zeroes exist.
    pub can_discard: bool,
}

impl Limits {
    /// Checks a data transfer of `bytes` bytes at `sector`; returns the number of sectors.
    pub fn check_transfer(&self, sector: u64, bytes: u32, is_write: bool) -> Result<u64, Refusal> {
        let bytes = u64::from(bytes);
        if bytes == 0 || !bytes.is_multiple_of(spec::SECTOR) || (is_write && self.is_read_only) {
            return Err(Refusal::IoError);
        }
        let sectors = bytes >> spec::SECTOR_SHIFT;
        self.check_range(sector, sectors)?;
        Ok(sectors)
    }

    /// Decodes the one range of a discard or write-zeroes request; returns command, sector and count.
    pub fn check_zeroing(&self, command: u32, raw: &[u8; spec::RANGE_BYTES]) -> Result<(BlockKind, u64, u64), Refusal> {
        let value = u128::from_le_bytes(*raw);
        let (sector, sectors, flags) = (value as u64, u64::from((value >> 64) as u32), (value >> 96) as u32);
        let unmap = flags & spec::RANGE_F_UNMAP != 0;
        let kind = if command == spec::T_DISCARD { BlockKind::Discard } else { BlockKind::WriteZeroes { unmap } };
        // "UNSUPP if any unknown flag is set, or unmap with discard" ("Device Operation", 5.2.6.2).
        if !self.can_discard || flags & !spec::RANGE_F_UNMAP != 0 || (unmap && kind == BlockKind::Discard) {
            return Err(Refusal::Unsupported);
        }
        if self.is_read_only || sectors == 0 {
            return Err(Refusal::IoError);
        }
        self.check_range(sector, sectors)?;
        Ok((kind, sector, sectors))
    }

    fn check_range(&self, sector: u64, sectors: u64) -> Result<(), Refusal> {
        match sector.checked_add(sectors) {
            Some(end) if end <= self.capacity => Ok(()),
            _ => Err(Refusal::IoError),
        }
    }
}
