//! Advanced platform-level interrupt controller: one S-level domain, delivering by MSI.
//!
//! As its guest sees it the domain has no parent to be delegated by and no child: the guest has no M-mode. Hart index
//! `n` is vCPU `n`; guest index 0 is the only one. `domaincfg.DM` is fixed to MSI delivery. Where the specification and
//! QEMU differ the specification is followed: the pending bit of a level-sensitive source falls with its input.

mod spec;
#[cfg(test)]
mod tests;

use crate::controller::{MAX_VCPUS, Msi, source_bit, sources, word_of};
use addr::VcpuIndex;
use device::{IrqLine, Width};
use spec::{Register, SourceMode};

/// An APLIC domain.
///
/// Invariant: `wired`, `inverted` and `level` say of each source what its mode says; an inactive source is in none of
/// the sets and its target is 0.
#[derive(Debug)]
pub struct Aplic {
    vcpus: u16,
    is_open: bool,
    modes: [SourceMode; Aplic::SOURCES as usize + 1],
    targets: [u32; Aplic::SOURCES as usize + 1],
    /// Levels of the wires.
    lines: u128,
    /// Sources that listen to their wire.
    wired: u128,
    /// Sources whose active state is low.
    inverted: u128,
    /// Level-sensitive sources.
    level: u128,
    /// Sources that are not inactive.
    active: u128,
    pending: u128,
    enabled: u128,
    /// `genmsi` as last written, and whether its message waits to be taken.
    genmsi: u32,
    is_genmsi_busy: bool,
}

impl Aplic {
    /// Number of sources; they are 1..=96.
    pub const SOURCES: u16 = 96;

    /// A domain at power-on for `vcpus` vCPUs, at most [`MAX_VCPUS`].
    #[must_use]
    pub const fn new(vcpus: u16) -> Self {
        Self {
            vcpus: if vcpus < MAX_VCPUS { vcpus } else { MAX_VCPUS },
            is_open: false,
            modes: [SourceMode::Inactive; Self::SOURCES as usize + 1],
            targets: [0; Self::SOURCES as usize + 1],
            lines: 0,
            wired: 0,
            inverted: 0,
            level: 0,
            active: 0,
            pending: 0,
            enabled: 0,
            genmsi: 0,
            is_genmsi_busy: false,
        }
    }

    /// Drives a line.
    #[inline]
    #[must_use = "an interrupt that nobody delivers is lost"]
    pub fn set_line(&mut self, line: IrqLine, asserted: bool) -> Option<Msi> {
        let bit = source_bit(u64::from(line.0), Self::SOURCES)?;
        let before = self.rectified();
        self.lines = if asserted { self.lines | bit } else { self.lines & !bit };
        let changed = self.rectified() ^ before;
        if changed == 0 {
            return None;
        }
        if before & bit == 0 {
            self.pending |= bit;
            return self.forward(usize::from(line.0));
        }
        self.pending &= !(bit & self.level);
        None
    }

    /// Sends one rising and falling edge on a line.
    #[inline]
    #[must_use = "an interrupt that nobody delivers is lost"]
    pub fn pulse(&mut self, line: IrqLine) -> Option<Msi> {
        let rising = self.set_line(line, true);
        let falling = self.set_line(line, false);
        rising.or(falling)
    }

    /// The guest reads a register.
    pub fn read(&mut self, offset: u64, width: Width) -> u64 {
        let Some(register) = decode(offset, width) else { return 0 };
        let value = match register {
            Register::DomainCfg => {
                spec::DOMAINCFG_FIXED | spec::DOMAINCFG_DM | if self.is_open { spec::DOMAINCFG_IE } else { 0 }
            }
            Register::SourceCfg(source) => index(source).map_or(0, |source| self.modes[source] as u32),
            Register::SetPending(word) => word_of(self.pending, word),
            Register::InputClearPending(word) => word_of(self.rectified(), word),
            Register::SetEnable(word) => word_of(self.enabled, word),
            Register::GenMsi => self.genmsi,
            Register::Target(source) => index(source).map_or(0, |source| self.targets[source]),
            // Write-only.
            Register::ClearEnable(_)
            | Register::SetPendingNumber
            | Register::SetPendingNumberBig
            | Register::ClearPendingNumber
            | Register::SetEnableNumber
            | Register::ClearEnableNumber => 0,
        };
        u64::from(value)
    }

    /// The guest writes a register.
    pub fn write(&mut self, offset: u64, width: Width, value: u64) {
        let Some(register) = decode(offset, width) else { return };
        let value = value as u32;
        let number = |value: u32| source_bit(u64::from(value), Self::SOURCES).unwrap_or(0);
        match register {
            Register::DomainCfg => self.is_open = value & spec::DOMAINCFG_IE != 0,
            Register::SourceCfg(source) => self.configure(source, SourceMode::decode(value)),
            Register::SetPending(word) => self.set_pending(spec::named(word, value)),
            Register::SetPendingNumber => self.set_pending(number(value)),
            Register::SetPendingNumberBig => self.set_pending(number(value.swap_bytes())),
            Register::InputClearPending(word) => self.pending &= !spec::named(word, value),
            Register::ClearPendingNumber => self.pending &= !number(value),
            Register::SetEnable(word) => self.enabled |= spec::named(word, value) & self.active,
            Register::SetEnableNumber => self.enabled |= number(value) & self.active,
            Register::ClearEnable(word) => self.enabled &= !spec::named(word, value),
            Register::ClearEnableNumber => self.enabled &= !number(value),
            Register::GenMsi => {
                self.genmsi = value & spec::GENMSI_MASK;
                self.is_genmsi_busy = true;
            }
            Register::Target(source) => self.set_target(source, value),
        }
    }

    /// The next message that is due after a register write.
    #[must_use = "an interrupt that nobody delivers is lost"]
    pub fn next_delivery(&mut self) -> Option<Msi> {
        // An extempore message ignores `domaincfg.IE`.
        if core::mem::take(&mut self.is_genmsi_busy)
            && let Some(msi) = self.message(self.genmsi)
        {
            return Some(msi);
        }
        if !self.is_open {
            return None;
        }
        sources(self.pending & self.enabled).find_map(|source| self.forward(source))
    }

    /// Back to power-on, all lines low.
    pub const fn reset(&mut self) {
        *self = Self::new(self.vcpus);
    }

    /// Inputs of wired sources, 1 where active.
    const fn rectified(&self) -> u128 {
        (self.lines ^ self.inverted) & self.wired
    }

    /// Sends a source's message if it is pending and may leave. The bit is clear afterwards even if the target names a
    /// file that does not exist: hardware's store would have gone nowhere, too.
    #[inline]
    fn forward(&mut self, source: usize) -> Option<Msi> {
        let bit = 1 << source;
        if !self.is_open || self.pending & self.enabled & bit == 0 {
            return None;
        }
        self.pending &= !bit;
        self.message(self.targets[source])
    }

    /// The message that a `target` or `genmsi` value describes; `None` if no vCPU would get it.
    const fn message(&self, target: u32) -> Option<Msi> {
        let hart = target >> spec::HART_INDEX_SHIFT;
        let guest = target >> spec::GUEST_INDEX_SHIFT & spec::GUEST_INDEX_MASK;
        let eiid = (target & spec::EIID_MASK) as u16;
        if hart >= self.vcpus as u32 || guest != 0 || eiid == 0 {
            return None;
        }
        Some(Msi { vcpu: VcpuIndex(hart as u16), eiid })
    }

    /// Sets pending bits by register write: of a level-sensitive source only while its input is active.
    const fn set_pending(&mut self, named: u128) {
        self.pending |= named & self.active & (!self.level | self.rectified());
    }

    fn configure(&mut self, source: u64, mode: SourceMode) {
        let (Some(source), Some(bit)) = (index(source), source_bit(source, Self::SOURCES)) else { return };
        let put = |set: u128, is_in: bool| if is_in { set | bit } else { set & !bit };
        self.modes[source] = mode;
        self.wired = put(self.wired, mode.is_wired());
        self.inverted = put(self.inverted, mode.is_inverted());
        self.level = put(self.level, mode.is_level());
        self.active = put(self.active, mode != SourceMode::Inactive);
        if mode == SourceMode::Inactive {
            self.pending &= !bit;
            self.enabled &= !bit;
            self.targets[source] = 0;
        } else if self.rectified() & bit != 0 {
            // "Source configurations": such a write may set the bit. It has to here, or a line that was raised before
            // its driver came would never be heard of.
            self.pending |= bit;
        } else {
            self.pending &= !(bit & self.level);
        }
    }

    fn set_target(&mut self, source: u64, value: u32) {
        if let Some(source) = index(source)
            && self.active >> source & 1 != 0
        {
            self.targets[source] = value & spec::TARGET_MASK;
        }
    }
}

/// A source number as an index.
const fn index(source: u64) -> Option<usize> {
    match source_bit(source, Aplic::SOURCES) {
        Some(_) => Some(source as usize),
        None => None,
    }
}

/// Registers are words.
fn decode(offset: u64, width: Width) -> Option<Register> {
    if width == Width::Word && offset.is_multiple_of(4) { Register::decode(offset) } else { None }
}
