//! Which ports have something to take.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::switch::MAX_PORTS;

const WORDS: usize = MAX_PORTS / 64;

/// A set of numbers below [`MAX_PORTS`], changed by many harts at once without a lock.
///
/// Who puts a frame into an empty queue inserts the port; who takes the number out delivers, and nobody else does.
#[derive(Debug, Default)]
pub struct ReadySet {
    words: [AtomicU64; WORDS],
}

impl ReadySet {
    /// Nothing is ready.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: [const { AtomicU64::new(0) }; WORDS] }
    }

    /// Adds a number; those that no port has are ignored.
    pub fn insert(&self, number: usize) {
        if let Some(word) = self.words.get(number / 64) {
            word.fetch_or(1 << (number % 64), Ordering::SeqCst);
        }
    }

    /// Takes a number out; whether it was in.
    pub fn remove(&self, number: usize) -> bool {
        let bit = 1 << (number % 64);
        let word = self.words.get(number / 64).filter(|word| word.load(Ordering::SeqCst) & bit != 0);
        word.is_some_and(|word| word.fetch_and(!bit, Ordering::SeqCst) & bit != 0)
    }

    /// Takes out all that are in now and visits each. Those that come back meanwhile wait for the next call.
    pub fn drain(&self, mut visit: impl FnMut(usize)) {
        for (number, word) in self.words.iter().enumerate() {
            // Looking first spares the others' caches when there is nothing, as is usual.
            if word.load(Ordering::SeqCst) == 0 {
                continue;
            }
            let mut left = word.swap(0, Ordering::SeqCst);
            while left != 0 {
                visit(number * 64 + left.trailing_zeros() as usize);
                left &= left - 1;
            }
        }
    }

    /// Whether nothing is in it. Ports may come meanwhile.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| word.load(Ordering::SeqCst) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn drained(set: &ReadySet) -> Vec<usize> {
        let mut seen = Vec::new();
        set.drain(|number| seen.push(number));
        seen
    }

    #[test]
    fn gives_each_number_once() {
        let set = ReadySet::new();
        for number in [255, 0, 63, 64, 0] {
            set.insert(number);
        }
        assert!(!set.is_empty());
        assert_eq!(drained(&set), [0, 63, 64, 255]);
        assert!(set.is_empty());
        assert_eq!(drained(&set), []);
    }

    #[test]
    fn ignores_what_is_no_port() {
        let set = ReadySet::new();
        set.insert(MAX_PORTS);
        assert!(set.is_empty());
        assert!(!set.remove(MAX_PORTS));
    }

    #[test]
    fn removes_once() {
        let set = ReadySet::new();
        set.insert(70);
        assert!(!set.remove(6));
        assert!(set.remove(70));
        assert!(!set.remove(70));
    }

    #[test]
    fn keeps_what_comes_back_during_a_visit() {
        let set = ReadySet::new();
        set.insert(5);
        set.drain(|number| set.insert(number));
        assert_eq!(drained(&set), [5]);
    }
}
