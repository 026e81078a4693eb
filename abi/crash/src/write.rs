//! Writing a block.

use crate::{Exit, How, MARK, MAX_LINE, Record, Trap, VERSION, checksum};
use core::fmt::{self, Write};

/// Bytes of a text in one line: each may become four.
const TEXT_PIECE: usize = 48;
/// Bytes of an event in one line.
pub(crate) const EVENT_BYTES: usize = 96;
/// Numbers in one line.
const NUMBERS: usize = 8;
/// ` ` and eight digits, and the end of the line.
const TAIL: usize = 10;

/// The first line of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// The hart that panicked, by its index.
    pub hart: u64,
    /// When, in ticks.
    pub ticks: u64,
    /// Ticks in a second.
    pub timebase_hz: u64,
    /// Harts of the cell.
    pub harts: u64,
    /// Which build it is: [`crate::fingerprint`] of its text.
    pub fingerprint: u64,
}

/// Who a hart is, and what it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HartLine {
    /// Its index in the cell.
    pub index: u64,
    /// The firmware's id of it.
    pub hart_id: u64,
    /// Its node.
    pub node: u64,
    /// The VM and vCPU that it ran.
    pub running: Option<(u16, u16)>,
}

/// Writes a block to `sink`, which gets whole lines.
#[derive(Debug)]
pub struct Writer<F> {
    sink: F,
    cell: usize,
    lines: u64,
}

impl<F: FnMut(&[u8])> Writer<F> {
    /// A block of this cell.
    pub const fn new(sink: F, cell: usize) -> Self {
        Self { sink, cell, lines: 0 }
    }

    /// Begins it.
    pub fn begin(&mut self, begin: &Begin, build: &str) {
        let Begin { hart, ticks, timebase_hz, harts, fingerprint } = *begin;
        // Whatever was said last may not have ended its line.
        (self.sink)(b"\n");
        self.line("begin", |line| {
            write!(line, " {VERSION:x} {hart:x} {ticks:x} {timebase_hz:x} {harts:x} {fingerprint:x}")
        });
        self.text("build", build.as_bytes());
    }

    /// A hart, and what it has told of itself.
    pub fn hart(&mut self, hart: &HartLine, record: &Record) {
        let HartLine { index, hart_id, node, running } = *hart;
        self.line("hart", |line| {
            write!(line, " {index:x} {hart_id:x} {node:x} {} {:x}", record.how.word(), record.sp)?;
            match running {
                Some((vm, vcpu)) => write!(line, " {vm:x} {vcpu:x}"),
                None => line.write_str(" - -"),
            }
        });
        self.text("say", record.message.bytes());
        if let Some(Trap { scause, sepc, stval, sstatus }) = record.trap {
            self.line("trap", |line| write!(line, " {scause:x} {sepc:x} {stval:x} {sstatus:x}"));
        }
        for (at, registers) in record.registers.chunks(NUMBERS).enumerate().filter(|_| record.known != 0) {
            let first = at * NUMBERS;
            self.line("x", |line| {
                write!(line, " {first:x}")?;
                registers.iter().enumerate().try_for_each(|(at, value)| {
                    let is_known = record.known >> (first + at) & 1 != 0;
                    if is_known { write!(line, " {value:x}") } else { line.write_str(" -") }
                })
            });
        }
        for calls in record.calls().chunks(NUMBERS) {
            self.line("stack", |line| calls.iter().try_for_each(|call| write!(line, " {call:x}")));
        }
    }

    /// An exit of the vCPU that the latest hart ran.
    pub fn exit(&mut self, exit: &Exit) {
        let Exit { ticks, scause, pc, stval } = *exit;
        self.line("exit", |line| write!(line, " {ticks:x} {scause:x} {pc:x} {stval:x}"));
    }

    /// An event of the latest hart; one that is too long is left out.
    pub fn event(&mut self, bytes: &[u8]) {
        if bytes.len() <= EVENT_BYTES {
            self.line("event", |line| {
                line.write_char(' ')?;
                bytes.iter().try_for_each(|byte| write!(line, "{byte:02x}"))
            });
        }
    }

    /// Ends it.
    pub fn end(&mut self) {
        self.line("end", |_| Ok(()));
    }

    fn text(&mut self, kind: &str, text: &[u8]) {
        for piece in text.chunks(TEXT_PIECE) {
            self.line(kind, |line| {
                line.write_char(' ')?;
                piece.iter().try_for_each(|byte| match byte {
                    b'\\' => line.write_str("\\\\"),
                    b' '..=b'~' => line.write_char(char::from(*byte)),
                    byte => write!(line, "\\x{byte:02x}"),
                })
            });
        }
    }

    fn line(&mut self, kind: &str, fields: impl FnOnce(&mut Line) -> fmt::Result) {
        let (cell, number) = (self.cell, self.lines);
        let mut line = Line { bytes: [0; MAX_LINE], len: 0, room: MAX_LINE - TAIL };
        // What does not fit is cut off; the tests show that all fits.
        let _ = write!(line, "{MARK} {cell:x} {number:x} {kind}").and_then(|()| fields(&mut line));
        let sum = checksum(&[line.text()]);
        line.room = MAX_LINE;
        let _ = writeln!(line, " {sum:08x}");
        self.lines += 1;
        (self.sink)(line.text());
    }
}

impl How {
    const ALL: [Self; 3] = [Self::Panicked, Self::Stopped, Self::Silent];

    /// The word in a line.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Panicked => "panicked",
            Self::Stopped => "stopped",
            Self::Silent => "silent",
        }
    }

    pub(crate) fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|how| how.word() == word)
    }
}

/// A line that grows up to its room.
struct Line {
    bytes: [u8; MAX_LINE],
    len: usize,
    room: usize,
}

impl Line {
    fn text(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let place = self.bytes.get_mut(self.len..end).filter(|_| end <= self.room).ok_or(fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}
