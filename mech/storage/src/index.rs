//! From block numbers to what is known of each block.

use alloc::boxed::Box;
use alloc::vec::Vec;

use scarce::{Grow, NoMemory};

/// Blocks of one range: 256 KiB of disk.
pub const RANGE_BLOCKS: u64 = 64;
/// Ranges of one chunk: 64 MiB of disk.
const CHUNK_RANGES: u64 = 256;
const CHUNK_BLOCKS: u64 = RANGE_BLOCKS * CHUNK_RANGES;
/// Bytes of a slot for a chunk.
const SLOT_BYTES: usize = size_of::<usize>();
/// What an allocator adds to an object, about.
const ALLOCATOR_BYTES: usize = 16;

/// Block number to `E`: a tree of fixed shape, three loads deep. A dense image costs little more than its entries,
/// scattered blocks one small array each. (A B-tree of the same ranges took some 250 instructions to find a block in a
/// cache of 400 MiB; this takes some 25.)
#[derive(Debug)]
pub struct BlockIndex<E> {
    /// As long as the last chunk in use demands.
    chunks: Vec<Option<Box<Chunk<E>>>>,
    /// Ranges in use.
    ranges: usize,
    /// Chunks in use.
    used_chunks: usize,
}

#[derive(Debug)]
struct Chunk<E> {
    /// How many ranges are `Some`; never 0.
    used: u32,
    ranges: [Option<Box<Range<E>>>; CHUNK_RANGES as usize],
}

#[derive(Debug)]
struct Range<E> {
    /// How many entries are `Some`; never 0.
    used: u32,
    entries: [Option<E>; RANGE_BLOCKS as usize],
}

impl<E: Copy> Default for BlockIndex<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Copy> BlockIndex<E> {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self { chunks: Vec::new(), ranges: 0, used_chunks: 0 }
    }

    /// Whether there is no entry.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.ranges == 0
    }

    /// Ranges in use: a measure of the memory that the index itself takes.
    #[must_use]
    pub const fn ranges(&self) -> usize {
        self.ranges
    }

    /// Bytes of memory that the index takes, the allocator's own included.
    #[must_use]
    pub const fn heap_bytes(&self) -> u64 {
        let tables = self.ranges * Self::RANGE_BYTES + self.used_chunks * Self::CHUNK_BYTES;
        (tables + self.chunks.capacity() * SLOT_BYTES) as u64
    }

    /// By how much [`BlockIndex::heap_bytes`] grows when `count` blocks from `first` on are inserted.
    #[must_use]
    pub fn growth(&self, first: u64, count: u64) -> u64 {
        let Some(last) = count.checked_sub(1).and_then(|more| first.checked_add(more)) else { return 0 };
        let (from, to) = (Place::of(first), Place::of(last));
        let mut bytes = capacity_for(to.chunk).saturating_sub(self.chunks.capacity()) * SLOT_BYTES;
        for number in from.chunk..=to.chunk {
            let start = if number == from.chunk { from.range } else { 0 };
            let end = if number == to.chunk { to.range + 1 } else { CHUNK_RANGES as usize };
            let missing = match self.chunks.get(number) {
                Some(Some(chunk)) => chunk.ranges[start..end].iter().filter(|range| range.is_none()).count(),
                _ => {
                    bytes += Self::CHUNK_BYTES;
                    end - start
                }
            };
            bytes += missing * Self::RANGE_BYTES;
        }
        bytes as u64
    }

    const RANGE_BYTES: usize = size_of::<Range<E>>() + ALLOCATOR_BYTES;
    const CHUNK_BYTES: usize = size_of::<Chunk<E>>() + ALLOCATOR_BYTES;

    /// The entry of `block`.
    #[must_use]
    #[inline]
    pub fn get(&self, block: u64) -> Option<&E> {
        let at = Place::of(block);
        self.chunks.get(at.chunk)?.as_ref()?.ranges[at.range].as_ref()?.entries[at.entry].as_ref()
    }

    /// The entry of `block`.
    #[inline]
    pub fn get_mut(&mut self, block: u64) -> Option<&mut E> {
        let at = Place::of(block);
        self.chunks.get_mut(at.chunk)?.as_mut()?.ranges[at.range].as_mut()?.entries[at.entry].as_mut()
    }

    /// Makes the topmost table reach `block`: the one piece of the index that is as large as a disk's owner likes.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing has changed.
    #[track_caller]
    pub fn reach(&mut self, block: u64) -> Result<(), NoMemory> {
        let slots = capacity_for(Place::of(block).chunk);
        self.chunks.grow_exact(slots.saturating_sub(self.chunks.len()))
    }

    /// Sets the entry of `block`, which the index is to [reach](BlockIndex::reach) before; returns the one before.
    pub fn insert(&mut self, block: u64, entry: E) -> Option<E> {
        let at = Place::of(block);
        if self.chunks.len() <= at.chunk {
            // Bounded: reached before.
            self.chunks.reserve_exact(capacity_for(at.chunk) - self.chunks.len());
            // Bounded: the same.
            self.chunks.resize_with(at.chunk + 1, || None);
        }
        let chunk = self.chunks[at.chunk].get_or_insert_with(|| {
            self.used_chunks += 1;
            Box::new(Chunk { used: 0, ranges: [const { None }; CHUNK_RANGES as usize] })
        });
        let range = chunk.ranges[at.range].get_or_insert_with(|| {
            chunk.used += 1;
            self.ranges += 1;
            Box::new(Range { used: 0, entries: [None; RANGE_BLOCKS as usize] })
        });
        let before = range.entries[at.entry].replace(entry);
        range.used += u32::from(before.is_none());
        before
    }

    /// Takes the entry of `block` out.
    pub fn remove(&mut self, block: u64) -> Option<E> {
        let at = Place::of(block);
        let range = self.chunks.get_mut(at.chunk)?.as_mut()?.ranges[at.range].as_mut()?;
        let before = range.entries[at.entry].take()?;
        range.used -= 1;
        if range.used == 0 {
            self.take_range(at);
        }
        Some(before)
    }

    /// Removes the range of `block` and gives its entries to `each`.
    pub fn remove_range(&mut self, block: u64, each: &mut dyn FnMut(E)) {
        if let Some(range) = self.take_range(Place::of(block)) {
            range.entries.iter().flatten().for_each(|entry| each(*entry));
        }
    }

    /// The first block of the first range in use that is not wholly before `block`.
    #[must_use]
    pub fn next_range(&self, block: u64) -> Option<u64> {
        let at = Place::of(block);
        let mut first_range = at.range;
        for (number, chunk) in self.chunks.iter().enumerate().skip(at.chunk) {
            let ranges = chunk.iter().flat_map(|chunk| chunk.ranges.iter().enumerate().skip(first_range));
            if let Some((range, _)) = ranges.into_iter().find(|(_, range)| range.is_some()) {
                return Some(number as u64 * CHUNK_BLOCKS + range as u64 * RANGE_BLOCKS);
            }
            first_range = 0;
        }
        None
    }

    /// The entries of the first range in use that is not wholly before `block`, from `block` on.
    pub fn range_from(&self, block: u64) -> Option<impl Iterator<Item = (u64, &E)>> {
        let start = self.next_range(block)?;
        let at = Place::of(start);
        let range = self.chunks.get(at.chunk)?.as_ref()?.ranges[at.range].as_ref()?;
        let entries = (start..).zip(range.entries.iter());
        Some(entries.filter_map(move |(at, entry)| Some((at, entry.as_ref()?))).filter(move |(at, _)| *at >= block))
    }

    fn take_range(&mut self, at: Place) -> Option<Box<Range<E>>> {
        let slot = self.chunks.get_mut(at.chunk)?;
        let chunk = slot.as_mut()?;
        let range = chunk.ranges[at.range].take()?;
        self.ranges -= 1;
        chunk.used -= 1;
        if chunk.used == 0 {
            *slot = None;
            self.used_chunks -= 1;
        }
        Some(range)
    }
}

/// Slots of the topmost table once chunk `chunk` is in use: it doubles, and a disk of the greatest size needs no more than
/// 1 MiB in one piece.
const fn capacity_for(chunk: usize) -> usize {
    (chunk + 1).next_power_of_two()
}

/// Where a block is in the tree. `range` and `entry` are in bounds by construction.
#[derive(Clone, Copy)]
struct Place {
    chunk: usize,
    range: usize,
    entry: usize,
}

impl Place {
    #[inline]
    const fn of(block: u64) -> Self {
        Self {
            chunk: (block / CHUNK_BLOCKS) as usize,
            range: (block / RANGE_BLOCKS % CHUNK_RANGES) as usize,
            entry: (block % RANGE_BLOCKS) as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn entries_come_and_go_with_their_ranges() {
        let mut index = BlockIndex::new();
        for block in [0, 63, 64, 1 << 30] {
            assert_eq!(index.insert(block, block), None);
        }
        assert_eq!(index.ranges(), 3);
        assert_eq!(index.insert(63, 7), Some(63));
        assert_eq!(index.get(63), Some(&7));
        assert_eq!(index.get(62), None);
        assert_eq!(index.remove(1 << 30), Some(1 << 30));
        assert_eq!(index.remove(1 << 50), None);
        assert_eq!(index.get(u64::MAX), None);
        assert_eq!(index.ranges(), 2);
        let mut removed = Vec::new();
        index.remove_range(5, &mut |entry| removed.push(entry));
        assert_eq!(removed, [0, 7]);
        assert_eq!(index.next_range(0), Some(64));
    }

    /// Growth is told exactly before it happens, and all of it comes back but the topmost table.
    #[test]
    fn memory_is_foretold() {
        let mut index = BlockIndex::new();
        assert_eq!((index.heap_bytes(), index.growth(5, 0)), (0, 0));
        for (first, count) in
            [(3, 1), (3, 1), (60, 10), (16_380, 100), (1 << 30, 1), (16_000, 5_000), ((1 << 31) - 1, 1)]
        {
            let (before, growth) = (index.heap_bytes(), index.growth(first, count));
            (first..first + count)
                .for_each(|block| assert!(index.insert(block, block).is_none_or(|before| before == block)));
            assert_eq!(index.heap_bytes(), before + growth, "{count} from {first}");
            assert_eq!(index.growth(first, count), 0);
        }
        assert!(index.chunks.capacity() * SLOT_BYTES <= 1 << 20);
        while let Some(block) = index.next_range(0) {
            index.remove_range(block, &mut |_| ());
        }
        let before = index.chunks.capacity();
        assert_eq!((index.reach(1 << 30), index.chunks.capacity()), (Ok(()), before), "it reaches further than that");
        assert_eq!(index.heap_bytes(), (index.chunks.capacity() * SLOT_BYTES) as u64);
    }

    #[test]
    fn ranges_are_walked_from_any_block() {
        let mut index = BlockIndex::new();
        for block in [3, 9, 200] {
            index.insert(block, ());
        }
        let from = |block| index.range_from(block).map(|range| range.map(|(at, _)| at).collect::<Vec<_>>());
        assert_eq!(from(0), Some([3, 9].into()));
        assert_eq!(from(4), Some([9].into()));
        assert_eq!(from(10), Some([].into()));
        assert_eq!(from(64), Some([200].into()));
        assert_eq!(from(256), None);
    }
}
