//! Frames that waited for a shootdown become free, though nobody asks for them: a look of the control hart while some wait.

use super::registry;
use crate::machine::{agenda, capabilities};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use rv::csr;

/// Looks per second while something waits. Who needs memory does not wait for them.
const LOOKS_HZ: u64 = 100;

static NEXT_LOOK: AtomicU64 = AtomicU64::new(u64::MAX);

/// When to look next.
#[must_use]
pub fn next_look() -> u64 {
    if agenda::is_deferred() { NEXT_LOOK.load(Relaxed) } else { u64::MAX }
}

/// One look, if it is due.
pub fn step() {
    if !agenda::is_deferred() {
        return;
    }
    let now = csr::time::read();
    let next = NEXT_LOOK.load(Relaxed);
    if next != u64::MAX && now < next {
        return;
    }
    agenda::take_deferred();
    let are_copies_left = super::shortage::step();
    let registry = registry::lock();
    let lives = registry.records().filter_map(|record| record.life.as_ref());
    let mut waits = are_copies_left;
    for vm in lives {
        waits |= vm.memory().free_deferred();
        waits |= vm.tell_late_requests();
        waits |= vm.platform().has_backlog() && (!vm.is_running() || vm.serve_backlog());
    }
    if waits {
        agenda::defer();
    }
    NEXT_LOOK.store(now + capabilities().timebase_hz / LOOKS_HZ, Relaxed);
}
