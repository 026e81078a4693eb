//! Stores that nobody here wrote: the checksums of their logs are right, what they say may be anything.

use alloc::vec::Vec;

use storage::BLOCK;

use crate::layout::{Geometry, MIN_BLOCKS, Superblock};
use crate::record::{Stamp, seal};

/// Blocks of a store with this log and nothing else, in a partition of [`MIN_BLOCKS`], each with its number. All other blocks are zero.
/// Each of `blocks` is what one block of the log says: records as [`crate::record`] has them, or anything. What does not fit is left out.
#[must_use]
pub fn store_that_says(epoch: u64, blocks: &[&[u8]]) -> Vec<(u64, Vec<u8>)> {
    const NONCE: u64 = 3;
    let geometry = Geometry::of(MIN_BLOCKS);
    let superblock = Superblock { geometry, epoch, nonce: NONCE, half: 1 };
    let mut found = alloc::vec![(superblock.block(), superblock.encode())];
    for (position, says) in (0..geometry.log_blocks).zip(blocks) {
        let mut block = alloc::vec![0; BLOCK as usize];
        seal(&mut block, Stamp { epoch, nonce: NONCE }, position, says);
        found.push((geometry.log(1) + position, block));
    }
    found
}
