//! Which data blocks of a store are free.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Words of a piece of the bitmap: a page, so that no store needs much memory in one piece.
const PIECE_WORDS: usize = 512;
/// Blocks of a piece.
const PIECE_BLOCKS: u64 = 64 * PIECE_WORDS as u64;

/// A bitmap of the blocks `[first, first + total)`; a set bit is a block in use.
#[derive(Debug)]
pub struct Space {
    pieces: Vec<Box<[u64; PIECE_WORDS]>>,
    /// Free blocks of each piece: a search looks only into those that have some.
    free_in: Vec<u64>,
    first: u64,
    total: u64,
    free: u64,
    /// Where the next search begins: what is written together lies together.
    hand: u64,
}

impl Space {
    pub fn new(first: u64, total: u64) -> Self {
        let count = total.div_ceil(PIECE_BLOCKS);
        let pieces = (0..count).map(|_| Box::new([0; PIECE_WORDS])).collect();
        let free_in = (0..count).map(|piece| PIECE_BLOCKS.min(total - piece * PIECE_BLOCKS)).collect();
        Self { pieces, free_in, first, total, free: total, hand: 0 }
    }

    /// Bytes of memory for a bitmap of `total` blocks.
    pub const fn heap_bytes(total: u64) -> u64 {
        total.div_ceil(PIECE_BLOCKS) * (PIECE_WORDS as u64 + 4) * 8
    }

    /// The word with the bit of block `at`, which is below `total`.
    const fn word(at: u64) -> (usize, usize) {
        let word = (at / 64) as usize;
        (word / PIECE_WORDS, word % PIECE_WORDS)
    }

    fn bits(&self, at: u64) -> u64 {
        let (piece, word) = Self::word(at);
        self.pieces[piece][word]
    }

    /// The words that have blocks of `[start, end)`: the first such block of each, and their bits.
    fn words(start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        (start / 64..end.div_ceil(64)).map(move |word| {
            let (from, to) = (start.max(word * 64), end.min(word * 64 + 64));
            (from, (u64::MAX >> (64 - (to - from))) << (from % 64))
        })
    }

    /// Free blocks come to be in use.
    fn set(&mut self, start: u64, end: u64) {
        for (at, bits) in Self::words(start, end) {
            let (piece, word) = Self::word(at);
            self.pieces[piece][word] |= bits;
            self.free_in[piece] -= u64::from(bits.count_ones());
        }
        self.free -= end - start;
    }

    pub const fn total(&self) -> u64 {
        self.total
    }

    pub const fn free(&self) -> u64 {
        self.free
    }

    /// Takes up to `most` blocks in a row: the first and how many. `None` if none is free.
    pub fn take(&mut self, most: u64) -> Option<(u64, u64)> {
        if self.free == 0 || most == 0 {
            return None;
        }
        let start = self.find_free(self.hand, self.total).or_else(|| self.find_free(0, self.hand))?;
        let end = (start..self.total.min(start + most)).find(|at| self.is_used(*at));
        let end = end.unwrap_or(self.total.min(start + most));
        self.set(start, end);
        self.hand = if end == self.total { 0 } else { end };
        Some((self.first + start, end - start))
    }

    /// Notes that a block is in use. `false`: it is none of these, or is in use already.
    pub fn mark(&mut self, block: u64) -> bool {
        let Some(at) = block.checked_sub(self.first).filter(|at| *at < self.total) else { return false };
        if self.is_used(at) {
            return false;
        }
        self.set(at, at + 1);
        true
    }

    /// Gives blocks back that were taken.
    pub fn release(&mut self, first: u64, count: u64) {
        let start = first - self.first;
        for (at, bits) in Self::words(start, start + count) {
            let (piece, word) = Self::word(at);
            let word = &mut self.pieces[piece][word];
            debug_assert_eq!(*word & bits, bits, "released once");
            *word &= !bits;
            self.free_in[piece] += u64::from(bits.count_ones());
        }
        self.free += count;
    }

    fn is_used(&self, at: u64) -> bool {
        self.bits(at) >> (at % 64) & 1 != 0
    }

    fn find_free(&self, from: u64, to: u64) -> Option<u64> {
        let mut at = from;
        while at < to {
            let piece = at / PIECE_BLOCKS;
            if self.free_in[piece as usize] == 0 {
                at = (piece + 1) * PIECE_BLOCKS;
                continue;
            }
            let word = self.bits(at) | ((1 << (at % 64)) - 1);
            if word == u64::MAX {
                at = (at / 64 + 1) * 64;
                continue;
            }
            let found = at / 64 * 64 + u64::from(word.trailing_ones());
            return (found < to).then_some(found);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn runs_are_taken_and_come_back() {
        let mut space = Space::new(100, 130);
        assert_eq!(space.take(64), Some((100, 64)));
        assert_eq!(space.take(100), Some((164, 66)));
        assert_eq!((space.take(1), space.free()), (None, 0));
        space.release(110, 3);
        space.release(200, 1);
        assert_eq!(space.take(9), Some((110, 3)));
        assert_eq!(space.take(9), Some((200, 1)));
        assert_eq!(space.take(9), None);
        assert_eq!(Space::new(0, 0).take(1), None);
    }

    #[test]
    fn marks_tell_what_cannot_be() {
        let mut space = Space::new(10, 70);
        assert!(space.mark(10) && space.mark(79));
        assert!(!space.mark(79) && !space.mark(80) && !space.mark(9));
        assert_eq!(space.take(100), Some((11, 68)));
    }

    #[test]
    fn a_bitmap_of_several_pieces_is_searched_through() {
        const PIECE: u64 = PIECE_BLOCKS;
        let mut space = Space::new(7, 2 * PIECE + 5);
        assert_eq!(Space::heap_bytes(2 * PIECE + 5), 3 * (4_096 + 32));
        assert_eq!(space.take(u64::MAX / 2), Some((7, 2 * PIECE + 5)));
        space.release(7 + PIECE - 1, 3);
        assert_eq!(space.take(9), Some((7 + PIECE - 1, 3)));
        assert_eq!((space.take(1), space.free()), (None, 0));
        assert_eq!(space.free_in, [0; 3]);
    }

    proptest! {
        /// Against a set of numbers: whatever is taken was free and lies in a row, as long as something is free.
        #[test]
        fn random_use_agrees_with_a_set(steps in prop::collection::vec((any::<bool>(), 1..9_000_u64, any::<u64>()), 1..60)) {
            const TOTAL: u64 = PIECE_BLOCKS + 777;
            let mut space = Space::new(5, TOTAL);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (takes, count, wish) in steps {
                let free = TOTAL - taken.iter().map(|(_, count)| count).sum::<u64>();
                prop_assert_eq!((space.free(), space.free_in.iter().sum::<u64>()), (free, free));
                if takes {
                    let Some((first, found)) = space.take(count) else {
                        prop_assert_eq!(free, 0);
                        continue;
                    };
                    prop_assert!(first >= 5 && first + found <= 5 + TOTAL && (1..=count).contains(&found));
                    let is_apart = |(at, len): &(u64, u64)| at + len <= first || first + found <= *at;
                    prop_assert!(taken.iter().all(is_apart));
                    taken.push((first, found));
                } else if !taken.is_empty() {
                    let (first, all) = taken.swap_remove((wish % taken.len() as u64) as usize);
                    let part = count.min(all);
                    space.release(first, part);
                    if part < all {
                        taken.push((first + part, all - part));
                    }
                }
            }
        }
    }
}
