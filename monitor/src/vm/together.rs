//! How a VM shares harts with others, as all harts see it: its weight, whether its vCPUs run together, and when its turn was
//! called last.

use addr::VmId;
use control::{EventKind, Gang, Setting, WaitSign};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use sched::gang::{GangMode, Synchrony};

/// Words that order nothing: a hart that sees an old one chooses a little worse.
#[derive(Debug)]
pub struct Together {
    weight: AtomicU16,
    mode: AtomicU8,
    /// When its turn was called last; 0: never.
    called_at: AtomicU64,
    /// [`Synchrony::bits`].
    signs: AtomicU64,
    turns: AtomicU64,
    /// Whether its vCPUs run together, as mode and signs were when somebody looked last.
    gathers: AtomicBool,
}

/// VMs whose vCPUs run together. While there is none, harts choose as if there were no such thing.
static GATHERING: AtomicU32 = AtomicU32::new(0);

/// Whether vCPUs of any VM run together.
#[inline]
#[must_use]
pub fn are_there() -> bool {
    GATHERING.load(Relaxed) != 0
}

impl Together {
    /// As its description says.
    pub fn new(weight: u16, gang: Gang) -> Self {
        let new = Self {
            weight: AtomicU16::new(weight),
            mode: AtomicU8::new(gang as u8),
            called_at: AtomicU64::new(0),
            signs: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            gathers: AtomicBool::new(false),
        };
        new.look(0);
        new
    }

    /// From now on as this says, in this second of the machine's time.
    pub fn set(&self, setting: Setting, second: u32) {
        match setting {
            Setting::Weight(weight) => self.weight.store(weight, Relaxed),
            Setting::Gang(gang) => self.mode.store(gang as u8, Relaxed),
        }
        self.look(second);
    }

    /// Finds out whether its vCPUs run together: signs fade.
    pub fn look(&self, second: u32) {
        let holds = self.mode().holds(Synchrony::from_bits(self.signs.load(Relaxed)), second);
        match (self.gathers.swap(holds, Relaxed), holds) {
            (false, true) => GATHERING.fetch_add(1, Relaxed),
            (true, false) => GATHERING.fetch_sub(1, Relaxed),
            _ => return,
        };
    }

    /// Its share of contended harts.
    #[must_use]
    pub fn weight(&self) -> u32 {
        u32::from(self.weight.load(Relaxed))
    }

    /// Whether its vCPUs run together.
    #[inline]
    #[must_use]
    pub fn gathers(&self) -> bool {
        self.gathers.load(Relaxed)
    }

    /// `None` if its vCPUs need not run together; else when its turn was called last.
    #[must_use]
    pub fn called_at(&self) -> Option<u64> {
        self.gathers().then(|| self.called_at.load(Relaxed))
    }

    /// Its turn begins.
    pub fn call(&self, at: u64) {
        self.called_at.store(at, Relaxed);
        self.turns.fetch_add(1, Relaxed);
    }

    /// Turns that it has had.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.turns.load(Relaxed)
    }

    /// One of its vCPUs waits for another one that has no hart.
    pub fn note(&self, vm: VmId, sign: WaitSign, second: u32) {
        let before = Synchrony::from_bits(self.signs.load(Relaxed));
        if before.is_full(second) {
            return;
        }
        let after = before.with_sign(second);
        // A sign that another hart notes at the same moment may be lost.
        self.signs.store(after.bits(), Relaxed);
        self.look(second);
        if self.mode() == GangMode::Auto && !before.is_tight(second) && after.is_tight(second) {
            crate::trace::record(Some(vm), EventKind::VmGathers { sign });
        }
    }

    fn mode(&self) -> GangMode {
        match self.mode.load(Relaxed) {
            mode if mode == Gang::Yes as u8 => GangMode::Yes,
            mode if mode == Gang::No as u8 => GangMode::No,
            _ => GangMode::Auto,
        }
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        if self.gathers() {
            GATHERING.fetch_sub(1, Relaxed);
        }
    }
}
