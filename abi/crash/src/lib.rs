//! What a monitor that panics leaves behind: a block of lines in the machine's log, which `mirrorball crash` reads.
//!
//! The log is the one output that every machine has, boards included. It lasts when memory does not, and a reader needs nothing
//! of the machine. Memory that the host looks into would need an emulator that stays, and would be lost by a restart.
//!
//! # A line
//! `!crash CELL NUMBER KIND [FIELD]... CHECKSUM`, at most [`MAX_LINE`] bytes with its end. Numbers are hexadecimal. The checksum is the CRC-32
//! of all bytes before the space in front of it. Lines of a block are numbered from 0, so a reader knows which are missing: other cells
//! write to the same log at the same time.
//!
//! | kind | fields |
//! | --- | --- |
//! | `begin` | [`VERSION`], the hart that panicked, ticks, ticks in a second, harts of the cell, [`fingerprint`] of the text |
//! | `build` | version and commit, as text |
//! | `hart` | index, hart id, node, [`How`], stack pointer, VM and vCPU that it ran or `-` `-` |
//! | `say` | a piece of the hart's message, as text |
//! | `trap` | `scause`, `sepc`, `stval`, `sstatus` of a trap that the hart took in the monitor |
//! | `x` | the first of eight registers, then each of them, `-` where it is not known |
//! | `stack` | return addresses found on the hart's stack, the innermost first |
//! | `exit` | ticks, `scause`, `pc`, `stval` of an exit of the vCPU, the oldest first |
//! | `event` | an event of the hart, as bytes of the crate `control`, the oldest first |
//! | `end` | none |
//!
//! What follows a `hart` line up to the next is about that hart. In text a byte that is not printable is `\xNN`.
//!
//! # What it refuses
//! Nothing: a damaged line counts as missing. All that a reader keeps is bounded by the constants here, whatever the log holds.
//!
//! No `unsafe`, no locks. The writing half takes no memory, for a panic may hold the allocator's lock.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod read;
mod stack;
mod write;

pub use read::{Crash, HartCrash, read};
pub use stack::{ends_a_call, find_calls};
pub use write::{Begin, HartLine, Writer};

use core::fmt;
use crc::{CRC_32_ISO_HDLC, Crc, NoTable};

/// Version of the lines.
pub const VERSION: u64 = 1;
/// Most bytes of a line, with its end.
pub const MAX_LINE: usize = 256;
/// Most bytes of a message that are kept.
pub const MAX_TEXT: usize = 512;
/// Most return addresses of a stack that are kept.
pub const MAX_CALLS: usize = 32;
/// Most exits, and most events, that are kept for a hart.
pub const MAX_RECENT: usize = 16;
/// Most harts of a crash.
pub const MAX_HARTS: usize = 4096;
/// Most crashes of a log; the latest count.
pub const MAX_CRASHES: usize = 16;

/// How each line begins.
const MARK: &str = "!crash";

/// What a hart was doing when its cell ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It panicked.
    Panicked,
    /// It was called, and stopped.
    Stopped,
    /// It was called, and did not stop in time: it waits for something, or loops.
    Silent,
}

/// A trap that the monitor itself has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trap {
    /// Why.
    pub scause: u64,
    /// Where.
    pub sepc: u64,
    /// With which address or instruction.
    pub stval: u64,
    /// The hart's status.
    pub sstatus: u64,
}

/// An exit of a vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// When, in ticks.
    pub ticks: u64,
    /// Why.
    pub scause: u64,
    /// Where the guest was.
    pub pc: u64,
    /// With which address or instruction.
    pub stval: u64,
}

/// The beginning of a text: what comes later than [`MAX_TEXT`] bytes is dropped.
#[derive(Clone, Debug)]
pub struct Text {
    bytes: [u8; MAX_TEXT],
    len: usize,
}

/// What a hart tells of itself before it stops: fixed in size, so that each hart has room for it from the beginning.
#[derive(Clone, Debug)]
pub struct Record {
    /// What it was doing; [`How::Silent`] until it has told.
    pub how: How,
    /// Its stack pointer.
    pub sp: u64,
    /// The message of its panic.
    pub message: Text,
    /// The trap that it died of.
    pub trap: Option<Trap>,
    /// Its registers `x0` to `x31`.
    pub registers: [u64; 32],
    /// Which of them are known, a bit each.
    pub known: u32,
    /// Return addresses on its stack, the innermost first.
    pub calls: [u64; MAX_CALLS],
    /// How many there are.
    pub call_count: usize,
}

impl Text {
    /// No text.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: [0; MAX_TEXT], len: 0 }
    }

    /// What it holds.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Default for Text {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            let Some(place) = self.bytes.get_mut(self.len) else { break };
            *place = byte;
            self.len += 1;
        }
        Ok(())
    }
}

impl Record {
    /// Of a hart that has told nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            how: How::Silent,
            sp: 0,
            message: Text::new(),
            trap: None,
            registers: [0; 32],
            known: 0,
            calls: [0; MAX_CALLS],
            call_count: 0,
        }
    }

    /// The return addresses found.
    #[must_use]
    pub fn calls(&self) -> &[u64] {
        self.calls.get(..self.call_count).unwrap_or_default()
    }

    /// Register `index` has this value.
    pub fn set_register(&mut self, index: usize, value: u64) {
        if let Some(place) = self.registers.get_mut(index) {
            *place = value;
            self.known |= 1 << index;
        }
    }
}

impl Default for Record {
    fn default() -> Self {
        Self::new()
    }
}

/// Tells one build's text from another's: over its 64-bit words, in order.
#[must_use]
pub fn fingerprint(words: impl Iterator<Item = u64>) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    words.fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(PRIME).rotate_left(23))
}

/// Small and slow: the whole of it runs once in a machine's life.
fn checksum(parts: &[&[u8]]) -> u32 {
    static CRC: Crc<u32, NoTable> = Crc::<u32, NoTable>::new(&CRC_32_ISO_HDLC);
    let mut digest = CRC.digest();
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize()
}
