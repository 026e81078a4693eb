//! Control and status registers, one type each, named as in the manual.
//
// UNSAFETY: CSR instructions exist only as assembly. Reading has no memory effect; writing changes how the hart
// translates, traps and interrupts, so each `write` says what its caller must uphold.
#![expect(unsafe_code)]

use core::arch::asm;

macro_rules! csrs {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {$(
        $(#[$doc])*
        pub mod $name {
            use super::asm;

            /// Reads the register.
            #[inline(always)]
            #[must_use]
            pub fn read() -> u64 {
                let value: u64;
                // SAFETY: reading this CSR in HS-mode has no side effect on memory or control flow. Where the
                // machine lacks it the instruction traps; callers look at the ISA string first.
                unsafe { asm!(concat!("csrr {0}, ", $number), out(reg) value, options(nostack)) };
                value
            }

            /// Writes the register.
            ///
            /// # Safety
            /// The new value must keep the monitor's own translation, trap vector and scratch discipline valid.
            #[inline(always)]
            pub unsafe fn write(value: u64) {
                // SAFETY: the caller vouches for the value.
                unsafe { asm!(concat!("csrw ", $number, ", {0}"), in(reg) value, options(nostack)) };
            }

            /// Sets the bits of `mask`.
            ///
            /// # Safety
            /// As for [`write`].
            #[inline(always)]
            pub unsafe fn set(mask: u64) {
                // SAFETY: the caller vouches for the value.
                unsafe { asm!(concat!("csrs ", $number, ", {0}"), in(reg) mask, options(nostack)) };
            }

            /// Clears the bits of `mask`.
            ///
            /// # Safety
            /// As for [`write`].
            #[inline(always)]
            pub unsafe fn clear(mask: u64) {
                // SAFETY: the caller vouches for the value.
                unsafe { asm!(concat!("csrc ", $number, ", {0}"), in(reg) mask, options(nostack)) };
            }

            /// Writes the register and returns what it held before.
            ///
            /// # Safety
            /// As for [`write`].
            #[inline(always)]
            pub unsafe fn swap(value: u64) -> u64 {
                let old: u64;
                // SAFETY: the caller vouches for the value.
                unsafe {
                    asm!(concat!("csrrw {0}, ", $number, ", {1}"), out(reg) old, in(reg) value, options(nostack));
                }
                old
            }
        }
    )*};
}

csrs! {
    /// Supervisor status.
    sstatus = "0x100";
    /// Supervisor interrupt enable.
    sie = "0x104";
    /// Supervisor trap vector.
    stvec = "0x105";
    /// Counters that U-mode may read.
    scounteren = "0x106";
    /// Supervisor environment configuration.
    senvcfg = "0x10a";
    /// State-enable 0 for U-mode.
    sstateen0 = "0x10c";
    /// Scratch register for the trap handler.
    sscratch = "0x140";
    /// Exception program counter.
    sepc = "0x141";
    /// Trap cause.
    scause = "0x142";
    /// Trap value.
    stval = "0x143";
    /// Supervisor interrupts pending.
    sip = "0x144";
    /// Supervisor timer compare (Sstc).
    stimecmp = "0x14d";
    /// Supervisor address translation.
    satp = "0x180";
    /// VS-mode status.
    vsstatus = "0x200";
    /// VS-mode interrupt enable.
    vsie = "0x204";
    /// VS-mode trap vector.
    vstvec = "0x205";
    /// VS-mode scratch.
    vsscratch = "0x240";
    /// VS-mode exception program counter.
    vsepc = "0x241";
    /// VS-mode trap cause.
    vscause = "0x242";
    /// VS-mode trap value.
    vstval = "0x243";
    /// VS-mode interrupts pending.
    vsip = "0x244";
    /// VS-mode timer compare.
    vstimecmp = "0x24d";
    /// VS-mode indirect register select (Smcsrind / Ssaia).
    vsiselect = "0x250";
    /// VS-mode indirect register alias.
    vsireg = "0x251";
    /// VS-stage address translation.
    vsatp = "0x280";
    /// Hypervisor status.
    hstatus = "0x600";
    /// Hypervisor exception delegation.
    hedeleg = "0x602";
    /// Hypervisor interrupt delegation.
    hideleg = "0x603";
    /// Hypervisor interrupt enable.
    hie = "0x604";
    /// Delta between `time` of the guest and of the machine.
    htimedelta = "0x605";
    /// Counters that VS-mode may read.
    hcounteren = "0x606";
    /// Guest external interrupt enable, one bit per guest interrupt file.
    hgeie = "0x607";
    /// Virtual interrupt control (Ssaia): what `vstopi` shows beside the guest file.
    hvictl = "0x609";
    /// Hypervisor environment configuration.
    henvcfg = "0x60a";
    /// State-enable 0 for VS-mode.
    hstateen0 = "0x60c";
    /// Guest physical address of a guest-page fault, shifted right by 2.
    htval = "0x643";
    /// Virtual interrupts pending.
    hvip = "0x645";
    /// Transformed instruction of the trap.
    htinst = "0x64a";
    /// G-stage address translation.
    hgatp = "0x680";
    /// Guest external interrupts pending, one bit per file.
    hgeip = "0xe12";
    /// Time.
    time = "0xc01";
    /// Cycles.
    cycle = "0xc00";
    /// Instructions retired.
    instret = "0xc02";
    /// Vector start index.
    vstart = "0x008";
    /// Vector length in bytes.
    vlenb = "0xc22";
}
