//! The description of the modelled machine, its presets and its checks.

use alloc::{vec, vec::Vec};

use model_file::{Header, LayoutError, MAX_HARTS, MAX_NODES, MAX_PAGE_COUNTERS, Node};
use serde::{Deserialize, Serialize};

/// Longest latency that is believed: 1 ms. Sums of a few of them cannot overflow.
const MAX_LATENCY_PS: u64 = 1_000_000_000;

/// Most lines of RAM: a line's number and a bit are 32 bits.
const MAX_LINES: u64 = (1 << 31) - 1;

/// Size and associativity of a cache; the line size is the machine's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheShape {
    /// Capacity in bytes.
    pub bytes: u64,
    /// Lines per set.
    pub ways: u64,
}

/// Size of a hart's TLB and page-walk cache; both are fully associative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbShape {
    /// Translations held, of any page size.
    pub entries: usize,
    /// Tables, of both stages, that the walker remembers.
    pub walk_entries: usize,
    /// G-stage translations that the walker remembers (a nested TLB, as hardware has had it since nested paging).
    pub guest_entries: usize,
}

/// The modelled machine. Times are in picoseconds, sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Harts, spread over the nodes in equal blocks.
    pub harts: usize,
    /// Nodes.
    pub nodes: usize,
    /// First machine address of RAM.
    pub ram_base: u64,
    /// RAM of each node; node n has the n-th block from `ram_base`.
    pub node_bytes: u64,
    /// Line size of every cache.
    pub line_bytes: u64,
    /// First-level instruction cache.
    pub l1i: CacheShape,
    /// First-level data cache.
    pub l1d: CacheShape,
    /// Second-level cache; holds whatever the first level holds.
    pub l2: CacheShape,
    /// TLB of each hart.
    pub tlb: TlbShape,
    /// Time of one instruction without stalls.
    pub cycle_ps: u64,
    /// Stall of a first-level miss that the second level serves.
    pub l2_hit_ps: u64,
    /// Stall of a miss by a hart of node `i` on memory of node `j`, at `i * nodes + j`.
    pub latency_ps: Vec<u64>,
    /// Added when another hart owns the line and has to give it up.
    pub owned_extra_ps: u64,
    /// How far a hart may run ahead of the slowest one.
    pub window_ps: u64,
    /// Remote misses of one node on a page that make the page hot.
    pub hot_misses: u32,
    /// Most hot pages that wait in the queue.
    pub hot_queue: usize,
}

/// Why a [`Config`] is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields hold")]
pub enum ConfigError {
    #[error("{what} is {value}, it must be between {min} and {max}")]
    OutOfRange { what: &'static str, value: u64, min: u64, max: u64 },
    #[error("{harts} harts cannot be spread evenly over {nodes} nodes")]
    UnevenHarts { harts: usize, nodes: usize },
    #[error("{what} is {value}, it must be a power of two")]
    NotPowerOfTwo { what: &'static str, value: u64 },
    #[error("{what}: {bytes} bytes are not a power of two of sets of {ways} lines of {line} bytes")]
    CacheShape { what: &'static str, bytes: u64, ways: u64, line: u64 },
    #[error("the L2 cache of {l2} bytes cannot hold both L1 caches, {l1} bytes")]
    L2TooSmall { l2: u64, l1: u64 },
    #[error("{found} latencies are given, {want} are needed: one for each pair of nodes")]
    LatencyCount { found: usize, want: usize },
    #[error("node {from} reaches node {to} in {remote} ps, sooner than its own memory in {local} ps")]
    RemoteSooner { from: usize, to: usize, remote: u64, local: u64 },
    #[error("RAM is not made of whole 4 KiB pages: base {base:#x}, {node_bytes:#x} bytes per node")]
    RaggedRam { base: u64, node_bytes: u64 },
    #[error("{nodes} nodes of {node_bytes:#x} bytes at {base:#x} need too many addresses or page counters")]
    RamTooLarge { base: u64, node_bytes: u64, nodes: usize },
    #[error("{lines} lines of {line_bytes} bytes are too many, at most {MAX_LINES} are possible: use larger lines")]
    TooManyLines { lines: u64, line_bytes: u64 },
    #[error("the machine's shared file: {0}")]
    NoFile(LayoutError),
}

impl Config {
    /// The machine of Disco, section 5.1: in-order harts at twice the clock of a MIPS R10000, its on-chip caches (32 KB,
    /// split), a 1 MB board-level cache, 300 ns for a miss to local memory, 900 ns to remote memory.
    ///
    /// The paper does not say the rest; our choice: 200 MHz for the R10000 (so 2.5 ns here), two ways in each cache as on
    /// the R10000, lines of 128 bytes everywhere (FLASH's unit of coherence), 64 TLB entries as the R10000 (which maps
    /// pairs of pages), a hardware walker in place of the R10000's traps that reads through the data cache as their handler
    /// does, with caches of 24 tables and of 16 translations of the G-stage (as the first hardware with nested paging had:
    /// Bhargava et al., ASPLOS 2008), 50 ns for the board-level cache, 300 ns more if an owner has to give up the line, a page hot after 128 misses of a node.
    pub fn flash(harts: usize, nodes: usize, node_bytes: u64) -> Self {
        Self {
            harts,
            nodes,
            ram_base: 0x8000_0000,
            node_bytes,
            line_bytes: 128,
            l1i: CacheShape { bytes: 32 << 10, ways: 2 },
            l1d: CacheShape { bytes: 32 << 10, ways: 2 },
            l2: CacheShape { bytes: 1 << 20, ways: 2 },
            tlb: TlbShape { entries: 64, walk_entries: 24, guest_entries: 16 },
            cycle_ps: 2_500,
            l2_hit_ps: 50_000,
            latency_ps: distances(nodes, 300_000, 900_000),
            owned_extra_ps: 300_000,
            window_ps: 1_000_000,
            hot_misses: 128,
            hot_queue: 256,
        }
    }

    /// A present-day server of two dies. Typical figures of the class, measured on no particular machine.
    pub fn two_die_server(harts: usize, node_bytes: u64) -> Self {
        Self {
            line_bytes: 64,
            l1i: CacheShape { bytes: 32 << 10, ways: 8 },
            l1d: CacheShape { bytes: 32 << 10, ways: 8 },
            l2: CacheShape { bytes: 1 << 20, ways: 16 },
            tlb: TlbShape { entries: 1024, walk_entries: 64, guest_entries: 64 },
            cycle_ps: 400,
            l2_hit_ps: 5_600,
            latency_ps: distances(2, 100_000, 200_000),
            owned_extra_ps: 40_000,
            ..Self::flash(harts, 2, node_bytes)
        }
    }

    /// Refuses a machine that cannot be modelled. [`crate::Machine::new`] and [`crate::Clocks::new`] call it.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        range("harts", self.harts as u64, 1, MAX_HARTS as u64)?;
        range("nodes", self.nodes as u64, 1, MAX_NODES as u64)?;
        if !self.harts.is_multiple_of(self.nodes) {
            return Err(ConfigError::UnevenHarts { harts: self.harts, nodes: self.nodes });
        }
        self.check_ram()?;
        self.check_caches()?;
        self.check_times()?;
        range("TLB entries", self.tlb.entries as u64, 1, 1 << 14)?;
        // A two-dimensional walk must not push out what it has just found itself.
        range("walk cache entries", self.tlb.walk_entries as u64, 8, 1 << 9)?;
        range("nested TLB entries", self.tlb.guest_entries as u64, 4, 1 << 9)?;
        range("misses of a hot page", self.hot_misses.into(), 1, u32::MAX.into())?;
        range("hot page queue", self.hot_queue as u64, 1, 1 << 16)
    }

    /// The header of the machine's shared file.
    ///
    /// # Errors
    /// None for a machine that [`Config::check`] accepts.
    pub fn header(&self) -> Result<Header, LayoutError> {
        let node = |at: usize| Node {
            base: self.ram_base + at as u64 * self.node_bytes,
            bytes: self.node_bytes,
            harts: (self.harts / self.nodes) as u64,
        };
        let nodes: Vec<Node> = (0..self.nodes).map(node).collect();
        Header::new(&nodes, self.hot_queue as u64, self.cycle_ps, |from, to| self.latency(from, to))
    }

    /// The node of `hart`.
    pub fn node_of(&self, hart: usize) -> usize {
        hart * self.nodes / self.harts
    }

    /// The node whose memory holds `addr`; `None` for what is not RAM.
    pub fn home_of(&self, addr: u64) -> Option<usize> {
        let node = addr.checked_sub(self.ram_base)? / self.node_bytes;
        (node < self.nodes as u64).then_some(node as usize)
    }

    /// Stall of a miss from node `from` on memory of node `to`.
    pub fn latency(&self, from: usize, to: usize) -> u64 {
        self.latency_ps[from * self.nodes + to]
    }

    fn check_ram(&self) -> Result<(), ConfigError> {
        let (base, node_bytes, nodes) = (self.ram_base, self.node_bytes, self.nodes);
        if node_bytes == 0 || node_bytes % 4096 != 0 || base % 4096 != 0 {
            return Err(ConfigError::RaggedRam { base, node_bytes });
        }
        let large = ConfigError::RamTooLarge { base, node_bytes, nodes };
        let bytes = node_bytes.checked_mul(nodes as u64).filter(|bytes| base.checked_add(*bytes).is_some());
        let bytes = bytes.ok_or(large.clone())?;
        if (bytes / 4096) > MAX_PAGE_COUNTERS / nodes as u64 { Err(large) } else { Ok(()) }
    }

    fn check_caches(&self) -> Result<(), ConfigError> {
        range("line size", self.line_bytes, 64, 4096)?;
        if !self.line_bytes.is_power_of_two() {
            return Err(ConfigError::NotPowerOfTwo { what: "line size", value: self.line_bytes });
        }
        let lines = self.node_bytes * self.nodes as u64 / self.line_bytes;
        if lines > MAX_LINES {
            return Err(ConfigError::TooManyLines { lines, line_bytes: self.line_bytes });
        }
        for (what, shape) in [("L1 instruction cache", self.l1i), ("L1 data cache", self.l1d), ("L2 cache", self.l2)] {
            shape.check(what, self.line_bytes)?;
        }
        let l1 = self.l1i.bytes + self.l1d.bytes;
        if self.l2.bytes < l1 { Err(ConfigError::L2TooSmall { l2: self.l2.bytes, l1 }) } else { Ok(()) }
    }

    fn check_times(&self) -> Result<(), ConfigError> {
        range("cycle (ps)", self.cycle_ps, 1, MAX_LATENCY_PS)?;
        range("L2 hit (ps)", self.l2_hit_ps, 0, MAX_LATENCY_PS)?;
        range("extra time of an owned line (ps)", self.owned_extra_ps, 0, MAX_LATENCY_PS)?;
        range("window (ps)", self.window_ps, self.cycle_ps, 1_000 * MAX_LATENCY_PS)?;
        let want = self.nodes * self.nodes;
        if self.latency_ps.len() != want {
            return Err(ConfigError::LatencyCount { found: self.latency_ps.len(), want });
        }
        for (from, to) in (0..want).map(|pair| (pair / self.nodes, pair % self.nodes)) {
            let (local, remote) = (self.latency(from, from), self.latency(from, to));
            range("latency (ps)", remote, 1, MAX_LATENCY_PS)?;
            if remote < local {
                return Err(ConfigError::RemoteSooner { from, to, remote, local });
            }
        }
        Ok(())
    }
}

impl CacheShape {
    /// Sets of the cache, given the line size.
    pub fn sets(&self, line_bytes: u64) -> u64 {
        self.bytes / (self.ways * line_bytes)
    }

    fn check(&self, what: &'static str, line: u64) -> Result<(), ConfigError> {
        range(what, self.bytes, line, 1 << 30)?;
        range(what, self.ways, 1, 64)?;
        let set_bytes = self.ways * line;
        let whole = self.bytes.is_multiple_of(set_bytes) && (self.bytes / set_bytes).is_power_of_two();
        let wrong = ConfigError::CacheShape { what, bytes: self.bytes, ways: self.ways, line };
        if whole { Ok(()) } else { Err(wrong) }
    }
}

/// One latency for a node's own memory and one for all others. Empty for a node count that [`Config::check`] refuses.
fn distances(nodes: usize, local: u64, remote: u64) -> Vec<u64> {
    if nodes > MAX_NODES {
        return vec![];
    }
    (0..nodes * nodes).map(|pair| if pair / nodes == pair % nodes { local } else { remote }).collect()
}

fn range(what: &'static str, value: u64, min: u64, max: u64) -> Result<(), ConfigError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(ConfigError::OutOfRange { what, value, min, max }) }
}
