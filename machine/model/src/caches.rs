//! The caches of one hart, and the filter that recognizes most accesses before anything else is asked.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use alloc::{vec, vec::Vec};

use crate::sets::Sets;
use crate::{CacheShape, Config};

/// Entries of the filter.
const FILTER: usize = 256;
/// No access has this key.
const NONE: u64 = u64::MAX;
/// No entry of the filter.
const NOWHERE: u16 = u16::MAX;

/// Recognizes accesses that change nothing: the hart's TLB translates the address and the line is the most recently used
/// of its set in the L1 data cache (for writes: and owned).
///
/// Indexed and tagged by virtual line and address space, so that the physical address is not needed. An entry that is
/// missing costs time only, one too many would be an error: whatever takes a line or a translation away clears.
#[derive(Debug)]
struct Filter {
    read: [u64; FILTER],
    write: [u64; FILTER],
    /// For each set of the L1 the entry that stands for its first line.
    site: Vec<u16>,
}

/// Caches of one hart. The L2 holds whatever the L1s hold, and both know which lines are owned.
#[derive(Debug)]
pub struct HartCaches {
    l1i: Sets,
    l1d: Sets,
    pub(crate) l2: Sets,
    filter: Filter,
    /// For each set of the L1 instruction cache its most recently used line, plus one, if it needs no look-up.
    fetched: &'static [AtomicU64],
}

impl HartCaches {
    pub fn new(config: &Config) -> Self {
        let make = |shape: CacheShape| Sets::new(shape.sets(config.line_bytes), shape.ways);
        let site = vec![NOWHERE; config.l1d.sets(config.line_bytes) as usize];
        let filter = Filter { read: [NONE; FILTER], write: [NONE; FILTER], site };
        Self { l1i: make(config.l1i), l1d: make(config.l1d), l2: make(config.l2), filter, fetched: &[] }
    }

    /// Where the caller looks before a fetch: see [`crate::Machine::fetch`].
    pub fn watch_fetches(&mut self, fetched: &'static [AtomicU64]) {
        self.fetched = fetched;
        self.forget_fetches();
    }

    /// Whether a load of the line with this key changes nothing.
    #[inline(always)]
    pub fn knows_read(&self, key: u64) -> bool {
        self.filter.read[key as usize % FILTER] == key
    }

    /// Whether a store changes nothing.
    #[inline(always)]
    pub fn knows_write(&self, key: u64) -> bool {
        self.filter.write[key as usize % FILTER] == key
    }

    /// The line of this key is now the first of its set.
    #[inline]
    pub fn know(&mut self, key: u64, line: u32) {
        let at = key as usize % FILTER;
        let is_owned = self.l1d.is_owned(line);
        self.filter.read[at] = key;
        self.filter.write[at] = if is_owned { key } else { NONE };
        self.filter.site[self.l1d.set_of(line)] = at as u16;
    }

    /// The most recently used line of an L1 data set may become another one, or less than it was.
    #[inline]
    fn unknow(&mut self, line: u32) {
        let site = &mut self.filter.site[self.l1d.set_of(line)];
        if *site != NOWHERE {
            self.filter.read[*site as usize] = NONE;
            self.filter.write[*site as usize] = NONE;
            *site = NOWHERE;
        }
    }

    /// A translation is gone: forgets `count` lines from the one with this key on, in every address space.
    pub fn unknow_lines(&mut self, key: u64, count: usize) {
        for at in 0..count.min(FILTER) {
            let at = (key as usize + at) % FILTER;
            (self.filter.read[at], self.filter.write[at]) = (NONE, NONE);
        }
    }

    /// Translations are gone: forgets all that is known without look-up.
    pub fn unknow_all(&mut self) {
        self.unknow_lines(0, FILTER);
        self.forget_fetches();
    }

    /// The lines from `line` on are no longer fetched without look-up.
    pub fn forget_fetched(&self, line: u32, count: usize) {
        (line..).take(count).for_each(|line| self.forget_fetch(line));
    }

    /// Brings a line to the front of an L1; tells whether it is owned, `None` if it is not there.
    #[inline]
    pub fn touch_l1(&mut self, is_fetch: bool, line: u32) -> Option<bool> {
        if is_fetch {
            self.l1i.touch(line)
        } else {
            self.unknow(line);
            self.l1d.touch(line)
        }
    }

    /// Puts a line into an L1. What leaves it stays in the L2, so nobody needs to know.
    #[inline]
    pub fn fill_l1(&mut self, is_fetch: bool, line: u32, is_owned: bool) {
        if is_fetch {
            self.l1i.insert(line, false);
        } else {
            self.l1d.insert(line, is_owned);
        }
    }

    /// The line of a fetch is now the first of its set.
    pub fn fetched(&self, line: u32) {
        self.set_fetched(line, u64::from(line) + 1);
    }

    /// Puts a line into the L2; returns the line that left it, and with it the L1s.
    pub fn fill_l2(&mut self, line: u32) -> Option<u32> {
        let victim = self.l2.insert(line, false)?;
        self.drop_l1(victim);
        Some(victim)
    }

    /// Sets whether a line that the hart has is owned.
    pub fn set_owned(&mut self, line: u32, is_owned: bool) {
        self.l2.set_owned(line, is_owned);
        self.l1d.set_owned(line, is_owned);
        self.unknow(line);
    }

    /// Takes a line away.
    pub fn drop_line(&mut self, line: u32) {
        self.l2.remove(line);
        self.drop_l1(line);
    }

    fn drop_l1(&mut self, line: u32) {
        self.l1d.remove(line);
        self.unknow(line);
        self.l1i.remove(line);
        self.forget_fetch(line);
    }

    fn forget_fetch(&self, line: u32) {
        self.set_fetched(line, 0);
    }

    fn forget_fetches(&self) {
        self.fetched.iter().for_each(|line| line.store(0, Relaxed));
    }

    fn set_fetched(&self, line: u32, value: u64) {
        if let Some(place) = self.fetched.get(self.l1i.set_of(line)) {
            place.store(value, Relaxed);
        }
    }
}
