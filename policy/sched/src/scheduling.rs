//! The scheduler's numbers.

use crate::RunQueue;

/// Largest weight; larger ones are cut to it. A share of the hart is a vCPU's weight over the sum of all.
pub const MAX_WEIGHT: u32 = 10_000;

/// Lengths of time that govern a [`RunQueue`], in ticks of the machine's timebase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// Longest time slice.
    pub slice_ticks: u64,
    /// Shortest time slice, however many vCPUs are queued.
    pub min_slice_ticks: u64,
    /// Within this time every queued vCPU runs once, as long as slices need not be shorter than the minimum for it.
    pub period_ticks: u64,
    /// How much of its unused share a vCPU can keep while it sleeps.
    pub wake_credit_ticks: u64,
    /// A waking vCPU interrupts the running one if it is behind by more than this.
    pub preempt_ticks: u64,
    /// How long a VM's turn lasts, in which its vCPUs run together.
    pub turn_ticks: u64,
    /// How far a vCPU may be ahead of its hart's fair choice because of such turns.
    pub ahead_ticks: u64,
}

impl Scheduling {
    /// The usual numbers for a timebase of `timebase_hz` ticks a second: slices of 10 ms (Disco's and Cellular
    /// Disco's tick) down to 1 ms, a period of 20 ms, a wake-up credit of 5 ms, preemption from 250 us on.
    #[must_use]
    pub const fn new(timebase_hz: u64) -> Self {
        let ms = if timebase_hz < 4_000 { 4 } else { timebase_hz / 1_000 };
        Self {
            slice_ticks: 10 * ms,
            min_slice_ticks: ms,
            period_ticks: 20 * ms,
            wake_credit_ticks: 5 * ms,
            preempt_ticks: ms / 4,
            turn_ticks: 10 * ms,
            ahead_ticks: 10 * ms,
        }
    }

    /// An empty queue under these numbers.
    #[must_use]
    pub fn new_queue(self) -> RunQueue {
        RunQueue::new(self)
    }

    /// The slice when `queued` vCPUs share the hart.
    #[must_use]
    pub const fn slice_for(&self, queued: usize) -> u64 {
        let fair = if queued == 0 { self.slice_ticks } else { self.period_ticks / queued as u64 };
        if fair > self.slice_ticks {
            self.slice_ticks
        } else if fair < self.min_slice_ticks {
            self.min_slice_ticks
        } else {
            fair
        }
    }
}
