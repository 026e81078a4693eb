//! A box whose content lies in the memory of a chosen node, in pages of its own.
//
// UNSAFETY: an owning pointer into frames taken from the allocator.
#![expect(unsafe_code)]

use super::layout;
use super::memory;
use addr::{BASE_PAGE, Mfn, NodeId};
use core::{
    fmt,
    ops::{Deref, DerefMut},
    ptr::NonNull,
};

/// Owns a `T` in the memory of a node. Moving the box to another hart does not move the content; `relocate` does.
pub struct NodeBox<T> {
    pointer: NonNull<T>,
    node: NodeId,
}

// SAFETY: a NodeBox owns its content as a Box does.
unsafe impl<T: Send> Send for NodeBox<T> {}

impl<T> NodeBox<T> {
    const ORDER: u8 = {
        assert!(align_of::<T>() as u64 <= BASE_PAGE, "frames are page-aligned");
        (size_of::<T>() as u64).div_ceil(BASE_PAGE).next_power_of_two().trailing_zeros() as u8
    };

    /// Machine pages that one takes.
    pub const PAGES: u64 = 1 << Self::ORDER;

    /// Puts `value` into memory of `node`, or of the nearest node that has some. `None` gives nothing back: the value
    /// is dropped.
    #[must_use]
    pub fn new(node: NodeId, value: T) -> Option<Self> {
        let frame = memory::take_monitor_run(node, 1 << Self::ORDER)?;
        let pointer = NonNull::new(layout::direct(frame.addr()) as *mut T)?;
        // SAFETY: the frames are ours, large enough and page-aligned.
        unsafe { pointer.write(value) };
        Some(Self { pointer, node })
    }

    /// The content, for ever.
    #[must_use]
    pub fn leak(self) -> &'static T
    where
        T: 'static,
    {
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: the frames are never given back, and nobody else has the pointer.
        unsafe { this.pointer.as_ref() }
    }

    /// The node it was made for.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// The same content in memory of `node`; where that has none, it stays.
    #[must_use]
    pub fn relocate(self, node: NodeId) -> Self {
        let Some(frame) = memory::take_monitor_run(node, 1 << Self::ORDER) else { return self };
        let this = core::mem::ManuallyDrop::new(self);
        let pointer = layout::direct(frame.addr()) as *mut T;
        // SAFETY: (1) the new frames are ours; (2) the value is moved bitwise and the old place is never read again,
        // only given back.
        unsafe {
            core::ptr::copy_nonoverlapping(this.pointer.as_ptr(), pointer, 1);
        }
        give_back(this.frame(), Self::ORDER);
        Self { pointer: NonNull::new(pointer).unwrap_or(this.pointer), node }
    }

    fn frame(&self) -> Mfn {
        layout::machine_of_direct(self.pointer.as_ptr() as u64).mfn()
    }
}

fn give_back(frame: Mfn, order: u8) {
    match memory::frames().retake_monitor(frame, order) {
        Ok(frame) => memory::frames().free(frame),
        Err(why) => log::error!("a monitor page is not one: {why}"),
    }
}

impl<T> Drop for NodeBox<T> {
    fn drop(&mut self) {
        // SAFETY: the value is valid and is not used after this.
        unsafe { self.pointer.drop_in_place() };
        give_back(self.frame(), Self::ORDER);
    }
}

impl<T> Deref for NodeBox<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the pointer is valid while the box lives.
        unsafe { self.pointer.as_ref() }
    }
}

impl<T> DerefMut for NodeBox<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the box owns the value.
        unsafe { self.pointer.as_mut() }
    }
}

impl<T: fmt::Debug> fmt::Debug for NodeBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
