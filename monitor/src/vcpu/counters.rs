//! A vCPU's performance counters on the hart: when reads of `cycle` and `instret` trap, and what they see.

use super::Vcpu;
use platform::pmu::HardwareCounts;
use rv::{csr, decode::CsrAccess, fields::sstatus};

/// `hcounteren` and `scounteren` bits of `cycle`, `time`, `instret`.
const ALL: u64 = 0b111;
const TIME: u64 = 0b010;
const CYCLE: u16 = 0xc00;

/// What this hart's counters show.
pub fn hardware() -> HardwareCounts {
    HardwareCounts { cycles: csr::cycle::read(), instructions: csr::instret::read() }
}

/// Lets the guest read the hart's own counters, or makes that trap.
#[expect(unsafe_code)]
pub fn open(is_virtual: bool) {
    // UNSAFETY and SAFETY: hcounteren only says which counters V=1 reads without a trap.
    unsafe { csr::hcounteren::write(if is_virtual { TIME } else { ALL }) };
}

impl Vcpu {
    /// The counters' set-up has changed. Loaded vCPUs only.
    pub fn open_counters(&self) {
        open(self.pmu.is_virtual());
    }

    #[cold]
    pub(super) fn load_counters(&mut self) {
        self.pmu.load(hardware());
        open(true);
    }

    #[cold]
    pub(super) fn unload_counters(&mut self) {
        self.pmu.unload(hardware());
        open(false);
    }

    /// The guest reads a counter that traps. `false`: another CSR, a write (the counters are read-only), or the guest's
    /// user mode may not.
    pub(super) fn read_counter(&mut self, access: CsrAccess) -> bool {
        // Most trapped accesses are to an interrupt file in software.
        if !self.pmu.is_virtual() || access.is_write() {
            return false;
        }
        let bit = 1 << (access.csr.wrapping_sub(CYCLE) & 31);
        let is_user = self.context.sstatus & sstatus::SPP == 0;
        if is_user && csr::scounteren::read() & bit == 0 {
            return false;
        }
        let Some(value) = self.pmu.read_csr(access.csr, hardware()) else { return false };
        if access.rd != 0 {
            self.context.x[usize::from(access.rd)] = value;
        }
        true
    }
}
