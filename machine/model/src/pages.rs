//! Misses per page and node, and the queue of hot pages: the part of FLASH's MAGIC that Disco's policy reads.

use alloc::{collections::VecDeque, vec, vec::Vec};

use model_file::PAGE_BYTES;

use crate::Config;

/// A page that a node misses on often although it is another node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HotPage {
    /// Page number from the start of RAM.
    pub page: u64,
    /// The node that misses.
    pub node: usize,
}

/// Second-level misses of every page by every node. Counters stop at their largest value.
#[derive(Debug)]
pub struct PageMisses {
    counts: Vec<u32>,
    nodes: usize,
    ram_base: u64,
    threshold: u32,
    queue: VecDeque<HotPage>,
    capacity: usize,
    dropped: u64,
}

impl PageMisses {
    /// Zero counters; `config` is checked.
    pub(crate) fn new(config: &Config) -> Self {
        let pages = config.node_bytes / PAGE_BYTES * config.nodes as u64;
        Self {
            counts: vec![0; pages as usize * config.nodes],
            nodes: config.nodes,
            ram_base: config.ram_base,
            threshold: config.hot_misses,
            queue: VecDeque::with_capacity(config.hot_queue),
            capacity: config.hot_queue,
            dropped: 0,
        }
    }

    /// Misses of each node on the page of `addr`; `None` for what is not RAM.
    pub fn of(&self, addr: u64) -> Option<&[u32]> {
        let at = self.start(addr)?;
        self.counts.get(at..at + self.nodes)
    }

    /// Hot pages that found the queue full.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Counts a miss of `node`. A page is reported once, when its count reaches the threshold.
    pub(crate) fn count(&mut self, addr: u64, node: usize, home: usize) {
        let Some(at) = self.start(addr) else { return };
        let count = &mut self.counts[at + node];
        let before = *count;
        *count = before.saturating_add(1);
        if node != home && before.checked_add(1) == Some(self.threshold) {
            self.push((addr - self.ram_base) / PAGE_BYTES, node);
        }
    }

    pub(crate) fn reset(&mut self, addr: u64) {
        if let Some(at) = self.start(addr) {
            self.counts[at..at + self.nodes].fill(0);
        }
    }

    pub(crate) fn pop_hot(&mut self) -> Option<HotPage> {
        self.queue.pop_front()
    }

    fn push(&mut self, page: u64, node: usize) {
        if self.queue.len() == self.capacity {
            self.dropped += 1;
        } else {
            self.queue.push_back(HotPage { page, node });
        }
    }

    fn start(&self, addr: u64) -> Option<usize> {
        let at = usize::try_from(addr.checked_sub(self.ram_base)? / PAGE_BYTES).ok()?.checked_mul(self.nodes)?;
        (at < self.counts.len()).then_some(at)
    }
}
