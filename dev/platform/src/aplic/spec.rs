//! Register layout of an interrupt domain (RISC-V Advanced Interrupt Architecture 1.0, "Advanced Platform-Level Interrupt
//! Controller", section "Memory-mapped control region for an interrupt domain").

use crate::controller::set_of;

/// Domain configuration.
const DOMAINCFG: u64 = 0x0000;
/// `sourcecfg[n]` at `4 * n`.
const SOURCECFG_LAST: u64 = 0x0ffc;
const SETIP: u64 = 0x1c00;
const SETIPNUM: u64 = 0x1cdc;
const IN_CLRIP: u64 = 0x1d00;
const CLRIPNUM: u64 = 0x1ddc;
const SETIE: u64 = 0x1e00;
const SETIENUM: u64 = 0x1edc;
const CLRIE: u64 = 0x1f00;
const CLRIENUM: u64 = 0x1fdc;
const SETIPNUM_LE: u64 = 0x2000;
const SETIPNUM_BE: u64 = 0x2004;
const GENMSI: u64 = 0x3000;
/// `target[n]` at `0x3000 + 4 * n`.
const TARGET_LAST: u64 = 0x3ffc;
/// Bytes of an array of one bit per source.
const BITS_BYTES: u64 = 0x80;

/// `domaincfg`: the top byte is fixed.
pub(super) const DOMAINCFG_FIXED: u32 = 0x8000_0000;
/// `domaincfg.IE`: interrupts may leave.
pub(super) const DOMAINCFG_IE: u32 = 1 << 8;
/// `domaincfg.DM`: as messages.
pub(super) const DOMAINCFG_DM: u32 = 1 << 2;
/// `sourcecfg.D`: delegated to a child.
pub(super) const SOURCECFG_D: u32 = 1 << 10;
/// `target` in MSI mode: hart index, guest index, identity.
pub(super) const TARGET_MASK: u32 = 0xffff_f7ff;
/// `genmsi`: hart index and identity.
pub(super) const GENMSI_MASK: u32 = 0xfffc_07ff;
/// Where the hart index starts.
pub(super) const HART_INDEX_SHIFT: u32 = 18;
/// Where the guest index starts.
pub(super) const GUEST_INDEX_SHIFT: u32 = 12;
/// Bits of the guest index.
pub(super) const GUEST_INDEX_MASK: u32 = 0x3f;
/// Bits of the identity.
pub(super) const EIID_MASK: u32 = 0x7ff;

/// How a source's wire makes its pending bit: `sourcecfg.SM`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SourceMode {
    /// Not in this domain.
    #[default]
    Inactive = 0,
    /// Pending by register writes alone.
    Detached = 1,
    /// Rising edge.
    Edge1 = 4,
    /// Falling edge.
    Edge0 = 5,
    /// High.
    Level1 = 6,
    /// Low.
    Level0 = 7,
}

impl SourceMode {
    /// From a written `sourcecfg`. There is no child to delegate to, which makes the whole register zero; reserved
    /// modes are inactive.
    pub(super) const fn decode(sourcecfg: u32) -> Self {
        if sourcecfg & SOURCECFG_D != 0 {
            return Self::Inactive;
        }
        match sourcecfg & 7 {
            1 => Self::Detached,
            4 => Self::Edge1,
            5 => Self::Edge0,
            6 => Self::Level1,
            7 => Self::Level0,
            _ => Self::Inactive,
        }
    }

    /// Whether the mode listens to the wire.
    pub(super) const fn is_wired(self) -> bool {
        !matches!(self, Self::Inactive | Self::Detached)
    }

    /// Whether the wire's low state is the active one.
    pub(super) const fn is_inverted(self) -> bool {
        matches!(self, Self::Edge0 | Self::Level0)
    }

    /// Whether the level counts, not the edge.
    pub(super) const fn is_level(self) -> bool {
        matches!(self, Self::Level1 | Self::Level0)
    }
}

/// A register that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Register {
    /// `domaincfg`.
    DomainCfg,
    /// `sourcecfg[n]`.
    SourceCfg(u64),
    /// `setip[k]`.
    SetPending(u64),
    /// `in_clrip[k]`: reads the rectified inputs, writes clear pending bits.
    InputClearPending(u64),
    /// `setie[k]`.
    SetEnable(u64),
    /// `clrie[k]`.
    ClearEnable(u64),
    /// `setipnum`, `setipnum_le`.
    SetPendingNumber,
    /// `setipnum_be`.
    SetPendingNumberBig,
    /// `clripnum`.
    ClearPendingNumber,
    /// `setienum`.
    SetEnableNumber,
    /// `clrienum`.
    ClearEnableNumber,
    /// `genmsi`.
    GenMsi,
    /// `target[n]`.
    Target(u64),
}

impl Register {
    /// Decodes an offset that is a multiple of 4.
    pub(super) const fn decode(offset: u64) -> Option<Self> {
        Some(match offset {
            DOMAINCFG => Self::DomainCfg,
            4..=SOURCECFG_LAST => Self::SourceCfg(offset / 4),
            SETIPNUM | SETIPNUM_LE => Self::SetPendingNumber,
            SETIPNUM_BE => Self::SetPendingNumberBig,
            CLRIPNUM => Self::ClearPendingNumber,
            SETIENUM => Self::SetEnableNumber,
            CLRIENUM => Self::ClearEnableNumber,
            GENMSI => Self::GenMsi,
            0x3004..=TARGET_LAST => Self::Target((offset - GENMSI) / 4),
            _ => return Self::decode_bits(offset),
        })
    }

    /// Arrays of one bit per source, at 1.75 to 2 KiB from 4 KiB in steps of 256 bytes.
    const fn decode_bits(offset: u64) -> Option<Self> {
        let word = offset % 0x100 / 4;
        if offset % 0x100 >= BITS_BYTES {
            return None;
        }
        match offset & !0xff {
            SETIP => Some(Self::SetPending(word)),
            IN_CLRIP => Some(Self::InputClearPending(word)),
            SETIE => Some(Self::SetEnable(word)),
            CLRIE => Some(Self::ClearEnable(word)),
            _ => None,
        }
    }
}

/// The sources that a write of `value` to an array's word names; the caller masks those that exist.
pub(super) const fn named(word: u64, value: u32) -> u128 {
    set_of(word, value)
}
