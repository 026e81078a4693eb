//! A vCPU's performance counters on the hart: when reads of `cycle` and `instret` trap, and what they see.

use super::Vcpu;
use ::vcpu::trap::Privilege;
use platform::pmu::HardwareCounts;
use rv::csr;

/// `hcounteren` and `scounteren` bits of `cycle`, `time`, `instret`.
const ALL: u64 = 0b111;
const TIME: u64 = 0b010;
const CYCLE: u16 = 0xc00;

/// What this hart's counters show.
pub fn hardware() -> HardwareCounts {
    let readable = crate::machine::capabilities().counters;
    HardwareCounts {
        cycles: readable.cycles.then(csr::cycle::read),
        instructions: readable.instructions.then(csr::instret::read),
    }
}

/// Lets the guest read the hart's own counters, or makes that trap.
#[expect(unsafe_code)]
pub fn open(is_virtual: bool) {
    // UNSAFETY and SAFETY: hcounteren only says which counters V=1 reads without a trap.
    unsafe { csr::hcounteren::write(if is_virtual { TIME } else { ALL }) };
}

impl Vcpu {
    /// The counters' set-up has changed. Loaded vCPUs only.
    pub fn open_counters(&mut self) {
        self.note_extras();
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

    /// The guest reads counter `counter`, which traps, into register `rd`. `false`: there is none, or the guest's user mode may not.
    pub(super) fn read_counter(&mut self, counter: u8, rd: u8) -> bool {
        if !self.pmu.is_virtual() {
            return false;
        }
        let is_user = Privilege::before_trap(self.context.sstatus) == Privilege::User;
        if is_user && csr::scounteren::read() >> counter & 1 == 0 {
            return false;
        }
        let Some(value) = self.pmu.read_csr(CYCLE + u16::from(counter), hardware()) else { return false };
        if rd != 0 {
            self.context.x[usize::from(rd)] = value;
        }
        true
    }
}
