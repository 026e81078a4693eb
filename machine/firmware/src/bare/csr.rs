//! Control and status registers, by number.
//
// UNSAFETY: CSR instructions exist only as assembly. Reading has no effect on memory; what writing does to the programs
// above is each caller's business, and the firmware's own state is changed only by `entry` and `setup`.
#![expect(unsafe_code)]

use core::arch::asm;

pub const SSTATUS: u16 = 0x100;
pub const SIE: u16 = 0x104;
pub const SCOUNTEREN: u16 = 0x106;
pub const STVEC: u16 = 0x105;
pub const SEPC: u16 = 0x141;
pub const SCAUSE: u16 = 0x142;
pub const STVAL: u16 = 0x143;
pub const STIMECMP: u16 = 0x14d;
pub const SATP: u16 = 0x180;
pub const MSTATUS: u16 = 0x300;
pub const MISA: u16 = 0x301;
pub const MEDELEG: u16 = 0x302;
pub const MIDELEG: u16 = 0x303;
pub const MIE: u16 = 0x304;
pub const MCOUNTEREN: u16 = 0x306;
pub const MENVCFG: u16 = 0x30a;
pub const MSTATEEN0: u16 = 0x30c;
pub const MCOUNTINHIBIT: u16 = 0x320;
pub const MEPC: u16 = 0x341;
pub const MCAUSE: u16 = 0x342;
pub const MTVAL: u16 = 0x343;
pub const MIP: u16 = 0x344;
pub const MTVAL2: u16 = 0x34b;
pub const MISELECT: u16 = 0x350;
pub const MIREG: u16 = 0x351;
pub const MTOPEI: u16 = 0x35c;
pub const MSECCFG: u16 = 0x747;
pub const HSTATUS: u16 = 0x600;
pub const HTVAL: u16 = 0x643;
pub const HTINST: u16 = 0x64a;
pub const HGATP: u16 = 0x680;
pub const MCYCLE: u16 = 0xb00;
pub const MINSTRET: u16 = 0xb02;
pub const TIME: u16 = 0xc01;
pub const MHARTID: u16 = 0xf14;

/// Reads a register that exists.
#[inline(always)]
pub fn read<const N: u16>() -> u64 {
    let value: u64;
    // SAFETY: reading a CSR in M-mode touches no memory.
    unsafe { asm!("csrr {0}, {1}", out(reg) value, const N, options(nostack)) };
    value
}

/// Writes a register that exists.
#[inline(always)]
pub fn write<const N: u16>(value: u64) {
    // SAFETY: the registers that the firmware itself depends on (mtvec, mscratch) are not written through here; all
    // others govern lower privilege levels or interrupts, which are off in M-mode.
    unsafe { asm!("csrw {1}, {0}", in(reg) value, const N, options(nostack)) };
}

/// Sets bits.
#[inline(always)]
pub fn set<const N: u16>(bits: u64) {
    // SAFETY: as for `write`.
    unsafe { asm!("csrs {1}, {0}", in(reg) bits, const N, options(nostack)) };
}

/// Clears bits.
#[inline(always)]
pub fn clear<const N: u16>(bits: u64) {
    // SAFETY: as for `write`.
    unsafe { asm!("csrc {1}, {0}", in(reg) bits, const N, options(nostack)) };
}

/// Reads a register and writes 0: for `mtopei`, which claims.
#[inline(always)]
pub fn claim<const N: u16>() -> u64 {
    let value: u64;
    // SAFETY: as for `write`.
    unsafe { asm!("csrrw {0}, {1}, zero", out(reg) value, const N, options(nostack)) };
    value
}

/// Writes a register that may not exist; whether it does. Only while a hart is set up: a trap that is expected loses what
/// `mstatus` says about the program above.
pub fn try_write<const N: u16>(value: u64) -> bool {
    let exists: u64;
    // SAFETY: the trap vector points behind the write while it may trap, and is put back either way.
    unsafe {
        asm!(
            "la {old}, 2f",
            "csrrw {old}, mtvec, {old}",
            "li {exists}, 0",
            "csrw {n}, {value}",
            "li {exists}, 1",
            ".balign 4",
            "2: csrw mtvec, {old}",
            old = out(reg) _,
            exists = out(reg) exists,
            value = in(reg) value,
            n = const N,
            options(nostack),
        );
    }
    exists != 0
}

/// The hart that executes this.
#[inline(always)]
pub fn this_hart() -> usize {
    read::<MHARTID>() as usize
}

/// The machine's time in ticks.
#[inline(always)]
pub fn time() -> u64 {
    read::<TIME>()
}

/// Waits until an interrupt that is enabled in `mie` is pending. It is not taken: M-mode runs with interrupts off.
#[inline(always)]
pub fn wait_for_interrupt() {
    // SAFETY: waits, nothing else.
    unsafe { asm!("wfi", options(nostack)) };
}
