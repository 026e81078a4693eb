//! The tracker's own source under the model checker: every interleaving and every value that the memory model allows.
//!
//! A hart is modelled as hardware is: one translation cached in its TLB, filled from the leaf in memory and used
//! without looking again until a fence. A frame that is reused while a hart accesses it through any translation is a
//! data race on its cell, which loom reports; so is an access without the ordering that the protocol promises.

mod sync {
    pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

#[path = "../src/cpuset.rs"]
#[allow(dead_code)]
mod cpuset;
#[path = "../src/shootdown.rs"]
#[allow(dead_code)]
mod shootdown;

extern crate alloc;
use addr::CpuIndex;
pub use cpuset::CpuSet;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use shootdown::{ShootdownTracker, TlbGeneration};

struct Machine {
    tracker: ShootdownTracker,
    /// The G-stage leaf: 1 = maps the frame, 0 = removed.
    leaf: AtomicU64,
    /// Its accesses are what loom checks; the contents do not matter.
    frame: UnsafeCell<()>,
    /// The interrupt that a shooter sends to targets.
    interrupt: AtomicU64,
}

impl Machine {
    fn new(harts: usize) -> Arc<Self> {
        Arc::new(Self {
            tracker: ShootdownTracker::new(harts),
            leaf: AtomicU64::new(1),
            frame: UnsafeCell::new(()),
            interrupt: AtomicU64::new(0),
        })
    }

    /// Runs the guest on `cpu` `visits` times; its TLB keeps what it has.
    fn run_guest(&self, cpu: u16, visits: usize) {
        let cpu = CpuIndex(cpu);
        let mut tlb = None;
        let mut seen = TlbGeneration::NONE;
        for _ in 0..visits {
            let generation = self.tracker.enter(cpu);
            if seen < generation {
                tlb = None;
                seen = generation;
            }
            self.tracker.passed(cpu, generation);
            let is_mapped = *tlb.get_or_insert_with(|| self.leaf.load(Ordering::Relaxed) == 1);
            if is_mapped {
                self.frame.with(|_read| ());
            }
            self.tracker.leave(cpu);
        }
    }

    /// Removes the leaf and reuses the frame as soon as that is allowed. Gives up (freeing nothing) after a few looks:
    /// liveness is the interrupt's business.
    fn shoot(&self) {
        self.leaf.store(0, Ordering::Relaxed);
        let token = self.tracker.retire();
        self.interrupt.store(self.tracker.targets(&token).bits(), Ordering::Relaxed);
        for _ in 0..2 {
            if self.tracker.is_complete(&token) {
                self.frame.with_mut(|_reuse| ());
                return;
            }
            loom::thread::yield_now();
        }
    }
}

#[test]
fn no_frame_is_reused_while_one_hart_can_reach_it() {
    loom::model(|| {
        let machine = Machine::new(1);
        let hart = {
            let machine = Arc::clone(&machine);
            loom::thread::spawn(move || machine.run_guest(0, 2))
        };
        machine.shoot();
        hart.join().unwrap();
    });
}

#[test]
fn no_frame_is_reused_while_one_of_two_harts_can_reach_it() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let machine = Machine::new(2);
        let harts: Vec<_> = (0..2)
            .map(|cpu| {
                let machine = Arc::clone(&machine);
                loom::thread::spawn(move || machine.run_guest(cpu, 2))
            })
            .collect();
        machine.shoot();
        for hart in harts {
            hart.join().unwrap();
        }
    });
}

/// The checker is worth something only if it sees the bug: here the frame is reused at once.
#[test]
#[should_panic]
fn reuse_without_waiting_is_caught() {
    loom::model(|| {
        let machine = Machine::new(1);
        let hart = {
            let machine = Arc::clone(&machine);
            loom::thread::spawn(move || machine.run_guest(0, 2))
        };
        machine.leaf.store(0, Ordering::Relaxed);
        let _ = machine.tracker.retire();
        machine.frame.with_mut(|_reuse| ());
        hart.join().unwrap();
    });
}

/// A load of the monitor through the guest's translations, after the guest has left, is one more use: outside it is not waited for.
#[test]
#[should_panic]
fn a_load_after_leaving_is_caught() {
    loom::model(|| {
        let machine = Machine::new(1);
        let hart = {
            let machine = Arc::clone(&machine);
            loom::thread::spawn(move || {
                machine.run_guest(0, 1);
                // The TLB knows the frame still.
                machine.frame.with(|_read| ());
            })
        };
        machine.shoot();
        hart.join().unwrap();
    });
}
