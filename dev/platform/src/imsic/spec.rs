//! Indirectly accessed registers of an interrupt file (RISC-V Advanced Interrupt Architecture 1.0, "Incoming MSI
//! Controller", section "Interrupt file registers").

/// `eidelivery`.
const EIDELIVERY: u64 = 0x70;
/// `eithreshold`.
const EITHRESHOLD: u64 = 0x72;
/// `eip0` to `eip63`.
const EIP0: u64 = 0x80;
const EIP63: u64 = 0xbf;
/// `eie0` to `eie63`.
const EIE0: u64 = 0xc0;
const EIE63: u64 = 0xff;

/// The only register of a file's page that does something: `seteipnum_le`.
pub(super) const SETEIPNUM_LE: u64 = 0;
/// `eidelivery`: deliver from the file.
pub(super) const EIDELIVERY_FILE: u64 = 1;
/// Bits of an identity in `eithreshold` and `topei`.
pub(super) const EIID_MASK: u64 = 0x7ff;
/// `topei` has the identity twice: as such, and below as the priority.
pub(super) const TOPEI_IDENTITY_SHIFT: u32 = 16;

/// What `siselect` selects in an interrupt file of a 64-bit hart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// `eidelivery`.
    Eidelivery,
    /// `eithreshold`.
    Eithreshold,
    /// 64 pending bits, by word: `eip0` is word 0, `eip2` word 1.
    Eip(u8),
    /// 64 enable bits, by word.
    Eie(u8),
}

/// The selected register does not exist: the access is a virtual-instruction exception for the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchRegister;

impl Register {
    /// The register that a value of `siselect` selects.
    ///
    /// # Errors
    /// [`NoSuchRegister`] for reserved numbers and, as on every 64-bit hart, odd-numbered `eip` and `eie`.
    pub const fn decode(select: u64) -> Result<Self, NoSuchRegister> {
        match select {
            EIDELIVERY => Ok(Self::Eidelivery),
            EITHRESHOLD => Ok(Self::Eithreshold),
            EIP0..=EIP63 if select.is_multiple_of(2) => Ok(Self::Eip(((select - EIP0) / 2) as u8)),
            EIE0..=EIE63 if select.is_multiple_of(2) => Ok(Self::Eie(((select - EIE0) / 2) as u8)),
            _ => Err(NoSuchRegister),
        }
    }

    /// The value of `siselect` for this register.
    #[must_use]
    pub const fn select(self) -> u64 {
        match self {
            Self::Eidelivery => EIDELIVERY,
            Self::Eithreshold => EITHRESHOLD,
            Self::Eip(word) => EIP0 + 2 * word as u64,
            Self::Eie(word) => EIE0 + 2 * word as u64,
        }
    }
}
