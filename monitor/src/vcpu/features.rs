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
}

impl Environment {
    /// After reset.
    pub fn new() -> Self {
        let features = Features::new(crate::machine::capabilities().guests);
        Self { features, registers: fwft::Environment::default() }
    }

    /// Whether registers must be changed when the vCPU comes or goes.
    pub fn is_special(&self) -> bool {
        self.registers != fwft::Environment::default()
    }

    /// The vCPU comes.
    pub fn load(&self) {
        registers::set_environment(self.registers.henvcfg, self.registers.not_delegated);
    }

    /// The vCPU goes.
    pub fn unload(&self) {
        registers::clear_environment(self.registers.henvcfg, self.registers.not_delegated);
    }

    /// Everything as after reset.
    pub fn reset(&mut self, is_loaded: bool) {
        if is_loaded {
            self.unload();
        }
        *self = Self::new();
    }

    fn set(&mut self, feature: Feature, value: u64, flags: u64) -> Result<(), Error> {
        self.features.set(feature, value, flags)?;
        let before = core::mem::replace(&mut self.registers, self.features.environment());
        let now = self.registers;
        // Only what changes: a guest's SDT is gone once its double traps are off for a moment.
        registers::clear_environment(before.henvcfg & !now.henvcfg, before.not_delegated & !now.not_delegated);
        registers::set_environment(now.henvcfg & !before.henvcfg, now.not_delegated & !before.not_delegated);
        Ok(())
    }
}

impl Vcpu {
    pub(super) fn get_feature(&self, feature: Feature) -> Result<u64, Error> {
        self.environment.features.get(feature)
    }

    /// Loaded vCPUs only.
    pub(super) fn set_feature(&mut self, feature: Feature, value: u64, flags: u64) -> Result<u64, Error> {
        self.environment.set(feature, value, flags)?;
        self.note_extras();
        Ok(0)
    }
}
