//! Caches of every hart and the directory that keeps them coherent.
//!
//! Invariant, and why all of it is one module: the directory's holders of a line are exactly the harts whose L2 has it,
//! an L1 holds only what its L2 holds, and an owner is the only holder.

use alloc::vec::Vec;

use hashbrown::HashMap;

use crate::lru::LruSets;
use crate::{Config, ConfigError, HotPage, PageMisses};

/// What a hart does at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Instruction fetch.
    Fetch,
    /// Data read, also of a page-table entry.
    Load,
    /// Data write or atomic.
    Store,
}

/// Who served an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The first-level cache: no stall.
    L1,
    /// The second-level cache.
    L2,
    /// Memory of the hart's own node.
    Local,
    /// Memory of another node.
    Remote,
    /// The line was there, shared; only the ownership had to be fetched from its home.
    Upgrade,
    /// Not RAM: neither cached nor timed.
    Device,
}

/// What an access cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Who served it.
    pub source: Source,
    /// Time the hart waits.
    pub stall_ps: u64,
    /// Other harts that lost their copy.
    pub invalidated: u32,
}

/// Caches, directory and per-page miss counters of the machine.
#[derive(Debug)]
pub struct Hierarchy {
    config: Config,
    harts: Vec<HartCaches>,
    directory: HashMap<u64, DirEntry>,
    pages: PageMisses,
}

#[derive(Debug)]
struct HartCaches {
    l1i: LruSets<u64>,
    l1d: LruSets<u64>,
    l2: LruSets<u64>,
}

/// State of a line that at least one L2 holds.
#[derive(Debug, Clone, Copy, Default)]
struct DirEntry {
    holders: u64,
    /// The only holder, and it may write.
    owner: Option<u8>,
}

impl Hierarchy {
    /// Empty caches.
    ///
    /// # Errors
    /// What [`Config::check`] refuses.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        let harts = (0..config.harts).map(|_| HartCaches::new(&config)).collect();
        let pages = PageMisses::new(&config);
        Ok(Self { harts, pages, directory: HashMap::new(), config })
    }

    /// `hart` (below the configured number) accesses the line of `addr`. An access that crosses lines is two.
    pub fn access(&mut self, hart: usize, access: Access, addr: u64) -> Outcome {
        let Some(home) = self.config.home_of(addr) else {
            return Outcome { source: Source::Device, stall_ps: 0, invalidated: 0 };
        };
        let line = addr / self.config.line_bytes;
        let level = self.harts[hart].look(access, line);
        match level {
            Some(source) if access != Access::Store || self.owns(hart, line) => self.hit(hart, access, line, source),
            Some(_) => self.upgrade(hart, access, line, home),
            None => self.miss(hart, access, line, addr, home),
        }
    }

    /// The miss counters of each page.
    pub fn pages(&self) -> &PageMisses {
        &self.pages
    }

    /// Takes the oldest hot page from the queue.
    pub fn pop_hot(&mut self) -> Option<HotPage> {
        self.pages.pop_hot()
    }

    /// Zeroes the counters of the page of `addr`, so that it can become hot again.
    pub fn reset_page(&mut self, addr: u64) {
        self.pages.reset(addr);
    }

    fn owns(&self, hart: usize, line: u64) -> bool {
        self.directory.get(&line).is_some_and(|entry| entry.owner == Some(hart as u8))
    }

    fn hit(&mut self, hart: usize, access: Access, line: u64, source: Source) -> Outcome {
        let stall_ps = if source == Source::L1 { 0 } else { self.config.l2_hit_ps };
        self.harts[hart].fill_l1(access, line);
        Outcome { source, stall_ps, invalidated: 0 }
    }

    fn upgrade(&mut self, hart: usize, access: Access, line: u64, home: usize) -> Outcome {
        self.harts[hart].fill_l1(access, line);
        let invalidated = self.take_ownership(hart, line);
        let stall_ps = self.config.latency(self.config.node_of(hart), home);
        Outcome { source: Source::Upgrade, stall_ps, invalidated }
    }

    fn miss(&mut self, hart: usize, access: Access, line: u64, addr: u64, home: usize) -> Outcome {
        let node = self.config.node_of(hart);
        self.pages.count(addr, node, home);
        let is_owned = self.directory.get(&line).is_some_and(|entry| entry.owner.is_some());
        let extra = if is_owned { self.config.owned_extra_ps } else { 0 };
        if let Some(victim) = self.harts[hart].fill(access, line) {
            self.forget(hart, victim);
        }
        let entry = self.directory.entry(line).or_default();
        entry.holders |= 1 << hart;
        entry.owner = None;
        let invalidated = if access == Access::Store { self.take_ownership(hart, line) } else { 0 };
        let source = if node == home { Source::Local } else { Source::Remote };
        Outcome { source, stall_ps: self.config.latency(node, home) + extra, invalidated }
    }

    /// Makes `hart`, a holder, the only holder; returns how many others lost the line.
    fn take_ownership(&mut self, hart: usize, line: u64) -> u32 {
        let entry = self.directory.entry(line).or_default();
        let mut others = entry.holders & !(1 << hart);
        *entry = DirEntry { holders: 1 << hart, owner: Some(hart as u8) };
        let count = others.count_ones();
        while others != 0 {
            self.harts[others.trailing_zeros() as usize].drop_line(line);
            others &= others - 1;
        }
        count
    }

    /// `hart` no longer holds `line`.
    fn forget(&mut self, hart: usize, line: u64) {
        let Some(entry) = self.directory.get_mut(&line) else { return };
        entry.holders &= !(1 << hart);
        entry.owner = None;
        if entry.holders == 0 {
            self.directory.remove(&line);
        }
    }
}

impl HartCaches {
    fn new(config: &Config) -> Self {
        let make = |shape: crate::CacheShape| LruSets::new(shape.sets(config.line_bytes) as usize, shape.ways as usize);
        Self { l1i: make(config.l1i), l1d: make(config.l1d), l2: make(config.l2) }
    }

    /// Which level has the line. An L1 hit leaves the L2's order alone: the L2 does not see it.
    fn look(&mut self, access: Access, line: u64) -> Option<Source> {
        if self.l1(access).touch(line, line) {
            return Some(Source::L1);
        }
        self.l2.touch(line, line).then_some(Source::L2)
    }

    fn fill_l1(&mut self, access: Access, line: u64) {
        // What leaves the L1 stays in the L2, so nobody needs to know.
        self.l1(access).insert(line, line);
    }

    /// Brings the line into both levels; returns the line that left the L2, and with it the L1s.
    fn fill(&mut self, access: Access, line: u64) -> Option<u64> {
        let victim = self.l2.insert(line, line);
        if let Some(victim) = victim {
            self.drop_line(victim);
        }
        self.fill_l1(access, line);
        victim
    }

    fn drop_line(&mut self, line: u64) {
        self.l1i.remove(line, line);
        self.l1d.remove(line, line);
        self.l2.remove(line, line);
    }

    fn l1(&mut self, access: Access) -> &mut LruSets<u64> {
        if access == Access::Fetch { &mut self.l1i } else { &mut self.l1d }
    }
}
