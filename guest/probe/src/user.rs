//! Single instructions in user mode.
//
// UNSAFETY: ways into user mode and back.
#![expect(unsafe_code)]

use core::arch::asm;

/// What ends an instruction that user mode may execute: the call that follows it.
pub const DONE: u64 = 8;

macro_rules! in_user_mode {
    ($($name:ident = $instruction:literal, $doc:literal;)*) => {$(
        #[doc = $doc]
        #[doc = ""]
        #[doc = "The cause of the trap that it ends in. All interrupts must be disabled in `sie`: user mode takes what is enabled."]
        pub fn $name() -> u64 {
            let cause;
            // SAFETY: translation is off, so user mode sees what this program sees; whatever traps comes back to label 3, where the
            // trap vector and the status are put back. Only a0 changes in between.
            unsafe {
                asm!(
                    "csrr {status}, sstatus",
                    "csrr {vector}, stvec",
                    "lla {t}, 3f",
                    "csrw stvec, {t}",
                    "lla {t}, 2f",
                    "csrw sepc, {t}",
                    "li {t}, 0x100",
                    "csrc sstatus, {t}",
                    "sret",
                    "2:",
                    $instruction,
                    "ecall",
                    ".balign 4",
                    "3: csrr {cause}, scause",
                    "csrw stvec, {vector}",
                    "csrw sstatus, {status}",
                    status = out(reg) _,
                    vector = out(reg) _,
                    t = out(reg) _,
                    cause = out(reg) cause,
                    out("a0") _,
                    options(nostack),
                );
            }
            cause
        }
    )*};
}

in_user_mode! {
    nothing = "nop", "Does nothing.";
    read_time = "csrr a0, time", "Reads the clock.";
    read_top_message = "csrr a0, 0x15c", "Reads `stopei`.";
    claim_top_message = "csrrw a0, 0x15c, zero", "Takes the most urgent message of the interrupt file.";
    read_file = "csrr a0, 0x151", "Reads the register of the interrupt file that `siselect` names.";
    clear_file = "csrw 0x151, zero", "Clears it.";
    set_file = "csrsi 0x151, 1", "Sets a bit of it.";
}
