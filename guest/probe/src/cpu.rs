//! The executing hart: registers, counters, memory by address, waiting.
//
// UNSAFETY: CSR instructions, and memory and devices by address. The functions are safe to call: the program owns the
// whole machine that it runs on, keeps nothing that Rust knows of beyond its image, and probes aim only there.
#![expect(unsafe_code)]

use core::arch::asm;

macro_rules! read_csr {
    ($($name:ident = $number:literal, $doc:literal;)*) => {$(
        #[doc = $doc]
        #[inline(always)]
        pub fn $name() -> u64 {
            let value;
            // SAFETY: reading a CSR of S-mode.
            unsafe { asm!(concat!("csrr {0}, ", $number), out(reg) value, options(nostack)) };
            value
        }
    )*};
}

macro_rules! write_csr {
    ($($name:ident = $number:literal, $doc:literal;)*) => {$(
        #[doc = $doc]
        #[inline(always)]
        pub fn $name(value: u64) {
            // SAFETY: the probe owns its hart; no Rust state depends on these registers.
            unsafe { asm!(concat!("csrw ", $number, ", {0}"), in(reg) value, options(nostack)) };
        }
    )*};
}

read_csr! {
    sstatus = "0x100", "Status.";
    sepc = "0x141", "Where a trap came from.";
    sip = "0x144", "Interrupts pending.";
    satp = "0x180", "Address translation.";
    stopei = "0x15c", "The most urgent message of the interrupt file.";
    instret = "0xc02", "Instructions retired.";
    time = "0xc01", "Time.";
}

write_csr! {
    set_sstatus = "0x100", "Status.";
    set_sie = "0x104", "Interrupt enables.";
    set_sepc = "0x141", "Where a trap goes back to.";
    set_satp = "0x180", "Address translation.";
    set_stimecmp = "0x14d", "Timer compare.";
    set_siselect = "0x150", "Which register `sireg` is.";
    set_sireg = "0x151", "A register of the interrupt file.";
}

/// Software interrupts in `sie` and `sip`.
pub const SOFTWARE: u64 = 1 << 1;
/// Timer interrupts.
pub const TIMER: u64 = 1 << 5;
/// External interrupts.
pub const EXTERNAL: u64 = 1 << 9;

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

/// Waits as who wants a lock does, for a store to a reservation that it does not have.
pub fn wait_for_lock() {
    // SAFETY: a hint (Zawrs: `wrs.nto`, as a number because assemblers may not know it).
    unsafe { asm!(".insn 4, 0x00d00073", options(nostack)) };
}

/// Orders memory and device accesses.
pub fn fence() {
    // SAFETY: a fence.
    unsafe { asm!("fence iorw, iorw", options(nostack)) };
}

/// Forgets this hart's address translations.
pub fn fence_translations() {
    // SAFETY: translation is off.
    unsafe { asm!("sfence.vma", options(nostack)) };
}

/// Turns interrupts on (`true`) or off.
pub fn interrupts(on: bool) {
    const SIE: u64 = 1 << 1;
    let status = sstatus();
    set_sstatus(if on { status | SIE } else { status & !SIE });
}

/// Takes the most urgent message of the interrupt file.
pub fn claim_stopei() -> u64 {
    let value;
    // SAFETY: a write of any value claims the message.
    unsafe { asm!("csrrw {0}, 0x15c, zero", out(reg) value, options(nostack)) };
    value
}

/// Makes interrupt `code` go away, as its handler would.
pub fn acknowledge(code: usize) {
    match code {
        1 => clear_software_interrupt(),
        5 => set_stimecmp(u64::MAX),
        // Without an IMSIC nobody enables external interrupts.
        9 => drop(claim_stopei()),
        _ => set_sie(0),
    }
}

/// In one instruction: a second interrupt that comes meanwhile stays.
fn clear_software_interrupt() {
    // SAFETY: clears a pending bit of this hart.
    unsafe { asm!("csrc 0x144, {0}", in(reg) SOFTWARE, options(nostack)) };
}

/// 2 or 4.
pub fn instruction_length(at: u64) -> u64 {
    // SAFETY: `at` was just executed, so it can be read (translation is off).
    if unsafe { (at as *const u16).read_volatile() } & 3 == 3 { 4 } else { 2 }
}

macro_rules! access {
    ($load:ident, $load_op:literal, $store:ident, $store_op:literal, $what:literal) => {
        #[doc = concat!("Loads ", $what, ". If that traps and is skipped, the value is 0.")]
        #[inline(always)]
        pub fn $load(at: u64) -> u64 {
            let mut value = 0_u64;
            // SAFETY: see the top of this file; after a trap the register keeps its value.
            unsafe { asm!(concat!($load_op, " {0}, 0({1})"), inout(reg) value, in(reg) at, options(nostack)) };
            value
        }
        #[doc = concat!("Stores ", $what, ".")]
        #[inline(always)]
        pub fn $store(at: u64, value: u64) {
            // SAFETY: see the top of this file.
            unsafe { asm!(concat!($store_op, " {0}, 0({1})"), in(reg) value, in(reg) at, options(nostack)) };
        }
    };
}

access!(load8, "lbu", store8, "sb", "a byte");
access!(load16, "lhu", store16, "sh", "16 bits");
access!(load32, "lwu", store32, "sw", "32 bits");
access!(load, "ld", store, "sd", "64 bits");

/// Adds to 64 bits by an AMO.
pub fn add_atomically(at: u64) {
    // SAFETY: see the top of this file.
    unsafe { asm!("amoadd.d {0}, {0}, ({1})", inout(reg) 1_u64 => _, in(reg) at, options(nostack)) };
}

/// Loads 64 bits and reserves them.
pub fn load_reserved(at: u64) {
    // SAFETY: as above.
    unsafe { asm!("lr.d {0}, ({1})", out(reg) _, in(reg) at, options(nostack)) };
}

/// Stores to 64 bits that are not reserved.
pub fn store_conditional(at: u64) {
    // SAFETY: as above.
    unsafe { asm!("sc.d {0}, zero, ({1})", out(reg) _, in(reg) at, options(nostack)) };
}

/// Reads a CSR that does not exist.
pub fn read_unknown_csr() {
    // SAFETY: the trap is expected and skipped.
    unsafe { asm!("csrr t0, 0x5c0", out("t0") _, options(nostack)) };
}

/// Reads the base of jump tables (Zcmt's `jvt`).
pub fn read_jump_table_base() {
    // SAFETY: the trap is expected and skipped.
    unsafe { asm!("csrr t0, 0x017", out("t0") _, options(nostack)) };
}

/// Reads what debuggers tell processes apart by (Sdtrig's `scontext`).
pub fn read_debug_context() {
    // SAFETY: as above.
    unsafe { asm!("csrr t0, 0x5a8", out("t0") _, options(nostack)) };
}

/// Reads a CSR of M-mode (mstatus).
pub fn read_machine_csr() {
    // SAFETY: the trap is expected and skipped.
    unsafe { asm!("csrr t0, 0x300", out("t0") _, options(nostack)) };
}

/// Traps, with nothing but `handler` to handle it.
pub fn trap_at(handler: u64) {
    // SAFETY: the program ends here; what follows at `handler` is the machine's concern.
    unsafe { asm!("csrw 0x105, {0}", "csrr t0, 0x300", in(reg) handler, out("t0") _, options(nostack)) };
}

/// Traps into a handler that traps at its first instruction.
pub fn trap_on_itself() {
    // SAFETY: the program ends here.
    unsafe { asm!("lla t0, 2f", "csrw 0x105, t0", ".balign 4", "2: csrr t0, 0x300", out("t0") _, options(nostack)) };
}
