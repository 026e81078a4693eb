//! What a hart tells of itself when its cell ends: room for it, and its stack.

use super::Hart;
use crate::machine::layout;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use crash::Record;
use spin::{Mutex, MutexGuard};

/// A hart's last record, and how far the hart is with it.
#[derive(Debug)]
pub struct Dying {
    record: Mutex<Record>,
    has_told: AtomicBool,
    panics: AtomicU8,
}

impl Dying {
    /// Of a hart that lives.
    pub(super) const fn new() -> Self {
        Self { record: Mutex::new(Record::new()), has_told: AtomicBool::new(false), panics: AtomicU8::new(0) }
    }

    /// Counts a panic of the hart; how many there were before.
    pub fn count_panic(&self) -> u8 {
        self.panics.fetch_add(1, Ordering::Relaxed)
    }

    /// The record, for the hart itself; `None` if it died over it.
    #[must_use]
    pub fn begin(&self) -> Option<MutexGuard<'_, Record>> {
        self.record.try_lock()
    }

    /// The record is whole.
    pub fn tell(&self) {
        // Pairs with the load in `told`: who sees it sees the record.
        self.has_told.store(true, Ordering::Release);
    }

    /// The record, once the hart has told it. Never waits.
    #[must_use]
    pub fn told(&self) -> Option<MutexGuard<'_, Record>> {
        if self.has_told.load(Ordering::Acquire) { self.record.try_lock() } else { None }
    }
}

impl Hart {
    /// The words on the calling hart's stack from `sp` up, none if that is elsewhere. Where the stack has overflowed, all of it.
    pub fn stack_words(&self, sp: u64) -> impl Iterator<Item = u64> + use<> {
        let top = layout::stack_top(self.cpu.0.into());
        let is_own = (top - layout::STACK_SLOT..top).contains(&sp);
        let from = if is_own { sp.max(top - layout::STACK_BYTES).next_multiple_of(8) } else { top };
        (from..top).step_by(8).map(read)
    }
}

#[expect(unsafe_code)]
fn read(va: u64) -> u64 {
    // UNSAFETY and SAFETY: an aligned word of the calling hart's stack, which boot has mapped for good; a volatile load, as no
    // Rust object is meant. Without a guard: a guarded access that fails would take the emergency stack from the start again.
    unsafe { (va as *const u64).read_volatile() }
}
