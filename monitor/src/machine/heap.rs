//! The monitor's heap, for control-plane objects: VMs, devices, descriptions. Hot paths do not allocate.
//!
//! It begins with an arena in the image's bss, enough to read the device tree, and grows by whole runs of frames
//! once the frame allocator is up.
//
// UNSAFETY: a global allocator hands out raw memory by contract.
#![expect(unsafe_code)]

use core::{alloc::Layout, cell::UnsafeCell};
use spin::Once;
use talc::{
    TalcLock,
    base::{Talc, binning::Binning},
    source::Source,
};

/// Bytes available before the frame allocator runs.
const ARENA: usize = 2 << 20;

#[repr(align(4096))]
struct Arena(UnsafeCell<[u8; ARENA]>);

// SAFETY: only the allocator touches the arena, under its own lock.
unsafe impl Sync for Arena {}

static FIRST: Arena = Arena(UnsafeCell::new([0; ARENA]));
/// Takes so many bytes, or more, of memory that nobody else uses.
pub type Growth = fn(usize) -> Option<(*mut u8, usize)>;

static GROW: Once<Growth> = Once::new();

#[derive(Debug)]
struct Frames {
    first_claimed: bool,
}

// SAFETY: `acquire` touches the allocator only through the reference it is given; the growth hook takes frames
// from the frame allocator, which never allocates from this heap.
unsafe impl Source for Frames {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        let (base, size) = if talc.source.first_claimed {
            GROW.get().and_then(|grow| grow(layout.size() + layout.align() + 4096)).ok_or(())?
        } else {
            talc.source.first_claimed = true;
            (FIRST.0.get().cast(), ARENA)
        };
        // SAFETY: the memory is ours alone: the arena once, or frames just taken from the allocator.
        unsafe { talc.claim(base, size) }.map(|_| ()).ok_or(())
    }
}

#[global_allocator]
static HEAP: TalcLock<spin::Mutex<()>, Frames> = TalcLock::new(Frames { first_claimed: false });

/// From now on the heap grows through `grow`, which returns at least so many bytes of memory that nobody else uses.
pub fn set_growth(grow: Growth) {
    GROW.call_once(|| grow);
}

/// Bytes of the heap, its own bookkeeping counted as used.
#[derive(Clone, Copy, Debug)]
pub struct HeapBytes {
    /// In objects, or lost between them.
    pub used: u64,
    /// Taken and not in use: the rest.
    pub free: u64,
    /// Of both, those that came from the frame allocator; the others lie in the image's bss.
    pub from_frames: u64,
}

/// What the heap holds now.
#[must_use]
pub fn bytes() -> HeapBytes {
    let heap = HEAP.lock();
    let counters = heap.counters();
    let (claimed, free) = (counters.claimed_bytes as u64, counters.available_bytes as u64);
    HeapBytes { used: claimed.saturating_sub(free), free, from_frames: claimed.saturating_sub(ARENA as u64) }
}
