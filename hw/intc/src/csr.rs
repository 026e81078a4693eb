//! The interrupt file of the hart that executes this, through its control and status registers.
//
// UNSAFETY: CSR instructions exist only as assembly, and only on the target: elsewhere nothing here is unsafe, so this
// cannot be an `expect`.
#![allow(unsafe_code)]

/// The current hart's S-level interrupt file: indirect registers behind `siselect`/`sireg`, and `stopei`.
///
/// Two accesses make one indirect access, so callers keep interrupts off, or make sure that no interrupt handler of
/// theirs selects another register.
pub trait FileRegisters {
    /// Writes an indirect register.
    fn write(&self, register: u16, value: u64);

    /// Sets bits of an indirect register.
    fn set(&self, register: u16, mask: u64);

    /// Clears bits of an indirect register.
    fn clear(&self, register: u16, mask: u64);

    /// Reads `stopei` and claims what it shows: the pending bit of that identity is cleared.
    fn claim_top(&self) -> u64;
}

/// The real registers. Only on the target; tests put a recording model in its place.
#[cfg(target_arch = "riscv64")]
#[derive(Clone, Copy, Debug, Default)]
pub struct HartFile;

// `siselect` is 0x150, `sireg` 0x151, `stopei` 0x15c (Advanced Interrupt Architecture 1.0, "Control and status
// registers added to harts"); given by number because older assemblers do not know the names.
#[cfg(target_arch = "riscv64")]
impl FileRegisters for HartFile {
    fn write(&self, register: u16, value: u64) {
        // SAFETY: the registers of the interrupt file say which interrupts are pending and enabled; no value of theirs
        // changes memory or translation.
        unsafe {
            core::arch::asm!("csrw 0x150, {}", "csrw 0x151, {}", in(reg) u64::from(register), in(reg) value, options(nostack));
        }
    }

    fn set(&self, register: u16, mask: u64) {
        // SAFETY: as in `write`.
        unsafe {
            core::arch::asm!("csrw 0x150, {}", "csrs 0x151, {}", in(reg) u64::from(register), in(reg) mask, options(nostack));
        }
    }

    fn clear(&self, register: u16, mask: u64) {
        // SAFETY: as in `write`.
        unsafe {
            core::arch::asm!("csrw 0x150, {}", "csrc 0x151, {}", in(reg) u64::from(register), in(reg) mask, options(nostack));
        }
    }

    fn claim_top(&self) -> u64 {
        let top;
        // SAFETY: as in `write`; writing zero to `stopei` claims what the same instruction reads.
        unsafe { core::arch::asm!("csrrw {}, 0x15c, zero", out(reg) top, options(nostack)) }
        top
    }
}
