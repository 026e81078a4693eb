//! Threads of Linux for the workloads.

use core::sync::atomic::AtomicU32;

use alloc::vec::Vec;
use workloads::Crew;

use super::alloc;
use super::linux::{self, Thread};

/// So many threads, made for each piece of work.
pub struct ThreadCrew {
    threads: usize,
    /// Whether thread k stays on CPU k.
    is_pinned: bool,
}

impl ThreadCrew {
    /// A crew of `threads`, at least one.
    pub const fn new(threads: usize) -> Self {
        Self { threads, is_pinned: false }
    }
}

impl ThreadCrew {
    /// The same, thread k on CPU k.
    pub const fn pinned(self) -> Self {
        Self { is_pinned: true, ..self }
    }

    fn pin(&self, index: usize) {
        if self.is_pinned {
            linux::pin(index);
        }
    }
}

impl Crew for ThreadCrew {
    fn threads(&self) -> usize {
        self.threads
    }

    fn each(&self, work: &(dyn Fn(usize) + Sync)) {
        let jobs: Vec<_> = (1..self.threads)
            .map(|index| {
                move || {
                    self.pin(index);
                    work(index);
                }
            })
            .collect();
        let others: Vec<Thread<'_>> = jobs.iter().map(|job| linux::spawn(job)).collect();
        self.pin(0);
        work(0);
        drop(others);
    }

    fn sleep_while(&self, word: &AtomicU32, value: u32) {
        linux::futex_wait(word, value);
    }

    fn wake_all(&self, word: &AtomicU32) {
        linux::futex_wake(word, i32::MAX as usize);
    }
}
