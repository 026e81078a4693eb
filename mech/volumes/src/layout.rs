//! Where things lie in a store's partition, and its superblock.
//!
//! ```text
//! block 0, 1     superblocks, the one with the higher epoch counts
//! then           two logs of `log_blocks` each: one in use, one for the next checkpoint
//! the rest       data blocks
//! ```

use alloc::vec;
use alloc::vec::Vec;

use crc::{CRC_64_XZ, Crc, Table};
use storage::BLOCK;

use crate::record;

/// Blocks before the logs.
const SUPERBLOCKS: u64 = 2;
const MAGIC: &[u8; 8] = b"MBVOLUME";
const VERSION: u32 = 1;
/// Bytes of a superblock that are used: one sector, which a disk writes whole or not at all.
const SUPER_BYTES: usize = 512;
/// Log blocks beyond a full checkpoint: room for descriptions of layers and for commits.
const LOG_SLACK: u64 = 64;
const ENTRIES_PER_BLOCK: u64 = 2;
/// Least blocks of a store: superblocks, logs, and data for something useful.
pub const MIN_BLOCKS: u64 = SUPERBLOCKS + 2 * LOG_SLACK + 256;

/// Sizes in blocks. Fixed when the store is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub blocks: u64,
    pub log_blocks: u64,
}

impl Geometry {
    /// For a partition of `blocks`. A log holds a checkpoint in which no two blocks lie together.
    pub const fn of(blocks: u64) -> Self {
        Self { blocks, log_blocks: LOG_SLACK + (ENTRIES_PER_BLOCK * blocks).div_ceil(record::MAPS_PER_BLOCK) }
    }

    /// Most blocks that all layers together may say something of: those with data, and as many that are zero.
    pub const fn max_entries(self) -> u64 {
        self.data_blocks() * ENTRIES_PER_BLOCK
    }

    /// Most blocks that a log may name, those counted again that it names again: bounds the time to open the store.
    pub const fn max_named(self) -> u64 {
        const TIMES: u64 = 8;
        self.max_entries() * TIMES
    }

    /// The first block of log 0 or 1.
    pub const fn log(self, half: u8) -> u64 {
        SUPERBLOCKS + half as u64 * self.log_blocks
    }

    pub const fn first_data(self) -> u64 {
        SUPERBLOCKS + 2 * self.log_blocks
    }

    pub const fn data_blocks(self) -> u64 {
        self.blocks - self.first_data()
    }
}

/// Which log counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub geometry: Geometry,
    /// Rises with every checkpoint.
    pub epoch: u64,
    /// What all blocks of the log carry: those of an earlier attempt at the same epoch have another.
    pub nonce: u64,
    /// The log: 0 or 1.
    pub half: u8,
}

impl Superblock {
    /// The block where it is written: the older of the two.
    pub const fn block(&self) -> u64 {
        self.epoch % SUPERBLOCKS
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK as usize];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12] = self.half;
        let words = [self.epoch, self.nonce, self.geometry.blocks, self.geometry.log_blocks];
        for (at, word) in (16..).step_by(8).zip(words) {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let sum = checksum(&[&bytes[..SUPER_BYTES - 8]]);
        bytes[SUPER_BYTES - 8..SUPER_BYTES].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// `None` if the block holds none.
    pub fn decode(block: &[u8]) -> Option<Self> {
        let bytes = block.get(..SUPER_BYTES)?;
        let is_ours = bytes.starts_with(MAGIC) && bytes[8..12] == VERSION.to_le_bytes() && bytes[12] < 2;
        if !is_ours || word(bytes, SUPER_BYTES - 8) != checksum(&[&bytes[..SUPER_BYTES - 8]]) {
            return None;
        }
        let geometry = Geometry { blocks: word(bytes, 32), log_blocks: word(bytes, 40) };
        let is_sound = geometry.blocks >= MIN_BLOCKS
            && geometry.blocks <= storage::MAX_SECTORS
            && geometry == Geometry::of(geometry.blocks);
        is_sound.then(|| Self { geometry, epoch: word(bytes, 16), nonce: word(bytes, 24), half: bytes[12] })
    }
}

/// The little-endian word at `at`; callers pass whole blocks.
pub fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|field| field.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Tables of the checksum: tests and fuzzing sum blocks all day; the monitor's image has no room for more than one.
#[cfg(any(test, feature = "testing"))]
type Tables = Table<16>;
#[cfg(not(any(test, feature = "testing")))]
type Tables = Table<1>;

/// CRC-64/XZ of all parts in turn.
pub fn checksum(parts: &[&[u8]]) -> u64 {
    static CRC: Crc<u64, Tables> = Crc::<u64, Tables>::new(&CRC_64_XZ);
    let mut digest = CRC.digest();
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superblocks_come_back_and_damage_is_seen() {
        let written = Superblock { geometry: Geometry::of(5_000), epoch: 7, nonce: 9, half: 1 };
        let bytes = written.encode();
        assert_eq!(Superblock::decode(&bytes), Some(written));
        for at in 0..SUPER_BYTES {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert_eq!(Superblock::decode(&damaged), None, "byte {at}");
        }
    }

    #[test]
    fn a_log_holds_the_worst_checkpoint() {
        for blocks in [MIN_BLOCKS, 10_000, 1 << 24] {
            let geometry = Geometry::of(blocks);
            assert!(geometry.first_data() < blocks);
            assert!(geometry.max_entries() <= (geometry.log_blocks - LOG_SLACK) * record::MAPS_PER_BLOCK);
        }
    }
}
