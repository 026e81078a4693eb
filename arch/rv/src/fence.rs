//! Fences of address translation and of instruction fetch, for the executing hart only.
//
// UNSAFETY: fence instructions exist only as assembly; they order and forget, and touch no memory.
#![expect(unsafe_code)]

use core::arch::asm;

/// Forgets this hart's G-stage translations of all guests (`hfence.gvma`). VS-stage ones stay.
pub fn hfence_gvma_all() {
    // SAFETY: a fence only drops cached translations.
    unsafe { asm!(".option push", ".option arch, +h", "hfence.gvma", ".option pop", options(nostack)) };
}

/// Forgets this hart's G-stage translations made under `vmid`.
pub fn hfence_gvma_vmid(vmid: u16) {
    // SAFETY: a fence only drops cached translations.
    unsafe {
        asm!(".option push", ".option arch, +h", "hfence.gvma zero, {0}", ".option pop",
            in(reg) u64::from(vmid), options(nostack));
    }
}

/// Forgets this hart's VS-stage translations made under the VMID that `hgatp` holds (`hfence.vvma`).
pub fn hfence_vvma_all() {
    // SAFETY: a fence only drops cached translations.
    unsafe { asm!(".option push", ".option arch, +h", "hfence.vvma", ".option pop", options(nostack)) };
}

/// Forgets this hart's own (HS-mode) translations.
pub fn sfence_vma_all() {
    // SAFETY: a fence only drops cached translations.
    unsafe { asm!("sfence.vma", options(nostack)) };
}

/// Makes earlier stores to code visible to this hart's instruction fetch.
pub fn fence_i() {
    // SAFETY: a fence only orders.
    unsafe { asm!("fence.i", options(nostack)) };
}

/// Stalls until an interrupt that `sie`/`hie` enables is pending. Interrupts stay masked: nothing is taken.
pub fn wait_for_interrupt() {
    // SAFETY: WFI is a hint; HS-mode runs with sstatus.SIE = 0, so no trap follows.
    unsafe { asm!("wfi", options(nostack)) };
}
