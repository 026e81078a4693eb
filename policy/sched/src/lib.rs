//! Which vCPU runs next on a hart, for how long, and on which hart it should be.
//!
//! Facts in, proposals out: this crate reads no clock, takes no lock and knows no hardware, so the same code runs in
//! the monitor, in its tests and in the simulator of `host/sim` at sizes that no machine here has.
//!
//! # Key types
//! - [`RunQueue`]: one per hart, owned by that hart. Fair by weighted virtual run time; time slices that shrink as
//!   the queue grows; a waking vCPU gets a bounded credit, so that it runs soon and starves nobody.
//! - [`Scheduling`]: the numbers behind it, in ticks of the machine's timebase.
//! - [`balance`]: from a snapshot of the whole machine, where a new VM's vCPUs go, what an idle hart may take, and
//!   which few moves make the machine fairer.
//! - [`gang`]: which VMs run their vCPUs together, and how harts agree on it without anybody who decides for all.
//!
//! # What it promises
//! vCPUs that are always runnable and have equal weights, on one hart, never differ by more than one time slice of
//! service, and by as much again where VMs run together; a runnable vCPU waits at most for as many slices as others are queued,
//! plus their wake-up credits; a hart with a runnable vCPU is never told to idle. The property tests and `host/sim` check these.
//!
//! # Locking
//! None: a queue has one owner. Nothing allocates in `pick_next`, `pick_together`, `charge`, `dequeue`; `enqueue` allocates
//! only when more vCPUs are queued than ever before (and more than [`RunQueue::INITIAL_CAPACITY`]).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod balance;
pub mod gang;
#[cfg(test)]
mod gang_tests;
mod queue;
#[cfg(test)]
mod queue_tests;
mod scheduling;

pub use queue::{Lag, RunQueue, Waiting};
pub use scheduling::{MAX_WEIGHT, Scheduling};

use addr::{VcpuIndex, VmId};

/// A vCPU as the scheduler names it.
// Aligned, and compared as one word: queues are searched for it at every switch.
#[derive(Clone, Copy, Debug, PartialOrd, Ord)]
#[repr(C, align(4))]
pub struct Entity {
    /// Its VM.
    pub vm: VmId,
    /// Its index in the VM.
    pub vcpu: VcpuIndex,
}

impl Entity {
    /// Both numbers in one word.
    #[inline]
    #[must_use]
    pub const fn label(self) -> u32 {
        self.vm.0 as u32 | (self.vcpu.0 as u32) << 16
    }
}

impl PartialEq for Entity {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.label() == other.label()
    }
}

impl Eq for Entity {}

impl core::hash::Hash for Entity {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.label().hash(state);
    }
}
