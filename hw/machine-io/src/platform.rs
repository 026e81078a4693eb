//! What the drivers need from whoever runs them: memory that devices can reach, and mappings of device registers.
//!
//! Memory is never given back. Devices of the machine live as long as the monitor; and one that failed may go on
//! writing the memory it was given, so nobody else must ever get it.
//
// UNSAFETY: implementing `virtio_drivers::Hal` is a promise about pointers; it is passed on to the implementer of
// `Platform`.
#![expect(unsafe_code)]

use core::{marker::PhantomData, ptr::NonNull};

use addr::{BASE_PAGE, MachineAddr};
use machine_tree::AddressRange;
use virtio_drivers::{BufferDirection, Hal, PhysAddr};

/// Memory and mappings for drivers. The monitor implements it once, over its frame allocator and direct map.
///
/// # Safety
/// 1. [`Platform::allocate`] returns zeroed, page-aligned memory of `pages` contiguous machine pages, mapped readable
///    and writable at the returned address for ever, and used by nobody else.
/// 2. [`Platform::map_device`] returns an address at which the whole range is mapped, as device memory, for ever.
/// 3. Devices reach all memory at its machine address (no IOMMU translates), coherently with the harts' caches.
pub unsafe trait Platform: 'static {
    /// Takes contiguous pages.
    fn allocate(pages: usize) -> Option<(MachineAddr, NonNull<u8>)>;

    /// The virtual address of a block of device registers; `None` if it cannot be mapped.
    fn map_device(range: AddressRange) -> Option<NonNull<u8>>;
}

/// A [`Platform`] as the PCI transport wants it.
pub(crate) struct PlatformHal<P>(PhantomData<P>);

// SAFETY: 1. `dma_alloc`: by contract 1 of `Platform`. 2. `mmio_phys_to_virt`: by contract 2; where the platform
// cannot map, a dangling pointer would break the promise, so it panics; `pci` maps every BAR once before, to refuse
// politely. 3. `share`: by contract 3 memory is shared at its machine address, but which one that is for a virtual
// address is nothing a `Platform` knows; nothing here shares buffers through this trait (queues are `crate::ring`'s,
// by machine address), so it panics rather than lie.
unsafe impl<P: Platform> Hal for PlatformHal<P> {
    fn dma_alloc(pages: usize, _direction: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        // Address 0 is how this trait says that there is none.
        P::allocate(pages).map_or((0, NonNull::dangling()), |(address, memory)| (address.raw(), memory))
    }

    unsafe fn dma_dealloc(_paddr: PhysAddr, _vaddr: NonNull<u8>, _pages: usize) -> i32 {
        // Kept for ever, as all memory that a device ever knew.
        0
    }

    unsafe fn mmio_phys_to_virt(paddr: PhysAddr, size: usize) -> NonNull<u8> {
        let range = AddressRange::new(MachineAddr::new(paddr), size as u64);
        range.and_then(P::map_device).expect("every BAR was mapped before its transport was made")
    }

    unsafe fn share(_buffer: NonNull<[u8]>, _direction: BufferDirection) -> PhysAddr {
        unreachable!("queues of this crate name buffers by machine address")
    }

    unsafe fn unshare(_paddr: PhysAddr, _buffer: NonNull<[u8]>, _direction: BufferDirection) {
        unreachable!("queues of this crate name buffers by machine address")
    }
}

/// Pages for `bytes` bytes.
pub(crate) const fn pages_for(bytes: usize) -> usize {
    bytes.div_ceil(BASE_PAGE as usize)
}
