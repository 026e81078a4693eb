//! A vCPU's firmware features, and what they make of its hart's registers.

use super::{Vcpu, registers};
use ::vcpu::{
    fwft::{self, Feature, Features},
    sbi::Error,
};

/// A vCPU's features, with the registers that follow from them.
#[derive(Clone, Copy, Debug)]
pub struct Environment {
    features: Features,
    registers: fwft::Environment,
    /// Do the registers differ from what all vCPUs have? Kept beside, because every switch asks.
    is_special: bool,
}

impl Environment {
    /// After reset.
    pub fn new() -> Self {
        let features = Features::new(crate::machine::capabilities().guests);
        Self { features, registers: fwft::Environment::default(), is_special: false }
    }

    /// Must registers be changed when the vCPU comes or goes?
    #[inline(always)]
    pub const fn is_special(&self) -> bool {
        self.is_special
    }

    /// The vCPU comes.
    #[cold]
    #[inline(never)]
    pub fn load(&self) {
        registers::set_environment(self.registers.henvcfg, self.registers.not_delegated);
    }

    /// The vCPU goes.
    #[cold]
    #[inline(never)]
    pub fn unload(&self) {
        registers::clear_environment(self.registers.henvcfg, self.registers.not_delegated);
    }

    /// Everything as after reset.
    pub fn reset(&mut self, is_loaded: bool) {
        if is_loaded && self.is_special {
            self.unload();
        }
        *self = Self::new();
    }

    fn set(&mut self, feature: Feature, value: u64, flags: u64) -> Result<(), Error> {
        self.features.set(feature, value, flags)?;
        self.unload();
        self.registers = self.features.environment();
        self.is_special = self.registers != fwft::Environment::default();
        self.load();
        Ok(())
    }
}

impl Vcpu {
    pub(super) fn get_feature(&self, feature: Feature) -> Result<u64, Error> {
        self.environment.features.get(feature)
    }

    /// Loaded vCPUs only.
    pub(super) fn set_feature(&mut self, feature: Feature, value: u64, flags: u64) -> Result<u64, Error> {
        self.environment.set(feature, value, flags).map(|()| 0)
    }
}
