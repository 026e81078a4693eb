//! The file that the model shares with the monitor and the tools: where each part lies, as one definition.
//!
//! All numbers are little-endian `u64`, but the page counters, which are `u32`. The header comes first; a reader takes
//! it with [`Layout::read`], which believes nothing that it does not check.

use crate::{Config, MAX_HARTS, MAX_NODES, MODES, ModeCounters, PAGE_BYTES};

/// First eight bytes of the file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"MBMODEL\0");
/// Changes with every change of the layout.
pub const VERSION: u64 = 1;
/// Bytes of the header; the rest of its page is zero.
pub const HEADER_BYTES: usize = 7 * 8;
/// Offset of the control word, the only one that readers write: 1 switches the model on, 0 off.
pub const CONTROL_AT: u64 = 64;
/// Offset of the queue's producer index; its consumer index is in the next word.
pub const QUEUE_INDEX_AT: u64 = 128;
/// Bytes of a queue entry: page number, node.
pub const QUEUE_ENTRY_BYTES: u64 = 16;
/// Most pages that a layout may name.
const MAX_PAGES: u64 = 1 << 26;

const _: () = assert!(size_of::<ModeCounters>() == 12 * 8, "the counters of a mode are twelve words");
const _: () = assert!(HEADER_BYTES as u64 <= CONTROL_AT && CONTROL_AT + 8 <= QUEUE_INDEX_AT);

/// Sizes of the parts; their offsets follow from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    harts: u64,
    nodes: u64,
    pages: u64,
    queue: u64,
}

/// Why a file is not one of the model's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields hold")]
pub enum LayoutError {
    #[error("{found} bytes are too few for the machine model's file, {want} are needed")]
    Short { found: u64, want: u64 },
    #[error("not a file of the machine model: it starts with {found:#x}")]
    Magic { found: u64 },
    #[error("layout version {found}, this build reads version {VERSION}")]
    Version { found: u64 },
    #[error("{what} is {found} in the header, at most {max} is possible")]
    Field { what: &'static str, found: u64, max: u64 },
    #[error("the header says {found} bytes, its parts need {want}")]
    Total { found: u64, want: u64 },
}

impl Layout {
    /// The layout for a machine that [`Config::check`] accepts.
    pub fn new(config: &Config) -> Self {
        let pages = config.node_bytes / PAGE_BYTES * config.nodes as u64;
        Self { harts: config.harts as u64, nodes: config.nodes as u64, pages, queue: config.hot_queue as u64 }
    }

    /// Takes the layout from the start of a file of `file_bytes` bytes.
    ///
    /// # Errors
    /// Whatever does not fit this build or the file.
    pub fn read(start: &[u8], file_bytes: u64) -> Result<Self, LayoutError> {
        let (words, _) = start.as_chunks::<8>();
        let short = LayoutError::Short { found: start.len() as u64, want: HEADER_BYTES as u64 };
        let words = words.first_chunk::<7>().ok_or(short)?.map(u64::from_le_bytes);
        let [magic, version, harts, nodes, pages, queue, total] = words;
        if magic != MAGIC {
            return Err(LayoutError::Magic { found: magic });
        }
        if version != VERSION {
            return Err(LayoutError::Version { found: version });
        }
        field("harts", harts, MAX_HARTS as u64)?;
        field("nodes", nodes, MAX_NODES as u64)?;
        field("pages", pages, MAX_PAGES)?;
        field("queue", queue, 1 << 16)?;
        let layout = Self { harts, nodes, pages, queue };
        let want = layout.total_bytes();
        if total != want {
            return Err(LayoutError::Total { found: total, want });
        }
        if file_bytes < want { Err(LayoutError::Short { found: file_bytes, want }) } else { Ok(layout) }
    }

    /// The header's bytes.
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let words = [MAGIC, VERSION, self.harts, self.nodes, self.pages, self.queue, self.total_bytes()];
        let mut bytes = [0; HEADER_BYTES];
        bytes.as_chunks_mut::<8>().0.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_le_bytes());
        bytes
    }

    /// Offset of the [`ModeCounters`] of `hart` in the mode of number `mode`; `None` if there is none.
    pub fn counters_at(&self, hart: u64, mode: u64) -> Option<u64> {
        let is_there = hart < self.harts && mode < MODES as u64;
        is_there.then(|| PAGE_BYTES + (hart * MODES as u64 + mode) * size_of::<ModeCounters>() as u64)
    }

    /// Offset of the queue entry of a running index.
    pub fn queue_at(&self, index: u64) -> u64 {
        self.queue_start() + index % self.queue * QUEUE_ENTRY_BYTES
    }

    /// Offset of the miss counter of `node` on `page`; `None` if there is none.
    pub fn misses_at(&self, page: u64, node: u64) -> Option<u64> {
        let is_there = page < self.pages && node < self.nodes;
        is_there.then(|| self.misses_start() + (page * self.nodes + node) * 4)
    }

    /// Bytes of the whole file, in whole pages.
    pub fn total_bytes(&self) -> u64 {
        (self.misses_start() + self.pages * self.nodes * 4).next_multiple_of(PAGE_BYTES)
    }

    fn queue_start(&self) -> u64 {
        let counters = self.harts * (MODES * size_of::<ModeCounters>()) as u64;
        (PAGE_BYTES + counters).next_multiple_of(PAGE_BYTES)
    }

    fn misses_start(&self) -> u64 {
        (self.queue_start() + self.queue * QUEUE_ENTRY_BYTES).next_multiple_of(PAGE_BYTES)
    }
}

fn field(what: &'static str, found: u64, max: u64) -> Result<(), LayoutError> {
    if (1..=max).contains(&found) { Ok(()) } else { Err(LayoutError::Field { what, found, max }) }
}
