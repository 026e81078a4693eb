//! What harts tell each other about turns of VMs whose vCPUs run together. The policy is `sched::gang`.

use super::Hart;
use addr::VmId;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A turn of a VM: whose, and when it was called.
pub type Turn = (VmId, u64);

/// Bits of the time in [`Gathering`]'s word; the VM is above them. Of a clock of 1 GHz they last for three days, and a turn lasts
/// for milliseconds.
const TIME_BITS: u32 = 48;
const TIME: u64 = (1 << TIME_BITS) - 1;

/// Of one hart.
#[derive(Debug)]
pub struct Gathering {
    /// The turn that it follows, VM and time; 0: none, for no turn is called at time 0.
    follows: AtomicU64,
    is_called: AtomicBool,
}

impl Gathering {
    /// It follows none.
    pub const fn new() -> Self {
        Self { follows: AtomicU64::new(0), is_called: AtomicBool::new(false) }
    }

    /// The hart itself: this is the turn that it follows from now on.
    pub fn follow(&self, turn: Option<Turn>) {
        let word = turn.map_or(0, |(vm, at)| u64::from(vm.0) << TIME_BITS | at & TIME);
        self.follows.store(word, Ordering::Relaxed);
    }

    /// Whether it follows the turn of another VM than `vm` that was called less than `ticks` before `now`.
    #[must_use]
    pub fn is_elsewhere(&self, vm: VmId, now: u64, ticks: u64) -> bool {
        let word = self.follows.load(Ordering::Relaxed);
        word != 0 && word >> TIME_BITS != u64::from(vm.0) && (now.wrapping_sub(word) & TIME) < ticks
    }

    /// Whether somebody has called since the hart looked last. It looks now.
    #[inline]
    pub fn take_call(&self) -> bool {
        // The doorbell orders this: who calls rings afterwards.
        self.is_called.load(Ordering::Relaxed) && self.is_called.swap(false, Ordering::Relaxed)
    }
}

impl Hart {
    /// Makes the hart look at turns that were called.
    pub fn call_to_turn(&self) {
        self.gathering.is_called.store(true, Ordering::Relaxed);
        self.kick();
    }
}
