//! What may only happen when a shootdown has ended.
//!
//! Whoever removes or weakens leaves interrupts the harts inside the VM and goes on with something else: nobody waits for a hart
//! here. Frames that became unreachable are kept until no TLB knows them, and freed by whoever comes by then: the next one who
//! removes something, the control hart, or who needs memory. What else has to come afterwards is somebody's next step, which
//! asks [`ShootdownTracker::all_passed`](tlb::ShootdownTracker::all_passed) first.

use crate::{GuestRam, Machine};
use core::sync::atomic::Ordering;
use frames::{DyingList, Frames, FreeableList, PendingShootdown};
use tlb::{ShootdownToken, TlbGeneration};

/// Blocks and references that one step frees.
const FREED: usize = 256;

/// Frames on their way to the allocator.
#[derive(Debug, Default)]
pub(super) struct Later {
    /// No TLB knows these any more.
    freeable: Option<FreeableList>,
    /// These wait for one shootdown,
    older: Option<PendingShootdown>,
    /// and what came since for a newer one.
    newer: Option<PendingShootdown>,
}

impl Later {
    fn keep(&mut self, pending: PendingShootdown, frames: &Frames) {
        self.newer = Some(match self.newer.take() {
            Some(newer) => newer.joined(pending, frames),
            None => pending,
        });
    }

    const fn is_empty(&self) -> bool {
        self.freeable.is_none() && self.older.is_none() && self.newer.is_none()
    }

    /// Frees some of what no TLB knows. Returns how many shootdowns and lists are left that something waits for.
    fn step<M: Machine>(&mut self, ram: &GuestRam<M>) {
        if self.freeable.is_none() {
            let pending = self.older.take().or_else(|| self.newer.take());
            match pending.map(|pending| pending.redeem(&ram.tlb)) {
                Some(Ok(freeable)) => self.freeable = Some(freeable),
                Some(Err(pending)) => self.older = Some(pending),
                None => {}
            }
        }
        self.freeable = self.freeable.take().and_then(|list| list.free_some(ram.frames(), ram.memory(), FREED));
    }
}

impl<M: Machine> GuestRam<M> {
    /// Interrupts the harts that may still use what `pending` removed. Its frames are freed when they have passed: at once, if
    /// all have, or by a later step.
    pub(super) fn defer(&self, pending: PendingShootdown) {
        self.call_out(&pending);
        if pending.is_empty() {
            return;
        }
        match pending.redeem(&self.tlb) {
            Ok(freeable) => _ = freeable.free_all(self.frames(), self.memory()),
            Err(pending) => self.hold_back(pending),
        }
    }

    /// Keeps frames until the harts have passed, and interrupts nobody: another shootdown follows soon, or there is time.
    pub(super) fn hold_back(&self, pending: PendingShootdown) {
        if !pending.is_empty() {
            self.later.lock().keep(pending, self.frames());
            self.has_later.store(true, Ordering::Relaxed);
            self.machine.note_deferred();
        }
    }

    /// A new generation begins: leaves were removed or weakened, by which nothing is to be freed. Interrupts who has not passed it,
    /// and returns it. The memory is not locked.
    pub(super) fn begin_generation(&self) -> TlbGeneration {
        self.call_out_of(self.tlb.retire())
    }

    /// The same for a generation that has begun while the memory was locked.
    pub(super) fn call_out_of(&self, token: ShootdownToken) -> TlbGeneration {
        let pending = PendingShootdown::new(token, DyingList::new());
        self.call_out(&pending);
        pending.generation()
    }

    /// Frees a bounded part of what waited for shootdowns. `true` while something waits.
    pub fn free_deferred(&self) -> bool {
        if !self.has_later.load(Ordering::Relaxed) {
            return false;
        }
        let mut later = self.later.lock();
        later.step(self);
        let waits = !later.is_empty();
        self.has_later.store(waits, Ordering::Relaxed);
        waits
    }

    /// Interrupts who has not passed, without waiting.
    pub(super) fn call_out(&self, pending: &PendingShootdown) {
        pending.targets(&self.tlb).iter().for_each(|cpu| self.machine.kick(cpu));
    }
}
