//! Opening a store: reading its log.

use alloc::vec;
use alloc::vec::Vec;

use storage::{BLOCK, SECTORS_PER_BLOCK};

use crate::commit::LogEnd;
use crate::error::OpenError;
use crate::layers::{Entry, Layer};
use crate::layout::{Geometry, MIN_BLOCKS, Superblock};
use crate::record::{Record, Stamp, unpack};
use crate::store::{MAX_LAYERS, Store};

/// Fills a buffer of one block from a block of the partition, or says that it cannot.
pub type ReadBlock<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> bool;

impl Store {
    /// Opens the store in a partition of `blocks` blocks, or begins a new one where there is nothing but zeroes; nothing is
    /// written until there is something to keep. `nonce` must be another one each time.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(blocks: u64, nonce: u64, read: ReadBlock<'_>) -> Result<Self, OpenError> {
        if blocks < MIN_BLOCKS {
            return Err(OpenError::TooSmall { blocks, least: MIN_BLOCKS });
        }
        let found = find_superblock(read)?;
        let Some(found) = found else {
            let stamp = Stamp { epoch: 0, nonce };
            // The first checkpoint goes to the other log: 0.
            return Ok(Self::new(Geometry::of(blocks), LogEnd { stamp, nonce, half: 1, next: 0 }));
        };
        if found.geometry.blocks > blocks {
            return Err(OpenError::Shrunk { recorded: found.geometry.blocks, blocks });
        }
        let stamp = Stamp { epoch: found.epoch, nonce: found.nonce };
        let mut store = Self::new(found.geometry, LogEnd { stamp, nonce, half: found.half, next: 0 });
        store.replay(read)?;
        store.mark_all()?;
        Ok(store)
    }

    /// Is there a store in a partition? `false` also where it cannot be read.
    pub fn is_in(read: ReadBlock<'_>) -> bool {
        matches!(find_superblock(read), Ok(Some(_)))
    }

    /// Does what the log says, up to the first block that is not of it: what was being written when the power went.
    fn replay(&mut self, read: ReadBlock<'_>) -> Result<(), OpenError> {
        let start = self.geometry.log(self.log.half);
        let mut raw = vec![0; BLOCK as usize];
        while self.log.next < self.geometry.log_blocks {
            let block = start + self.log.next;
            if !read(block, &mut raw) {
                return Err(OpenError::Unreadable { block });
            }
            let Some(records) = unpack(&raw, self.log.stamp, self.log.next) else { break };
            records.into_iter().try_for_each(|record| self.redo(record))?;
            self.log.next += 1;
        }
        Ok(())
    }

    fn redo(&mut self, record: Record) -> Result<(), OpenError> {
        match record {
            Record::Layer { id, parent, is_snapshot, name, base } => {
                let is_added = self.layers.len() < MAX_LAYERS
                    && base.sectors <= storage::MAX_SECTORS
                    && self.layers.add(id, Layer::new(parent, is_snapshot, name, base));
                is_added.then_some(()).ok_or(corrupt("layer", id.into()))
            }
            Record::Freeze { layer, next, name } => {
                let frozen = self.layers.get_mut(layer).filter(|layer| !layer.is_snapshot);
                let frozen = frozen.ok_or(corrupt("frozen layer", layer.into()))?;
                frozen.is_snapshot = true;
                let (name, base) = (core::mem::replace(&mut frozen.name, name), frozen.base.clone());
                let is_added = self.layers.add(next, Layer::new(Some(layer), false, name, base));
                is_added.then_some(()).ok_or(corrupt("layer", next.into()))
            }
            Record::Drop { layer } => self.layers.remove(layer).map(drop).ok_or(corrupt("dropped layer", layer.into())),
            Record::Map { layer, block, count, target, mask } => self.redo_map(layer, block, count, target, mask),
        }
    }

    fn redo_map(&mut self, layer: u32, block: u64, count: u32, target: u64, mask: u8) -> Result<(), OpenError> {
        let geometry = self.geometry;
        let found = self.layers.get(layer).ok_or(corrupt("mapped layer", layer.into()))?;
        let fits = |first: u64, end: u64| first.checked_add(count.into()).is_some_and(|last| last <= end);
        if !fits(block, found.base.sectors.div_ceil(SECTORS_PER_BLOCK)) {
            return Err(corrupt("mapped block", block));
        }
        if target != 0 && (target < geometry.first_data() || !fits(target, geometry.blocks)) {
            return Err(corrupt("data block", target));
        }
        for step in 0..u64::from(count) {
            let target = if target == 0 { 0 } else { target + step };
            let entry = Entry::new(target, mask).ok_or(corrupt("mask", mask.into()))?;
            self.layers.set(layer, block + step, entry);
        }
        Ok(())
    }

    /// Finds out which data blocks are in use; each by one layer, once.
    fn mark_all(&mut self) -> Result<(), OpenError> {
        let mut twice = None;
        for (_, layer) in self.layers.iter() {
            let mut at = 0;
            while let Some(start) = layer.index.next_range(at) {
                let entries = layer.index.range_from(start).into_iter().flatten();
                for target in entries.map(|(_, entry)| entry.target()).filter(|target| *target != 0) {
                    if !self.space.mark(target) {
                        twice = Some(target);
                    }
                }
                at = start + storage::RANGE_BLOCKS;
            }
        }
        twice.map_or(Ok(()), |target| Err(corrupt("doubly used data block", target)))
    }
}

const fn corrupt(what: &'static str, value: u64) -> OpenError {
    OpenError::Corrupt { what, value }
}

/// The superblock with the higher epoch; `None` if both places are empty.
fn find_superblock(read: ReadBlock<'_>) -> Result<Option<Superblock>, OpenError> {
    let mut found: Vec<Superblock> = Vec::new();
    let mut is_blank = true;
    for block in 0..2 {
        let mut raw = vec![0; BLOCK as usize];
        if !read(block, &mut raw) {
            return Err(OpenError::Unreadable { block });
        }
        is_blank &= raw.iter().all(|byte| *byte == 0);
        found.extend(Superblock::decode(&raw).filter(|found| found.block() == block));
    }
    match found.into_iter().max_by_key(|found| found.epoch) {
        Some(found) => Ok(Some(found)),
        None if is_blank => Ok(None),
        None => Err(OpenError::NotAStore),
    }
}
