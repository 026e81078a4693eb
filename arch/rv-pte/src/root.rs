//! The registers that name a root table.

use addr::{Mfn, Vmid};

use crate::Mode;

const PPN_BITS: u32 = 44;
const PPN_MASK: u64 = (1 << PPN_BITS) - 1;
const MODE_SHIFT: u32 = 60;
const ASID_SHIFT: u32 = 44;
const VMID_SHIFT: u32 = 44;
const VMID_MASK: u64 = (1 << 14) - 1;

/// Why a root register value is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootError {
    /// The MODE field holds a reserved value.
    ReservedMode {
        /// The field.
        field: u64,
    },
    /// A scheme of the other stage.
    WrongStage {
        /// The scheme given.
        mode: Mode,
    },
    /// The root's frame number has more than 44 bits, or is not aligned to the root's size.
    BadRoot {
        /// The frame given.
        frame: Mfn,
    },
    /// A VMID of more than 14 bits.
    BadVmid {
        /// The tag given.
        vmid: Vmid,
    },
    /// MODE = Bare with other fields not zero.
    BareWithFields,
}

/// A value of `satp` or `vsatp` with translation on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Satp {
    /// The scheme: one of the one-stage ones.
    pub mode: Mode,
    /// Address-space tag.
    pub asid: u16,
    /// The root table.
    pub root: Mfn,
}

impl Satp {
    /// The register's word for no translation.
    pub const BARE: u64 = 0;

    /// The register's word.
    ///
    /// # Errors
    /// A G-stage scheme or a root beyond 44 bits.
    pub const fn encode(self) -> Result<u64, RootError> {
        if self.mode.is_g_stage() {
            return Err(RootError::WrongStage { mode: self.mode });
        }
        if self.root.raw() > PPN_MASK {
            return Err(RootError::BadRoot { frame: self.root });
        }
        Ok(self.mode.field() << MODE_SHIFT | (self.asid as u64) << ASID_SHIFT | self.root.raw())
    }

    /// Understands a word; `None` is Bare. `vsatp` may come from a guest: any word is answered.
    ///
    /// # Errors
    /// A reserved mode. Fields beside MODE = Bare are ignored here, as hardware may.
    pub const fn decode(raw: u64) -> Result<Option<Self>, RootError> {
        let field = raw >> MODE_SHIFT;
        if field == 0 {
            return Ok(None);
        }
        match Mode::from_satp_field(field) {
            Some(mode) => {
                Ok(Some(Self { mode, asid: (raw >> ASID_SHIFT & 0xffff) as u16, root: Mfn::new(raw & PPN_MASK) }))
            }
            None => Err(RootError::ReservedMode { field }),
        }
    }
}

/// A value of `hgatp` with translation on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hgatp {
    /// The scheme: one of the G-stage ones.
    pub mode: Mode,
    /// The tag of the TLB entries made from this table.
    pub vmid: Vmid,
    /// First frame of the 16 KiB root.
    pub root: Mfn,
}

impl Hgatp {
    /// The register's word for no G-stage translation.
    pub const BARE: u64 = 0;

    /// `word`, which was encoded with VMID 0, under another VMID. Only the bits of the field count.
    #[inline(always)]
    #[must_use]
    pub const fn with_vmid(word: u64, vmid: Vmid) -> u64 {
        debug_assert!(vmid.0 as u64 <= VMID_MASK);
        word | (vmid.0 as u64) << VMID_SHIFT
    }

    /// The register's word.
    ///
    /// # Errors
    /// A one-stage scheme, a root that is not 16 KiB-aligned, a VMID of more than 14 bits.
    #[inline]
    pub const fn encode(self) -> Result<u64, RootError> {
        if !self.mode.is_g_stage() {
            return Err(RootError::WrongStage { mode: self.mode });
        }
        if self.root.raw() > PPN_MASK || self.root.raw() & 0b11 != 0 {
            return Err(RootError::BadRoot { frame: self.root });
        }
        if self.vmid.0 as u64 > VMID_MASK {
            return Err(RootError::BadVmid { vmid: self.vmid });
        }
        Ok(self.mode.field() << MODE_SHIFT | (self.vmid.0 as u64) << VMID_SHIFT | self.root.raw())
    }

    /// Understands a word; `None` is Bare.
    ///
    /// # Errors
    /// A reserved mode, a misaligned root, or fields beside MODE = Bare.
    pub const fn decode(raw: u64) -> Result<Option<Self>, RootError> {
        let field = raw >> MODE_SHIFT;
        if field == 0 {
            return if raw == 0 { Ok(None) } else { Err(RootError::BareWithFields) };
        }
        let root = Mfn::new(raw & PPN_MASK);
        if root.raw() & 0b11 != 0 {
            return Err(RootError::BadRoot { frame: root });
        }
        match Mode::from_hgatp_field(field) {
            Some(mode) => Ok(Some(Self { mode, vmid: Vmid((raw >> VMID_SHIFT & VMID_MASK) as u16), root })),
            None => Err(RootError::ReservedMode { field }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_computed_by_hand() {
        let hgatp = Hgatp { mode: Mode::Sv39x4, vmid: Vmid(0x1a5), root: Mfn::new(0x8_0004) };
        assert_eq!(hgatp.encode(), Ok(0x801a_5000_0008_0004));
        let satp = Satp { mode: Mode::Sv57, asid: 0xffff, root: Mfn::new(0x8_0001) };
        assert_eq!(satp.encode(), Ok(0xafff_f000_0008_0001));
        assert_eq!(Satp::decode(Satp::BARE), Ok(None));
    }

    #[test]
    fn wrong_values_are_refused() {
        let good = Hgatp { mode: Mode::Sv39x4, vmid: Vmid(1), root: Mfn::new(4) };
        let root = Mfn::new(5);
        assert_eq!(Hgatp { root, ..good }.encode(), Err(RootError::BadRoot { frame: root }));
        assert_eq!(Hgatp { vmid: Vmid(1 << 14), ..good }.encode(), Err(RootError::BadVmid { vmid: Vmid(1 << 14) }));
        assert_eq!(Hgatp { mode: Mode::Sv39, ..good }.encode(), Err(RootError::WrongStage { mode: Mode::Sv39 }));
        assert_eq!(Hgatp::decode(1), Err(RootError::BareWithFields));
        assert_eq!(Satp::decode(1 << 60), Err(RootError::ReservedMode { field: 1 }));
    }

    proptest! {
        #[test]
        fn any_word_is_refused_or_round_trips(raw: u64) {
            if let Ok(Some(hgatp)) = Hgatp::decode(raw) {
                // Bits 58 and 59 are reserved, written as zero.
                prop_assert_eq!(hgatp.encode(), Ok(raw & !(0b11 << 58)));
            }
            if let Ok(Some(satp)) = Satp::decode(raw) {
                prop_assert_eq!(satp.encode(), Ok(raw));
            }
        }
    }
}
