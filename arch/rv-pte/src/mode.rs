//! Paging schemes and their geometry.

use addr::{BASE_PAGE_SHIFT, PageSize};

/// log2 of the entries in an ordinary table page.
const INDEX_BITS: u32 = 9;
/// A G-stage root has two more index bits than any other table ("Sv39x4": the root is 16 KiB).
const X4_EXTRA_BITS: u32 = 2;

/// A level of a page table, counted from the leaves: a leaf at level `l` maps `4 KiB << 9 * l`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u8);

impl Level {
    /// Leaves of 4 KiB.
    pub const BASE: Self = Self(0);
    /// Leaves of 2 MiB.
    pub const LARGE: Self = Self(1);
    /// Leaves of 1 GiB.
    pub const GIGA: Self = Self(2);

    /// The level with this number (0..=4), or `None` beyond the deepest scheme.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if number <= 4 { Some(Self(number)) } else { None }
    }

    /// The level whose leaves have this size.
    #[must_use]
    pub const fn of(size: PageSize) -> Self {
        match size {
            PageSize::Base => Self::BASE,
            PageSize::Large => Self::LARGE,
        }
    }

    /// The number of this level.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The next level towards the leaves; `None` at the last.
    #[must_use]
    pub const fn down(self) -> Option<Self> {
        match self.0 {
            0 => None,
            n => Some(Self(n - 1)),
        }
    }

    /// Lowest address bit of this level's index.
    #[must_use]
    pub const fn shift(self) -> u32 {
        BASE_PAGE_SHIFT + INDEX_BITS * self.0 as u32
    }

    /// Bytes mapped by one entry of this level.
    #[must_use]
    pub const fn entry_bytes(self) -> u64 {
        1 << self.shift()
    }

    /// Base pages mapped by one entry of this level.
    #[must_use]
    pub const fn entry_pages(self) -> u64 {
        1 << (INDEX_BITS * self.0 as u32)
    }
}

/// A paging scheme: `Sv*` for one stage (and the VS-stage), `Sv*x4` for the G-stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Three levels, 39-bit virtual addresses.
    Sv39,
    /// Four levels, 48-bit virtual addresses.
    Sv48,
    /// Five levels, 57-bit virtual addresses.
    Sv57,
    /// Three levels, 41-bit guest-physical addresses, 16 KiB root.
    Sv39x4,
    /// Four levels, 50-bit guest-physical addresses, 16 KiB root.
    Sv48x4,
    /// Five levels, 59-bit guest-physical addresses, 16 KiB root.
    Sv57x4,
}

impl Mode {
    /// Number of levels.
    #[must_use]
    pub const fn levels(self) -> u8 {
        match self {
            Self::Sv39 | Self::Sv39x4 => 3,
            Self::Sv48 | Self::Sv48x4 => 4,
            Self::Sv57 | Self::Sv57x4 => 5,
        }
    }

    /// Whether this is a scheme of the G-stage.
    #[must_use]
    pub const fn is_g_stage(self) -> bool {
        match self {
            Self::Sv39 | Self::Sv48 | Self::Sv57 => false,
            Self::Sv39x4 | Self::Sv48x4 | Self::Sv57x4 => true,
        }
    }

    /// The level of the root table.
    #[must_use]
    pub const fn root_level(self) -> Level {
        Level(self.levels() - 1)
    }

    /// Significant bits of an input address.
    #[must_use]
    pub const fn input_bits(self) -> u32 {
        let plain = BASE_PAGE_SHIFT + INDEX_BITS * self.levels() as u32;
        if self.is_g_stage() { plain + X4_EXTRA_BITS } else { plain }
    }

    /// log2 of the root table's size in base pages: also the alignment that it needs.
    #[must_use]
    pub const fn root_order(self) -> u8 {
        if self.is_g_stage() { X4_EXTRA_BITS as u8 } else { 0 }
    }

    /// Entries in a table of `level`.
    #[must_use]
    pub const fn entries(self, level: Level) -> usize {
        if self.is_g_stage() && level.0 == self.root_level().0 {
            1 << (INDEX_BITS + X4_EXTRA_BITS)
        } else {
            1 << INDEX_BITS
        }
    }

    /// The index into a table of `level` for the input address `input`.
    #[must_use]
    pub const fn index(self, level: Level, input: u64) -> usize {
        (input >> level.shift()) as usize & (self.entries(level) - 1)
    }

    /// Whether the hart translates `input` at all. One-stage schemes want it sign-extended from the top significant
    /// bit, the G-stage wants zeros above ("Guest physical address widths").
    #[must_use]
    pub const fn accepts(self, input: u64) -> bool {
        let unused = 64 - self.input_bits();
        if self.is_g_stage() {
            input >> self.input_bits() == 0
        } else {
            ((input as i64) << unused) >> unused == input as i64
        }
    }

    /// The MODE field of `satp`, `vsatp` or `hgatp`: the numbers are the same in all three.
    #[must_use]
    pub const fn field(self) -> u64 {
        match self {
            Self::Sv39 | Self::Sv39x4 => 8,
            Self::Sv48 | Self::Sv48x4 => 9,
            Self::Sv57 | Self::Sv57x4 => 10,
        }
    }

    /// The one-stage scheme with this MODE field; `None` for Bare (0) and reserved values.
    #[must_use]
    pub const fn from_satp_field(field: u64) -> Option<Self> {
        match field {
            8 => Some(Self::Sv39),
            9 => Some(Self::Sv48),
            10 => Some(Self::Sv57),
            _ => None,
        }
    }

    /// The G-stage scheme with this MODE field; `None` for Bare (0) and reserved values.
    #[must_use]
    pub const fn from_hgatp_field(field: u64) -> Option<Self> {
        match field {
            8 => Some(Self::Sv39x4),
            9 => Some(Self::Sv48x4),
            10 => Some(Self::Sv57x4),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Mode; 6] = [Mode::Sv39, Mode::Sv48, Mode::Sv57, Mode::Sv39x4, Mode::Sv48x4, Mode::Sv57x4];

    #[test]
    fn widths_are_those_of_the_manual() {
        assert_eq!(ALL.map(Mode::input_bits), [39, 48, 57, 41, 50, 59]);
        assert_eq!(Mode::Sv39x4.entries(Level::GIGA), 2048);
        assert_eq!(Mode::Sv39x4.entries(Level::LARGE), 512);
        assert_eq!(Mode::Sv48x4.entries(Level::GIGA), 512);
        assert_eq!(Mode::Sv39.entries(Level::GIGA), 512);
        assert_eq!(Level::GIGA.entry_bytes(), 1 << 30);
        assert_eq!(Level::LARGE.entry_pages(), 512);
    }

    #[test]
    fn indices_partition_the_input() {
        for mode in ALL {
            let input = (1u64 << mode.input_bits()) - 1;
            let mut level = Some(mode.root_level());
            let mut rebuilt = 0xfff;
            while let Some(l) = level {
                rebuilt |= (mode.index(l, input) as u64) << l.shift();
                level = l.down();
            }
            assert_eq!(rebuilt, input, "{mode:?}");
        }
    }

    #[test]
    fn addresses_out_of_range_are_not_accepted() {
        assert!(Mode::Sv39.accepts(0x3f_ffff_ffff) && !Mode::Sv39.accepts(0x40_0000_0000));
        assert!(Mode::Sv39.accepts(0xffff_ffc0_0000_0000));
        assert!(Mode::Sv39x4.accepts(0x1ff_ffff_ffff) && !Mode::Sv39x4.accepts(0x200_0000_0000));
        assert!(!Mode::Sv57x4.accepts(u64::MAX));
    }

    #[test]
    fn mode_fields_round_trip() {
        for mode in ALL {
            let back = if mode.is_g_stage() {
                Mode::from_hgatp_field(mode.field())
            } else {
                Mode::from_satp_field(mode.field())
            };
            assert_eq!(back, Some(mode));
        }
        assert_eq!(Mode::from_satp_field(0), None);
        assert_eq!(Mode::from_hgatp_field(11), None);
    }
}
