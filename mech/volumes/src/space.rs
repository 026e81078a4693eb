//! Which data blocks of a store are free.

use alloc::vec;
use alloc::vec::Vec;

/// A bitmap of the blocks `[first, first + total)`; a set bit is a block in use.
#[derive(Debug)]
pub struct Space {
    words: Vec<u64>,
    first: u64,
    total: u64,
    free: u64,
    /// Where the next search begins: what is written together lies together.
    hand: u64,
}

impl Space {
    pub fn new(first: u64, total: u64) -> Self {
        Self { words: vec![0; total.div_ceil(64) as usize], first, total, free: total, hand: 0 }
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
        (start..end).for_each(|at| self.words[(at / 64) as usize] |= 1 << (at % 64));
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
        self.words[(at / 64) as usize] |= 1 << (at % 64);
        self.free -= 1;
        true
    }

    /// Gives blocks back that were taken.
    pub fn release(&mut self, first: u64, count: u64) {
        for at in first - self.first..first - self.first + count {
            debug_assert!(self.is_used(at), "released once");
            self.words[(at / 64) as usize] &= !(1 << (at % 64));
            self.free += 1;
        }
    }

    fn is_used(&self, at: u64) -> bool {
        self.words[(at / 64) as usize] >> (at % 64) & 1 != 0
    }

    fn find_free(&self, from: u64, to: u64) -> Option<u64> {
        let mut at = from;
        while at < to {
            let word = self.words[(at / 64) as usize] | ((1 << (at % 64)) - 1);
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
}
