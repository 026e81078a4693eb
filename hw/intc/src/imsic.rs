//! Incoming message-signalled interrupt controller: one interrupt file of the hart for itself, one per guest.
//!
//! Advanced Interrupt Architecture 1.0, chapter "Incoming MSI Controller".

use core::num::NonZero;

use crate::{csr::FileRegisters, mmio::Registers};

/// `eidelivery`: 1 lets the file interrupt its hart.
const EIDELIVERY: u16 = 0x70;
/// `eithreshold`: 0 masks nothing.
const EITHRESHOLD: u16 = 0x72;
/// First pending-bits register; on RV64 only even numbers exist, each with 64 bits.
const EIP0: u16 = 0x80;
/// First enable-bits register, likewise.
const EIE0: u16 = 0xc0;
/// Offset of `seteipnum_le` in a file's page.
const SETEIPNUM_LE: usize = 0;
/// Bytes of a file.
const FILE_BYTES: usize = 4096;

/// An interrupt identity of a file: 1 to 2047, smaller is more urgent.
pub type Identity = NonZero<u16>;

/// The current hart's S-level file.
pub struct OwnFile<'a, C> {
    registers: &'a C,
}

impl<'a, C: FileRegisters> OwnFile<'a, C> {
    /// Over the current hart's registers.
    pub const fn new(registers: &'a C) -> Self {
        Self { registers }
    }

    /// Clears and disables identities 1..=`num_ids`, then opens the file: nothing is enabled, nothing masked.
    pub fn reset(&self, num_ids: u32) {
        self.registers.write(EIDELIVERY, 0);
        let last = u16::try_from(num_ids / 64).unwrap_or(31).min(31);
        for word in 0..=last {
            self.registers.write(EIE0 + 2 * word, 0);
            self.registers.write(EIP0 + 2 * word, 0);
        }
        self.registers.write(EITHRESHOLD, 0);
        self.registers.write(EIDELIVERY, 1);
    }

    /// Lets `identity` interrupt.
    pub fn enable(&self, identity: Identity) {
        let (word, bit) = place(identity);
        self.registers.set(EIE0 + word, bit);
    }

    /// Keeps `identity` pending without interrupting.
    pub fn disable(&self, identity: Identity) {
        let (word, bit) = place(identity);
        self.registers.clear(EIE0 + word, bit);
    }

    /// Takes the most urgent pending identity, if any.
    #[inline]
    pub fn claim(&self) -> Option<Identity> {
        // The identity is in bits 16..27 of `stopei`, its priority (the same number) in bits 0..11.
        let identity = self.registers.claim_top() >> 16 & 0x7ff;
        NonZero::new(identity as u16)
    }
}

/// Register offset and bit of an identity.
fn place(identity: Identity) -> (u16, u64) {
    let identity = identity.get();
    (identity / 64 * 2, 1 << (identity % 64))
}

/// The pages of a hart's files, as anyone may store to them: the S-level file, then guest files.
#[derive(Debug)]
pub struct FilePages<R> {
    registers: R,
}

impl<R: Registers> FilePages<R> {
    /// Over the pages of one hart.
    pub const fn new(registers: R) -> Self {
        Self { registers }
    }

    /// Sends an MSI to file `guest` of the hart (0 is the S-level file). False if there is no such page.
    #[inline]
    pub fn send(&self, guest: u32, identity: Identity) -> bool {
        let offset = (guest as usize).saturating_mul(FILE_BYTES);
        let exists = offset.checked_add(FILE_BYTES).is_some_and(|end| end <= self.registers.bytes());
        if exists {
            self.registers.write(offset + SETEIPNUM_LE, u32::from(identity.get()));
        }
        exists
    }
}
