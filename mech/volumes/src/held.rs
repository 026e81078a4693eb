//! Blocks whose first write is under way.

use alloc::collections::BTreeMap;

/// Blocks of layers that have been given data blocks, which requests are writing. None is in two of them.
///
/// A guest decides how many there are, up to the backlog of a store, and each of its blocks asks for them: so they are in the order
/// of their blocks, and what they come to is counted as they come and go.
#[derive(Debug, Default)]
pub struct HeldBlocks {
    /// By layer and first block.
    rows: BTreeMap<(u32, u64), Held>,
    /// How many each layer has, if it has any.
    by_layer: BTreeMap<u32, u64>,
    blocks: u64,
    growth: u64,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    count: u64,
    /// By how much the layer's index grows at most when they have been written.
    growth: u64,
}

impl HeldBlocks {
    /// `count` blocks of a layer from `first` on are being written; the index will grow by at most `growth` bytes for them.
    pub fn add(&mut self, layer: u32, first: u64, count: u64, growth: u64) {
        self.blocks += count;
        self.growth += growth;
        *self.by_layer.entry(layer).or_default() += count;
        self.rows.insert((layer, first), Held { count, growth });
    }

    /// The blocks of a layer that begin at `first` are written, or will not be.
    pub fn remove(&mut self, layer: u32, first: u64) {
        if let Some(held) = self.rows.remove(&(layer, first)) {
            self.blocks -= held.count;
            self.growth -= held.growth;
            self.leave(layer, held.count);
        }
    }

    /// How many blocks of a layer from `block` on are none of these; 0 if it is itself.
    pub fn free_from(&self, layer: u32, block: u64) -> u64 {
        let before = self.rows.range((layer, 0)..=(layer, block)).next_back();
        if before.is_some_and(|((_, first), held)| first + held.count > block) {
            return 0;
        }
        let after = self.rows.range((layer, block)..=(layer, u64::MAX)).next();
        after.map_or(u64::MAX, |((_, first), _)| first - block)
    }

    fn leave(&mut self, layer: u32, count: u64) {
        if let Some(left) = self.by_layer.get_mut(&layer) {
            *left -= count;
            if *left == 0 {
                self.by_layer.remove(&layer);
            }
        }
    }

    /// How many of a layer they are.
    pub fn of(&self, layer: u32) -> u64 {
        self.by_layer.get(&layer).copied().unwrap_or(0)
    }

    /// How many they are.
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Bytes by which all indices together grow at most.
    pub const fn growth(&self) -> u64 {
        self.growth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_blocks_end_where_others_of_the_layer_are_held() {
        let mut held = HeldBlocks::default();
        held.add(2, 10, 5, 100);
        held.add(2, 20, 1, 0);
        held.add(1, 12, 50, 7);
        held.add(3, 0, 2, 7);
        let free = |held: &HeldBlocks| [0, 9, 10, 14, 15, 19, 20, 21].map(|block| held.free_from(2, block));
        assert_eq!(free(&held), [10, 1, 0, 0, 5, 1, 0, u64::MAX]);
        assert_eq!((held.blocks(), held.growth()), (58, 114));
        assert_eq!([1, 2, 3, 4].map(|layer| held.of(layer)), [50, 6, 2, 0]);
        held.remove(2, 10);
        held.remove(2, 11);
        assert_eq!(free(&held), [20, 11, 10, 6, 5, 1, 0, u64::MAX]);
        assert_eq!((held.blocks(), held.growth()), (53, 14));
        held.remove(3, 0);
        assert_eq!([1, 2, 3, 4].map(|layer| held.of(layer)), [50, 1, 0, 0]);
        assert_eq!(held.free_from(2, u64::MAX), u64::MAX);
    }
}
