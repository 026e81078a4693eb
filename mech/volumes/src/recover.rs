//! Opening a store: reading its log.

use alloc::vec;
use alloc::vec::Vec;

use storage::{BLOCK, SECTORS_PER_BLOCK};

use crate::commit::LogEnd;
use crate::error::OpenError;
use crate::layers::{Entry, Layer};
use crate::layout::{Geometry, MIN_BLOCKS, Superblock};
use crate::record::Base;
use crate::record::{Record, Stamp, unpack};
use crate::space::Space;
use crate::store::{MAX_LAYERS, Store, check_name};

/// Epochs beyond this are nobody's: a store is not written so often.
const MAX_EPOCH: u64 = u64::MAX / 2;

/// Fills a buffer of one block from a block of the partition, or says that it cannot.
pub type ReadBlock<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> bool;

impl Store {
    /// Opens the store in a partition of `blocks` blocks, or begins a new one where there is nothing but zeroes; nothing is
    /// written until there is something to keep. `nonce` must be another one each time. `index_limit` bounds the memory, in
    /// bytes, that finding blocks takes: writes that need more find the store full.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(blocks: u64, nonce: u64, index_limit: u64, read: ReadBlock<'_>) -> Result<Self, OpenError> {
        if blocks < MIN_BLOCKS {
            return Err(OpenError::TooSmall { blocks, least: MIN_BLOCKS });
        }
        let found = find_superblock(read)?;
        let geometry = found.map_or(Geometry::of(blocks), |found| found.geometry);
        let bitmap = Space::heap_bytes(geometry.data_blocks());
        let too_large = OpenError::IndexTooLarge { limit: index_limit };
        let index_limit = index_limit.checked_sub(bitmap).ok_or(too_large)?;
        let Some(found) = found else {
            let stamp = Stamp { epoch: 0, nonce };
            // The first checkpoint goes to the other log: 0.
            return Ok(Self::new(geometry, LogEnd { stamp, nonce, half: 1, next: 0, named: 0 }, index_limit));
        };
        if geometry.blocks > blocks {
            return Err(OpenError::Shrunk { recorded: geometry.blocks, blocks });
        }
        if found.epoch > MAX_EPOCH {
            return Err(corrupt("epoch", found.epoch));
        }
        let stamp = Stamp { epoch: found.epoch, nonce: found.nonce };
        let log = LogEnd { stamp, nonce, half: found.half, next: 0, named: 0 };
        let mut store = Self::new(geometry, log, index_limit);
        store.replay(read)?;
        store.mark_all()?;
        Ok(store)
    }

    /// Whether there is a store in a partition. `false` also where it cannot be read.
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
                self.redo_layer(id, Layer::new(parent, is_snapshot, name, base))
            }
            Record::Freeze { layer, next, name } => {
                let frozen = self.layers.get_mut(layer).filter(|layer| !layer.is_snapshot);
                let frozen = frozen.ok_or(corrupt("frozen layer", layer.into()))?;
                frozen.is_snapshot = true;
                let (volume, base) = (core::mem::replace(&mut frozen.name, name), frozen.base.clone());
                // Under its new name it may be another snapshot's double.
                self.check_description(layer)?;
                self.redo_layer(next, Layer::new(Some(layer), false, volume, base))
            }
            Record::Drop { layer } => {
                let dropped = self.layers.remove(layer).ok_or(corrupt("dropped layer", layer.into()))?;
                self.layers.dismantled(dropped.counted());
                Ok(())
            }
            Record::Map { layer, block, count, target, mask } => self.redo_map(layer, block, count, target, mask),
        }
    }

    fn redo_layer(&mut self, id: u32, layer: Layer) -> Result<(), OpenError> {
        let of_parent = |parent| self.layers.get(parent).map(|parent| &parent.base);
        let is_alike = layer.parent.and_then(of_parent).is_none_or(|base| *base == layer.base);
        if !is_alike || self.layers.len() >= MAX_LAYERS || self.layers.add(id, layer).is_err() {
            return Err(corrupt("layer", id.into()));
        }
        self.check_description(id)
    }

    /// Refuses a layer that nobody can have made: one that is too large, has a name that is none, or shares its name
    /// with another volume or snapshot.
    fn check_description(&self, id: u32) -> Result<(), OpenError> {
        let is_sound = self.layers.get(id).is_some_and(|layer| {
            let Base { disk, partition, sectors } = &layer.base;
            let mut names = [&layer.name, disk].into_iter().chain(partition);
            let is_double = |(other, found): (u32, &Layer)| {
                other != id && found.name == layer.name && found.is_snapshot == layer.is_snapshot
            };
            *sectors <= storage::MAX_SECTORS
                && names.all(|name| check_name(name).is_ok())
                && !self.layers.iter().any(is_double)
        });
        if is_sound { Ok(()) } else { Err(corrupt("description of layer", id.into())) }
    }

    fn redo_map(&mut self, layer: u32, block: u64, count: u32, target: u64, mask: u8) -> Result<(), OpenError> {
        let geometry = self.geometry;
        self.log.named += u64::from(count);
        if self.log.named > geometry.max_named() {
            return Err(corrupt("number of blocks", self.log.named));
        }
        let found = self.layers.get(layer).ok_or(corrupt("mapped layer", layer.into()))?;
        let fits = |first: u64, end: u64| first.checked_add(count.into()).is_some_and(|last| last <= end);
        if !fits(block, found.base.sectors.div_ceil(SECTORS_PER_BLOCK)) {
            return Err(corrupt("mapped block", block));
        }
        if target != 0 && (target < geometry.first_data() || !fits(target, geometry.blocks)) {
            return Err(corrupt("data block", target));
        }
        if self.layers.index_bytes() + self.layers.growth(layer, block, count.into()) > self.index_limit {
            return Err(OpenError::IndexTooLarge { limit: self.index_limit });
        }
        let reached = self.layers.reach(layer, block + u64::from(count.saturating_sub(1)));
        reached.map_err(|_| OpenError::IndexTooLarge { limit: self.index_limit })?;
        for step in 0..u64::from(count) {
            let target = if target == 0 { 0 } else { target + step };
            let entry = Entry::new(target, mask).ok_or(corrupt("mask", mask.into()))?;
            self.layers.set(layer, block + step, entry);
        }
        match self.layers.entries() {
            entries if entries > geometry.max_entries() => Err(corrupt("entries", entries)),
            _ => Ok(()),
        }
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
