//! Floating-point and vector registers.
//
// UNSAFETY: registers that the compiler does not know of (this program is built without F, D and V), and memory moved
// by instructions that it does not know of.
#![expect(unsafe_code)]

use crate::cpu;
use core::arch::asm;

const FS: u64 = 3 << 13;
const FS_INITIAL: u64 = 1 << 13;
const VS: u64 = 3 << 9;
const VS_INITIAL: u64 = 1 << 9;

/// Switches the FP unit on.
pub fn enable_fp() {
    cpu::set_sstatus(cpu::sstatus() & !FS | FS_INITIAL);
}

/// Switches the FP unit off.
pub fn disable_fp() {
    cpu::set_sstatus(cpu::sstatus() & !FS);
}

/// Switches the vector unit on.
pub fn enable_vector() {
    cpu::set_sstatus(cpu::sstatus() & !VS | VS_INITIAL);
}

/// Switches the vector unit off.
pub fn disable_vector() {
    cpu::set_sstatus(cpu::sstatus() & !VS);
}

/// Emits one instruction for each register: name before, offset = 8 x number.
macro_rules! each_fp {
    ($op:literal) => {
        each_fp!(@ $op; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
    };
    (@ $op:literal; $($n:literal)*) => {
        concat!(".option push\n.option arch, +d\n", $($op, " f", $n, ", 8*", $n, "({0})\n",)* ".option pop")
    };
}

/// Loads all FP registers.
pub fn load_fp(values: &[u64; 32]) {
    // SAFETY: reads the array; no value of this program lives in FP registers.
    unsafe { asm!(each_fp!("fld"), in(reg) values.as_ptr(), options(nostack)) };
}

/// Stores all FP registers.
pub fn store_fp(values: &mut [u64; 32]) {
    // SAFETY: writes the array, wholly and only.
    unsafe { asm!(each_fp!("fsd"), in(reg) values.as_mut_ptr(), options(nostack)) };
}

/// Loads an FP register from `at`.
pub fn load_one(at: u64) {
    // SAFETY: no value of this program lives in FP registers; a trap is the caller's concern.
    unsafe { asm!(".option push", ".option arch, +d", "fld f0, 0({0})", ".option pop", in(reg) at, options(nostack)) };
}

/// Stores an FP register to `at`.
pub fn store_one(at: u64) {
    // SAFETY: the caller aims where nothing of this program lies; a trap is its concern.
    unsafe { asm!(".option push", ".option arch, +d", "fsd f0, 0({0})", ".option pop", in(reg) at, options(nostack)) };
}

/// The FP control and status register.
pub fn fcsr() -> u64 {
    let value;
    // SAFETY: a CSR read.
    unsafe { asm!("csrr {0}, 0x003", out(reg) value, options(nostack)) };
    value
}

/// Writes it.
pub fn set_fcsr(value: u64) {
    // SAFETY: this program does no FP arithmetic.
    unsafe { asm!("csrw 0x003, {0}", in(reg) value, options(nostack)) };
}

/// Sets `vl` for 8-bit elements to `wanted` or what is possible; gives it.
pub fn set_vector_length(wanted: u64) -> u64 {
    let vl;
    // SAFETY: this program uses no vector instruction elsewhere.
    unsafe {
        asm!(".option push", ".option arch, +v", "vsetvli {0}, {1}, e8, m1, ta, ma", ".option pop",
            out(reg) vl, in(reg) wanted, options(nostack));
    }
    vl
}

/// `vl`.
pub fn vector_length() -> u64 {
    let vl;
    // SAFETY: a CSR read.
    unsafe { asm!("csrr {0}, 0xc20", out(reg) vl, options(nostack)) };
    vl
}

fn vector_bytes() -> usize {
    let bytes: usize;
    // SAFETY: a CSR read (vlenb).
    unsafe { asm!("csrr {0}, 0xc22", out(reg) bytes, options(nostack)) };
    bytes
}

/// Longest vector register that the probe has room for, in bytes (VLEN 1024).
const MAX_VECTOR: usize = 128;

/// Room for all vector registers.
pub struct VectorImage {
    bytes: [u8; 32 * MAX_VECTOR],
    used: usize,
}

impl VectorImage {
    /// Room for this machine's registers; `None` if they are too long.
    pub fn new() -> Option<Self> {
        let used = 32 * vector_bytes();
        (used <= 32 * MAX_VECTOR).then_some(Self { bytes: [0; 32 * MAX_VECTOR], used })
    }

    fn pattern(seed: u64, index: usize) -> u8 {
        seed.wrapping_mul(index as u64 + 7).wrapping_add(index as u64 >> 3) as u8
    }

    /// Bytes that depend on `seed` and place.
    pub fn fill(&mut self, seed: u64) {
        for (index, byte) in self.bytes.iter_mut().enumerate() {
            *byte = Self::pattern(seed, index);
        }
    }

    /// The same word in each place.
    pub fn set(&mut self, word: u64) {
        for (byte, value) in self.bytes.iter_mut().zip(word.to_le_bytes().into_iter().cycle()) {
            *byte = value;
        }
    }

    /// The words in use.
    pub fn words(&self) -> impl Iterator<Item = u64> {
        self.bytes[..self.used]
            .chunks_exact(8)
            .map(|word| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    /// Whether the bytes in use are (still) those of [`Self::fill`] with `seed`.
    pub fn is_filled(&self, seed: u64) -> bool {
        self.bytes[..self.used].iter().enumerate().all(|(index, byte)| *byte == Self::pattern(seed, index))
    }

    /// From here into the registers.
    pub fn load(&self) {
        // SAFETY: reads `used` bytes, four groups of eight registers, which the array holds.
        unsafe {
            asm!(".option push", ".option arch, +v", "vl8re8.v v0, ({0})", "add {0}, {0}, {1}", "vl8re8.v v8, ({0})",
                "add {0}, {0}, {1}", "vl8re8.v v16, ({0})", "add {0}, {0}, {1}", "vl8re8.v v24, ({0})", ".option pop",
                inout(reg) self.bytes.as_ptr() => _, in(reg) self.used / 4, options(nostack));
        }
    }

    /// From the registers to here.
    pub fn store(&mut self) {
        // SAFETY: writes `used` bytes, which the array holds.
        unsafe {
            asm!(".option push", ".option arch, +v", "vs8r.v v0, ({0})", "add {0}, {0}, {1}", "vs8r.v v8, ({0})",
                "add {0}, {0}, {1}", "vs8r.v v16, ({0})", "add {0}, {0}, {1}", "vs8r.v v24, ({0})", ".option pop",
                inout(reg) self.bytes.as_mut_ptr() => _, in(reg) self.used / 4, options(nostack));
        }
    }
}
