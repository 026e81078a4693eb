//! Platform-level interrupt controller (RISC-V PLIC specification 1.0.0).
//!
//! Registers of different contexts are independent. The enable words of one context are read, changed and written:
//! one hart at a time.

use core::num::NonZero;

use crate::{IntcError, mmio::Registers};

/// Priority of source `n` at `4 * n`.
const PRIORITY: usize = 0;
/// Enable bits of context `c` at `ENABLE + c * ENABLE_STRIDE`.
const ENABLE: usize = 0x2000;
const ENABLE_STRIDE: usize = 0x80;
/// Threshold of context `c` at `CONTEXT + c * CONTEXT_STRIDE`, claim/complete behind it.
const CONTEXT: usize = 0x20_0000;
const CONTEXT_STRIDE: usize = 0x1000;
const CLAIM: usize = 4;

/// A PLIC.
#[derive(Debug)]
pub struct Plic<R> {
    registers: R,
    num_sources: u32,
}

/// A context of a certain PLIC whose registers are known to exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlicContext {
    enable: usize,
    threshold: usize,
}

impl<R: Registers> Plic<R> {
    /// Takes over a PLIC. Every source gets priority 0, which never interrupts.
    pub fn new(registers: R, num_sources: u32) -> Result<Self, IntcError> {
        if num_sources > 1023 || registers.bytes() < CONTEXT {
            return Err(IntcError::RegisterBlockTooSmall { need: CONTEXT, got: registers.bytes() });
        }
        let plic = Self { registers, num_sources };
        (1..=num_sources).for_each(|source| plic.registers.write(PRIORITY + 4 * source as usize, 0));
        Ok(plic)
    }

    /// Context number `index`, with everything disabled in it and its threshold at 0.
    pub fn open(&self, index: u32) -> Result<PlicContext, IntcError> {
        let index = index as usize;
        let context =
            PlicContext { enable: ENABLE + index * ENABLE_STRIDE, threshold: CONTEXT + index * CONTEXT_STRIDE };
        let need = context.threshold + CLAIM + 4;
        if need > self.registers.bytes() || context.enable + ENABLE_STRIDE > CONTEXT {
            return Err(IntcError::RegisterBlockTooSmall { need, got: self.registers.bytes() });
        }
        for word in 0..=self.num_sources as usize / 32 {
            self.registers.write(context.enable + 4 * word, 0);
        }
        self.registers.write(context.threshold, 0);
        Ok(context)
    }

    /// Lets `source` interrupt through `context`, also for what it has pending already.
    ///
    /// The priority comes last: QEMU's PLIC looks for something to deliver when a priority, a threshold or a claim
    /// changes, but not when an enable word does. A source that was pending before would wait for the next such
    /// change, which may never come: its wire is up, so it cannot rise.
    pub fn enable(&self, context: PlicContext, source: u32) -> Result<(), IntcError> {
        let (word, bit) = self.place(source)?;
        let enabled = self.registers.read(context.enable + word);
        self.registers.write(context.enable + word, enabled | bit);
        self.registers.write(PRIORITY + 4 * source as usize, 1);
        Ok(())
    }

    /// Stops `source` from interrupting through `context`.
    pub fn disable(&self, context: PlicContext, source: u32) -> Result<(), IntcError> {
        let (word, bit) = self.place(source)?;
        let enabled = self.registers.read(context.enable + word);
        self.registers.write(context.enable + word, enabled & !bit);
        Ok(())
    }

    /// Only sources with a priority above `threshold` interrupt through `context`.
    pub fn set_threshold(&self, context: PlicContext, threshold: u32) {
        self.registers.write(context.threshold, threshold);
    }

    /// Takes a pending source; it stays quiet until it is completed.
    #[inline]
    pub fn claim(&self, context: PlicContext) -> Option<NonZero<u32>> {
        NonZero::new(self.registers.read(context.threshold + CLAIM))
    }

    /// The claimed source has been served. It must still be enabled, or the PLIC ignores this.
    #[inline]
    pub fn complete(&self, context: PlicContext, source: NonZero<u32>) {
        self.registers.write(context.threshold + CLAIM, source.get());
    }

    fn place(&self, source: u32) -> Result<(usize, u32), IntcError> {
        match (1..=self.num_sources).contains(&source) {
            true => Ok((source as usize / 32 * 4, 1 << (source % 32))),
            false => Err(IntcError::NoSuchSource { source }),
        }
    }
}
