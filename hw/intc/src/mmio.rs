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
    #[should_panic(expected = "register offset inside the block")]
    fn beyond_the_end() {
        let memory = [0u32; 4];
        // SAFETY: as above.
        let region = unsafe { MmioRegion::new(memory.as_ptr().expose_provenance(), 16) };
        region.read(16);
    }
}
