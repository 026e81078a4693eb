//! Caches of every hart and the directory that keeps them coherent.
//!
//! Invariant, and why all of it is one module: the directory's holders of a line are exactly the harts whose L2 has it,
//! an L1 holds only what its L2 holds, and an owner is the only holder.

use alloc::{vec, vec::Vec};

use crate::caches::HartCaches;
use crate::{Config, ConfigError, Shared};

/// What a hart does at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Instruction fetch.
    Fetch,
    /// Data read.
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
    line_shift: u32,
    ram_bytes: u64,
    pub(crate) harts: Vec<HartCaches>,
    node_of: Vec<usize>,
    /// For each line of RAM the harts whose L2 has it. Whether the only one owns it, its L2 knows.
    holders: Vec<u64>,
    shared: Shared,
}

impl Hierarchy {
    /// Empty caches.
    ///
    /// # Errors
    /// What [`Config::check`] refuses.
    pub fn new(config: Config, shared: Shared) -> Result<Self, ConfigError> {
        config.check()?;
        let harts = (0..config.harts).map(|_| HartCaches::new(&config)).collect();
        let node_of = (0..config.harts).map(|hart| config.node_of(hart)).collect();
        let ram_bytes = config.node_bytes * config.nodes as u64;
        let holders = vec![0; (ram_bytes / config.line_bytes) as usize];
        let line_shift = config.line_bytes.trailing_zeros();
        Ok(Self { harts, node_of, holders, ram_bytes, line_shift, shared, config })
    }

    /// `hart` (below the configured number) accesses the line of `addr`. An access that crosses lines is two.
    #[inline]
    pub fn access(&mut self, hart: usize, access: Access, addr: u64) -> Outcome {
        let Some(line) = self.line_of(addr) else {
            return Outcome { source: Source::Device, stall_ps: 0, invalidated: 0 };
        };
        self.access_line(hart, access, line)
    }

    /// The number of the line of `addr`; `None` for what is not RAM.
    #[inline]
    pub(crate) fn line_of(&self, addr: u64) -> Option<u32> {
        let offset = addr.wrapping_sub(self.config.ram_base);
        (offset < self.ram_bytes).then(|| (offset >> self.line_shift) as u32)
    }

    #[inline]
    pub(crate) fn access_line(&mut self, hart: usize, access: Access, line: u32) -> Outcome {
        let (is_store, is_fetch) = (access == Access::Store, access == Access::Fetch);
        let caches = &mut self.harts[hart];
        if let Some(is_owned) = caches.touch_l1(is_fetch, line) {
            return if is_store && !is_owned { self.upgrade(hart, line) } else { hit(Source::L1, 0) };
        }
        let Some(is_owned) = caches.l2.touch(line) else { return self.miss(hart, access, line) };
        caches.fill_l1(is_fetch, line, is_owned);
        if is_store && !is_owned { self.upgrade(hart, line) } else { hit(Source::L2, self.config.l2_hit_ps) }
    }

    /// The walker reads a page-table entry, through the data cache; it waits a cycle even where that has it.
    pub(crate) fn read_entry(&mut self, hart: usize, addr: u64) -> u64 {
        self.config.cycle_ps + self.access(hart, Access::Load, addr).stall_ps
    }

    /// The file in which misses are counted.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    fn upgrade(&mut self, hart: usize, line: u32) -> Outcome {
        let invalidated = self.take_ownership(hart, line);
        let stall_ps = self.config.latency(self.node_of[hart], self.home_of(line));
        Outcome { source: Source::Upgrade, stall_ps, invalidated }
    }

    fn miss(&mut self, hart: usize, access: Access, line: u32) -> Outcome {
        let (node, home) = (self.node_of[hart], self.home_of(line));
        self.shared.count_miss(u64::from(line) << self.line_shift, node, home);
        let extra = if self.disown(line) { self.config.owned_extra_ps } else { 0 };
        let caches = &mut self.harts[hart];
        if let Some(victim) = caches.fill_l2(line) {
            self.holders[victim as usize] &= !(1 << hart);
        }
        caches.fill_l1(access == Access::Fetch, line, false);
        self.holders[line as usize] |= 1 << hart;
        let invalidated = if access == Access::Store { self.take_ownership(hart, line) } else { 0 };
        let source = if node == home { Source::Local } else { Source::Remote };
        Outcome { source, stall_ps: self.config.latency(node, home) + extra, invalidated }
    }

    /// The owner of a line, if it has one, only holds it from now on.
    fn disown(&mut self, line: u32) -> bool {
        let holders = self.holders[line as usize];
        if !holders.is_power_of_two() {
            return false;
        }
        let holder = &mut self.harts[holders.trailing_zeros() as usize];
        let is_owned = holder.l2.is_owned(line);
        if is_owned {
            holder.set_owned(line, false);
        }
        is_owned
    }

    /// Makes `hart`, a holder, the only holder; returns how many others lost the line.
    fn take_ownership(&mut self, hart: usize, line: u32) -> u32 {
        let mut others = self.holders[line as usize] & !(1 << hart);
        let count = others.count_ones();
        while others != 0 {
            self.harts[others.trailing_zeros() as usize].drop_line(line);
            others &= others - 1;
        }
        self.holders[line as usize] = 1 << hart;
        self.harts[hart].set_owned(line, true);
        count
    }

    fn home_of(&self, line: u32) -> usize {
        ((u64::from(line) << self.line_shift) / self.config.node_bytes) as usize
    }
}

fn hit(source: Source, stall_ps: u64) -> Outcome {
    Outcome { source, stall_ps, invalidated: 0 }
}
