//! Threads, as a workload sees them.

use core::sync::atomic::{AtomicU32, Ordering};

/// How often a waiting thread looks before it sleeps.
const LOOKS: usize = 200;

/// The threads of a workload.
pub trait Crew: Sync {
    /// How many there are.
    fn threads(&self) -> usize;

    /// Runs `work` on each thread with its number; returns when all are done.
    fn each(&self, work: &(dyn Fn(usize) + Sync));

    /// Sleeps while `word` has this value; may return early.
    fn sleep_while(&self, word: &AtomicU32, value: u32);

    /// Wakes those who sleep on `word`.
    fn wake_all(&self, word: &AtomicU32);
}

/// A place where threads wait until all have come.
#[derive(Default)]
pub struct Barrier {
    arrived: AtomicU32,
    /// Counts how often all have come; what is waited for is its next value.
    round: AtomicU32,
}

impl Barrier {
    /// A barrier that nobody has come to.
    pub const fn new() -> Self {
        Self { arrived: AtomicU32::new(0), round: AtomicU32::new(0) }
    }

    /// Waits for all threads of the crew.
    pub fn wait(&self, crew: &dyn Crew) {
        let round = self.round.load(Ordering::Acquire);
        // AcqRel: what each did before the barrier is seen by the last one, and through `round` by all.
        if self.arrived.fetch_add(1, Ordering::AcqRel) as usize + 1 == crew.threads() {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.store(round.wrapping_add(1), Ordering::Release);
            crew.wake_all(&self.round);
            return;
        }
        for _ in 0..LOOKS {
            if self.round.load(Ordering::Acquire) != round {
                return;
            }
            core::hint::spin_loop();
        }
        while self.round.load(Ordering::Acquire) == round {
            crew.sleep_while(&self.round, round);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Threads of the host.
    pub(crate) struct HostCrew(pub usize);

    impl Crew for HostCrew {
        fn threads(&self) -> usize {
            self.0
        }

        fn each(&self, work: &(dyn Fn(usize) + Sync)) {
            std::thread::scope(|scope| (0..self.0).for_each(|index| drop(scope.spawn(move || work(index)))));
        }

        fn sleep_while(&self, _: &AtomicU32, _: u32) {
            std::thread::yield_now();
        }

        fn wake_all(&self, _: &AtomicU32) {}
    }

    #[test]
    fn nobody_passes_a_barrier_before_all_have_come() {
        let (crew, barrier, arrived) = (HostCrew(4), Barrier::new(), AtomicU32::new(0));
        crew.each(&|_| {
            for round in 1..=200 {
                arrived.fetch_add(1, Ordering::SeqCst);
                barrier.wait(&crew);
                assert_eq!(arrived.load(Ordering::SeqCst), 4 * round);
                barrier.wait(&crew);
            }
        });
    }
}
