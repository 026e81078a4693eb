//! A hart of the machine: what others may ask of it, and the loop that runs vCPUs on it.
//!
//! [`Hart`] is the half that other harts see: a mailbox, a doorbell and counters. [`HartLocal`] is the half that
//! only the hart itself touches: its vCPUs, run queue, VMIDs and guest interrupt files; it lives on the hart's own
//! stack, in its own node's memory, and needs no lock.

pub mod balance;
mod local;
mod mailbox;
mod run;
mod stopwatch;
pub mod stretch;

pub use local::{HartLocal, HartTools};
pub use mailbox::Message;
pub use run::run;
pub use stopwatch::Stopwatch;

use crate::vcpu::SharedVcpu;
use addr::{CpuIndex, HartId, NodeId};
use alloc::{boxed::Box, vec::Vec};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use spin::{Mutex, Once};

/// Counters of one hart, written by itself only.
#[derive(Debug, Default)]
pub struct HartCounters {
    /// Time with a guest running.
    pub guest: Stopwatch,
    /// Time waiting for work.
    pub idle: Stopwatch,
    /// How long it stays in the monitor at a time.
    pub stretches: stretch::StretchCounters,
    /// Ticks at which the hart came up.
    pub online_at: AtomicU64,
    /// Switches from one vCPU to another.
    pub switches: AtomicU64,
    /// vCPUs in the run queue (waiting or running).
    pub queued: AtomicU32,
    /// [`sched::Entity::label`] of the vCPU that is running, or `u32::MAX`.
    pub running: AtomicU32,
}

/// The part of a hart that others see. Its address is the hart's thread pointer.
#[derive(Debug)]
#[repr(C)]
pub struct Hart {
    /// First, as `rv::world` says: the top of the stack for traps of the monitor itself.
    emergency_stack: u64,
    /// Dense index.
    pub cpu: CpuIndex,
    /// The firmware's id.
    pub hart_id: HartId,
    /// The node it belongs to.
    pub node: NodeId,
    /// Counters.
    pub counters: HartCounters,
    mail: Mutex<Vec<Message>>,
    has_mail: AtomicBool,
    kicked: AtomicBool,
}

/// The hart with the machine-wide duties.
pub const CONTROL_HART: CpuIndex = CpuIndex(0);

static HARTS: Once<Box<[&'static Hart]>> = Once::new();

/// Publishes the harts of the machine (once, by boot); each lies in its node's memory.
pub fn install(harts: Box<[&'static Hart]>) {
    HARTS.call_once(|| harts);
}

/// All harts, by [`CpuIndex`].
#[must_use]
pub fn all() -> &'static [&'static Hart] {
    HARTS.get().map_or(&[], |harts| harts)
}

impl Hart {
    /// A hart that is not up yet.
    #[must_use]
    pub fn new(cpu: CpuIndex, hart_id: HartId, node: NodeId, emergency_stack: u64) -> Self {
        Self {
            emergency_stack,
            cpu,
            hart_id,
            node,
            counters: HartCounters { running: AtomicU32::new(u32::MAX), ..HartCounters::default() },
            mail: Mutex::new(Vec::new()),
            has_mail: AtomicBool::new(false),
            kicked: AtomicBool::new(false),
        }
    }

    /// Does it run its loop?
    #[must_use]
    pub fn is_online(&self) -> bool {
        self.counters.online_at.load(Ordering::Relaxed) != 0
    }

    /// Is it the hart that serves the control port and the lives of VMs?
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.cpu == CONTROL_HART
    }

    /// Does it run `entity` at this moment?
    #[must_use]
    pub fn runs(&self, entity: sched::Entity) -> bool {
        self.counters.running.load(Ordering::Relaxed) == entity.label()
    }

    fn ring(&self) {
        crate::machine::irq::ring(self.cpu, self.hart_id);
    }

    /// Leaves `message` and rings.
    pub fn send(&self, message: Message) {
        self.mail.lock().push(message);
        self.has_mail.store(true, Ordering::SeqCst);
        self.kick();
    }

    /// Makes the hart look at its vCPUs' requests.
    pub fn kick(&self) {
        // One ring is enough until the hart has looked.
        if !self.kicked.swap(true, Ordering::SeqCst) {
            self.ring();
        }
    }

    /// Is there anything to look at? (This hart only.) A kick that is missed here rings, and is seen after that.
    #[inline]
    fn has_work(&self) -> bool {
        self.kicked.load(Ordering::Acquire)
    }

    fn take_kick(&self) -> bool {
        self.kicked.swap(false, Ordering::SeqCst)
    }

    fn take_mail(&self) -> Vec<Message> {
        self.has_mail.store(false, Ordering::SeqCst);
        core::mem::take(&mut *self.mail.lock())
    }
}

/// Adds to a counter that only the caller writes.
#[inline]
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

/// Makes the owner of `vcpu` look at its requests.
pub fn kick(vcpu: &SharedVcpu) {
    if let Some(hart) = all().get(vcpu.cpu().index()) {
        hart.kick();
    }
}

/// Microseconds of a stay in the monitor, on the average of all that there were on `harts`, roughly.
#[must_use]
pub fn mean_stretch_us(harts: &[&Hart]) -> u64 {
    let sums = harts.iter().map(|hart| hart.counters.stretches.sums());
    let (us, count) = sums.fold((0_u64, 0_u64), |sum, of| (sum.0.saturating_add(of.0), sum.1.saturating_add(of.1)));
    us.checked_div(count).unwrap_or(0)
}

/// The hart that executes this, once its loop runs.
#[must_use]
pub fn current() -> Option<CpuIndex> {
    crate::boot::this_hart().map(|hart| hart.cpu)
}
