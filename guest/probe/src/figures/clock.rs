//! What the hart has executed, by the counter that the machine has for it.

use crate::cpu;
use core::sync::atomic::{AtomicU64, Ordering};

/// Instructions per tick of `time`; 0: the hart counts instructions itself.
static PER_TICK: AtomicU64 = AtomicU64::new(0);

/// Counts by `time` from now on, for guests whose host gives them no `instret`: where a machine's time counts
/// instructions, a tick is so many of them.
pub fn count_by_time(instructions_per_tick: u64) {
    PER_TICK.store(instructions_per_tick, Ordering::Relaxed);
}

/// Instructions so far, all levels together.
#[inline(always)]
pub fn spent() -> u64 {
    match PER_TICK.load(Ordering::Relaxed) {
        0 => cpu::instret(),
        instructions => cpu::time() * instructions,
    }
}
