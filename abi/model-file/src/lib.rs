//! The file that the machine model shares with the monitor and the tools: one definition of where everything lies.
//!
//! The model (a QEMU plugin) writes it; the monitor sees the same bytes as the memory of a PCI device
//! ([`PCI_VENDOR`], [`PCI_DEVICE`], [`PCI_BAR`]), which has the role of FLASH's node controller MAGIC in the Disco
//! papers: it counts the misses of every node on every page and queues the pages that are hot. Tools read it as a file.
//!
//! # Key types
//! - [`Header`]: what machine is modelled; its sizes fix every offset. [`Header::decode`] believes nothing.
//! - [`HartClock`], [`Mode`], [`ModeCounters`], [`Stall`]: where the time of a hart goes.
//! - [`hint`]: how a guest switches the model and marks places. [`HotPage`]: an entry of the queue. [`Request`]: what may be asked of the model at run time. [`Gate`]: a disk
//!   server's hold on virtual time.
//!
//! # Rules of the bytes
//! Every number is a little-endian `u64` at a multiple of 8, but the page counters, which are `u32`. The model never
//! reads what readers may write without checking it: the request word, the hot-page threshold, the consumer index and
//! the gates. Counters are written one by one while harts run, so two of them may be some microseconds apart; at a
//! mark and while the model is off they are exact. Nothing here is a lock: a word has one writer, but for the request
//! word, which readers fill and the model zeroes.
//!
//! `no_std`, no `unsafe`, no access of its own: offsets and words only, so that each side reads in the way it must
//! (volatile over PCI, mapped, or by `read`). Tested by property tests on the host.
#![no_std]
#![forbid(unsafe_code)]

mod control;
mod counters;
mod header;
pub mod hint;

pub use control::{Gate, HotPage, Request, at};
pub use counters::{HartClock, MODES, Mode, ModeCounters, STALLS, Stall};
pub use header::{HEADER_BYTES, Header, LayoutError, MAGIC, Node, VERSION};

/// Vendor of the PCI device behind which the file is seen (`ivshmem-plain`).
pub const PCI_VENDOR: u16 = 0x1af4;
/// Device number of that device.
pub const PCI_DEVICE: u16 = 0x1110;
/// Its memory region that holds the file.
pub const PCI_BAR: u8 = 2;

/// Size of a page: of the file's parts and of what is counted.
pub const PAGE_BYTES: u64 = 4096;
/// Most harts of a machine: a line's holders are one 64-bit mask.
pub const MAX_HARTS: usize = 64;
/// Most nodes of a machine.
pub const MAX_NODES: usize = 8;
/// Most per-page per-node counters: 256 MiB of them.
pub const MAX_PAGE_COUNTERS: u64 = 1 << 26;
/// Most entries of the hot-page queue.
pub const MAX_QUEUE: u64 = 1 << 16;

/// Words as bytes.
fn encode_words<const WORDS: usize, const BYTES: usize>(words: [u64; WORDS]) -> [u8; BYTES] {
    const { assert!(WORDS * 8 == BYTES, "a word is eight bytes") };
    let mut bytes = [0; BYTES];
    bytes.as_chunks_mut::<8>().0.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_le_bytes());
    bytes
}

/// Bytes as words.
fn decode_words<const WORDS: usize, const BYTES: usize>(bytes: &[u8; BYTES]) -> [u64; WORDS] {
    const { assert!(WORDS * 8 == BYTES, "a word is eight bytes") };
    let mut words = [0; WORDS];
    words.iter_mut().zip(bytes.as_chunks::<8>().0).for_each(|(word, from)| *word = u64::from_le_bytes(*from));
    words
}
