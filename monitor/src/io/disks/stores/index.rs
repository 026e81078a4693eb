//! The memory that finds the blocks of stores: one budget for all stores together.

use super::{STORES, Store, StoreUnit};
use crate::{io::disks, machine::heap_reserve};
use addr::BASE_PAGE;
use control::VmSpec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes that indices of stores may take together.
static BUDGET: AtomicU64 = AtomicU64::new(0);
/// Bytes that they took when each was looked at last.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Boot: sets the budget.
pub(super) fn init() {
    /// Part of the machine's memory.
    const SHARE: u64 = 32;
    BUDGET.store(disks::total_pages() * BASE_PAGE / SHARE, Relaxed);
}

/// Bytes that a store of an earlier run may take.
pub(super) fn budget() -> u64 {
    BUDGET.load(Relaxed)
}

/// Bytes that nobody has taken.
pub(super) fn left() -> u64 {
    budget().saturating_sub(TAKEN.load(Relaxed))
}

/// Pages by which indices may still grow: nobody else is promised them. With a description, those for its VM's stores if there are none yet;
/// without, none then.
#[must_use]
pub fn index_pages_left(spec: Option<&VmSpec>) -> u64 {
    let is_wanted = || spec.is_some_and(|spec| spec.disks.iter().any(|disk| disk.overlay.is_some()));
    match (STORES.lock().is_empty(), spec) {
        (false, None) => left() / BASE_PAGE,
        (true, Some(_)) if is_wanted() => left() / BASE_PAGE,
        _ => 0,
    }
}

impl StoreUnit {
    /// Before the store does anything: its index grows into what the others leave, and not while hardly any memory is left.
    pub(super) fn bound_index(&self, store: &mut Store) {
        let taken = self.note_index(store);
        store.freeze_index(heap_reserve::is_short());
        store.set_index_limit(left().saturating_add(taken));
    }

    /// Counts what its index takes now; how many bytes.
    pub(super) fn note_index(&self, store: &Store) -> u64 {
        let now = store.index_bytes();
        let before = self.index_bytes.swap(now, Relaxed);
        // Round the number's end, if there are fewer now.
        TAKEN.fetch_add(now.wrapping_sub(before), Relaxed);
        now
    }
}
