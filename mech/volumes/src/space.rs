//! Which data blocks of a store are free.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Words of a piece of the bitmap: a page, so that no store needs much memory in one piece.
const PIECE_WORDS: usize = 512;

/// A bitmap of the blocks `[first, first + total)`; a set bit is a block in use.
#[derive(Debug)]
pub struct Space {
    pieces: Vec<Box<[u64; PIECE_WORDS]>>,
    first: u64,
    total: u64,
    free: u64,
    /// Where the next search begins: what is written together lies together.
    hand: u64,
}

impl Space {
    pub fn new(first: u64, total: u64) -> Self {
        let pieces = total.div_ceil(64 * PIECE_WORDS as u64);
        let pieces = (0..pieces).map(|_| Box::new([0; PIECE_WORDS])).collect();
        Self { pieces, first, total, free: total, hand: 0 }
    }

    /// Bytes of memory for a bitmap of `total` blocks.
    pub const fn heap_bytes(total: u64) -> u64 {
        total.div_ceil(64 * PIECE_WORDS as u64) * (PIECE_WORDS as u64 + 3) * 8
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

    fn bits_mut(&mut self, at: u64) -> &mut u64 {
        let (piece, word) = Self::word(at);
        &mut self.pieces[piece][word]
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
        (start..end).for_each(|at| *self.bits_mut(at) |= 1 << (at % 64));
        self.free -= end - start;
        self.hand = if end == self.total { 0 } else { end };
        Some((self.first + start, end - start))
    }

    /// Notes that a block is in use. `false`: it is none of these, or is in use already.
    pub fn mark(&mut self, block: u64) -> bool {
        let Some(at) = block.checked_sub(self.first).filter(|at| *at < self.total) else { return false };
        if self.is_used(at) {
            return false;
        }
        *self.bits_mut(at) |= 1 << (at % 64);
        self.free -= 1;
        true
    }

    /// Gives blocks back that were taken.
    pub fn release(&mut self, first: u64, count: u64) {
        for at in first - self.first..first - self.first + count {
            debug_assert!(self.is_used(at), "released once");
            *self.bits_mut(at) &= !(1 << (at % 64));
            self.free += 1;
        }
    }

    fn is_used(&self, at: u64) -> bool {
        self.bits(at) >> (at % 64) & 1 != 0
    }

    fn find_free(&self, from: u64, to: u64) -> Option<u64> {
        let mut at = from;
        while at < to {
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
        const PIECE: u64 = 64 * PIECE_WORDS as u64;
        let mut space = Space::new(7, 2 * PIECE + 5);
        assert_eq!(Space::heap_bytes(2 * PIECE + 5), 3 * (4_096 + 24));
        assert_eq!(space.take(u64::MAX / 2), Some((7, 2 * PIECE + 5)));
        space.release(7 + PIECE - 1, 3);
        assert_eq!(space.take(9), Some((7 + PIECE - 1, 3)));
        assert_eq!((space.take(1), space.free()), (None, 0));
    }
}
