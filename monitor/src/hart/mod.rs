//! A hart of the machine as other harts see it: a doorbell and counters; and what its vCPUs share of it.
//!
//! The other half, its vCPUs and run queue, is touched by the hart alone (`run::HartLocal`). What harts tell each other is in
//! `services::mail`.

mod dying;
mod gathering;
mod stopwatch;
pub mod stretch;
mod tools;

pub use dying::Dying;
pub use gathering::{Gathering, Turn};
pub use stopwatch::Stopwatch;
pub use tools::{HartTools, PreemptionPoint};

use addr::{CpuIndex, HartId, NodeId};
use alloc::boxed::Box;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use handoff::Doorbell;
use spin::Once;

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
    /// The same of the vCPU that was loaded last, whether it runs or not.
    pub loaded: AtomicU32,
}

/// The part of a hart that others see. Its address is the hart's thread pointer.
#[derive(Debug)]
#[repr(C)]
pub struct Hart {
    /// Where `rv::world` says: the top of the stack for traps of the monitor itself.
    emergency_stack: u64,
    /// Second, as it says, too: where the registers are of the trap that the hart dies of.
    trap: AtomicU64,
    /// Dense index.
    pub cpu: CpuIndex,
    /// The firmware's id.
    pub hart_id: HartId,
    /// The node it belongs to.
    pub node: NodeId,
    /// Counters.
    pub counters: HartCounters,
    /// The turn of a VM that it follows, and calls of such turns.
    pub gathering: Gathering,
    /// What it tells when it dies.
    pub dying: Dying,
    bell: Doorbell,
}

const _: () = assert!(offset_of!(Hart, emergency_stack) == rv::world::EMERGENCY_STACK_OFFSET);
const _: () = assert!(offset_of!(Hart, trap) == rv::world::TRAP_OFFSET);

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
            trap: AtomicU64::new(0),
            cpu,
            hart_id,
            node,
            counters: HartCounters {
                running: AtomicU32::new(u32::MAX),
                loaded: AtomicU32::new(u32::MAX),
                ..HartCounters::default()
            },
            gathering: Gathering::new(),
            dying: Dying::new(),
            bell: Doorbell::new(),
        }
    }

    /// Whether it runs its loop.
    #[must_use]
    pub fn is_online(&self) -> bool {
        self.counters.online_at.load(Ordering::Relaxed) != 0
    }

    /// Whether it is the hart that serves the control port and the lives of VMs.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.cpu == CONTROL_HART
    }

    /// Whether it runs `entity` at this moment.
    #[must_use]
    pub fn runs(&self, entity: sched::Entity) -> bool {
        self.counters.running.load(Ordering::Relaxed) == entity.label()
    }

    fn ring(&self) {
        crate::machine::irq::ring(self.cpu, self.hart_id);
    }

    /// Makes the hart look at its mail and its vCPUs' requests.
    pub fn kick(&self) {
        self.bell.call(|| self.ring());
    }

    /// Whether there is anything to look at (this hart only). A kick that is missed here rings, and is seen after that.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.bell.is_called()
    }

    /// The hart is about to look; whether somebody has kicked it since it looked last.
    pub fn take_kick(&self) -> bool {
        self.bell.take()
    }
}

/// Adds to a counter that only the caller writes.
#[inline]
pub fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

/// Microseconds of a stay in the monitor, on the average of all that there were on `harts`, roughly.
#[must_use]
pub fn mean_stretch_us(harts: &[&Hart]) -> u64 {
    let sums = harts.iter().map(|hart| hart.counters.stretches.sums());
    let (us, count) = sums.fold((0_u64, 0_u64), |sum, of| (sum.0.saturating_add(of.0), sum.1.saturating_add(of.1)));
    us.checked_div(count).unwrap_or(0)
}

/// What so many faults cost the harts that take them, roughly, in ticks of which there are `timebase_hz` in a second.
#[must_use]
pub fn ticks_of_faults(faults: u64, timebase_hz: u64) -> u64 {
    if faults == 0 {
        return 0;
    }
    faults.saturating_mul(mean_stretch_us(all())).saturating_mul(timebase_hz) / 1_000_000
}

/// The hart that executes this, once its loop runs.
#[must_use]
pub fn current() -> Option<CpuIndex> {
    this_hart().map(|hart| hart.cpu)
}

/// The executing hart; `None` before it runs on its own stack.
#[must_use]
#[inline]
#[expect(unsafe_code)]
pub fn this_hart() -> Option<&'static Hart> {
    let pointer: *const Hart;
    // UNSAFETY and SAFETY: `tp` is 0 during boot, then what the start block put there, a reference to this hart's entry
    // in the static table; the world switch restores it at every exit.
    unsafe {
        core::arch::asm!("mv {0}, tp", out(reg) pointer, options(nomem, nostack));
        pointer.as_ref()
    }
}
