//! Advanced platform-level interrupt controller, one S-level domain.
//!
//! Advanced Interrupt Architecture 1.0, chapter "Advanced Platform-Level Interrupt Controller". Sources reach this
//! domain because the firmware delegated them, and MSI addresses are the firmware's setting too (`smsiaddrcfg` exists
//! only in the root domain).

use core::num::NonZero;

use machine_tree::{Imsic, Trigger};

use crate::{Identity, IntcError, mmio::Registers};

/// `domaincfg`: bit 2 selects MSIs, bit 8 opens the domain, bit 0 would select big-endian registers.
const DOMAINCFG: usize = 0;
const DOMAINCFG_MSI: u32 = 1 << 2;
const DOMAINCFG_ENABLE: u32 = 1 << 8;
/// `sourcecfg[n]` at `4 * n`.
const SOURCECFG: usize = 0;
/// `setipnum`: sets the pending bit of a source, of a level-triggered one only while its wire is active.
const SETIPNUM: usize = 0x1cdc;
/// `setienum`, `clrienum`: enable and disable a source by number.
const SETIENUM: usize = 0x1edc;
const CLRIENUM: usize = 0x1fdc;
/// `target[n]` at `TARGET + 4 * n`.
const TARGET: usize = 0x3000;
/// Delivery control structure `i` at `IDC + i * IDC_STRIDE`.
const IDC: usize = 0x4000;
const IDC_STRIDE: usize = 32;
/// `idelivery`, `iforce`, `ithreshold`, `claimi` in it.
const IDELIVERY: usize = 0;
const IFORCE: usize = 4;
const ITHRESHOLD: usize = 8;
const CLAIMI: usize = 0x1c;

/// How a domain delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// As MSIs to interrupt files.
    Msi,
    /// By wires to harts, through delivery control structures.
    Wired,
}

/// An S-level domain.
#[derive(Debug)]
pub struct Aplic<R> {
    registers: R,
    num_sources: u32,
    delivery: Delivery,
}

/// A delivery control structure whose registers are known to exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AplicContext {
    index: u32,
    base: usize,
}

/// Where a domain sends an MSI: the fields of a `target` register without the identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsiTarget {
    hart_index: u32,
    guest_index: u32,
}

impl MsiTarget {
    /// The target for the file at page number `page`, as the tree's layout splits addresses: guest index in the lowest
    /// bits, hart index above it, group index at its own place.
    #[must_use]
    pub fn of_page(imsic: &Imsic, page: u64) -> Self {
        let field = |shift: u32, bits: u32| (page.unbounded_shr(shift) & ((1 << bits) - 1)) as u32;
        let hart = field(imsic.guest_index_bits, imsic.hart_index_bits);
        let group = field(imsic.group_index_shift.saturating_sub(12), imsic.group_index_bits);
        Self { hart_index: group << imsic.hart_index_bits | hart, guest_index: field(0, imsic.guest_index_bits) }
    }

    const fn bits(self, identity: Identity) -> u32 {
        self.hart_index << 18 | self.guest_index << 12 | identity.get() as u32
    }
}

impl<R: Registers> Aplic<R> {
    /// Takes over a domain: every source inactive, the domain open.
    pub fn new(registers: R, num_sources: u32, delivery: Delivery) -> Result<Self, IntcError> {
        if num_sources > 1023 || registers.bytes() < IDC {
            return Err(IntcError::RegisterBlockTooSmall { need: IDC, got: registers.bytes() });
        }
        let aplic = Self { registers, num_sources, delivery };
        aplic.registers.write(DOMAINCFG, 0);
        for source in 1..=num_sources {
            aplic.registers.write(CLRIENUM, source);
            aplic.registers.write(SOURCECFG + 4 * source as usize, 0);
        }
        let mode = if delivery == Delivery::Msi { DOMAINCFG_MSI } else { 0 };
        aplic.registers.write(DOMAINCFG, DOMAINCFG_ENABLE | mode);
        Ok(aplic)
    }

    /// How this domain delivers.
    pub const fn delivery(&self) -> Delivery {
        self.delivery
    }

    /// From now on `source` arrives as `identity` in the file of `target`. MSI delivery only.
    pub fn route_msi(
        &self,
        source: u32,
        trigger: Trigger,
        target: MsiTarget,
        identity: Identity,
    ) -> Result<(), IntcError> {
        self.route(source, trigger, Delivery::Msi, target.bits(identity))
    }

    /// From now on `source` interrupts through `context`. Wired delivery only.
    pub fn route_wired(&self, source: u32, trigger: Trigger, context: AplicContext) -> Result<(), IntcError> {
        // All with the same priority, 1; 0 is reserved.
        self.route(source, trigger, Delivery::Wired, context.index << 18 | 1)
    }

    fn route(&self, source: u32, trigger: Trigger, delivery: Delivery, target: u32) -> Result<(), IntcError> {
        if !(1..=self.num_sources).contains(&source) {
            return Err(IntcError::NoSuchSource { source });
        }
        if self.delivery != delivery {
            return Err(IntcError::WrongDelivery);
        }
        self.registers.write(CLRIENUM, source);
        let sourcecfg = SOURCECFG + 4 * source as usize;
        self.registers.write(sourcecfg, source_mode(trigger));
        // A source that the firmware did not delegate reads as zero.
        if self.registers.read(sourcecfg) == 0 {
            return Err(IntcError::NotDelegated { source });
        }
        self.registers.write(TARGET + 4 * source as usize, target);
        self.registers.write(SETIENUM, source);
        Ok(())
    }

    /// A level-triggered source that came as an MSI has been served. The domain forgot it when it sent the MSI, so a
    /// wire that is still (or again) active must be looked at once more.
    #[inline]
    pub fn look_again(&self, source: u32) {
        self.registers.write(SETIPNUM, source);
    }

    /// Delivery control structure `index`, open.
    pub fn open(&self, index: u32) -> Result<AplicContext, IntcError> {
        let base = IDC + index as usize * IDC_STRIDE;
        let need = base + IDC_STRIDE;
        if need > self.registers.bytes() {
            return Err(IntcError::RegisterBlockTooSmall { need, got: self.registers.bytes() });
        }
        self.registers.write(base + IFORCE, 0);
        self.registers.write(base + ITHRESHOLD, 0);
        self.registers.write(base + IDELIVERY, 1);
        Ok(AplicContext { index, base })
    }

    /// Takes a pending source from a delivery control structure. There is nothing to complete: a wire that stays
    /// active stays pending.
    #[inline]
    pub fn claim(&self, context: AplicContext) -> Option<NonZero<u32>> {
        NonZero::new(self.registers.read(context.base + CLAIMI) >> 16)
    }
}

/// The SM field of `sourcecfg`.
const fn source_mode(trigger: Trigger) -> u32 {
    match trigger {
        Trigger::EdgeRising => 4,
        Trigger::EdgeFalling => 5,
        Trigger::LevelHigh => 6,
        Trigger::LevelLow => 7,
    }
}
