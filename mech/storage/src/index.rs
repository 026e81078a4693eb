//! A B-tree from ranges of blocks to what is known of each block.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

/// Blocks of one range: 256 KiB. One tree node entry and one small array per range keep both a dense image and
/// scattered blocks cheap; finding a block is a descent over ranges and one index.
pub const RANGE_BLOCKS: u64 = 64;

/// Block number to `E`.
#[derive(Debug)]
pub struct BlockIndex<E> {
    ranges: BTreeMap<u64, Range<E>>,
}

#[derive(Debug)]
struct Range<E> {
    /// How many entries are `Some`; never 0.
    used: u32,
    entries: Box<[Option<E>; RANGE_BLOCKS as usize]>,
}

impl<E: Copy> BlockIndex<E> {
    pub const fn new() -> Self {
        Self { ranges: BTreeMap::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Ranges in use: a measure of the memory that the index itself takes.
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    #[inline]
    pub fn get(&self, block: u64) -> Option<&E> {
        let (range, at) = split(block);
        self.ranges.get(&range)?.entries.get(at)?.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, block: u64) -> Option<&mut E> {
        let (range, at) = split(block);
        self.ranges.get_mut(&range)?.entries.get_mut(at)?.as_mut()
    }

    /// Sets the entry of `block`; returns the one before.
    pub fn insert(&mut self, block: u64, entry: E) -> Option<E> {
        let (range, at) = split(block);
        let range = self
            .ranges
            .entry(range)
            .or_insert_with(|| Range { used: 0, entries: Box::new([None; RANGE_BLOCKS as usize]) });
        let before = range.entries.get_mut(at)?.replace(entry);
        range.used += u32::from(before.is_none());
        before
    }

    pub fn remove(&mut self, block: u64) -> Option<E> {
        let (number, at) = split(block);
        let range = self.ranges.get_mut(&number)?;
        let before = range.entries.get_mut(at)?.take()?;
        range.used -= 1;
        if range.used == 0 {
            self.ranges.remove(&number);
        }
        Some(before)
    }

    /// Removes the range of `block` and gives its entries to `each`.
    pub fn remove_range(&mut self, block: u64, each: &mut dyn FnMut(E)) {
        if let Some(range) = self.ranges.remove(&(block / RANGE_BLOCKS)) {
            range.entries.iter().flatten().for_each(|entry| each(*entry));
        }
    }

    /// The first block of the first range in use that is not wholly before `block`.
    pub fn next_range(&self, block: u64) -> Option<u64> {
        let (range, _) = split(block);
        self.ranges.range(range..).next().map(|(range, _)| range * RANGE_BLOCKS)
    }

    /// The entries of the first range in use that ends after `block`, from `block` on.
    pub fn range_from(&self, block: u64) -> Option<impl Iterator<Item = (u64, &E)>> {
        let (first, _) = split(block);
        let (number, range) = self.ranges.range(first..).next()?;
        let start = number * RANGE_BLOCKS;
        let entries = (start..).zip(range.entries.iter());
        Some(entries.filter_map(move |(at, entry)| Some((at, entry.as_ref()?))).filter(move |(at, _)| *at >= block))
    }
}

const fn split(block: u64) -> (u64, usize) {
    (block / RANGE_BLOCKS, (block % RANGE_BLOCKS) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn entries_come_and_go_with_their_ranges() {
        let mut index = BlockIndex::new();
        for block in [0, 63, 64, 1 << 40] {
            assert_eq!(index.insert(block, block), None);
        }
        assert_eq!(index.ranges(), 3);
        assert_eq!(index.insert(63, 7), Some(63));
        assert_eq!(index.get(63), Some(&7));
        assert_eq!(index.get(62), None);
        assert_eq!(index.remove(1 << 40), Some(1 << 40));
        assert_eq!(index.ranges(), 2);
        let mut removed = Vec::new();
        index.remove_range(5, &mut |entry| removed.push(entry));
        assert_eq!(removed, [0, 7]);
        assert_eq!(index.next_range(0), Some(64));
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
