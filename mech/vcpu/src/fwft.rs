//! Firmware features of one vCPU (SBI specification, "Firmware Features Extension").
//!
//! A feature belongs to the vCPU, goes with it from hart to hart, outlasts a non-retentive suspend, and is reset when the
//! vCPU starts.

use crate::sbi::{Answer, Error};
use rv::fields::{henvcfg, misaligned};
use sbi_spec::fwft::feature_type;

/// A feature that the specification defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Feature {
    /// Misaligned loads and stores trap into the guest's kernel, where they trap at all.
    MisalignedDelegation,
    /// Landing pads in S-mode (Zicfilp).
    LandingPad,
    /// Shadow stacks in S-mode (Zicfiss).
    ShadowStack,
    /// Double traps (Ssdbltrp).
    DoubleTrap,
    /// Hardware that writes A and D bits (Svadu).
    PageTableUpdates,
    /// Bits at the top of an address that S-mode leaves out (Ssnpm).
    PointerMasking,
}

const FEATURES: usize = 6;

impl Feature {
    /// The feature with this number.
    ///
    /// # Errors
    /// `Denied` for numbers that are reserved or a platform's own.
    pub const fn decode(number: u32) -> Result<Self, Error> {
        Ok(match number as usize {
            feature_type::MISALIGNED_EXC_DELEG => Self::MisalignedDelegation,
            feature_type::LANDING_PAD => Self::LandingPad,
            feature_type::SHADOW_STACK => Self::ShadowStack,
            feature_type::DOUBLE_TRAP => Self::DoubleTrap,
            feature_type::PTE_AD_HW_UPDATING => Self::PageTableUpdates,
            feature_type::POINTER_MASKING_PMLEN => Self::PointerMasking,
            _ => return Err(Error::Denied),
        })
    }
}

/// What guests of this machine can have.
///
/// Landing pads and shadow stacks are withheld from all guests: their harts' ISA strings do not name them. Hardware updates of page
/// tables are, too: the walker would write A and D bits through read-only pages, and shared memory would leak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Support {
    /// The harts do misaligned accesses themselves (Zicclsm): a guest may give up the traps, as there are none.
    pub does_misaligned: bool,
    /// A double trap of a guest comes to the monitor.
    pub double_trap: bool,
    /// 7 bits can be left out.
    pub masks_7: bool,
    /// 16 bits can be left out.
    pub masks_16: bool,
}

/// `henvcfg` and `hedeleg` as a vCPU's features want them, beside what all vCPUs have there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// To be set in `henvcfg`.
    pub henvcfg: u64,
    /// To be taken out of `hedeleg`.
    pub not_delegated: u64,
}

/// A vCPU's features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    support: Support,
    values: [u8; FEATURES],
    /// By number of the feature.
    locked: u8,
}

/// The only flag of `fwft_set`.
const LOCK: u64 = 1;

impl Features {
    /// After reset.
    #[must_use]
    pub const fn new(support: Support) -> Self {
        let mut values = [0; FEATURES];
        values[Feature::MisalignedDelegation as usize] = 1;
        Self { support, values, locked: 0 }
    }

    /// The feature's value.
    ///
    /// # Errors
    /// `NotSupported`.
    pub const fn get(&self, feature: Feature) -> Answer {
        if self.is_supported(feature) { Ok(self.values[feature as usize] as u64) } else { Err(Error::NotSupported) }
    }

    /// Gives the feature a value, and locks it until reset if bit 0 of `flags` is set.
    ///
    /// # Errors
    /// `NotSupported`; `InvalidParam` for a value or flag that means nothing; `DeniedLocked`; `Denied` for a value that these
    /// harts cannot have.
    pub fn set(&mut self, feature: Feature, value: u64, flags: u64) -> Result<(), Error> {
        let old = self.get(feature)?;
        if flags & !LOCK != 0 || !is_value(feature, value) {
            return Err(Error::InvalidParam);
        }
        let bit = 1 << feature as u8;
        if self.locked & bit != 0 {
            return Err(Error::DeniedLocked);
        }
        if value != old && !self.can_be(feature, value) {
            return Err(Error::Denied);
        }
        self.values[feature as usize] = value as u8;
        if flags & LOCK != 0 {
            self.locked |= bit;
        }
        Ok(())
    }

    /// What the hart must be set to while the vCPU is on it.
    #[must_use]
    pub const fn environment(&self) -> Environment {
        let double_trap = if self.values[Feature::DoubleTrap as usize] != 0 { henvcfg::DTE } else { 0 };
        let masking = match self.values[Feature::PointerMasking as usize] {
            7 => henvcfg::PMM_7,
            16 => henvcfg::PMM_16,
            _ => 0,
        };
        let delegates = self.values[Feature::MisalignedDelegation as usize] != 0;
        Environment { henvcfg: double_trap | masking, not_delegated: if delegates { 0 } else { misaligned::DELEGATED } }
    }

    const fn is_supported(&self, feature: Feature) -> bool {
        match feature {
            Feature::MisalignedDelegation => true,
            Feature::LandingPad | Feature::ShadowStack | Feature::PageTableUpdates => false,
            Feature::DoubleTrap => self.support.double_trap,
            Feature::PointerMasking => self.support.masks_7 || self.support.masks_16,
        }
    }

    const fn can_be(&self, feature: Feature, value: u64) -> bool {
        match (feature, value) {
            (Feature::MisalignedDelegation, 0) => self.support.does_misaligned,
            (Feature::PointerMasking, 7) => self.support.masks_7,
            (Feature::PointerMasking, 16) => self.support.masks_16,
            _ => true,
        }
    }
}

/// Whether the specification has this value for `feature`.
const fn is_value(feature: Feature, value: u64) -> bool {
    match feature {
        Feature::PointerMasking => matches!(value, 0 | 7 | 16),
        _ => value <= 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Support = Support { does_misaligned: true, double_trap: true, masks_7: true, masks_16: false };

    #[test]
    fn numbers() {
        for (number, feature) in
            [(0, Feature::MisalignedDelegation), (3, Feature::DoubleTrap), (5, Feature::PointerMasking)]
        {
            assert_eq!(Feature::decode(number), Ok(feature));
        }
        for number in [6, 0x3fff_ffff, 0x4000_0000, 0x8000_0000, 0xbfff_ffff, 0xc000_0000, u32::MAX] {
            assert_eq!(Feature::decode(number), Err(Error::Denied), "{number:#x}");
        }
    }

    #[test]
    fn reset_values() {
        let features = Features::new(ALL);
        assert_eq!(features.get(Feature::MisalignedDelegation), Ok(1));
        assert_eq!(features.get(Feature::DoubleTrap), Ok(0));
        assert_eq!(features.get(Feature::PointerMasking), Ok(0));
        assert_eq!(features.environment(), Environment::default(), "what all vCPUs have");
    }

    #[test]
    fn what_guests_never_get() {
        let mut features = Features::new(ALL);
        for feature in [Feature::LandingPad, Feature::ShadowStack, Feature::PageTableUpdates] {
            assert_eq!(features.get(feature), Err(Error::NotSupported));
            assert_eq!(features.set(feature, 0, 0), Err(Error::NotSupported));
            assert_eq!(features.set(feature, 9, 9), Err(Error::NotSupported));
        }
    }

    #[test]
    fn what_this_machine_lacks() {
        let mut features = Features::new(Support::default());
        assert_eq!(features.get(Feature::DoubleTrap), Err(Error::NotSupported));
        assert_eq!(features.set(Feature::PointerMasking, 7, 0), Err(Error::NotSupported));
        assert_eq!(
            features.set(Feature::MisalignedDelegation, 0, 0),
            Err(Error::Denied),
            "somebody must handle the traps"
        );
        assert_eq!(features.set(Feature::MisalignedDelegation, 1, 0), Ok(()), "it has that value");
    }

    #[test]
    fn values_and_flags() {
        let mut features = Features::new(ALL);
        for (value, flags) in [(2, 0), (u64::MAX, 0), (1 << 32, 0), (0, 2), (0, 1 << 32), (1, 3)] {
            assert_eq!(features.set(Feature::DoubleTrap, value, flags), Err(Error::InvalidParam));
        }
        assert_eq!(features.set(Feature::PointerMasking, 8, 0), Err(Error::InvalidParam));
        assert_eq!(features.set(Feature::PointerMasking, 16, 0), Err(Error::Denied));
        assert_eq!(features.set(Feature::PointerMasking, 7, 0), Ok(()));
        assert_eq!(features.set(Feature::DoubleTrap, 1, 0), Ok(()));
        assert_eq!(features.set(Feature::MisalignedDelegation, 0, 0), Ok(()));
        let wanted = Environment { henvcfg: henvcfg::DTE | henvcfg::PMM_7, not_delegated: misaligned::DELEGATED };
        assert_eq!(features.environment(), wanted);
    }

    #[test]
    fn locks_hold_until_reset() {
        let mut features = Features::new(ALL);
        assert_eq!(features.set(Feature::DoubleTrap, 1, LOCK), Ok(()));
        for (value, flags) in [(0, 0), (1, 0), (0, LOCK), (1, LOCK)] {
            assert_eq!(features.set(Feature::DoubleTrap, value, flags), Err(Error::DeniedLocked));
        }
        assert_eq!(features.get(Feature::DoubleTrap), Ok(1));
        assert_eq!(features.set(Feature::PointerMasking, 7, 0), Ok(()), "each has a lock of its own");
    }
}
