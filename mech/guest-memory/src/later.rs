//! What may only happen when a shootdown has ended.
//!
//! Whoever removes or weakens leaves interrupts the harts inside the VM and goes on with something else: nobody waits for a hart
//! here. Frames that became unreachable are kept until no TLB knows them, and freed by whoever comes by then: the next one who
//! removes something, the control hart, or who needs memory. What else has to come afterwards is somebody's next step, which
//! asks [`ShootdownTracker::all_passed`](tlb::ShootdownTracker::all_passed) first.

use crate::{GuestRam, Machine};
use addr::PAGES_PER_LARGE;
use core::sync::atomic::Ordering;
use frames::{DyingList, Frames, FreeableList, PendingShootdown};
use tlb::{ShootdownToken, TlbGeneration};

/// Blocks and references that one step frees.
const FREED: usize = 256;
/// References to shared pages that wait at a time, but for what each hart adds in one step: 64 KiB of the monitor's memory. A guest
/// says how many it has, and how fast they come.
pub(super) const MOST_WAITING: usize = 4096;

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

    /// References to shared pages in it.
    pub(super) fn references(&self) -> usize {
        let freeable = self.freeable.as_ref().map_or(0, FreeableList::references);
        let pending = self.older.iter().chain(&self.newer).map(PendingShootdown::references);
        freeable + pending.sum::<usize>()
    }

    /// What the oldest frames in it wait for.
    fn awaited(&self) -> TlbGeneration {
        self.older.as_ref().map_or(TlbGeneration::NONE, PendingShootdown::generation)
    }

    const fn is_empty(&self) -> bool {
        self.freeable.is_none() && self.older.is_none() && self.newer.is_none()
    }

    /// Frees up to `most` blocks and references that no TLB knows.
    fn step<M: Machine>(&mut self, ram: &GuestRam<M>, most: usize) {
        if self.freeable.is_none() {
            let pending = self.older.take().or_else(|| self.newer.take());
            match pending.map(|pending| pending.redeem(&ram.tlb)) {
                Some(Ok(freeable)) => self.freeable = Some(freeable),
                Some(Err(pending)) => self.older = Some(pending),
                None => {}
            }
        }
        self.freeable = self.freeable.take().and_then(|list| list.free_some(ram.frames(), ram.memory(), most));
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
        if pending.is_empty() {
            return;
        }
        let mut later = self.later.lock();
        // More than it adds: what waits does not grow while harts leave, however often somebody comes. A step of work at most.
        let most = (2 * (pending.references() as u64 + pending.pages())).min(2 * PAGES_PER_LARGE) as usize;
        later.keep(pending, self.frames());
        later.step(self, most);
        if self.note_later(&later) {
            self.machine.note_deferred();
        }
    }

    /// Says what is in `later`, which is locked; whether anything is.
    fn note_later(&self, later: &Later) -> bool {
        let waits = !later.is_empty();
        self.has_later.store(waits, Ordering::Relaxed);
        self.is_later_full.store(later.references() >= MOST_WAITING, Ordering::Relaxed);
        waits
    }

    /// Whether references to shared pages may be let go: not too many wait for harts. Else what they wait for: ask again when all have
    /// passed that.
    #[inline(always)]
    pub(super) fn has_room_later(&self) -> Result<(), TlbGeneration> {
        if self.is_later_full.load(Ordering::Relaxed) { self.make_room_later() } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn make_room_later(&self) -> Result<(), TlbGeneration> {
        let mut later = self.later.lock();
        later.step(self, FREED);
        self.note_later(&later);
        if later.references() < MOST_WAITING { Ok(()) } else { Err(later.awaited()) }
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
        later.step(self, FREED);
        self.note_later(&later)
    }

    /// Interrupts who has not passed, without waiting.
    pub(super) fn call_out(&self, pending: &PendingShootdown) {
        pending.targets(&self.tlb).iter().for_each(|cpu| self.machine.kick(cpu));
    }
}
