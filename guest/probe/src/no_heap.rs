//! No heap, said to the linker.
//!
//! The probe allocates nothing. But when cargo builds it in one go with the monitor, they share the features of their
//! dependencies, `alloc` among them, and then a program without an allocator does not link.
//
// UNSAFETY: a global allocator is an unsafe trait by contract.
#![expect(unsafe_code)]

use core::{
    alloc::{GlobalAlloc, Layout},
    ptr::null_mut,
};

/// Refuses every request.
struct NoHeap;

// SAFETY: null means that there is no memory, which is always true; so nothing ever comes back.
unsafe impl GlobalAlloc for NoHeap {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static NO_HEAP: NoHeap = NoHeap;
