//! The executing hart: registers, counters, waiting.
//
// UNSAFETY: CSR instructions and instruction fetch by address.
#![expect(unsafe_code)]

use core::arch::asm;

macro_rules! csr {
    ($read:ident, $write:ident, $number:literal, $doc:literal) => {
        #[doc = $doc]
        #[inline(always)]
        pub fn $read() -> u64 {
            let value;
            // SAFETY: reading a CSR of S-mode.
            unsafe { asm!(concat!("csrr {0}, ", $number), out(reg) value, options(nostack)) };
            value
        }
        #[doc = $doc]
        #[inline(always)]
        pub fn $write(value: u64) {
            // SAFETY: the probe owns its hart; no Rust state depends on these registers.
            unsafe { asm!(concat!("csrw ", $number, ", {0}"), in(reg) value, options(nostack)) };
        }
    };
}

csr!(sie, set_sie, "0x104", "Interrupt enables.");
csr!(sip, set_sip, "0x144", "Interrupts pending.");
csr!(stimecmp, set_stimecmp, "0x14d", "Timer compare.");
csr!(sstatus, set_sstatus, "0x100", "Status.");
csr!(instret, _set_instret, "0xc02", "Instructions retired.");
csr!(time, _set_time, "0xc01", "Time.");

/// Enables of the three supervisor interrupts.
pub const SOFTWARE: u64 = 1 << 1;
/// Timer interrupt.
pub const TIMER: u64 = 1 << 5;

/// This hart's id.
pub fn this_hart() -> usize {
    let hart;
    // SAFETY: the entry put the hart id into tp.
    unsafe { asm!("mv {0}, tp", out(reg) hart, options(nomem, nostack)) };
    hart
}

/// Waits for an interrupt.
pub fn wfi() {
    // SAFETY: a hint.
    unsafe { asm!("wfi", options(nostack)) };
}

/// Turns interrupts on (`true`) or off.
pub fn interrupts(on: bool) {
    const SIE: u64 = 1 << 1;
    let status = sstatus();
    set_sstatus(if on { status | SIE } else { status & !SIE });
}

/// Makes interrupt `code` go away, as its handler would.
pub fn acknowledge(code: usize) {
    match code {
        1 => set_sip(sip() & !SOFTWARE),
        5 => set_stimecmp(u64::MAX),
        _ => set_sie(0),
    }
}

/// 2 or 4.
pub fn instruction_length(at: u64) -> u64 {
    // SAFETY: `at` was just executed, so it can be read (translation is off).
    if unsafe { (at as *const u16).read_volatile() } & 3 == 3 { 4 } else { 2 }
}

/// Loads a word; the caller expects that this may trap (the value is then what the register held: 0).
pub fn load(at: u64) -> u64 {
    let mut value = 0_u64;
    // SAFETY: the probe's own memory, a device, or an expected trap, after which the register keeps its value.
    unsafe { asm!("ld {0}, 0({1})", inout(reg) value, in(reg) at, options(nostack)) };
    value
}

/// Stores a word.
pub fn store(at: u64, value: u64) {
    // SAFETY: as for `load`; the probe aims only at memory beyond its image or at nothing.
    unsafe { asm!("sd {0}, 0({1})", in(reg) value, in(reg) at, options(nostack)) };
}

/// Loads 32 bits of a device.
pub fn load32(at: u64) -> u64 {
    let mut value = 0_u64;
    // SAFETY: as for `load`.
    unsafe { asm!("lwu {0}, 0({1})", inout(reg) value, in(reg) at, options(nostack)) };
    value
}

/// Executes a CSR read that does not exist.
pub fn illegal() {
    // SAFETY: the trap is expected and skipped.
    unsafe { asm!("csrr t0, 0x5c0", out("t0") _, options(nostack)) };
}

/// Fills the FP registers with values derived from `seed`.
pub fn fill_fp(seed: u64) {
    // SAFETY: this program is built without F/D: nothing lives in these registers.
    unsafe {
        asm!(
            ".option push", ".option arch, +d",
            "fmv.d.x f0, {0}", "addi {0}, {0}, 1", "fmv.d.x f7, {0}", "addi {0}, {0}, 1", "fmv.d.x f15, {0}",
            "addi {0}, {0}, 1", "fmv.d.x f31, {0}", ".option pop",
            inout(reg) seed => _, options(nostack)
        );
    }
}

/// Reads back what `fill_fp` wrote: the four values.
pub fn read_fp() -> [u64; 4] {
    let [a, b, c, d];
    // SAFETY: as for `fill_fp`.
    unsafe {
        asm!(
            ".option push", ".option arch, +d",
            "fmv.x.d {0}, f0", "fmv.x.d {1}, f7", "fmv.x.d {2}, f15", "fmv.x.d {3}, f31", ".option pop",
            out(reg) a, out(reg) b, out(reg) c, out(reg) d, options(nostack)
        );
    }
    [a, b, c, d]
}

/// Switches the FP unit on.
pub fn enable_fp() {
    set_sstatus(sstatus() | 1 << 13);
}
