//! Floating-point and vector register files of a guest, saved and restored only when they were used.
//
// UNSAFETY: the monitor itself is built without F, D and V, so the registers can only be reached by assembly.
#![expect(unsafe_code)]

use crate::{csr, fields::sstatus};
use core::arch::asm;

/// The 32 floating-point registers and `fcsr`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FpState {
    f: [u64; 32],
    fcsr: u64,
}

impl FpState {
    /// All zero, as after reset.
    #[must_use]
    pub const fn new() -> Self {
        Self { f: [0; 32], fcsr: 0 }
    }

    /// The registers as bits, and `fcsr`.
    #[must_use]
    pub const fn bits(&self) -> (&[u64; 32], u64) {
        (&self.f, self.fcsr)
    }

    /// Registers with these bits. `fcsr` has eight.
    #[must_use]
    pub const fn from_bits(f: [u64; 32], fcsr: u64) -> Self {
        Self { f, fcsr: fcsr & 0xff }
    }

    /// Saves the hart's registers here. Turns the unit on for that long.
    pub fn save(&mut self) {
        // SAFETY: (1) FS is switched on first, so the stores are legal; (2) they write exactly the 33 words of
        // `self`; (3) the compiler keeps nothing in FP registers on this target.
        unsafe {
            csr::sstatus::set(sstatus::FS_CLEAN);
            asm!(
                ".option push",
                ".option arch, +d",
                "fsd f0, 0({0})", "fsd f1, 8({0})", "fsd f2, 16({0})", "fsd f3, 24({0})",
                "fsd f4, 32({0})", "fsd f5, 40({0})", "fsd f6, 48({0})", "fsd f7, 56({0})",
                "fsd f8, 64({0})", "fsd f9, 72({0})", "fsd f10, 80({0})", "fsd f11, 88({0})",
                "fsd f12, 96({0})", "fsd f13, 104({0})", "fsd f14, 112({0})", "fsd f15, 120({0})",
                "fsd f16, 128({0})", "fsd f17, 136({0})", "fsd f18, 144({0})", "fsd f19, 152({0})",
                "fsd f20, 160({0})", "fsd f21, 168({0})", "fsd f22, 176({0})", "fsd f23, 184({0})",
                "fsd f24, 192({0})", "fsd f25, 200({0})", "fsd f26, 208({0})", "fsd f27, 216({0})",
                "fsd f28, 224({0})", "fsd f29, 232({0})", "fsd f30, 240({0})", "fsd f31, 248({0})",
                "csrr {1}, fcsr",
                "sd {1}, 256({0})",
                ".option pop",
                in(reg) &raw mut *self,
                out(reg) _,
                options(nostack),
            );
        }
    }

    /// Loads the hart's registers from here. Leaves the unit on.
    pub fn restore(&self) {
        // SAFETY: as in `save`, with loads.
        unsafe {
            csr::sstatus::set(sstatus::FS_CLEAN);
            asm!(
                ".option push",
                ".option arch, +d",
                "fld f0, 0({0})", "fld f1, 8({0})", "fld f2, 16({0})", "fld f3, 24({0})",
                "fld f4, 32({0})", "fld f5, 40({0})", "fld f6, 48({0})", "fld f7, 56({0})",
                "fld f8, 64({0})", "fld f9, 72({0})", "fld f10, 80({0})", "fld f11, 88({0})",
                "fld f12, 96({0})", "fld f13, 104({0})", "fld f14, 112({0})", "fld f15, 120({0})",
                "fld f16, 128({0})", "fld f17, 136({0})", "fld f18, 144({0})", "fld f19, 152({0})",
                "fld f20, 160({0})", "fld f21, 168({0})", "fld f22, 176({0})", "fld f23, 184({0})",
                "fld f24, 192({0})", "fld f25, 200({0})", "fld f26, 208({0})", "fld f27, 216({0})",
                "fld f28, 224({0})", "fld f29, 232({0})", "fld f30, 240({0})", "fld f31, 248({0})",
                "ld {1}, 256({0})",
                "csrw fcsr, {1}",
                ".option pop",
                in(reg) &raw const *self,
                out(reg) _,
                options(nostack, readonly),
            );
        }
    }
}

impl Default for FpState {
    fn default() -> Self {
        Self::new()
    }
}

/// Words that a vector register file of `vlenb` bytes per register takes: 32 registers and four CSRs.
#[must_use]
pub const fn vector_words(vlenb: usize) -> usize {
    32 * vlenb / 8 + 4
}

/// Bytes per vector register of this hart.
///
/// Call only on harts whose ISA string has V.
#[must_use]
pub fn vlenb() -> usize {
    // SAFETY: switching the unit on makes the CSR readable; the unit is put back as it was.
    unsafe {
        let before = csr::sstatus::read();
        csr::sstatus::set(sstatus::VS_CLEAN);
        let bytes = csr::vlenb::read() as usize;
        csr::sstatus::write(before);
        bytes
    }
}

/// Saves the vector registers into `words`.
///
/// # Panics
/// If `words` is shorter than [`vector_words`] of this hart's `vlenb`.
pub fn save_vector(words: &mut [u64], vlenb: usize) {
    assert!(words.len() >= vector_words(vlenb), "vector save area too small");
    let base = words.as_mut_ptr();
    // SAFETY: (1) VS is on; (2) the length was checked; (3) vs8r.v stores eight whole registers of `vlenb` bytes;
    // (4) reading vl/vtype/vcsr/vstart first keeps what the stores do not need (vs8r.v honours vstart, so it is
    // zeroed after it was read).
    unsafe {
        csr::sstatus::set(sstatus::VS_CLEAN);
        asm!(
            ".option push",
            ".option arch, +v",
            "csrr {t}, vstart", "sd {t}, 0({b})",
            "csrr {t}, vcsr", "sd {t}, 8({b})",
            "csrr {t}, vl", "sd {t}, 16({b})",
            "csrr {t}, vtype", "sd {t}, 24({b})",
            "csrw vstart, zero",
            "addi {b}, {b}, 32",
            "slli {t}, {l}, 3",
            "vs8r.v v0, ({b})", "add {b}, {b}, {t}",
            "vs8r.v v8, ({b})", "add {b}, {b}, {t}",
            "vs8r.v v16, ({b})", "add {b}, {b}, {t}",
            "vs8r.v v24, ({b})",
            ".option pop",
            b = inout(reg) base => _,
            t = out(reg) _,
            l = in(reg) vlenb,
            options(nostack),
        );
    }
}

/// Loads the vector registers from `words`.
///
/// # Panics
/// As for [`save_vector`].
pub fn restore_vector(words: &[u64], vlenb: usize) {
    assert!(words.len() >= vector_words(vlenb), "vector save area too small");
    let base = words.as_ptr();
    // SAFETY: as in `save_vector`; vsetvl re-establishes vl and vtype, then vcsr and vstart follow.
    unsafe {
        csr::sstatus::set(sstatus::VS_CLEAN);
        asm!(
            ".option push",
            ".option arch, +v",
            "csrw vstart, zero",
            "mv {r}, {b}",
            "addi {b}, {b}, 32",
            "slli {t}, {l}, 3",
            "vl8re8.v v0, ({b})", "add {b}, {b}, {t}",
            "vl8re8.v v8, ({b})", "add {b}, {b}, {t}",
            "vl8re8.v v16, ({b})", "add {b}, {b}, {t}",
            "vl8re8.v v24, ({b})",
            "ld {t}, 16({r})", "ld {b}, 24({r})", "vsetvl zero, {t}, {b}",
            "ld {t}, 8({r})", "csrw vcsr, {t}",
            "ld {t}, 0({r})", "csrw vstart, {t}",
            ".option pop",
            b = inout(reg) base => _,
            t = out(reg) _,
            r = out(reg) _,
            l = in(reg) vlenb,
            options(nostack, readonly),
        );
    }
}
