//! 2 MiB blocks grow together again in the background, a few looks a second: see [`crate::vm::memory`], module `join`.

use super::registry;
use crate::{machine::capabilities, vm::Vm};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use rv::csr;

/// Looks per second.
const LOOKS_HZ: u64 = 4;
/// Blocks of a VM that are looked at then: most take a few instructions, one that can be put together some ten thousand.
const BLOCKS: u64 = 16;

static NEXT_LOOK: AtomicU64 = AtomicU64::new(0);

/// When to look next. Guests are not interrupted for it.
#[inline]
#[must_use]
pub fn next_look() -> u64 {
    NEXT_LOOK.load(Relaxed)
}

/// One look, if it is due.
pub fn step() {
    let now = csr::time::read();
    if now < next_look() {
        return;
    }
    let vms: Vec<Arc<Vm>> = registry::lock().records().filter_map(|record| record.launched().cloned()).collect();
    vms.iter().filter(|vm| vm.is_running()).for_each(|vm| _ = vm.memory().join_next(BLOCKS, now));
    // Where there are no VMs it is not long until there are.
    NEXT_LOOK.store(now + capabilities().timebase_hz / LOOKS_HZ, Relaxed);
}
