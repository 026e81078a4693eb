//! A small map of fixed capacity that forgets its least recently used entry: what the page walker remembers.
//!
//! Searched from end to end: it is asked at TLB misses alone, and has some dozens of entries.

use alloc::{vec, vec::Vec};

/// No key has this value.
const NONE: u64 = u64::MAX;

/// Keys and values; keys are anything but `u64::MAX`.
#[derive(Debug)]
pub struct LruMap {
    keys: Vec<u64>,
    values: Vec<u64>,
    /// When each was used last.
    used: Vec<u64>,
    now: u64,
}

impl LruMap {
    pub fn new(capacity: usize) -> Self {
        Self { keys: vec![NONE; capacity], values: vec![0; capacity], used: vec![0; capacity], now: 0 }
    }

    pub fn get(&mut self, key: u64) -> Option<u64> {
        let at = self.keys.iter().position(|held| *held == key)?;
        self.touch(at);
        Some(self.values[at])
    }

    /// Puts a key in that is not there.
    pub fn insert(&mut self, key: u64, value: u64) {
        debug_assert!(!self.keys.contains(&key), "one entry per key");
        let oldest = (0..self.keys.len()).min_by_key(|at| self.used[*at]).unwrap_or(0);
        (self.keys[oldest], self.values[oldest]) = (key, value);
        self.touch(oldest);
    }

    /// Drops every entry for whose key `keep` is false.
    pub fn retain(&mut self, mut keep: impl FnMut(u64) -> bool) {
        for (key, used) in self.keys.iter_mut().zip(&mut self.used) {
            if *key != NONE && !keep(*key) {
                (*key, *used) = (NONE, 0);
            }
        }
    }

    pub fn clear(&mut self) {
        self.retain(|_| false);
    }

    fn touch(&mut self, at: usize) {
        self.now += 1;
        self.used[at] = self.now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes() {
        let mut map = LruMap::new(3);
        for key in 1..=3 {
            map.insert(key, key * 10);
        }
        assert_eq!(map.get(1), Some(10));
        map.insert(4, 40);
        assert_eq!([1, 2, 3, 4].map(|key| map.get(key)), [Some(10), None, Some(30), Some(40)]);
        map.retain(|key| key != 3);
        map.insert(5, 50);
        assert_eq!([1, 3, 4, 5].map(|key| map.get(key)), [Some(10), None, Some(40), Some(50)], "room was used first");
        map.clear();
        assert_eq!(map.get(1), None);
    }
}
