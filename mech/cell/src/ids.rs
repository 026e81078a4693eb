//! Cells, sets of them, and which set holds.

use crate::board::CELLS;

/// The number of a cell, the same for the whole machine: 0 to [`CELLS`] - 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellId(u8);

impl CellId {
    /// Cell 0.
    pub const FIRST: Self = Self(0);

    /// Cell `number`, if there can be one.
    pub const fn new(number: usize) -> Option<Self> {
        if number < CELLS { Some(Self(number as u8)) } else { None }
    }

    /// The number as an index into tables of [`CELLS`] entries.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// All cells there can be, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..CELLS as u8).map(Self)
    }
}

/// A set of cells, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CellSet(u8);

const _: () = assert!(CELLS == u8::BITS as usize, "one bit for each cell");

impl CellSet {
    /// No cell.
    pub const EMPTY: Self = Self(0);

    /// The cells whose bits are set.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// One bit for each cell.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether `cell` is in it.
    pub const fn contains(self, cell: CellId) -> bool {
        self.0 & 1 << cell.0 != 0
    }

    /// The set and `cell`.
    #[must_use]
    pub const fn with(self, cell: CellId) -> Self {
        Self(self.0 | 1 << cell.0)
    }

    /// The set without the cells of `other`.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The cells of both sets.
    #[must_use]
    pub const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The cells of either set.
    #[must_use]
    pub const fn either(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// How many cells it has.
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Its cells in order.
    pub fn iter(self) -> impl Iterator<Item = CellId> {
        CellId::all().filter(move |&cell| self.contains(cell))
    }
}

/// Which cells go on together, as one of them sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// Grows with each set that follows another. A call belongs to one epoch.
    pub epoch: u16,
    /// The cells that go on.
    pub members: CellSet,
}

impl View {
    /// The view as one word of a board. No view is the word 0.
    pub const fn word(self) -> u64 {
        (self.epoch as u64) << 8 | self.members.bits() as u64
    }

    /// The view that a word of a board says.
    pub const fn from_word(word: u64) -> Self {
        Self { epoch: (word >> 8) as u16, members: CellSet::from_bits(word as u8) }
    }
}
