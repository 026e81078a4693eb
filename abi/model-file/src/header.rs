//! The first page: what machine is modelled, and thereby where everything is.

use crate::{
    Gate, HartClock, HotPage, MAX_HARTS, MAX_NODES, MAX_PAGE_COUNTERS, MAX_QUEUE, MODES, ModeCounters, PAGE_BYTES,
    decode_words, encode_words,
};

/// First eight bytes of the file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"MBMODEL\0");
/// Changes with every change of the layout.
pub const VERSION: u64 = 2;
/// Bytes of the header that are used; the rest of its page is zero.
pub const HEADER_BYTES: usize = WORDS * 8;

const WORDS: usize = 8 + 3 * MAX_NODES + MAX_NODES * MAX_NODES;
/// Pages before the harts': header, control words, gates.
const HARTS_START: u64 = 3 * PAGE_BYTES;
/// Where the counters of a hart start in its page.
const COUNTERS_START: u64 = 64;

const _: () = assert!(HEADER_BYTES as u64 <= PAGE_BYTES, "the header is one page");
const _: () = assert!(HartClock::BYTES as u64 <= COUNTERS_START, "the clock comes before the counters");
const _: () = assert!(COUNTERS_START + (MODES * ModeCounters::BYTES) as u64 <= PAGE_BYTES, "a hart has one page");
const _: () = assert!(Gate::COUNT * 64 <= PAGE_BYTES, "the gates are one page");

/// A node of the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Node {
    /// First address of its memory.
    pub base: u64,
    /// Bytes of its memory.
    pub bytes: u64,
    /// Its harts; they follow those of the node before.
    pub harts: u64,
}

/// The modelled machine, as far as a reader of the file must know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    nodes: [Node; MAX_NODES],
    node_count: usize,
    queue: u64,
    cycle_ps: u64,
    latency_ps: [[u64; MAX_NODES]; MAX_NODES],
}

/// Why a file is not one of the model's, or a machine has no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields hold")]
pub enum LayoutError {
    #[error("{found} bytes are too few for the machine model's file, {want} are needed")]
    Short { found: u64, want: u64 },
    #[error("not a file of the machine model: it starts with {found:#x}")]
    Magic { found: u64 },
    #[error("layout version {found}, this build knows version {VERSION}")]
    Version { found: u64 },
    #[error("{what} is {found}, it must be between 1 and {max}")]
    Field { what: &'static str, found: u64, max: u64 },
    #[error("node {node} has {bytes:#x} bytes at {base:#x}: nodes are whole pages, one after the other")]
    Node { node: usize, base: u64, bytes: u64 },
    #[error("the header says {found} bytes, its parts need {want}")]
    Total { found: u64, want: u64 },
}

impl Header {
    /// The file of a machine with these nodes, `latency_ps(from, to)` between them, and `queue` entries for hot pages.
    ///
    /// # Errors
    /// Too many of something, and memory that is not one range of whole pages.
    pub fn new(
        nodes: &[Node],
        queue: u64,
        cycle_ps: u64,
        latency_ps: impl Fn(usize, usize) -> u64,
    ) -> Result<Self, LayoutError> {
        let count = nodes.len();
        field("number of nodes", count as u64, MAX_NODES as u64)?;
        let mut all = [Node::default(); MAX_NODES];
        all[..count].copy_from_slice(nodes);
        let within = |from: usize, to: usize| from < count && to < count;
        let latency = |from, to| if within(from, to) { latency_ps(from, to) } else { 0 };
        let latency_ps = core::array::from_fn(|from| core::array::from_fn(|to| latency(from, to)));
        let header = Self { nodes: all, node_count: count, queue, cycle_ps, latency_ps };
        header.check()?;
        Ok(header)
    }

    /// Takes the header from the start of a file of `file_bytes` bytes.
    ///
    /// # Errors
    /// Whatever does not fit this build or the file.
    pub fn decode(start: &[u8; HEADER_BYTES], file_bytes: u64) -> Result<Self, LayoutError> {
        let words: [u64; WORDS] = decode_words(start);
        let [magic, version, total, nodes, queue, cycle_ps, ..] = words;
        if magic != MAGIC {
            return Err(LayoutError::Magic { found: magic });
        }
        if version != VERSION {
            return Err(LayoutError::Version { found: version });
        }
        field("number of nodes", nodes, MAX_NODES as u64)?;
        let node = |at: usize| Node { base: words[8 + 3 * at], bytes: words[9 + 3 * at], harts: words[10 + 3 * at] };
        let all: [Node; MAX_NODES] = core::array::from_fn(node);
        let latency = |from: usize, to: usize| words[8 + 3 * MAX_NODES + from * MAX_NODES + to];
        let header = Self::new(&all[..nodes as usize], queue, cycle_ps, latency)?;
        let want = header.file_bytes();
        if total != want {
            return Err(LayoutError::Total { found: total, want });
        }
        if file_bytes < want { Err(LayoutError::Short { found: file_bytes, want }) } else { Ok(header) }
    }

    /// As in the file.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut words = [0; WORDS];
        let start = [MAGIC, VERSION, self.file_bytes(), self.node_count as u64, self.queue, self.cycle_ps];
        words[..start.len()].copy_from_slice(&start);
        for (at, node) in self.nodes.iter().enumerate() {
            words[8 + 3 * at..11 + 3 * at].copy_from_slice(&[node.base, node.bytes, node.harts]);
        }
        words[8 + 3 * MAX_NODES..].copy_from_slice(self.latency_ps.as_flattened());
        encode_words(words)
    }

    /// The nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes[..self.node_count]
    }

    /// Number of harts.
    pub fn harts(&self) -> u64 {
        self.nodes.iter().map(|node| node.harts).sum()
    }

    /// Time of one instruction without stalls.
    pub fn cycle_ps(&self) -> u64 {
        self.cycle_ps
    }

    /// What a miss of a hart of node `from` on memory of node `to` costs; `None` if there is no such node.
    pub fn latency_ps(&self, from: usize, to: usize) -> Option<u64> {
        let is_there = from < self.node_count && to < self.node_count;
        is_there.then(|| self.latency_ps[from][to])
    }

    /// First address of RAM.
    pub fn ram_base(&self) -> u64 {
        self.nodes[0].base
    }

    /// Counted pages.
    pub fn pages(&self) -> u64 {
        self.nodes.iter().map(|node| node.bytes / PAGE_BYTES).sum()
    }

    /// Entries of the hot-page queue.
    pub fn queue(&self) -> u64 {
        self.queue
    }

    /// Offset of gate `number`; its words are at [`Gate::LIMIT`] and the others. `None` if there is none.
    pub fn gate_at(&self, number: u64) -> Option<u64> {
        (number < Gate::COUNT).then(|| 2 * PAGE_BYTES + number * 64)
    }

    /// Offset of the [`HartClock`] of `hart`; `None` if there is none.
    pub fn clock_at(&self, hart: u64) -> Option<u64> {
        (hart < self.harts()).then(|| HARTS_START + hart * PAGE_BYTES)
    }

    /// Offset of the [`ModeCounters`] of `hart` in the mode of number `mode`; `None` if there is none.
    pub fn counters_at(&self, hart: u64, mode: usize) -> Option<u64> {
        let start = self.clock_at(hart)? + COUNTERS_START;
        (mode < MODES).then(|| start + (mode * ModeCounters::BYTES) as u64)
    }

    /// Offset of the [`HotPage`] of a running index.
    pub fn queue_at(&self, index: u64) -> u64 {
        self.queue_start() + index % self.queue * HotPage::BYTES as u64
    }

    /// Offset of the miss counter (a `u32`) of `node` on `page`; those of a page lie side by side. `None` if there is
    /// none.
    pub fn misses_at(&self, page: u64, node: usize) -> Option<u64> {
        let is_there = page < self.pages() && node < self.node_count;
        is_there.then(|| self.misses_start() + (page * self.node_count as u64 + node as u64) * 4)
    }

    /// Bytes of the file: a power of two, since it is a PCI region.
    pub fn file_bytes(&self) -> u64 {
        (self.misses_start() + self.pages() * self.node_count as u64 * 4).next_power_of_two()
    }

    fn queue_start(&self) -> u64 {
        HARTS_START + self.harts() * PAGE_BYTES
    }

    fn misses_start(&self) -> u64 {
        (self.queue_start() + self.queue * HotPage::BYTES as u64).next_multiple_of(PAGE_BYTES)
    }

    fn check(&self) -> Result<(), LayoutError> {
        field("size of the hot-page queue", self.queue, MAX_QUEUE)?;
        let (mut next, mut harts, mut pages) = (self.nodes[0].base, 0, 0);
        for (at, node) in self.nodes().iter().enumerate() {
            field("number of harts", node.harts, (MAX_HARTS - harts as usize) as u64)?;
            let Node { base, bytes, .. } = *node;
            let is_whole = base == next && bytes != 0 && base % PAGE_BYTES == 0 && bytes % PAGE_BYTES == 0;
            let end = base.checked_add(bytes).filter(|_| is_whole);
            next = end.ok_or(LayoutError::Node { node: at, base, bytes })?;
            (harts, pages) = (harts + node.harts, pages + bytes / PAGE_BYTES);
        }
        field("number of page counters", pages * self.node_count as u64, MAX_PAGE_COUNTERS)
    }
}

fn field(what: &'static str, found: u64, max: u64) -> Result<(), LayoutError> {
    if (1..=max).contains(&found) { Ok(()) } else { Err(LayoutError::Field { what, found, max }) }
}
