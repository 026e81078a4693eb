//! A set-associative array of line numbers with exact LRU replacement, flat: what every cache of the model is made of.

use alloc::{vec, vec::Vec};

/// An empty way.
const NONE: u32 = u32::MAX;
/// The hart may write the line.
const OWNED: u32 = 1;

/// Lines, each set ordered from the most to the least recently used. A line number is below 2^31 - 1.
#[derive(Debug)]
pub struct Sets {
    /// `line << 1 | OWNED`.
    tags: Vec<u32>,
    ways: usize,
    mask: u32,
}

impl Sets {
    /// `sets` is a power of two.
    pub fn new(sets: u64, ways: u64) -> Self {
        Self { tags: vec![NONE; (sets * ways) as usize], ways: ways as usize, mask: sets as u32 - 1 }
    }

    pub fn set_of(&self, line: u32) -> usize {
        (line & self.mask) as usize
    }

    /// Whether the line is there and owned, or there only; makes it the most recently used of its set.
    #[inline]
    pub fn touch(&mut self, line: u32) -> Option<bool> {
        let set = self.set_mut(line);
        let at = set.iter().position(|tag| tag >> 1 == line)?;
        let tag = set[at];
        set.copy_within(..at, 1);
        set[0] = tag;
        Some(tag & OWNED != 0)
    }

    /// Puts in a line that is not there, as the most recently used, and returns the one that had to leave for it.
    #[inline]
    pub fn insert(&mut self, line: u32, is_owned: bool) -> Option<u32> {
        let set = self.set_mut(line);
        let victim = set[set.len() - 1];
        set.copy_within(..set.len() - 1, 1);
        set[0] = line << 1 | u32::from(is_owned);
        (victim != NONE).then_some(victim >> 1)
    }

    /// Sets whether the line, if it is there, is owned.
    pub fn set_owned(&mut self, line: u32, is_owned: bool) {
        if let Some(tag) = self.set_mut(line).iter_mut().find(|tag| **tag >> 1 == line) {
            *tag = line << 1 | u32::from(is_owned);
        }
    }

    /// Whether the line is there and owned.
    pub fn is_owned(&self, line: u32) -> bool {
        let start = self.set_of(line) * self.ways;
        self.tags[start..start + self.ways].contains(&(line << 1 | OWNED))
    }

    pub fn remove(&mut self, line: u32) {
        let set = self.set_mut(line);
        if let Some(at) = set.iter().position(|tag| tag >> 1 == line) {
            set.copy_within(at + 1.., at);
            set[set.len() - 1] = NONE;
        }
    }

    #[inline]
    fn set_mut(&mut self, line: u32) -> &mut [u32] {
        let start = self.set_of(line) * self.ways;
        &mut self.tags[start..start + self.ways]
    }
}
