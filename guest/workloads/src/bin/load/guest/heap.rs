//! The heap: small things one after another from large pieces and never given back; large things each a mapping of its own.
//! A workload allocates at its beginning, so nothing better is needed.
//
// UNSAFETY: a global allocator is unsafe by definition.
#![expect(unsafe_code)]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use super::linux;

/// From this size a thing is a mapping of its own; also the size of the pieces.
const LARGE: usize = 256 << 10;

struct Heap {
    taken: AtomicBool,
    /// The rest of the piece in use: from, to. Guarded by `taken`.
    piece: UnsafeCell<(usize, usize)>,
}

// SAFETY: `piece` is only touched by the holder of `taken`.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap = Heap { taken: AtomicBool::new(false), piece: UnsafeCell::new((0, 0)) };

// SAFETY: what `alloc` gives out is mapped, aligned, large enough, and given to nobody else: mappings are new, and pieces
// are cut under the lock.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE {
            // Mappings are aligned to pages, and nothing here is aligned more.
            return linux::map(layout.size()).map_or(core::ptr::null_mut(), |address| address as *mut u8);
        }
        while self.taken.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        // SAFETY: this thread holds `taken`.
        let piece = unsafe { &mut *self.piece.get() };
        let mut at = piece.0.next_multiple_of(layout.align());
        if at + layout.size() > piece.1 {
            let fresh = linux::map(2 * LARGE).unwrap_or(0);
            *piece = (fresh, if fresh == 0 { 0 } else { fresh + 2 * LARGE });
            at = fresh;
        }
        if at != 0 {
            piece.0 = at + layout.size();
        }
        self.taken.store(false, Ordering::Release);
        at as *mut u8
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        if layout.size() >= LARGE {
            linux::unmap(place as usize, layout.size());
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the same layout. All that is given out is fresh from the kernel, so zero: nothing is given out twice.
        unsafe { self.alloc(layout) }
    }
}
