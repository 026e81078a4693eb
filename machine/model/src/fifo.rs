//! A map of fixed capacity that forgets its oldest entry: the TLB.
//!
//! First in, first out, and not the least recently used, so that a hit changes nothing: whoever knows that an entry is
//! there may skip the look-up and the model stays exact. Hash table with linear probing over flat arrays.

use alloc::{vec, vec::Vec};

/// No key has this value.
const NONE: u64 = u64::MAX;

/// Keys and values; keys are anything but `u64::MAX`.
#[derive(Debug)]
pub struct FifoMap {
    /// Entries in the order of their age, from `next` on.
    entries: Vec<(u64, u64)>,
    next: usize,
    /// Hash table of positions in `entries`, plus one; 0 is empty.
    index: Vec<u32>,
}

impl FifoMap {
    pub fn new(capacity: usize) -> Self {
        let slots = (capacity * 4).next_power_of_two();
        Self { entries: vec![(NONE, 0); capacity], next: 0, index: vec![0; slots] }
    }

    #[inline]
    pub fn get(&self, key: u64) -> Option<u64> {
        let slot = self.find(key)?;
        Some(self.entries[self.index[slot] as usize - 1].1)
    }

    /// Puts a key in that is not there, and returns the entry that had to leave for it.
    pub fn insert(&mut self, key: u64, value: u64) -> Option<(u64, u64)> {
        debug_assert!(self.find(key).is_none(), "one entry per key");
        let at = self.next;
        self.next = (at + 1) % self.entries.len();
        let old = self.entries[at];
        if old.0 != NONE {
            self.unlink(old.0);
        }
        self.entries[at] = (key, value);
        let mut slot = self.home(key);
        while self.index[slot] != 0 {
            slot = (slot + 1) & (self.index.len() - 1);
        }
        self.index[slot] = at as u32 + 1;
        (old.0 != NONE).then_some(old)
    }

    /// Drops every entry for whose key `keep` is false.
    pub fn retain(&mut self, mut keep: impl FnMut(u64) -> bool) {
        for at in 0..self.entries.len() {
            let key = self.entries[at].0;
            if key != NONE && !keep(key) {
                self.unlink(key);
                self.entries[at].0 = NONE;
            }
        }
    }

    /// Drops all.
    pub fn clear(&mut self) {
        self.entries.fill((NONE, 0));
        self.index.fill(0);
    }

    fn home(&self, key: u64) -> usize {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> (64 - self.index.len().trailing_zeros())) as usize
    }

    #[inline]
    fn find(&self, key: u64) -> Option<usize> {
        let mut slot = self.home(key);
        loop {
            match self.index[slot] {
                0 => return None,
                at if self.entries[at as usize - 1].0 == key => return Some(slot),
                _ => slot = (slot + 1) & (self.index.len() - 1),
            }
        }
    }

    /// Takes a key out of the hash table, and moves up those that it had pushed on.
    fn unlink(&mut self, key: u64) {
        let Some(mut hole) = self.find(key) else { return };
        let mask = self.index.len() - 1;
        let mut slot = hole;
        loop {
            slot = (slot + 1) & mask;
            let at = self.index[slot];
            if at == 0 {
                break;
            }
            let home = self.home(self.entries[at as usize - 1].0);
            // It may move if its home is not between the hole and itself.
            if slot.wrapping_sub(home) & mask >= slot.wrapping_sub(hole) & mask {
                self.index[hole] = at;
                hole = slot;
            }
        }
        self.index[hole] = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_list_that_forgets_its_head(capacity in 1usize..9, steps in prop::collection::vec((0u8..10, 0u64..24), 1..400)) {
            let mut map = FifoMap::new(capacity);
            // Positions, since a dropped entry leaves a gap that ages like an entry.
            let mut list: VecDeque<Option<(u64, u64)>> = (0..capacity).map(|_| None).collect();
            for (at, (what, key)) in steps.into_iter().enumerate() {
                let held = list.iter().flatten().find(|(held, _)| *held == key).map(|(_, value)| *value);
                prop_assert_eq!(map.get(key), held);
                match what {
                    0 => { map.retain(|held| held % 3 != key % 3);
                           list.iter_mut().for_each(|entry| if entry.is_some_and(|(held, _)| held % 3 == key % 3) { *entry = None }); }
                    _ if held.is_none() => {
                        let oldest = list.pop_front().flatten();
                        prop_assert_eq!(map.insert(key, at as u64), oldest);
                        list.push_back(Some((key, at as u64)));
                    }
                    _ => {}
                }
            }
        }
    }
}
