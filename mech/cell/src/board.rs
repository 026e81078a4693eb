//! The words that a cell shows to the others, and how they are read.
//!
//! Two copies of the monitor agree on this layout, because they are the same image; [`MAGIC`] and [`REVISION`] say so.
//!
//! A *record* is a request or an answer. It begins and ends with the same stamp. Its writer writes from the first word to the
//! last, its reader reads from the last to the first. So a reader that finds the same stamp at both ends has read what belongs
//! to it: when it saw the last word, all before it were written; when it saw the first, the next record had not begun.

use crate::{CellId, CellSet, View};

/// How many cells a machine may have.
pub const CELLS: usize = 8;
/// Calls that a cell can have open with each other cell at a time.
pub const SLOTS: usize = 4;
/// Words that a request or an answer carries: the paper's 128 bytes for data, and four words that say what they are.
pub const PAYLOAD_WORDS: usize = 20;

/// What a request or an answer carries. This crate does not interpret it.
pub type Payload = [u64; PAYLOAD_WORDS];

/// Word 0 of a board: it has been set up.
pub const MAGIC: u64 = u64::from_le_bytes(*b"MBcells\0");
/// Word 1 of a board: the layout's revision.
pub const REVISION: u64 = 2;

const MAGIC_AT: usize = 0;
const REVISION_AT: usize = 1;
pub(crate) const LIVE_BEAT_AT: usize = 2;
const VIEW_AT: usize = 3;
pub(crate) const LIVE_PROPOSAL_AT: usize = 4;
pub(crate) const LIVE_LOST_AT: usize = 5;
pub(crate) const STOPPED_AT: usize = 6;
const TAKEN_AT: usize = 16;
const REQUESTS_AT: usize = TAKEN_AT + CELLS * SLOTS;
const ANSWERS_AT: usize = REQUESTS_AT + CELLS * SLOTS * RECORD_WORDS;

/// Words of a record: a stamp, what it carries, the stamp again, and room to fill three cache lines.
const RECORD_WORDS: usize = 24;
const END_AT: usize = PAYLOAD_WORDS + 1;

/// Words of a board.
pub const WORDS: usize = 2048;

const _: () = {
    assert!(VIEW_AT < TAKEN_AT && STOPPED_AT < TAKEN_AT, "the single words lie before the tables");
    assert!(END_AT < RECORD_WORDS, "a record holds both stamps and what it carries");
    assert!(
        (RECORD_WORDS * 8).is_multiple_of(64) && (REQUESTS_AT * 8).is_multiple_of(64),
        "a record begins with a cache line"
    );
    assert!(ANSWERS_AT + CELLS * SLOTS * RECORD_WORDS <= WORDS, "a board holds its tables");
};

/// Why another cell's word could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unreadable {
    /// The link to it works, and the hardware says that the cell's memory is lost.
    Dead,
    /// The cell is out of reach. It may be alive, or not.
    Cut,
}

/// What a cell can do to the world: write its own board, read others' boards, ring.
///
/// Implementations keep order: a write is seen no earlier than the writes before it, and a read sees nothing older than the reads
/// before it did. A read after a write is not done before it (on RISC-V: a full fence, because the cells agree through such pairs).
pub trait Port {
    /// Word `word` of the board of `cell`, through an accessor that survives the loss of that memory.
    ///
    /// # Errors
    /// The word cannot be read. If the link is cut *and* the cell is dead, the answer is [`Unreadable::Cut`]: what a cell knows
    /// about the dead must not depend on links that others may not have.
    fn read(&mut self, cell: CellId, word: usize) -> Result<u64, Unreadable>;

    /// Write word `word` of this cell's own board.
    fn write(&mut self, word: usize, value: u64);

    /// From which cells the hardware says that `cell` is cut: of all links that are cut, whether this cell has noticed or not.
    /// None, where it says nothing about links.
    fn cut_from(&mut self, cell: CellId) -> CellSet {
        let _ = cell;
        CellSet::EMPTY
    }

    /// Ask `cell` to look at the boards soon. A ring may get lost: what it announces is found by polling, too.
    fn ring(&mut self, cell: CellId);
}

/// Set up a board of zeroes. Others see it from then on.
pub fn begin(port: &mut impl Port, view: View) {
    publish_view(port, view);
    port.write(REVISION_AT, REVISION);
    port.write(MAGIC_AT, MAGIC);
}

/// Whether the board of `cell` is set up, and laid out as this one.
///
/// # Errors
/// The board cannot be read.
pub fn is_ready(port: &mut impl Port, cell: CellId) -> Result<bool, Unreadable> {
    Ok(port.read(cell, MAGIC_AT)? == MAGIC && port.read(cell, REVISION_AT)? == REVISION)
}

/// Show which view this cell is in. From here on it takes no calls of earlier epochs.
pub fn publish_view(port: &mut impl Port, view: View) {
    port.write(VIEW_AT, view.word());
}

/// The view that `cell` is in.
///
/// # Errors
/// The board cannot be read.
pub fn view_of(port: &mut impl Port, cell: CellId) -> Result<View, Unreadable> {
    port.read(cell, VIEW_AT).map(View::from_word)
}

/// Which call it is: the epoch it belongs to, and its number. Later calls have greater stamps, across epochs, too. 0 is no call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Stamp(pub(crate) u64);

impl Stamp {
    /// Bits of the number: at a million calls a second, enough for nine years of one epoch.
    const NUMBER_BITS: u32 = 48;

    /// The stamp after this one, in `epoch`. `None`: the numbers of this epoch are used up.
    pub(crate) fn next(self, epoch: u16) -> Option<Self> {
        let number = if self.epoch() == epoch { self.0 & ((1 << Self::NUMBER_BITS) - 1) } else { 0 };
        (number + 1 < 1 << Self::NUMBER_BITS).then(|| Self(u64::from(epoch) << Self::NUMBER_BITS | (number + 1)))
    }

    pub(crate) const fn epoch(self) -> u16 {
        (self.0 >> Self::NUMBER_BITS) as u16
    }
}

/// Where a record begins on its writer's board.
#[derive(Clone, Copy)]
pub(crate) struct Record(usize);

impl Record {
    /// The request for `to` in `slot`, on the caller's board.
    pub(crate) const fn request(to: CellId, slot: usize) -> Self {
        Self(REQUESTS_AT + (to.index() * SLOTS + slot) * RECORD_WORDS)
    }

    /// The answer to `caller` in `slot`, on the callee's board.
    pub(crate) const fn answer(caller: CellId, slot: usize) -> Self {
        Self(ANSWERS_AT + (caller.index() * SLOTS + slot) * RECORD_WORDS)
    }

    /// Write the record on the own board.
    pub(crate) fn write(self, port: &mut impl Port, stamp: Stamp, payload: &Payload) {
        port.write(self.0, stamp.0);
        for (word, &value) in payload.iter().enumerate() {
            port.write(self.0 + 1 + word, value);
        }
        port.write(self.0 + END_AT, stamp.0);
    }

    /// Take the record back: nobody who has not read it yet will.
    pub(crate) fn clear(self, port: &mut impl Port) {
        port.write(self.0, 0);
        port.write(self.0 + END_AT, 0);
    }

    /// The stamp at the end of the record on the board of `cell`: which record it is, if it is whole.
    pub(crate) fn stamp(self, port: &mut impl Port, cell: CellId) -> Result<Stamp, Unreadable> {
        port.read(cell, self.0 + END_AT).map(Stamp)
    }

    /// What the record stamped `stamp` carries, on the board of `cell`. `None`: it is another one, or changes at this moment.
    pub(crate) fn read(self, port: &mut impl Port, cell: CellId, stamp: Stamp) -> Result<Option<Payload>, Unreadable> {
        if self.stamp(port, cell)? != stamp {
            return Ok(None);
        }
        let mut payload = [0; PAYLOAD_WORDS];
        for (word, value) in payload.iter_mut().enumerate().rev() {
            *value = port.read(cell, self.0 + 1 + word)?;
        }
        Ok((port.read(cell, self.0)? == stamp.0).then_some(payload))
    }
}

/// The word that says which call of `caller` in `slot` the callee has taken last.
pub(crate) const fn taken_at(caller: CellId, slot: usize) -> usize {
    TAKEN_AT + caller.index() * SLOTS + slot
}

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;
