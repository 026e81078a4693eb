//! Platform-level interrupt controller, as on QEMU `virt`.
//!
//! Contexts are numbered as there: vCPU `n` has the S-mode context `2 * n + 1`; the M-mode contexts `2 * n` do not exist
//! (the device tree says so with -1) and read as zero. The gateways are level-triggered: a source is pending while its
//! line is high and it is not being served, so an interrupt that its device withdraws is withdrawn. A pulse is
//! remembered until it is claimed, even when it comes while the source is being served.

mod spec;
#[cfg(test)]
mod tests;

use crate::controller::{Levels, MAX_VCPUS, set_of, source_bit, sources, word_of};
use alloc::boxed::Box;
use alloc::vec;
use device::{IrqLine, Width};
use spec::Register;

/// A PLIC.
#[derive(Debug)]
pub struct Plic {
    priorities: [u8; Plic::SOURCES as usize + 1],
    /// Levels of the wires.
    lines: u128,
    /// Pulses that nobody has claimed.
    latched: u128,
    /// Claimed and not completed.
    in_service: u128,
    contexts: Box<[Context]>,
    /// What the vCPUs' inputs were told last.
    delivered: u32,
}

/// The S-mode context of a vCPU.
#[derive(Clone, Copy, Debug, Default)]
struct Context {
    enabled: u128,
    threshold: u8,
}

impl Plic {
    /// Highest source number.
    pub const SOURCES: u16 = 95;
    const ALL: u128 = set_below(Self::SOURCES);

    /// A PLIC for `vcpus` vCPUs, at most [`MAX_VCPUS`].
    #[must_use]
    pub fn new(vcpus: u16) -> Self {
        Self {
            priorities: [0; Self::SOURCES as usize + 1],
            lines: 0,
            latched: 0,
            in_service: 0,
            // Bounded: MAX_VCPUS.
            contexts: vec![Context::default(); usize::from(vcpus.min(MAX_VCPUS))].into_boxed_slice(),
            delivered: 0,
        }
    }

    /// Drives a line.
    #[inline]
    #[must_use = "an interrupt that nobody delivers is lost"]
    pub fn set_line(&mut self, line: IrqLine, asserted: bool) -> Option<Levels> {
        let bit = source_bit(u64::from(line.0), Self::SOURCES)?;
        let before = self.pending();
        self.lines = if asserted { self.lines | bit } else { self.lines & !bit };
        if self.pending() == before {
            return None;
        }
        self.next_delivery()
    }

    /// Latches one interrupt of a source.
    #[must_use = "an interrupt that nobody delivers is lost"]
    pub fn pulse(&mut self, line: IrqLine) -> Option<Levels> {
        self.latched |= source_bit(u64::from(line.0), Self::SOURCES)?;
        self.next_delivery()
    }

    /// The guest reads a register; reading a claim register claims.
    pub fn read(&mut self, offset: u64, width: Width) -> u64 {
        let Some(register) = decode(offset, width) else { return 0 };
        let value = match register {
            Register::Priority(source) => self.priority(source),
            Register::Pending(word) => word_of(self.pending(), word),
            Register::Enable(context, word) => self.context(context).map_or(0, |c| word_of(c.enabled, word)),
            Register::Threshold(context) => self.context(context).map_or(0, |c| u32::from(c.threshold)),
            Register::Claim(context) => self.claim(context),
        };
        u64::from(value)
    }

    /// The guest writes a register; writing a claim register completes.
    pub fn write(&mut self, offset: u64, width: Width, value: u64) {
        let Some(register) = decode(offset, width) else { return };
        let value = value as u32;
        let priority = (value & spec::PRIORITY_MASK) as u8;
        match register {
            Register::Priority(source) => {
                if source_bit(source, Self::SOURCES).is_some() {
                    self.priorities[source as usize] = priority;
                }
            }
            Register::Pending(_) => {}
            Register::Enable(context, word) => {
                if let Some(context) = self.context(context) {
                    let written = set_of(word, u32::MAX);
                    context.enabled = (context.enabled & !written | set_of(word, value)) & Self::ALL;
                }
            }
            Register::Threshold(context) => {
                if let Some(context) = self.context(context) {
                    context.threshold = priority;
                }
            }
            // As on QEMU any context may complete any source; a driver may have disabled it meanwhile.
            Register::Claim(context) => {
                if self.context(context).is_some() {
                    self.in_service &= !source_bit(u64::from(value), Self::SOURCES).unwrap_or(0);
                }
            }
        }
    }

    /// Levels that have changed since they were last delivered.
    #[must_use = "an interrupt that nobody delivers is lost"]
    pub fn next_delivery(&mut self) -> Option<Levels> {
        let asserted = self.levels();
        let changed = asserted ^ self.delivered;
        self.delivered = asserted;
        (changed != 0).then_some(Levels { changed, asserted })
    }

    /// Back to power-on, all lines low.
    pub fn reset(&mut self) {
        *self = Self::new(self.contexts.len() as u16);
    }

    const fn pending(&self) -> u128 {
        (self.lines | self.latched) & !self.in_service
    }

    /// One bit per vCPU whose context has something to claim.
    fn levels(&self) -> u32 {
        let pending = self.pending();
        if pending == 0 {
            return 0;
        }
        let mut levels = 0;
        for (index, context) in self.contexts.iter().enumerate() {
            levels |= u32::from(self.best(context, pending) != 0) << index;
        }
        levels
    }

    /// The source to claim in `context`: highest priority, then lowest number; 0 for none above the threshold.
    fn best(&self, context: &Context, pending: u128) -> usize {
        let (mut best, mut highest) = (0, context.threshold);
        for source in sources(pending & context.enabled) {
            if self.priorities[source] > highest {
                (best, highest) = (source, self.priorities[source]);
            }
        }
        best
    }

    fn claim(&mut self, context: u64) -> u32 {
        let Some(context) = self.context(context).copied() else { return 0 };
        let source = self.best(&context, self.pending());
        if source != 0 {
            self.latched &= !(1 << source);
            self.in_service |= 1 << source;
        }
        source as u32
    }

    fn priority(&self, source: u64) -> u32 {
        let source = usize::try_from(source).unwrap_or(usize::MAX);
        self.priorities.get(source).copied().unwrap_or(0).into()
    }

    /// The context with this number, if it is an S-mode context.
    fn context(&mut self, number: u64) -> Option<&mut Context> {
        if number & 1 == 0 {
            return None;
        }
        self.contexts.get_mut(usize::try_from(number >> 1).ok()?)
    }
}

/// Sources 1..=last.
const fn set_below(last: u16) -> u128 {
    ((1 << last) - 1) << 1
}

/// Registers are words.
fn decode(offset: u64, width: Width) -> Option<Register> {
    if width == Width::Word && offset.is_multiple_of(4) { Register::decode(offset) } else { None }
}
