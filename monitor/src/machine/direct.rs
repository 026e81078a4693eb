//! The direct map: every byte of machine memory at a fixed offset, read-write, in each node's tables.
//
// UNSAFETY: the one place where machine addresses become pointers. What may be touched is decided by who owns the
// frame (memmap); here every access is volatile or an opaque copy, because guests and devices may write the same
// bytes at the same time.
#![expect(unsafe_code)]

use super::layout::direct;
use addr::{BASE_PAGE, MachineAddr, Mfn, PageSize};
use core::{
    arch::asm,
    sync::atomic::{AtomicU32, AtomicUsize, Ordering},
};

/// Bytes that one `cbo.zero` clears; 0 where the harts cannot.
static ZERO_BLOCK: AtomicU32 = AtomicU32::new(0);

/// Bytes of a vector register; 0 where the harts have none.
static VECTOR_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Copies from this length on borrow vector registers.
const VECTOR_FROM: usize = 512;

/// Boot tells the length of a vector register of all harts (0: none).
pub fn set_vector_bytes(bytes: usize) {
    VECTOR_BYTES.store(bytes, Ordering::Relaxed);
}

/// Boot tells the `cbo.zero` block size that all harts share (0: none). Sizes that [`zero`] cannot use count as none.
pub fn set_zero_block(bytes: u32) {
    let is_usable = bytes.is_power_of_two() && u64::from(bytes) * 8 <= BASE_PAGE;
    ZERO_BLOCK.store(if is_usable { bytes } else { 0 }, Ordering::Relaxed);
}

/// Reads an aligned word of machine memory.
#[inline(always)]
#[must_use]
pub fn read_u64(addr: MachineAddr) -> u64 {
    debug_assert!(addr.raw().is_multiple_of(8));
    // SAFETY: the direct map covers all machine memory; a plain load has no side effect on RAM.
    unsafe { (direct(addr) as *const u64).read_volatile() }
}

/// Reads an aligned word of memory that may be lost: another cell's. `None` if the hardware refuses the access.
#[must_use]
pub fn try_read_u64(addr: MachineAddr) -> Option<u64> {
    debug_assert!(addr.raw().is_multiple_of(8) && addr.raw() < super::layout::DIRECT_SIZE);
    // SAFETY: as for `read_u64`; the direct map covers the address, whatever is behind it.
    unsafe { rv::guarded::read_u64(direct(addr)) }
}

/// Reads bytes of memory that may be lost. `None` if the hardware refuses an access; part of the buffer may be filled then.
#[must_use]
pub fn try_read_bytes(addr: MachineAddr, buf: &mut [u8]) -> Option<()> {
    let mut at = addr.raw();
    let mut left = buf;
    while !left.is_empty() {
        // The aligned word that holds the next byte. Memory is lost by whole pages.
        let skip = (at % 8) as usize;
        let word = try_read_u64(MachineAddr::new(at - skip as u64))?.to_le_bytes();
        let len = left.len().min(word.len() - skip);
        let (now, rest) = left.split_at_mut(len);
        now.copy_from_slice(&word[skip..skip + len]);
        (left, at) = (rest, at + len as u64);
    }
    Some(())
}

/// Writes an aligned word of machine memory that the caller owns (a table page, a frame not yet mapped).
#[inline(always)]
pub fn write_u64(addr: MachineAddr, value: u64) {
    debug_assert!(addr.raw().is_multiple_of(8));
    // SAFETY: as for `read_u64`; the frame's owner asked for the store. Rust objects never share frames with
    // guest memory or tables (the memmap hands a frame to one use at a time).
    unsafe { (direct(addr) as *mut u64).write_volatile(value) };
}

/// Reads an aligned half-word of a frame.
#[inline(always)]
#[must_use]
pub fn read_u16(addr: MachineAddr) -> u16 {
    debug_assert!(addr.raw().is_multiple_of(2));
    // SAFETY: as for `read_u64`.
    unsafe { (direct(addr) as *const u16).read_volatile() }
}

/// Reads an aligned 32-bit word of a frame.
#[inline(always)]
#[must_use]
pub fn read_u32(addr: MachineAddr) -> u32 {
    debug_assert!(addr.raw().is_multiple_of(4));
    // SAFETY: as for `read_u64`.
    unsafe { (direct(addr) as *const u32).read_volatile() }
}

/// Writes an aligned half-word of a frame that the caller may write.
#[inline(always)]
pub fn write_u16(addr: MachineAddr, value: u16) {
    debug_assert!(addr.raw().is_multiple_of(2));
    // SAFETY: as for `write_u64`.
    unsafe { (direct(addr) as *mut u16).write_volatile(value) };
}

/// Writes an aligned 32-bit word of a frame that the caller may write.
#[inline(always)]
pub fn write_u32(addr: MachineAddr, value: u32) {
    debug_assert!(addr.raw().is_multiple_of(4));
    // SAFETY: as for `write_u64`.
    unsafe { (direct(addr) as *mut u32).write_volatile(value) };
}

/// Zeroes a whole frame of the given size.
pub fn zero(frame: Mfn, size: PageSize) {
    let start = direct(frame.addr());
    let end = start + size.bytes();
    let block = u64::from(ZERO_BLOCK.load(Ordering::Relaxed));
    if block != 0 {
        // SAFETY: (1) the frame is the caller's; (2) all harts have Zicboz with this block size, eight of which divide a
        // page (`set_zero_block`); eight at a time because the loop would cost as much as the work.
        unsafe {
            asm!(
                ".option push", ".option arch, +zicboz",
                "2:",
                "cbo.zero ({at})", "add {at}, {at}, {block}", "cbo.zero ({at})", "add {at}, {at}, {block}",
                "cbo.zero ({at})", "add {at}, {at}, {block}", "cbo.zero ({at})", "add {at}, {at}, {block}",
                "cbo.zero ({at})", "add {at}, {at}, {block}", "cbo.zero ({at})", "add {at}, {at}, {block}",
                "cbo.zero ({at})", "add {at}, {at}, {block}", "cbo.zero ({at})", "add {at}, {at}, {block}",
                "bltu {at}, {end}, 2b",
                ".option pop",
                at = inout(reg) start => _, block = in(reg) block, end = in(reg) end,
                options(nostack),
            );
        }
    } else {
        // SAFETY: the frame is the caller's and lies in the direct map.
        unsafe { core::ptr::write_bytes(start as *mut u8, 0, size.bytes() as usize) };
    }
}

/// Copies `len` bytes between machine addresses that do not overlap.
#[inline]
pub fn copy(dst: MachineAddr, src: MachineAddr, len: u64) {
    copy_raw(direct(dst) as *mut u8, direct(src) as *const u8, len as usize);
}

/// Copies a base page.
pub fn copy_page(dst: Mfn, src: Mfn) {
    copy(dst.addr(), src.addr(), BASE_PAGE);
}

/// Copies out of machine memory.
#[inline]
pub fn read_bytes(addr: MachineAddr, buf: &mut [u8]) {
    copy_raw(buf.as_mut_ptr(), direct(addr) as *const u8, buf.len());
}

/// Copies into machine memory.
#[inline]
pub fn write_bytes(addr: MachineAddr, data: &[u8]) {
    copy_raw(direct(addr) as *mut u8, data.as_ptr(), data.len());
}

/// A copy that the compiler cannot see into: a racing writer (guest or device) gives torn bytes, never undefined
/// behaviour. Aligned power-of-two sizes up to 8 are one access, so ring indices are never torn.
#[inline(always)]
fn copy_raw(dst: *mut u8, src: *const u8, len: usize) {
    let aligned = (dst as usize | src as usize).is_multiple_of(len.max(1));
    // SAFETY: both sides are valid for `len` bytes: one is a Rust buffer of that length, the other direct-mapped
    // memory (or both are). They do not overlap: Rust buffers live in heap or stack frames, never in guest frames.
    unsafe {
        match (len, aligned) {
            (8, true) => dst.cast::<u64>().write_volatile(src.cast::<u64>().read_volatile()),
            (4, true) => dst.cast::<u32>().write_volatile(src.cast::<u32>().read_volatile()),
            (2, true) => dst.cast::<u16>().write_volatile(src.cast::<u16>().read_volatile()),
            (1, _) => dst.write_volatile(src.read_volatile()),
            _ => copy_block(dst, src, len),
        }
    }
}

/// By vector registers where there are some and it is worth it; then sixty-four bytes a turn while both sides are
/// word-aligned, then words, then bytes.
///
/// # Safety
/// `dst` and `src` are valid for `len` bytes and do not overlap.
unsafe fn copy_block(mut dst: *mut u8, mut src: *const u8, mut len: usize) {
    let vlenb = VECTOR_BYTES.load(Ordering::Relaxed);
    // SAFETY: every step stays inside the `len` bytes that the caller vouches for. Registers of `vlenb` bytes are there
    // since boot told so, and the monitor takes no interrupts.
    unsafe {
        if vlenb != 0 && len >= VECTOR_FROM {
            let copied = rv::copy::copy_groups(dst, src, len, vlenb);
            (dst, src, len) = (dst.add(copied), src.add(copied), len - copied);
        }
        if (dst as usize | src as usize).is_multiple_of(8) {
            while len >= 64 {
                asm!(
                    "ld {a}, 0({s})", "ld {b}, 8({s})", "ld {c}, 16({s})", "ld {e}, 24({s})",
                    "sd {a}, 0({d})", "sd {b}, 8({d})", "sd {c}, 16({d})", "sd {e}, 24({d})",
                    "ld {a}, 32({s})", "ld {b}, 40({s})", "ld {c}, 48({s})", "ld {e}, 56({s})",
                    "sd {a}, 32({d})", "sd {b}, 40({d})", "sd {c}, 48({d})", "sd {e}, 56({d})",
                    s = in(reg) src, d = in(reg) dst,
                    a = out(reg) _, b = out(reg) _, c = out(reg) _, e = out(reg) _,
                    options(nostack),
                );
                (dst, src, len) = (dst.add(64), src.add(64), len - 64);
            }
            while len >= 8 {
                dst.cast::<u64>().write_volatile(src.cast::<u64>().read_volatile());
                (dst, src, len) = (dst.add(8), src.add(8), len - 8);
            }
        }
        // Files of the boot bundle begin at multiples of 4.
        if (dst as usize | src as usize).is_multiple_of(4) {
            while len >= 32 {
                asm!(
                    "lw {a}, 0({s})", "lw {b}, 4({s})", "lw {c}, 8({s})", "lw {e}, 12({s})",
                    "sw {a}, 0({d})", "sw {b}, 4({d})", "sw {c}, 8({d})", "sw {e}, 12({d})",
                    "lw {a}, 16({s})", "lw {b}, 20({s})", "lw {c}, 24({s})", "lw {e}, 28({s})",
                    "sw {a}, 16({d})", "sw {b}, 20({d})", "sw {c}, 24({d})", "sw {e}, 28({d})",
                    s = in(reg) src, d = in(reg) dst,
                    a = out(reg) _, b = out(reg) _, c = out(reg) _, e = out(reg) _,
                    options(nostack),
                );
                (dst, src, len) = (dst.add(32), src.add(32), len - 32);
            }
        }
        while len > 0 {
            dst.write_volatile(src.read_volatile());
            (dst, src, len) = (dst.add(1), src.add(1), len - 1);
        }
    }
}

/// Machine memory that nobody writes any more (the boot bundle, the device tree), as bytes.
///
/// # Safety
/// The range is memory, lies in the direct map, and is neither written nor freed while the slice lives.
#[must_use]
pub unsafe fn as_bytes(addr: MachineAddr, len: usize) -> &'static [u8] {
    // SAFETY: the caller vouches for the range.
    unsafe { core::slice::from_raw_parts(direct(addr) as *const u8, len) }
}

/// `memory` for a Rust object array of `count` entries at machine address `addr`, zeroed.
///
/// # Safety
/// The memory is the caller's alone, aligned for `T`, in the direct map, and all-zero bytes are a valid `T`.
pub unsafe fn leak_array<T>(addr: MachineAddr, count: usize) -> &'static mut [T] {
    let base = direct(addr) as *mut T;
    // SAFETY: the caller vouches for ownership, alignment and zero validity.
    unsafe {
        core::ptr::write_bytes(base, 0, count);
        core::slice::from_raw_parts_mut(base, count)
    }
}
