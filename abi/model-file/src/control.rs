//! What changes while the machine runs, but for the counters: requests, the machine's time, hot pages, gates.

use crate::{decode_words, encode_words};

/// Offsets of single words, all in the file's second page.
pub mod at {
    use crate::PAGE_BYTES;

    /// Written by readers, zeroed by the model: a [`crate::Request`].
    pub const REQUEST: u64 = PAGE_BYTES;
    /// Written by readers: remote misses of one node on a page that make the page hot; 0 = queue nothing.
    pub const HOT_THRESHOLD: u64 = PAGE_BYTES + 8;
    /// Written by the disk servers before the machine starts: how many gates there are to look at.
    pub const GATES: u64 = PAGE_BYTES + 16;
    /// Written by the reader of the queue: running index of the next entry that it takes.
    pub const CONSUMER: u64 = PAGE_BYTES + 64;
    /// 1 while the model is on.
    pub const IS_ON: u64 = PAGE_BYTES + 128;
    /// The machine's clock, in picoseconds; what `rdtime` shows, but for its unit.
    pub const NOW: u64 = PAGE_BYTES + 136;
    /// How often the model was switched on or off.
    pub const SWITCHES: u64 = PAGE_BYTES + 144;
    /// Running index after the newest entry of the queue.
    pub const PRODUCER: u64 = PAGE_BYTES + 192;
    /// Hot pages that found the queue full.
    pub const DROPPED: u64 = PAGE_BYTES + 200;
    /// Stores of harts to the memory of PCI devices: each may be a doorbell. 0 = the model does not count them.
    pub const DOORBELLS: u64 = PAGE_BYTES + 256;
    /// Time of the last of them, by the clock of the hart that stored; written before [`DOORBELLS`].
    pub const DOORBELL_PS: u64 = PAGE_BYTES + 264;
    /// How often time went on although a server had not acknowledged all doorbells: it was too slow in real time.
    pub const DOORBELLS_LATE: u64 = PAGE_BYTES + 272;
}

/// What a reader asks of the model through the word at [`at::REQUEST`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Request {
    /// Switch the model on.
    On = 1,
    /// Switch it off: plain speed, time without stalls.
    Off = 2,
    /// Zero the page counters, so that every page can become hot again.
    ResetPages = 3,
}

impl Request {
    /// From the word; `None` for 0 and for what is no request, which the model ignores.
    pub const fn from_word(word: u64) -> Option<Self> {
        match word {
            1 => Some(Self::On),
            2 => Some(Self::Off),
            3 => Some(Self::ResetPages),
            _ => None,
        }
    }
}

/// A page that a node misses on often although it is another node's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct HotPage {
    /// Page number from the start of RAM.
    pub page: u64,
    /// The node that misses.
    pub node: u64,
}

impl HotPage {
    /// Its bytes in the queue.
    pub const BYTES: usize = 16;

    /// From the file.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let [page, node] = decode_words(bytes);
        Self { page, node }
    }

    /// As in the file.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        encode_words([self.page, self.node])
    }
}

/// A disk server's hold on virtual time: the machine's clock does not pass the limit that it has written.
///
/// So a request that the server works on, in real time, is answered at the virtual time that its model of the disk
/// gives. A gate has one server; it opens it again by writing [`Gate::OPEN`].
///
/// A machine that rings a doorbell and falls idle would jump to its next timer before the server has seen the request.
/// So while a server is attached, time does not *jump* before all doorbells are acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gate;

impl Gate {
    /// Number of gates.
    pub const COUNT: u64 = 64;
    /// The limit of an open gate, and of one that nobody uses.
    pub const OPEN: u64 = 0;
    /// Offset in a gate of its limit, in picoseconds of the machine's clock: a whole number of nanoseconds, which is what
    /// the clock stops at.
    pub const LIMIT: u64 = 0;
    /// Offset of the number of doorbells up to which the server has seen all requests.
    pub const ACKNOWLEDGED: u64 = 8;
    /// Offset of the word that is 1 while a server is attached.
    pub const ATTACHED: u64 = 16;
}
