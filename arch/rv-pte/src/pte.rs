//! One page-table entry.

use addr::Mfn;
use bitflags::bitflags;

use crate::Level;

const PPN_SHIFT: u32 = 10;
const PPN_BITS: u32 = 44;
const PPN_MASK: u64 = ((1 << PPN_BITS) - 1) << PPN_SHIFT;
const RSW_SHIFT: u32 = 8;
const RESERVED_MASK: u64 = 0x7f << 54;
const PBMT_SHIFT: u32 = 61;
const N_BIT: u64 = 1 << 63;
/// The only Svnapot size: 64 KiB, marked by `ppn[3:0] = 1000`.
const NAPOT_64K_MARK: u64 = 0b1000;
const NAPOT_64K_MASK: u64 = 0b1111;

bitflags! {
    /// The low eight bits of an entry, named as in the manual.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct PteFlags: u64 {
        /// Valid.
        const V = 1 << 0;
        /// Readable.
        const R = 1 << 1;
        /// Writable.
        const W = 1 << 2;
        /// Executable.
        const X = 1 << 3;
        /// For user mode; every G-stage leaf needs it, because G-stage accesses count as user accesses.
        const U = 1 << 4;
        /// Global: in all address spaces. Ignored (and left clear) in the G-stage.
        const G = 1 << 5;
        /// Accessed.
        const A = 1 << 6;
        /// Dirty.
        const D = 1 << 7;
    }
}

impl PteFlags {
    /// Read and write.
    pub const RW: Self = Self::R.union(Self::W);
    /// Read and execute.
    pub const RX: Self = Self::R.union(Self::X);
    /// Read, write and execute.
    pub const RWX: Self = Self::RW.union(Self::X);
    /// Bits that make an entry a leaf when any is set.
    pub const PERMISSIONS: Self = Self::RWX;
    /// Accessed and dirty preset: hardware never has to write the entry, and Svade never faults on it.
    pub const AD: Self = Self::A.union(Self::D);
}

/// Page-based memory type (Svpbmt).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Pbmt {
    /// As the physical memory attributes say.
    #[default]
    Pma,
    /// Non-cacheable, idempotent, weakly ordered.
    Nc,
    /// Non-cacheable, non-idempotent, strongly ordered.
    Io,
}

/// What a leaf says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// First machine frame that it maps.
    pub frame: Mfn,
    /// Permissions and attributes, [`PteFlags::V`] included.
    pub flags: PteFlags,
    /// Memory type.
    pub pbmt: Pbmt,
    /// Whether it is one of the 16 equal entries of a 64 KiB translation (Svnapot).
    pub is_napot_64k: bool,
}

/// An entry, understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// V = 0: software owns the other bits.
    Invalid,
    /// Points to the table of the next level.
    Table(Mfn),
    /// Ends the walk.
    Leaf(Leaf),
}

/// Why hardware raises a page fault for a valid-looking entry (or an encoder refuses a value).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PteError {
    /// R = 0 with W = 1 is reserved.
    WriteWithoutRead,
    /// Bits 54 to 60 are reserved and not zero.
    ReservedBits,
    /// A leaf above level 0 whose frame is not aligned to its size.
    Misaligned {
        /// The frame named.
        frame: Mfn,
        /// Its level.
        level: Level,
    },
    /// U, A, D, PBMT or N set in a pointer to a table.
    AttributesInPointer,
    /// A pointer where only leaves may be.
    PointerAtLastLevel,
    /// PBMT = 3 is reserved.
    PbmtReserved,
    /// N = 1 above level 0, or with a size other than 64 KiB.
    NapotReserved,
    /// A frame number of more than 44 bits.
    FrameTooLarge {
        /// The frame named.
        frame: Mfn,
    },
    /// A leaf was to be encoded with none of R, W and X.
    NoPermission,
}

/// A raw page-table entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Pte(u64);

impl Pte {
    /// The invalid entry with all bits clear.
    pub const INVALID: Self = Self(0);

    /// Wraps a raw word.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The raw word.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// A leaf at `level` that maps `frame` with `flags` (V is added).
    ///
    /// # Errors
    /// A misaligned or too large frame, W without R, or no permission at all (that would be a pointer).
    #[inline]
    pub const fn leaf(frame: Mfn, level: Level, flags: PteFlags, pbmt: Pbmt) -> Result<Self, PteError> {
        if frame.raw() >> PPN_BITS != 0 {
            return Err(PteError::FrameTooLarge { frame });
        }
        if frame.raw() & (level.entry_pages() - 1) != 0 {
            return Err(PteError::Misaligned { frame, level });
        }
        if !flags.intersects(PteFlags::PERMISSIONS) {
            return Err(PteError::NoPermission);
        }
        if flags.contains(PteFlags::W) && !flags.contains(PteFlags::R) {
            return Err(PteError::WriteWithoutRead);
        }
        let pbmt = (pbmt as u64) << PBMT_SHIFT;
        Ok(Self(frame.raw() << PPN_SHIFT | flags.bits() | PteFlags::V.bits() | pbmt))
    }

    /// A pointer to the table in `frame`.
    ///
    /// # Errors
    /// A frame number of more than 44 bits.
    #[inline]
    pub const fn table(frame: Mfn) -> Result<Self, PteError> {
        if frame.raw() >> PPN_BITS != 0 {
            return Err(PteError::FrameTooLarge { frame });
        }
        Ok(Self(frame.raw() << PPN_SHIFT | PteFlags::V.bits()))
    }

    /// The low eight bits.
    #[must_use]
    #[inline]
    pub const fn flags(self) -> PteFlags {
        PteFlags::from_bits_truncate(self.0)
    }

    /// Whether V is set.
    #[must_use]
    #[inline]
    pub const fn is_valid(self) -> bool {
        self.0 & PteFlags::V.bits() != 0
    }

    /// Whether it is valid and a leaf.
    #[must_use]
    #[inline]
    pub const fn is_leaf(self) -> bool {
        self.is_valid() && self.0 & PteFlags::PERMISSIONS.bits() != 0
    }

    /// Whether it is valid and a pointer to a table.
    #[must_use]
    #[inline]
    pub const fn is_table(self) -> bool {
        self.is_valid() && self.0 & PteFlags::PERMISSIONS.bits() == 0
    }

    /// The frame number field, whatever the entry is (a Svnapot size mark is part of it).
    #[must_use]
    #[inline]
    pub const fn frame(self) -> Mfn {
        Mfn::new((self.0 & PPN_MASK) >> PPN_SHIFT)
    }

    /// The two bits that are software's own.
    #[must_use]
    pub const fn rsw(self) -> u8 {
        (self.0 >> RSW_SHIFT & 0b11) as u8
    }

    /// The same entry with software's two bits set to `rsw & 3`.
    #[must_use]
    pub const fn with_rsw(self, rsw: u8) -> Self {
        Self(self.0 & !(0b11 << RSW_SHIFT) | ((rsw & 0b11) as u64) << RSW_SHIFT)
    }

    /// The same entry with its permission bits replaced. An invalid or pointer entry would change its kind: not
    /// offered for those (the entry comes back unchanged), nor for an empty or reserved permission set.
    #[must_use]
    #[inline]
    pub const fn with_permissions(self, permissions: PteFlags) -> Self {
        let permissions = permissions.intersection(PteFlags::PERMISSIONS);
        let is_reserved = permissions.contains(PteFlags::W) && !permissions.contains(PteFlags::R);
        if !self.is_leaf() || permissions.is_empty() || is_reserved {
            return self;
        }
        Self(self.0 & !PteFlags::PERMISSIONS.bits() | permissions.bits())
    }

    /// Understands an entry found in a table of `level`, as a hardware walker would.
    ///
    /// # Errors
    /// What makes a walker raise a page fault although V = 1.
    pub const fn decode(self, level: Level) -> Result<Decoded, PteError> {
        if !self.is_valid() {
            return Ok(Decoded::Invalid);
        }
        let flags = self.flags();
        if flags.contains(PteFlags::W) && !flags.contains(PteFlags::R) {
            return Err(PteError::WriteWithoutRead);
        }
        if self.0 & RESERVED_MASK != 0 {
            return Err(PteError::ReservedBits);
        }
        if self.is_leaf() { self.decode_leaf(level) } else { self.decode_pointer(level) }
    }

    const fn decode_pointer(self, level: Level) -> Result<Decoded, PteError> {
        let leaf_only = PteFlags::U.union(PteFlags::AD).bits() | 0b11 << PBMT_SHIFT | N_BIT;
        if level.number() == 0 {
            return Err(PteError::PointerAtLastLevel);
        }
        if self.0 & leaf_only != 0 {
            return Err(PteError::AttributesInPointer);
        }
        Ok(Decoded::Table(self.frame()))
    }

    const fn decode_leaf(self, level: Level) -> Result<Decoded, PteError> {
        let pbmt = match self.0 >> PBMT_SHIFT & 0b11 {
            0 => Pbmt::Pma,
            1 => Pbmt::Nc,
            2 => Pbmt::Io,
            _ => return Err(PteError::PbmtReserved),
        };
        let mut frame = self.frame();
        let is_napot_64k = self.0 & N_BIT != 0;
        if is_napot_64k {
            if level.number() != 0 || frame.raw() & NAPOT_64K_MASK != NAPOT_64K_MARK {
                return Err(PteError::NapotReserved);
            }
            frame = Mfn::new(frame.raw() & !NAPOT_64K_MASK);
        }
        if frame.raw() & (level.entry_pages() - 1) != 0 {
            return Err(PteError::Misaligned { frame, level });
        }
        Ok(Decoded::Leaf(Leaf { frame, flags: self.flags(), pbmt, is_napot_64k }))
    }
}

impl core::fmt::Debug for Pte {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "pte:{:#x} {:?} {:?}", self.0, self.frame(), self.flags())
    }
}

#[cfg(test)]
#[path = "pte_tests.rs"]
mod tests;
