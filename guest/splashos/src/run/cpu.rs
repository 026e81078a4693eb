//! Instructions that Rust has no names for.
//
// UNSAFETY: instructions of S-mode.
#![expect(unsafe_code)]

use core::arch::asm;

/// Sets a mark for the emulator: an instruction that does nothing.
pub fn mark<const N: u16>() {
    // SAFETY: writes to x0. The clobbered memory keeps work from being moved across it.
    unsafe { asm!("slti x0, x0, {n}", n = const N, options(nostack)) }
}

/// The number of the vCPU that executes this.
pub fn this_vcpu() -> usize {
    let number;
    // SAFETY: the entry puts the number there, and nothing else uses `tp`.
    unsafe { asm!("mv {}, tp", out(reg) number, options(nomem, nostack, preserves_flags)) }
    number
}

/// The clock.
pub fn time() -> u64 {
    let ticks;
    // SAFETY: reads a counter.
    unsafe { asm!("rdtime {}", out(reg) ticks, options(nomem, nostack)) }
    ticks
}

/// Waits for an interrupt that is enabled in `sie`; none is taken, as `sstatus.SIE` is 0.
pub fn wait_for_interrupt() {
    // SAFETY: changes nothing.
    unsafe { asm!("wfi", options(nostack)) }
}

/// This vCPU sees what the tables say of an address.
pub fn fence_address(address: u64) {
    // SAFETY: a fence.
    unsafe { asm!("sfence.vma {}, zero", in(reg) address, options(nostack)) }
}

/// Enables the interrupts by which vCPUs wake each other: software interrupts, or messages of the interrupt file.
pub fn enable_wake_ups(has_file: bool) {
    const SOFTWARE: u64 = 1 << 1;
    const EXTERNAL: u64 = 1 << 9;
    if has_file {
        const DELIVERY: u64 = 0x70;
        const THRESHOLD: u64 = 0x72;
        const ENABLE_0: u64 = 0xc0;
        for (register, value) in [(THRESHOLD, 0), (ENABLE_0, 1 << WAKE_UP), (DELIVERY, 1)] {
            // SAFETY: `siselect` and `sireg` of a vCPU with an interrupt file.
            unsafe { asm!("csrw 0x150, {}", "csrw 0x151, {}", in(reg) register, in(reg) value, options(nostack)) }
        }
    }
    // SAFETY: no interrupt is taken, so memory and registers stay as they are.
    unsafe { asm!("csrw sie, {}", in(reg) if has_file { EXTERNAL } else { SOFTWARE }, options(nostack)) }
}

/// The message by which vCPUs wake each other.
const WAKE_UP: u32 = 1;
/// Where the VM's interrupt files lie, 4 KiB each.
const FILES: usize = 0x2800_0000;

/// Sends a wake-up message to the interrupt file of a hart.
pub fn send_message(hart: u64) {
    // SAFETY: a register of the interrupt file of a hart that the device tree lists.
    unsafe { ((FILES + hart as usize * 0x1000) as *mut u32).write_volatile(WAKE_UP) }
}

/// Takes what has come.
pub fn take_wake_up(has_file: bool) {
    if has_file {
        // SAFETY: claims the most urgent message, if there is one (`stopei`).
        unsafe { asm!("csrw 0x15c, zero", options(nostack)) }
    } else {
        // SAFETY: clears the pending software interrupt.
        unsafe { asm!("csrci sip, 2", options(nostack)) }
    }
}
