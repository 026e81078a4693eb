//! Memory that a device reads and writes while we do.
//
// UNSAFETY: such memory can never be a Rust reference, because it changes under us. This module makes volatile and
// atomic accesses through raw pointers and is the only one that does; everything above is safe code over offsets.
#![expect(unsafe_code)]

use core::{
    marker::PhantomData,
    ptr::{NonNull, copy_nonoverlapping},
    sync::atomic::{AtomicU16, Ordering, fence},
};

use addr::MachineAddr;

use crate::{
    error::IoError,
    platform::{Platform, pages_for},
};

/// An area of contiguous pages shared with a device.
///
/// Invariant: `memory` points to `bytes` bytes from `Platform::allocate`, at machine address `address`, which are never
/// given back. No reference into them is ever made.
pub(crate) struct DmaArea<P: Platform> {
    address: MachineAddr,
    memory: NonNull<u8>,
    bytes: usize,
    platform: PhantomData<fn() -> P>,
}

// SAFETY: the area owns its memory, which is mapped at the same address on every hart; all access goes through
// volatile and atomic accesses, and shared access from several threads is ruled out by not being `Sync`.
unsafe impl<P: Platform> Send for DmaArea<P> {}

impl<P: Platform> DmaArea<P> {
    /// A zeroed area of at least `bytes` bytes.
    pub(crate) fn new(bytes: usize) -> Result<Self, IoError> {
        let pages = pages_for(bytes);
        let (address, memory) = P::allocate(pages).ok_or(IoError::OutOfMemory { pages })?;
        Ok(Self { address, memory, bytes: pages << addr::BASE_PAGE_SHIFT, platform: PhantomData })
    }

    /// Machine address of `offset`.
    pub(crate) fn address(&self, offset: usize) -> MachineAddr {
        // Inside an area that exists, so it cannot wrap.
        MachineAddr::new(self.address.raw() + offset as u64)
    }

    /// Pointer to `len` bytes at `offset`, checked.
    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.bytes), "offset inside the DMA area");
        // SAFETY: the offset is inside the allocation.
        unsafe { self.memory.as_ptr().add(offset) }
    }

    pub(crate) fn read_u8(&self, offset: usize) -> u8 {
        // SAFETY: `at` checked the bounds; the memory is mapped (invariant); a byte is always aligned.
        unsafe { self.at(offset, 1).read_volatile() }
    }

    pub(crate) fn write_u8(&self, offset: usize, value: u8) {
        // SAFETY: as in `read_u8`.
        unsafe { self.at(offset, 1).write_volatile(value) }
    }

    pub(crate) fn read_u32(&self, offset: usize) -> u32 {
        // SAFETY: as in `read_u8`, and unaligned offsets are refused.
        u32::from_le(unsafe { self.aligned::<u32>(offset).read_volatile() })
    }

    pub(crate) fn write_u16(&self, offset: usize, value: u16) {
        // SAFETY: as in `read_u32`.
        unsafe { self.aligned::<u16>(offset).write_volatile(value.to_le()) }
    }

    pub(crate) fn write_u32(&self, offset: usize, value: u32) {
        // SAFETY: as in `read_u32`.
        unsafe { self.aligned::<u32>(offset).write_volatile(value.to_le()) }
    }

    pub(crate) fn write_u64(&self, offset: usize, value: u64) {
        // SAFETY: as in `read_u32`.
        unsafe { self.aligned::<u64>(offset).write_volatile(value.to_le()) }
    }

    /// Reads an index that the device advances: what it wrote before is visible afterwards.
    pub(crate) fn load_index(&self, offset: usize) -> u16 {
        // SAFETY: in bounds, aligned, mapped, and only ever accessed atomically or by the device.
        u16::from_le(unsafe { AtomicU16::from_ptr(self.aligned::<u16>(offset)) }.load(Ordering::Acquire))
    }

    /// Publishes an index: what we wrote before is visible to a device that sees it.
    pub(crate) fn store_index(&self, offset: usize, value: u16) {
        // SAFETY: as in `load_index`.
        unsafe { AtomicU16::from_ptr(self.aligned::<u16>(offset)) }.store(value.to_le(), Ordering::Release);
    }

    /// Copies out of the area.
    pub(crate) fn read_bytes(&self, offset: usize, target: &mut [u8]) {
        // SAFETY: in bounds; `target` is ours alone and cannot overlap memory that no reference points to. The device
        // has handed this part back, so nobody writes it now.
        unsafe { copy_nonoverlapping(self.at(offset, target.len()), target.as_mut_ptr(), target.len()) }
    }

    /// Copies into the area.
    pub(crate) fn write_bytes(&self, offset: usize, source: &[u8]) {
        // SAFETY: as in `read_bytes`.
        unsafe { copy_nonoverlapping(source.as_ptr(), self.at(offset, source.len()), source.len()) }
    }

    fn aligned<T>(&self, offset: usize) -> *mut T {
        assert!(offset.is_multiple_of(align_of::<T>()), "aligned offset");
        self.at(offset, size_of::<T>()).cast()
    }
}

/// Orders memory accesses before device accesses and the other way round: before a device is told to look at memory.
pub(crate) fn fence_before_notify() {
    #[cfg(target_arch = "riscv64")]
    // SAFETY: a fence orders accesses and does nothing else. The portable fences order memory only, not device I/O;
    // this is the one instruction of this crate that has no portable form.
    unsafe {
        core::arch::asm!("fence iorw, iorw", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "riscv64"))]
    fence(Ordering::SeqCst);
}

/// Orders a store to memory before a later load of something the device writes.
pub(crate) fn fence_memory() {
    fence(Ordering::SeqCst);
}
