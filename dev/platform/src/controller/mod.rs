//! A VM's interrupt controller, whichever it has.

#[cfg(test)]
mod tests;

use crate::{Aplic, Plic};
use addr::VcpuIndex;
use device::{IrqLine, Width};

/// Most vCPUs of a VM; one bit each in [`Levels`].
pub const MAX_VCPUS: u16 = 32;

/// What the controller asks the caller to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an interrupt that nobody delivers is lost"]
pub enum Delivery {
    /// Make an identity pending in a vCPU's interrupt file.
    Msi(Msi),
    /// Drive vCPUs' external-interrupt inputs (`hvip.VSEIP`).
    Levels(Levels),
}

/// A message for an interrupt file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Msi {
    /// Whose file; a vCPU that exists.
    pub vcpu: VcpuIndex,
    /// External interrupt identity, 1..=2047, as the guest wrote it: a file ignores what it does not implement.
    pub eiid: u16,
}

/// New levels of external-interrupt inputs, one bit per vCPU.
///
/// To be applied in the order of delivery, that is, under the lock that guards the controller. An old level applied late
/// is an interrupt that never comes, or one that never ends: the controller reports changes and will not repeat itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Which have changed since the last delivery.
    pub changed: u32,
    /// The levels of all.
    pub asserted: u32,
}

/// The controller of a VM.
///
/// Lines go in through [`set_line`](Self::set_line) and [`pulse`](Self::pulse), which return the only delivery that they
/// can cause. Register accesses can cause many: after each [`read`](Self::read) and [`write`](Self::write), call
/// [`next_delivery`](Self::next_delivery) until it has none. Lines that do not exist are ignored.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one per VM; a box would cost every interrupt an indirection")]
pub enum InterruptController {
    /// PLIC: external-interrupt levels.
    Plic(Plic),
    /// APLIC: messages.
    Aplic(Aplic),
}

impl InterruptController {
    /// Drives a wired line.
    #[inline]
    #[must_use = "an interrupt that nobody delivers is lost"]
    pub fn set_line(&mut self, line: IrqLine, asserted: bool) -> Option<Delivery> {
        match self {
            Self::Plic(plic) => plic.set_line(line, asserted).map(Delivery::Levels),
            Self::Aplic(aplic) => aplic.set_line(line, asserted).map(Delivery::Msi),
        }
    }

    /// Sends one rising and falling edge on a wired line.
    #[inline]
    #[must_use = "an interrupt that nobody delivers is lost"]
    pub fn pulse(&mut self, line: IrqLine) -> Option<Delivery> {
        match self {
            Self::Plic(plic) => plic.pulse(line).map(Delivery::Levels),
            Self::Aplic(aplic) => aplic.pulse(line).map(Delivery::Msi),
        }
    }

    /// The guest reads a register.
    pub fn read(&mut self, offset: u64, width: Width) -> u64 {
        match self {
            Self::Plic(plic) => plic.read(offset, width),
            Self::Aplic(aplic) => aplic.read(offset, width),
        }
    }

    /// The guest writes a register.
    pub fn write(&mut self, offset: u64, width: Width, value: u64) {
        match self {
            Self::Plic(plic) => plic.write(offset, width, value),
            Self::Aplic(aplic) => aplic.write(offset, width, value),
        }
    }

    /// The next thing to deliver after a register access. Ends: at most one per source and one more per access.
    #[must_use = "an interrupt that nobody delivers is lost"]
    pub fn next_delivery(&mut self) -> Option<Delivery> {
        match self {
            Self::Plic(plic) => plic.next_delivery().map(Delivery::Levels),
            Self::Aplic(aplic) => aplic.next_delivery().map(Delivery::Msi),
        }
    }

    /// Back to power-on, all lines low: reset the devices in the same breath. The caller lowers the vCPUs' inputs.
    pub fn reset(&mut self) {
        match self {
            Self::Plic(plic) => plic.reset(),
            Self::Aplic(aplic) => aplic.reset(),
        }
    }
}

/// The bit of a source in a set of sources; `None` for source 0 and for those beyond `last`.
pub(crate) const fn source_bit(source: u64, last: u16) -> Option<u128> {
    if source >= 1 && source <= last as u64 { Some(1 << source) } else { None }
}

/// The 32-bit word `index` of a set of sources, as registers show it.
pub(crate) const fn word_of(set: u128, index: u64) -> u32 {
    if index < 4 { (set >> (32 * index)) as u32 } else { 0 }
}

/// The set of sources that word `index` with value `word` names.
pub(crate) const fn set_of(index: u64, word: u32) -> u128 {
    if index < 4 { (word as u128) << (32 * index) } else { 0 }
}

/// The sources of a set, lowest first.
pub(crate) fn sources(mut set: u128) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let source = set.trailing_zeros();
        if set == 0 {
            return None;
        }
        set &= set - 1;
        Some(source as usize)
    })
}
