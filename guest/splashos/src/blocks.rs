//! Which blocks of a range are given out: the heap's large pieces.

/// Bits in a word of the map.
const BITS: usize = u64::BITS as usize;

/// A map of up to `WORDS * 64` blocks, first fit.
#[derive(Debug)]
pub struct Blocks<const WORDS: usize> {
    taken: [u64; WORDS],
    count: usize,
}

impl<const WORDS: usize> Blocks<WORDS> {
    /// A map without blocks.
    pub const fn new() -> Self {
        Self { taken: [0; WORDS], count: 0 }
    }

    /// How many blocks there are, all of them free. More than the map can hold are left out.
    pub fn reset(&mut self, count: usize) {
        *self = Self { count: count.min(WORDS * BITS), ..Self::new() };
    }

    /// Takes `length` blocks that lie side by side; the number of the first one.
    pub fn take(&mut self, length: usize) -> Option<usize> {
        let mut run = 0;
        for block in 0..self.count {
            run = if self.is_taken(block) { 0 } else { run + 1 };
            if run == length && length != 0 {
                let first = block + 1 - length;
                self.set(first, length, true);
                return Some(first);
            }
        }
        None
    }

    /// Gives `length` blocks back that [`Blocks::take`] gave out.
    pub fn give_back(&mut self, first: usize, length: usize) {
        self.set(first, length, false);
    }

    fn is_taken(&self, block: usize) -> bool {
        self.taken.get(block / BITS).is_none_or(|word| word >> (block % BITS) & 1 != 0)
    }

    fn set(&mut self, first: usize, length: usize, taken: bool) {
        for block in first..(first + length).min(self.count) {
            let bit = 1 << (block % BITS);
            if let Some(word) = self.taken.get_mut(block / BITS) {
                *word = if taken { *word | bit } else { *word & !bit };
            }
        }
    }
}

impl<const WORDS: usize> Default for Blocks<WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_overlap_and_come_back() {
        let mut blocks = Blocks::<2>::new();
        assert_eq!(blocks.take(1), None);
        blocks.reset(100);
        let pieces = [60, 1, 39].map(|length| blocks.take(length));
        assert_eq!(pieces, [Some(0), Some(60), Some(61)]);
        assert_eq!(blocks.take(1), None);
        blocks.give_back(60, 1);
        assert_eq!(blocks.take(2), None, "one free block is not two");
        blocks.give_back(0, 60);
        assert_eq!(blocks.take(61), Some(0));
    }

    #[test]
    fn nonsense_is_refused() {
        let mut blocks = Blocks::<2>::new();
        blocks.reset(1000);
        assert_eq!(blocks.take(0), None);
        assert_eq!(blocks.take(129), None);
        assert_eq!(blocks.take(128), Some(0));
    }
}
