//! One S-level interrupt file in software.
//!
//! A vCPU that gets no hardware guest file traps on `stopei` and `sireg`; the monitor answers from an [`ImsicFile`] and
//! drives `hvip.VSEIP` from [`ImsicFile::is_asserted`]. That alone is not enough where `stopi` is the processor's own
//! (`vstopi` without a guest file): on QEMU 10 it shows an external interrupt only while `hvictl.IID` is 9 and
//! `hvictl.IPRIO` is not 0, and then whether or not VSEIP is set. So `hvictl` has to follow as well, with IID 9 and IPRIO
//! 1 or 0; a guest that finds `stopi` empty takes the same interrupt for ever.
//!
//! When a vCPU gains or loses a hardware file, [`ImsicState`] carries the contents across, register by register
//! ([`Register::select`]).

mod spec;
#[cfg(test)]
mod tests;

use device::Width;
pub use spec::{NoSuchRegister, Register};

/// Most identities of a file: 1..=255, as on QEMU `virt`.
pub const MAX_IDS: u16 = 255;
/// 64-bit words of one bit per identity.
const WORDS: usize = (MAX_IDS as usize + 1) / 64;

/// Where a vCPU's interrupt file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePlace {
    /// It has none, and the hart may have no registers for one.
    Absent,
    /// In software, which wants to interrupt or does not.
    Software {
        /// [`ImsicFile::is_asserted`].
        is_asserted: bool,
    },
    /// In a guest file of the hart, which interrupts by itself.
    Hardware,
}

/// What a hart's registers show a guest of its external interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalLine {
    /// `hvip.VSEIP`.
    pub is_pending: bool,
    /// What `stopi` shows by `hvictl`.
    pub shown: Shown,
}

/// What `hvictl` has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Nothing, and it is not to be touched.
    NoRegister,
    /// Nothing: 0.
    Nothing,
    /// A file in software, which wants to interrupt or does not.
    SoftwareFile(bool),
}

impl ExternalLine {
    /// For a vCPU whose file is in `place`; `level` is what a controller of wires drives.
    #[must_use]
    pub const fn of(place: FilePlace, level: bool) -> Self {
        match place {
            FilePlace::Absent => Self { is_pending: level, shown: Shown::NoRegister },
            FilePlace::Software { is_asserted } => {
                Self { is_pending: level || is_asserted, shown: Shown::SoftwareFile(is_asserted) }
            }
            // What the file in software wanted is in the hart's now, and so is its end.
            FilePlace::Hardware => Self { is_pending: level, shown: Shown::Nothing },
        }
    }
}

/// The contents of an interrupt file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImsicState {
    /// 1: deliver interrupts.
    pub eidelivery: u64,
    /// Identities from this one on are held back; 0 holds none back.
    pub eithreshold: u64,
    /// Pending bits; bit 0 of word 0 is no identity.
    pub eip: [u64; WORDS],
    /// Enable bits.
    pub eie: [u64; WORDS],
}

/// An interrupt file.
///
/// Invariant: only bits of existing identities are set.
#[derive(Clone, Copy, Debug)]
pub struct ImsicFile {
    state: ImsicState,
    /// Bits of identities that exist.
    existing: [u64; WORDS],
}

impl ImsicFile {
    /// An empty file with identities `1..=num_ids`, at most [`MAX_IDS`].
    #[must_use]
    pub fn new(num_ids: u16) -> Self {
        Self::from_state(num_ids, ImsicState::default())
    }

    /// A file with these contents; bits of identities that do not exist are dropped.
    #[must_use]
    pub fn from_state(num_ids: u16, state: ImsicState) -> Self {
        let mut file = Self { state, existing: existing(num_ids.min(MAX_IDS)) };
        file.state.eidelivery &= spec::EIDELIVERY_FILE;
        file.state.eithreshold &= spec::EIID_MASK;
        for (word, existing) in file.existing.into_iter().enumerate() {
            file.state.eip[word] &= existing;
            file.state.eie[word] &= existing;
        }
        file
    }

    /// The contents.
    #[must_use]
    pub const fn state(&self) -> &ImsicState {
        &self.state
    }

    /// The value of a register. Words without identities read as zero.
    #[must_use]
    pub fn read(&self, register: Register) -> u64 {
        match register {
            Register::Eidelivery => self.state.eidelivery,
            Register::Eithreshold => self.state.eithreshold,
            Register::Eip(word) => self.state.eip.get(usize::from(word)).copied().unwrap_or(0),
            Register::Eie(word) => self.state.eie.get(usize::from(word)).copied().unwrap_or(0),
        }
    }

    /// Writes a register; bits that do not exist are dropped.
    pub fn write(&mut self, register: Register, value: u64) {
        let put = |words: &mut [u64; WORDS], word: u8| {
            if let (Some(bits), Some(existing)) =
                (words.get_mut(usize::from(word)), self.existing.get(usize::from(word)))
            {
                *bits = value & existing;
            }
        };
        match register {
            Register::Eidelivery => self.state.eidelivery = value & spec::EIDELIVERY_FILE,
            Register::Eithreshold => self.state.eithreshold = value & spec::EIID_MASK,
            Register::Eip(word) => put(&mut self.state.eip, word),
            Register::Eie(word) => put(&mut self.state.eie, word),
        }
    }

    /// What `stopei` reads: the pending and enabled identity of highest priority (lowest number) below the threshold,
    /// or 0. `eidelivery` has no part in it.
    #[must_use]
    pub fn topei(&self) -> u64 {
        let identity = self.top();
        identity << spec::TOPEI_IDENTITY_SHIFT | identity
    }

    /// A write to `stopei`: claims what it would read, which is returned. The written value is of no account. One
    /// instruction that reads and writes (`csrrw`) sees and claims the same identity.
    pub fn claim(&mut self) -> u64 {
        let topei = self.topei();
        if topei != 0 {
            let identity = (topei & spec::EIID_MASK) as usize;
            self.state.eip[identity / 64] &= !(1 << (identity % 64));
        }
        topei
    }

    /// A message arrives; identities that do not exist are ignored.
    pub fn raise(&mut self, eiid: u16) {
        let (word, bit) = (usize::from(eiid) / 64, 1 << (eiid % 64));
        if let (Some(bits), Some(existing)) = (self.state.eip.get_mut(word), self.existing.get(word)) {
            *bits |= bit & existing;
        }
    }

    /// The level of the hart's external-interrupt input.
    #[must_use]
    pub fn is_asserted(&self) -> bool {
        self.state.eidelivery != 0 && self.top() != 0
    }

    fn top(&self) -> u64 {
        for (word, (eip, eie)) in self.state.eip.iter().zip(&self.state.eie).enumerate() {
            let ready = eip & eie;
            if ready != 0 {
                let identity = word as u64 * 64 + u64::from(ready.trailing_zeros());
                let threshold = self.state.eithreshold;
                return if threshold == 0 || identity < threshold { identity } else { 0 };
            }
        }
        0
    }
}

/// The identity that a guest's store into a file's page makes pending; `None` for stores without effect.
#[must_use]
pub fn decode_msi(offset: u64, width: Width, value: u64) -> Option<u16> {
    if offset != spec::SETEIPNUM_LE || width != Width::Word {
        return None;
    }
    match u16::try_from(width.truncate(value)) {
        Ok(eiid @ 1..=MAX_IDS) => Some(eiid),
        _ => None,
    }
}

/// Bits 1..=num_ids.
fn existing(num_ids: u16) -> [u64; WORDS] {
    core::array::from_fn(|word| {
        let first = word as u32 * 64;
        let count = (u32::from(num_ids) + 1).saturating_sub(first).min(64);
        let bits = u64::MAX.checked_shr(64 - count).unwrap_or(0);
        if word == 0 { bits & !1 } else { bits }
    })
}
