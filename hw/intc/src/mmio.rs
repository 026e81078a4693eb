//! Device registers in memory.
//
// UNSAFETY: a device register is a volatile access to an address that only the machine's description vouches for.
// This is the one place of the crate that makes such accesses; drivers go through the safe `Registers` trait.
#![expect(unsafe_code)]

use core::ptr::{read_volatile, with_exposed_provenance, with_exposed_provenance_mut, write_volatile};

/// A block of 32-bit little-endian registers. Drivers are generic over it, so that tests can put a model behind them.
pub trait Registers {
    /// Bytes in the block.
    fn bytes(&self) -> usize;

    /// Reads the register at `offset`.
    ///
    /// # Panics
    /// If `offset` is not a multiple of four inside the block: a bug of the driver, which checks the block's size
    /// when it takes it over.
    fn read(&self, offset: usize) -> u32;

    /// Sum of `count` registers, the first of them at `offset` and each `stride` bytes behind the one before. It costs a
    /// fraction of as many reads.
    ///
    /// # Panics
    /// As for [`Registers::read`], of each of them.
    fn sum(&self, offset: usize, stride: usize, count: usize) -> u64 {
        (0..count).map(|nth| u64::from(self.read(offset + nth * stride))).sum()
    }

    /// Writes the register at `offset`. Memory writes made before are visible to whoever reacts to this one.
    ///
    /// # Panics
    /// As for [`Registers::read`].
    fn write(&self, offset: usize, value: u32);
}

/// Device registers at a virtual address.
///
/// Invariant: `base..base + bytes` is mapped device memory, as [`MmioRegion::new`] demands.
#[derive(Clone, Copy, Debug)]
pub struct MmioRegion {
    base: usize,
    bytes: usize,
}

impl MmioRegion {
    /// Takes over the registers at `base`.
    ///
    /// # Safety
    /// 1. `base` is a multiple of four and the `bytes` bytes from it are mapped, readable and writable, to registers
    ///    of one device for as long as the value or a copy of it lives; no Rust object lies there.
    /// 2. No access to a register of the block, with any value, makes the device write to memory that Rust code uses.
    ///    (Interrupt controllers never do; a device with DMA needs a driver that owns its buffers.)
    #[must_use]
    pub const unsafe fn new(base: usize, bytes: usize) -> Self {
        Self { base, bytes }
    }

    #[inline(always)]
    fn address(&self, offset: usize) -> usize {
        let end = offset.checked_add(size_of::<u32>());
        assert!(
            offset.is_multiple_of(4) && end.is_some_and(|end| end <= self.bytes),
            "register offset inside the block"
        );
        self.base + offset
    }
}

impl Registers for MmioRegion {
    fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline(always)]
    fn read(&self, offset: usize) -> u32 {
        let register = with_exposed_provenance::<u32>(self.address(offset));
        // SAFETY: 1. `address` checked that the register lies inside the block and is aligned, and the block is mapped
        // and no Rust object (invariant of the type). 2. A read makes no device of this kind touch memory (same).
        let value = unsafe { read_volatile(register) };
        order::after_read();
        u32::from_le(value)
    }

    #[inline(always)]
    fn sum(&self, offset: usize, stride: usize, count: usize) -> u64 {
        let Some(behind) = count.checked_sub(1) else { return 0 };
        let first = self.address(offset);
        let last =
            behind.checked_mul(stride).and_then(|bytes| bytes.checked_add(offset)).map(|last| self.address(last));
        // Those between lie inside as the last one does, and are as aligned as the stride is.
        assert!(stride.is_multiple_of(4) && last.is_some(), "registers inside the block");
        let mut sum = 0;
        let mut at = first;
        for _ in 0..count {
            // SAFETY: as in `read`, for each of them: checked above.
            sum += u64::from(u32::from_le(unsafe { read_volatile(with_exposed_provenance::<u32>(at)) }));
            at = at.wrapping_add(stride);
        }
        order::after_read();
        sum
    }

    fn write(&self, offset: usize, value: u32) {
        let register = with_exposed_provenance_mut::<u32>(self.address(offset));
        order::before_write();
        // SAFETY: as in `read`; writing needs no exclusive access because no Rust object lies there.
        unsafe { write_volatile(register, value.to_le()) }
    }
}

/// Ordering of device accesses against memory accesses. The portable fences of `core` order memory only.
#[cfg(target_arch = "riscv64")]
mod order {
    use core::arch::asm;

    pub(super) fn before_write() {
        // SAFETY: a fence orders accesses and does nothing else.
        unsafe { asm!("fence w, o", options(nostack, preserves_flags)) }
    }

    pub(super) fn after_read() {
        // SAFETY: a fence orders accesses and does nothing else.
        unsafe { asm!("fence i, r", options(nostack, preserves_flags)) }
    }
}

/// On the host there is no device behind a region: plain memory stands in, and its order is the compiler's.
#[cfg(not(target_arch = "riscv64"))]
mod order {
    use core::sync::atomic::{Ordering, fence};

    pub(super) fn before_write() {
        fence(Ordering::SeqCst);
    }

    pub(super) fn after_read() {
        fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn a_region_is_little_endian_and_bounded() {
        let mut memory = [0u32; 4];
        let base = memory.as_mut_ptr().expose_provenance();
        // SAFETY: the array is aligned, lives longer than the region, is only read again after its last use, and no
        // device is behind it.
        let region = unsafe { MmioRegion::new(base, 16) };
        region.write(12, 0x0102_0304);
        assert_eq!(region.read(12), 0x0102_0304);
        assert_eq!(memory[3].to_le_bytes(), [4, 3, 2, 1]);
    }

    #[test]
    fn registers_are_added_up_by_rows() {
        let memory = [1u32, 10, u32::MAX, 20, u32::MAX, 30].map(u32::to_le);
        // SAFETY: as above.
        let region = unsafe { MmioRegion::new(memory.as_ptr().expose_provenance(), 24) };
        assert_eq!(region.sum(4, 8, 3), 60);
        assert_eq!(region.sum(0, 8, 3), 2 * u64::from(u32::MAX) + 1, "they do not wrap");
        assert_eq!((region.sum(20, 8, 1), region.sum(24, 8, 0)), (30, 0));
        for (offset, stride, count) in [(4, 8, 4), (0, 2, 3), (2, 4, 1), (24, 4, 1), (0, usize::MAX - 3, 3)] {
            let beyond = std::panic::catch_unwind(|| region.sum(offset, stride, count));
            assert!(beyond.is_err(), "{count} from {offset} on, {stride} bytes apart");
        }
    }

    #[test]
    #[should_panic(expected = "register offset inside the block")]
    fn beyond_the_end() {
        let memory = [0u32; 4];
        // SAFETY: as above.
        let region = unsafe { MmioRegion::new(memory.as_ptr().expose_provenance(), 16) };
        region.read(16);
    }
}
