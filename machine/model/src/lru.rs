//! A set-associative array with exact LRU replacement: what every cache and TLB of the model is made of.

use alloc::vec::Vec;

/// Sets of at most `ways` keys, each set ordered from the most to the least recently used.
#[derive(Debug, Clone)]
pub struct LruSets<K> {
    sets: Vec<Vec<K>>,
    ways: usize,
}

impl<K: Copy + Eq> LruSets<K> {
    pub fn new(sets: usize, ways: usize) -> Self {
        Self { sets: (0..sets).map(|_| Vec::with_capacity(ways)).collect(), ways }
    }

    /// Whether `key` is there; if so, it becomes the most recently used of its set.
    pub fn touch(&mut self, index: u64, key: K) -> bool {
        let set = self.set(index);
        let Some(at) = set.iter().position(|held| *held == key) else { return false };
        set[..=at].rotate_right(1);
        true
    }

    pub fn contains(&self, index: u64, key: K) -> bool {
        self.sets[self.slot(index)].contains(&key)
    }

    /// Puts `key` in as the most recently used and returns what had to leave for it.
    pub fn insert(&mut self, index: u64, key: K) -> Option<K> {
        if self.touch(index, key) {
            return None;
        }
        let ways = self.ways;
        let set = self.set(index);
        let victim = if set.len() == ways { set.pop() } else { None };
        set.insert(0, key);
        victim
    }

    pub fn remove(&mut self, index: u64, key: K) {
        self.set(index).retain(|held| *held != key);
    }

    /// Drops every key for which `keep` is false.
    pub fn retain(&mut self, mut keep: impl FnMut(&K) -> bool) {
        self.sets.iter_mut().for_each(|set| set.retain(&mut keep));
    }

    fn slot(&self, index: u64) -> usize {
        (index % self.sets.len() as u64) as usize
    }

    fn set(&mut self, index: u64) -> &mut Vec<K> {
        let slot = self.slot(index);
        &mut self.sets[slot]
    }
}
