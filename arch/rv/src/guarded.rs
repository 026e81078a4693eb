//! Memory accesses that may fail: they return `None` instead of taking the monitor down.
//!
//! Each access is one instruction whose address stands in the `.extable` section together with the address to go
//! on at. The HS trap handler asks [`fixup`] before it gives up.
//
// UNSAFETY: guest-virtual loads and the exception table are assembly and linker symbols.
#![expect(unsafe_code)]

use crate::{csr, fields::sstatus};
use core::arch::asm;

#[repr(C)]
struct Entry {
    instruction: u64,
    resume: u64,
}

unsafe extern "C" {
    static __extable_start: Entry;
    static __extable_end: Entry;
}

/// Where to resume after a trap at `sepc`, if the instruction there was expected to trap.
#[must_use]
pub fn fixup(sepc: u64) -> Option<u64> {
    let (start, end) = (&raw const __extable_start, &raw const __extable_end);
    let count = (end as usize - start as usize) / size_of::<Entry>();
    // SAFETY: (1) the linker script places `.extable` between the two symbols and keeps only `Entry`-shaped
    // records there; (2) the section is read-only after linking.
    let table = unsafe { core::slice::from_raw_parts(start, count) };
    table.iter().find(|entry| entry.instruction == sepc).map(|entry| entry.resume)
}

/// The next access may trap, although this is still the trap from the guest (Ssdbltrp).
#[inline(always)]
fn expect_trap() {
    // SAFETY: the bit only says whether a trap would be a double trap.
    unsafe { csr::sstatus::clear(sstatus::SDT) };
}

/// Fetches 16 bits of an instruction at guest virtual address `gva` with the current guest's translation and
/// execute permission (`hlvx.hu`). `None` if the guest's mapping has gone in between.
#[must_use]
pub fn fetch_guest_u16(gva: u64) -> Option<u16> {
    let (value, failed): (u64, u64);
    expect_trap();
    // SAFETY: (1) the load goes through the guest's two stages, so it can only see the guest's own memory; (2) if it
    // traps, the extable entry resumes at label 3 with `failed` still 1.
    unsafe {
        asm!(
            ".option push",
            ".option arch, +h",
            "li {failed}, 1",
            "2: hlvx.hu {value}, ({gva})",
            "li {failed}, 0",
            "3:",
            ".option pop",
            ".pushsection .extable, \"a\"",
            ".balign 8",
            ".dword 2b, 3b",
            ".popsection",
            gva = in(reg) gva,
            value = out(reg) value,
            failed = out(reg) failed,
            options(nostack, readonly),
        );
    }
    (failed == 0).then_some(value as u16)
}

/// Loads the aligned word around guest virtual address `gva` with the current guest's translation and rights
/// (`hlv.wu`). `None` if that traps.
#[must_use]
pub fn load_guest_u32(gva: u64) -> Option<u32> {
    let (value, failed): (u64, u64);
    expect_trap();
    // SAFETY: as in `fetch_guest_u16`. What a guest may load has no side effect outside the guest.
    unsafe {
        asm!(
            ".option push",
            ".option arch, +h",
            "li {failed}, 1",
            "2: hlv.wu {value}, ({gva})",
            "li {failed}, 0",
            "3:",
            ".option pop",
            ".pushsection .extable, \"a\"",
            ".balign 8",
            ".dword 2b, 3b",
            ".popsection",
            gva = in(reg) gva & !3,
            value = out(reg) value,
            failed = out(reg) failed,
            options(nostack, readonly),
        );
    }
    (failed == 0).then_some(value as u32)
}

/// Loads the aligned 8 bytes around guest virtual address `gva` with the current guest's translation and rights (`hlv.d`). `None`
/// if that traps.
#[must_use]
pub fn load_guest_u64(gva: u64) -> Option<u64> {
    let (value, failed): (u64, u64);
    expect_trap();
    // SAFETY: as in `load_guest_u32`.
    unsafe {
        asm!(
            ".option push",
            ".option arch, +h",
            "li {failed}, 1",
            "2: hlv.d {value}, ({gva})",
            "li {failed}, 0",
            "3:",
            ".option pop",
            ".pushsection .extable, \"a\"",
            ".balign 8",
            ".dword 2b, 3b",
            ".popsection",
            gva = in(reg) gva & !7,
            value = out(reg) value,
            failed = out(reg) failed,
            options(nostack, readonly),
        );
    }
    (failed == 0).then_some(value)
}

/// Reads 8 machine bytes at virtual address `va` of the monitor; `None` when the memory answers with a fault.
///
/// # Safety
/// `va` must be mapped as memory or device of the machine by the monitor's own tables, 8-byte aligned.
#[must_use]
pub unsafe fn read_u64(va: u64) -> Option<u64> {
    let (value, failed): (u64, u64);
    expect_trap();
    // SAFETY: the caller vouches for the mapping; a fault resumes at label 3.
    unsafe {
        asm!(
            "li {failed}, 1",
            "2: ld {value}, 0({va})",
            "li {failed}, 0",
            "3:",
            ".pushsection .extable, \"a\"",
            ".balign 8",
            ".dword 2b, 3b",
            ".popsection",
            va = in(reg) va,
            value = out(reg) value,
            failed = out(reg) failed,
            options(nostack, readonly),
        );
    }
    (failed == 0).then_some(value)
}

/// Tries to read the CSR `hstateen0` (Smstateen); `None` on harts that do not have it.
#[must_use]
pub fn try_read_hstateen0() -> Option<u64> {
    try_read_csr::<0x60c>()
}

/// Tries to read the counter `cycle`; `None` where the firmware does not let us.
#[must_use]
pub fn try_read_cycle() -> Option<u64> {
    try_read_csr::<0xc00>()
}

/// Tries to read the counter `instret`; `None` where the firmware does not let us.
#[must_use]
pub fn try_read_instret() -> Option<u64> {
    try_read_csr::<0xc02>()
}

fn try_read_csr<const NUMBER: u16>() -> Option<u64> {
    let (value, failed): (u64, u64);
    expect_trap();
    // SAFETY: reading these CSRs has no side effect; an illegal-instruction trap resumes at label 3.
    unsafe {
        asm!(
            "li {failed}, 1",
            "2: csrr {value}, {number}",
            "li {failed}, 0",
            "3:",
            ".pushsection .extable, \"a\"",
            ".balign 8",
            ".dword 2b, 3b",
            ".popsection",
            value = out(reg) value,
            failed = out(reg) failed,
            number = const NUMBER,
            options(nostack),
        );
    }
    (failed == 0).then_some(value)
}
