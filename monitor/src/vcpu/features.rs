//! A vCPU's firmware features, and what they make of its hart's registers.

use super::{Vcpu, registers};
use ::vcpu::{
    fwft::{self, Feature, Features},
    sbi::Error,
};
use rv::cause;

/// A vCPU's features, with the registers that follow from them.
#[derive(Clone, Copy, Debug)]
pub struct Environment {
    features: Features,
    registers: fwft::Environment,
    /// `ebreak`s come to the monitor, as a debugger is at the VM.
    traps_breakpoints: bool,
}

/// In `hedeleg`.
const BREAKPOINTS: u64 = 1 << cause::BREAKPOINT;

impl Environment {
    /// After reset.
    pub fn new() -> Self {
        let features = Features::new(crate::machine::capabilities().guests);
        Self { features, registers: fwft::Environment::default(), traps_breakpoints: false }
    }

    /// Whether registers must be changed when the vCPU comes or goes.
    pub fn is_special(&self) -> bool {
        self.registers != fwft::Environment::default() || self.traps_breakpoints
    }

    /// The vCPU comes.
    pub fn load(&self) {
        registers::set_environment(self.registers.henvcfg, self.not_delegated());
    }

    /// The vCPU goes.
    pub fn unload(&self) {
        registers::clear_environment(self.registers.henvcfg, self.not_delegated());
    }

    /// Exceptions that come to the monitor and not to the guest.
    const fn not_delegated(&self) -> u64 {
        self.registers.not_delegated | if self.traps_breakpoints { BREAKPOINTS } else { 0 }
    }

    /// Everything as after reset, but for what a debugger needs.
    pub fn reset(&mut self, is_loaded: bool) {
        if is_loaded {
            self.unload();
        }
        *self = Self { traps_breakpoints: self.traps_breakpoints, ..Self::new() };
        if is_loaded {
            self.load();
        }
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
    /// `ebreak`s come to the monitor, or to the guest. Loaded vCPUs only.
    #[cold]
    pub(super) fn set_debugged(&mut self, is_debugged: bool) {
        self.environment.unload();
        self.environment.traps_breakpoints = is_debugged;
        self.environment.load();
        self.note_extras();
    }

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
