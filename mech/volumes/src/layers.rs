//! Layers: what was written to a volume since its snapshot, on what the snapshot shows, on the machine's disk.

use alloc::boxed::Box;
use alloc::string::String;
use core::num::NonZeroU64;

use scarce::NoMemory;
use storage::{BlockIndex, SECTORS_PER_BLOCK};

use crate::record::Base;
use crate::table::Table;

/// Sectors of one block, bit 0 the first.
pub type Mask = u8;
/// All sectors of a block.
pub const ALL: Mask = Mask::MAX;

/// The sectors `[offset, offset + count)` of a block; both at most 8.
pub const fn mask(offset: u64, count: u64) -> Mask {
    (((1_u32 << count) - 1) << offset) as Mask
}

/// What a layer says of a block: its data block, and which sectors are the layer's. Without a data block they are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(NonZeroU64);

impl Entry {
    /// `None` if it says nothing.
    pub const fn new(target: u64, mask: Mask) -> Option<Self> {
        match NonZeroU64::new(target << 8 | mask as u64) {
            Some(raw) if mask != 0 => Some(Self(raw)),
            _ => None,
        }
    }

    /// The data block; 0 if the sectors are zero.
    pub const fn target(self) -> u64 {
        self.0.get() >> 8
    }

    pub const fn mask(self) -> Mask {
        self.0.get() as Mask
    }
}

/// Where a sector is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// On the machine's disk, at the same place.
    Base,
    /// In the store, at this sector.
    Store(u64),
    /// Nowhere: it is zero.
    Zero,
}

/// A volume or a snapshot.
#[derive(Debug)]
pub struct Layer {
    pub parent: Option<u32>,
    /// Layers whose parent this is.
    pub children: u32,
    pub is_snapshot: bool,
    pub name: String,
    pub base: Base,
    pub index: BlockIndex<Entry>,
    /// Entries of the index.
    pub entries: u64,
    /// Of these, with a data block.
    pub blocks: u64,
    /// Writes under way.
    pub writers: u32,
}

impl Layer {
    pub const fn new(parent: Option<u32>, is_snapshot: bool, name: String, base: Base) -> Self {
        let index = BlockIndex::new();
        Self { parent, children: 0, is_snapshot, name, base, index, entries: 0, blocks: 0, writers: 0 }
    }

    /// What it counts for.
    pub const fn counted(&self) -> Counted {
        Counted { entries: self.entries, index_bytes: self.index.heap_bytes() }
    }

    fn set(&mut self, block: u64, entry: Entry) -> Option<Entry> {
        let before = self.index.insert(block, entry);
        self.entries += u64::from(before.is_none());
        self.blocks += u64::from(entry.target() != 0);
        self.blocks -= u64::from(before.is_some_and(|before| before.target() != 0));
        before
    }
}

/// All layers of a store. A parent's number is lower than its children's.
#[derive(Debug, Default)]
pub struct Layers {
    table: Table<u32, Layer>,
    last: u32,
    /// What all of them count for, those included that are gone and not dismantled yet: the log may name them still.
    counted: Counted,
}

/// What layers count for where there are bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    entries: u64,
    /// Memory of the index.
    index_bytes: u64,
}

/// Why a layer cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Its number is 0, or in use, or too high for another one after it.
    Number,
    /// There is no such parent, or it has a higher number, or still changes.
    Parent,
}

impl Layers {
    pub fn get(&self, id: u32) -> Option<&Layer> {
        self.table.get(id)
    }

    pub fn get_mut(&mut self, id: u32) -> Option<&mut Layer> {
        self.table.get_mut(id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Layer)> {
        self.table.iter()
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// The number for the next layer. Numbers are given once, so that a log may say what it says twice.
    pub const fn next_id(&self) -> u32 {
        // `add` takes none from which there would be no next one.
        self.last + 1
    }

    /// How many more layers may be added before all numbers have been given.
    pub const fn numbers_left(&self) -> u32 {
        u32::MAX - 1 - self.last
    }

    /// Adds a layer.
    ///
    /// # Errors
    /// [`Unfit`]; nothing has changed then.
    pub fn add(&mut self, id: u32, layer: Layer) -> Result<(), Unfit> {
        if self.table.get(id).is_some() || id == 0 || id == u32::MAX {
            return Err(Unfit::Number);
        }
        if let Some(parent) = layer.parent {
            let parent = self.table.get_mut(parent).filter(|found| parent < id && found.is_snapshot);
            parent.ok_or(Unfit::Parent)?.children += 1;
        }
        self.last = self.last.max(id);
        self.table.insert(id, Box::new(layer));
        Ok(())
    }

    /// Takes a layer out that has no children. It still counts, see [`Layers::dismantled`].
    pub fn remove(&mut self, id: u32) -> Option<Layer> {
        if self.table.get(id)?.children > 0 {
            return None;
        }
        let layer = *self.table.remove(id)?;
        if let Some(parent) = layer.parent.and_then(|parent| self.table.get_mut(parent)) {
            parent.children -= 1;
        }
        Some(layer)
    }

    pub fn find(&self, name: &str, is_snapshot: bool) -> Option<u32> {
        self.iter().find(|(_, layer)| layer.is_snapshot == is_snapshot && layer.name == name).map(|(id, _)| id)
    }

    /// Entries of all of them.
    pub const fn entries(&self) -> u64 {
        self.counted.entries
    }

    /// Bytes of memory that the indices take.
    pub const fn index_bytes(&self) -> u64 {
        self.counted.index_bytes
    }

    /// By how much [`Layers::index_bytes`] grows when a layer says something of `count` blocks from `block` on.
    pub fn growth(&self, id: u32, block: u64, count: u64) -> u64 {
        self.table.get(id).map_or(0, |layer| layer.index.growth(block, count))
    }

    /// Makes the index of a layer reach `block`.
    ///
    /// # Errors
    /// [`NoMemory`].
    #[track_caller]
    pub fn reach(&mut self, id: u32, block: u64) -> Result<(), NoMemory> {
        let Some(layer) = self.table.get_mut(id) else { return Ok(()) };
        let bytes = layer.index.heap_bytes();
        layer.index.reach(block)?;
        self.counted.index_bytes += layer.index.heap_bytes() - bytes;
        Ok(())
    }

    /// A layer that was taken out is gone from the log and from memory.
    pub const fn dismantled(&mut self, layer: Counted) {
        self.counted.entries -= layer.entries;
        self.counted.index_bytes -= layer.index_bytes;
    }

    /// Sets what a layer says of a block; returns what it said before.
    pub fn set(&mut self, id: u32, block: u64, entry: Entry) -> Option<Entry> {
        let layer = self.table.get_mut(id)?;
        let bytes = layer.index.heap_bytes();
        let before = layer.set(block, entry);
        self.counted.index_bytes += layer.index.heap_bytes() - bytes;
        self.counted.entries += u64::from(before.is_none());
        before
    }

    /// Where sectors from `sector` on are, seen through layer `top`: the place of the first, and how many lie in a row
    /// there, at least 1 and at most `most`. Each look into a layer takes one of `looks`; when there are none left, the run ends
    /// with what was found.
    pub fn find_run(&self, top: u32, sector: u64, most: u64, looks: &mut u64) -> (Source, u64) {
        let (source, mut count) = self.in_block(top, sector, looks);
        while count < most && *looks > 0 {
            let (next, more) = self.in_block(top, sector + count, looks);
            let is_next = match source {
                Source::Store(at) => next == Source::Store(at + count),
                Source::Base | Source::Zero => next == source,
            };
            if !is_next {
                break;
            }
            count += more;
        }
        (source, count.min(most).max(1))
    }

    /// The same inside one block.
    fn in_block(&self, top: u32, sector: u64, looks: &mut u64) -> (Source, u64) {
        let (block, offset) = (sector / SECTORS_PER_BLOCK, sector % SECTORS_PER_BLOCK);
        // Sectors from `offset` on that no layer so far has.
        let mut open = ALL << offset;
        let mut layer = self.table.get(top);
        while let Some(this) = layer {
            *looks = looks.saturating_sub(1);
            if let Some(entry) = this.index.get(block) {
                let own = entry.mask() & open;
                if own >> offset & 1 != 0 {
                    let source = match entry.target() {
                        0 => Source::Zero,
                        target => Source::Store(target * SECTORS_PER_BLOCK + offset),
                    };
                    return (source, u64::from((own >> offset).trailing_ones()));
                }
                // The run ends where an upper layer begins.
                let end = own.trailing_zeros().min(8);
                open &= ((1_u32 << end) - 1) as Mask;
            }
            layer = this.parent.and_then(|parent| self.table.get(parent));
        }
        (Source::Base, u64::from((open >> offset).trailing_ones()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers() -> Layers {
        let base = || Base { disk: "d".into(), partition: None, sectors: 800 };
        let mut layers = Layers::default();
        let layer = |parent, is_snapshot| Layer::new(parent, is_snapshot, "layer".into(), base());
        assert_eq!(layers.add(1, layer(None, true)), Ok(()));
        assert_eq!(layers.add(2, layer(Some(1), false)), Ok(()));
        for id in [0, 1, 2, u32::MAX] {
            assert_eq!(layers.add(id, layer(None, false)), Err(Unfit::Number), "{id}");
        }
        for parent in [0, 2, 3, 7, u32::MAX] {
            assert_eq!(layers.add(3, layer(Some(parent), false)), Err(Unfit::Parent), "{parent}");
        }
        assert_eq!((layers.next_id(), layers.numbers_left()), (3, u32::MAX - 3));
        layers.set(1, 1, Entry::new(100, ALL).unwrap());
        layers.set(1, 2, Entry::new(101, 0b0000_1111).unwrap());
        layers.set(1, 4, Entry::new(0, ALL).unwrap());
        layers.set(2, 2, Entry::new(50, 0b0001_0010).unwrap());
        layers
    }

    #[test]
    fn each_sector_is_found_in_the_uppermost_layer_that_has_it() {
        let layers = layers();
        let runs = |top| {
            let (mut at, mut found) = (0, alloc::vec::Vec::new());
            while at < 48 {
                let run = layers.find_run(top, at, 48 - at, &mut { u64::MAX });
                at += run.1;
                found.push(run);
            }
            found
        };
        use Source::{Base, Store, Zero};
        assert_eq!(runs(1), [(Base, 8), (Store(800), 12), (Base, 12), (Zero, 8), (Base, 8)]);
        let new = [
            (Base, 8),
            (Store(800), 9),
            (Store(401), 1),
            (Store(810), 2),
            (Store(404), 1),
            (Base, 11),
            (Zero, 8),
            (Base, 8),
        ];
        assert_eq!(runs(2), new);
        assert_eq!(layers.find_run(2, 9, 3, &mut { u64::MAX }), (Store(801), 3));
        // What looks are left for is found.
        let found = |mut looks| (layers.find_run(1, 24, 800, &mut looks), looks);
        assert_eq!(
            (found(0), found(1), found(2), found(3)),
            (((Base, 8), 0), ((Base, 8), 0), ((Base, 8), 0), ((Base, 8), 1))
        );
    }

    #[test]
    fn parents_stay_while_they_have_children() {
        let mut layers = layers();
        assert!(layers.remove(1).is_none());
        let new = layers.remove(2).unwrap();
        assert_eq!((new.entries, new.blocks), (1, 1));
        let old = layers.remove(1).unwrap();
        assert_eq!((old.entries, old.blocks, layers.len(), layers.entries()), (3, 2, 0, 4));
        assert_eq!(layers.next_id(), 3);
        assert_eq!(layers.index_bytes(), new.index.heap_bytes() + old.index.heap_bytes());
        layers.dismantled(new.counted());
        layers.dismantled(old.counted());
        assert_eq!((layers.index_bytes(), layers.entries()), (0, 0));
        let last = Layer::new(None, false, "last".into(), old.base);
        assert_eq!(layers.add(u32::MAX - 1, last), Ok(()));
        assert_eq!(layers.numbers_left(), 0);
    }
}
