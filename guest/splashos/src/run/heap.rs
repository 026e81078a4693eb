//! The heap: large things are whole blocks of address space, which get memory where they are touched first; small things come from
//! blocks of the vCPU that asks, without a lock. What is given back serves again whoever gave it back.
//
// UNSAFETY: a global allocator is unsafe by definition.
#![expect(unsafe_code)]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

use spin::Mutex;

use super::{cpu, entry, paging};
use crate::blocks::Blocks;
use crate::machine::MAX_VCPUS;
use crate::pools::BLOCK;
use crate::sizes::{self, CLASSES};

const BLOCK_BYTES: usize = BLOCK as usize;

static BLOCKS: Mutex<Blocks<{ paging::MAX_BLOCKS / 64 }>> = Mutex::new(Blocks::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// So many blocks are the heap's.
pub fn prepare(count: usize) {
    BLOCKS.lock().reset(count);
    COUNT.store(count, Ordering::Relaxed);
}

/// How many blocks the heap has.
pub fn blocks() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// A vCPU's small things.
struct Arena {
    /// First free thing of each class; each holds the address of the next one.
    free: [usize; CLASSES],
    /// What is left of the block in use.
    next: usize,
    end: usize,
}

/// The arenas, one for each vCPU.
struct Arenas([UnsafeCell<Arena>; MAX_VCPUS]);

// SAFETY: a vCPU touches its own arena only, has one thread, takes no interrupts, and its traps do not allocate.
unsafe impl Sync for Arenas {}

static ARENAS: Arenas = Arenas([const { UnsafeCell::new(Arena { free: [0; CLASSES], next: 0, end: 0 }) }; MAX_VCPUS]);

/// Gives a vCPU what its stack leaves of its own block.
pub fn prepare_arena(vcpu: usize) {
    let own = paging::own_block(vcpu) as usize;
    if let Some(arena) = ARENAS.0.get(vcpu) {
        // SAFETY: called by the vCPU itself, before it allocates.
        let arena = unsafe { &mut *arena.get() };
        (arena.next, arena.end) = (own + entry::STACK, own + BLOCK_BYTES);
    }
}

impl Arena {
    fn take(&mut self, class: usize) -> usize {
        let bytes = sizes::bytes_of(class);
        let first = self.free[class];
        if first != 0 {
            // SAFETY: a free thing of this arena, which holds the address of the next one.
            self.free[class] = unsafe { *(first as *const usize) };
            return first;
        }
        let mut at = self.next.next_multiple_of(bytes);
        if at + bytes > self.end {
            let Some(block) = BLOCKS.lock().take(1) else { return 0 };
            at = paging::HEAP as usize + block * BLOCK_BYTES;
            self.end = at + BLOCK_BYTES;
        }
        self.next = at + bytes;
        at
    }
}

struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

fn blocks_of(layout: Layout) -> usize {
    layout.size().div_ceil(BLOCK_BYTES)
}

fn large(layout: Layout) -> Option<usize> {
    // Blocks lie at multiples of their size; nothing is aligned more.
    (layout.align() <= BLOCK_BYTES).then(|| BLOCKS.lock().take(blocks_of(layout)))?
}

fn address_of(block: usize) -> *mut u8 {
    (paging::HEAP as usize + block * BLOCK_BYTES) as *mut u8
}

// SAFETY: what `alloc` gives out is address space of the heap that is taken in `BLOCKS`, or cut from a block of the vCPU's arena,
// aligned, large enough, and given to nobody else before it comes back.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match sizes::class_of(layout) {
            None => large(layout).map_or(null_mut(), address_of),
            Some(class) => match ARENAS.0.get(cpu::this_vcpu()) {
                // SAFETY: this vCPU's own arena.
                Some(arena) => unsafe { (*arena.get()).take(class) as *mut u8 },
                None => null_mut(),
            },
        }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        match sizes::class_of(layout) {
            None => BLOCKS.lock().give_back((place as usize - paging::HEAP as usize) / BLOCK_BYTES, blocks_of(layout)),
            Some(class) => {
                let Some(arena) = ARENAS.0.get(cpu::this_vcpu()) else { return };
                // SAFETY: this vCPU's own arena, and memory that its owner has done with, with room for an address.
                unsafe {
                    let arena = &mut *arena.get();
                    *place.cast::<usize>() = arena.free[class];
                    arena.free[class] = place as usize;
                }
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if sizes::class_of(layout).is_some() {
            // SAFETY: the same layout; memory of that size is there.
            return unsafe {
                let place = self.alloc(layout);
                if !place.is_null() {
                    place.write_bytes(0, layout.size());
                }
                place
            };
        }
        let Some(first) = large(layout) else { return null_mut() };
        // What nobody has touched is zero, and is to be touched first by who uses it.
        for block in (first..first + blocks_of(layout)).filter(|block| paging::is_touched(*block)) {
            // SAFETY: a block that was just taken.
            unsafe { address_of(block).write_bytes(0, BLOCK_BYTES) };
        }
        address_of(first)
    }
}
