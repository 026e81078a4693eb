//! Time spent in one activity, readable while it goes on.

use core::sync::atomic::{AtomicU64, Ordering};

/// In place of a stretch's beginning: its ticks are being added.
const ENDING: u64 = u64::MAX;

/// Attempts to read a stopwatch that is being stopped, which takes its owner a few instructions.
const ATTEMPTS: usize = 100;

/// Sums up stretches of time. Started and stopped by its owner only, with plain loads and stores; anyone may read it,
/// and sees the stretch that is not over yet too: a guest that never exits is charged all the same.
#[derive(Debug, Default)]
pub struct Stopwatch {
    ticks: AtomicU64,
    /// When the present stretch began; 0 between stretches.
    since: AtomicU64,
}

impl Stopwatch {
    /// A stretch begins. Owner only.
    #[inline]
    pub fn start(&self, now: u64) {
        self.since.store(now, Ordering::Relaxed);
    }

    /// The stretch ends; its ticks. Owner only.
    #[inline]
    pub fn stop(&self, now: u64) -> u64 {
        let elapsed = now.wrapping_sub(self.since.load(Ordering::Relaxed));
        self.since.store(ENDING, Ordering::Relaxed);
        // Release, here and below: whoever sees the new sum, or the end, sees what came before.
        self.ticks.store(self.ticks.load(Ordering::Relaxed).wrapping_add(elapsed), Ordering::Release);
        self.since.store(0, Ordering::Release);
        elapsed
    }

    /// Ticks of the present stretch, 0 between stretches.
    #[must_use]
    pub fn running_ticks(&self, now: u64) -> u64 {
        match self.since.load(Ordering::Acquire) {
            0 | ENDING => 0,
            since => now.saturating_sub(since),
        }
    }

    /// Ticks in all. A hart that stands still in the middle of an update is not waited for: then the stretch is missing.
    #[must_use]
    pub fn read(&self, now: u64) -> u64 {
        for _ in 0..ATTEMPTS {
            let since = self.since.load(Ordering::Acquire);
            let ended = self.ticks.load(Ordering::Acquire);
            // Otherwise a stretch that ends meanwhile would be missing, or counted twice.
            if since != ENDING && self.since.load(Ordering::Relaxed) == since {
                return ended.wrapping_add(if since == 0 { 0 } else { now.saturating_sub(since) });
            }
            core::hint::spin_loop();
        }
        self.ticks.load(Ordering::Acquire)
    }
}
