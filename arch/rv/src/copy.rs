//! Copies of memory by vector registers, eight at a time.
//!
//! The monitor itself has no use for the vector unit, and what is in its registers at any moment is some guest's. So a
//! copy borrows eight registers and puts them back: some 30 instructions, against 1,200 for a page copied by words.
//
// UNSAFETY: the monitor is built without V, so the registers can only be reached by assembly.
#![expect(unsafe_code)]

use crate::{csr, fields::sstatus};
use core::{arch::asm, mem::MaybeUninit};

/// Longest register (in bytes) that a copy borrows space for: 512 bits.
pub const MAX_VLENB: usize = 64;

/// Copies as much of `len` bytes as are whole groups of eight vector registers of `vlenb` bytes; returns how much.
/// 0 where the registers are longer than [`MAX_VLENB`].
///
/// The registers and `sstatus.VS` are as before when it returns.
///
/// # Safety
/// 1. `dst` and `src` are valid for `len` bytes and do not overlap.
/// 2. The hart has V, with registers of `vlenb` bytes, and takes no interrupt into code that uses them.
#[inline(never)]
pub unsafe fn copy_groups(dst: *mut u8, src: *const u8, len: usize, vlenb: usize) -> usize {
    let group = 8 * vlenb;
    if vlenb > MAX_VLENB || len < group {
        return 0;
    }
    let copied = len - len % group;
    let mut borrowed = MaybeUninit::<[u64; MAX_VLENB]>::uninit();
    // SAFETY: (1) VS is switched on first, so the instructions are legal; (2) whole-register accesses depend on neither
    // vtype nor vl, and on vstart only, which is kept and zeroed; (3) the eight registers fit into `borrowed` and are
    // loaded again; (4) the loop stays inside `copied` bytes, which the caller vouches for.
    unsafe {
        let status = csr::sstatus::read();
        csr::sstatus::set(sstatus::VS_CLEAN);
        asm!(
            ".option push",
            ".option arch, +v",
            "csrrw {t}, vstart, zero",
            "vs8r.v v0, ({b})",
            "2:",
            "vl8re8.v v0, ({s})", "add {s}, {s}, {g}",
            "vs8r.v v0, ({d})", "add {d}, {d}, {g}",
            "bltu {s}, {e}, 2b",
            "vl8re8.v v0, ({b})",
            "csrw vstart, {t}",
            ".option pop",
            s = inout(reg) src => _,
            d = inout(reg) dst => _,
            e = in(reg) src.add(copied),
            g = in(reg) group,
            b = in(reg) borrowed.as_mut_ptr(),
            t = out(reg) _,
            options(nostack),
        );
        csr::sstatus::write(status);
    }
    copied
}
