//! What VMs have sent to each other lately: pages that may be in memory twice. Merging takes rounds over them.

use super::DeviceOwner;
use crate::machine::{agenda, capabilities};
use addr::{Gfn, Mfn};
use arrayvec::ArrayVec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use merging::sent::{Range, Sent};
use rv::csr;
use spin::Mutex;

/// Pages of one segment of a frame that are remembered.
const MOST_SENT: usize = 20;
/// Seconds that a round may be late if the control hart does not rest before.
pub const PATIENCE_S: u64 = 1;

/// What was sent since the last round. Taken for moments only, by whoever sends.
static SENT: Mutex<Sent> = Mutex::new(Sent::new());
/// When the next round begins.
static ROUND_AT: AtomicU64 = AtomicU64::new(u64::MAX);
/// Whether anybody wants to know what is sent.
static IS_LOOKING: AtomicBool = AtomicBool::new(false);

/// Whether anybody wants to know what is sent. A VM that is alone on its machine sends it to nobody who has it twice
/// then.
#[inline]
#[must_use]
pub fn is_looking() -> bool {
    IS_LOOKING.load(Ordering::Relaxed)
}

/// Says whether anybody wants to know what is sent.
pub fn set_looking(is_looking: bool) {
    IS_LOOKING.store(is_looking, Ordering::Relaxed);
}

/// A VM sends pages of its memory, whole or in parts: at most a frame.
pub fn note(vm: &dyn DeviceOwner, first: Gfn, pages: u64) {
    let mut found = ArrayVec::<Mfn, MOST_SENT>::new();
    // A frame has no more pages.
    vm.machine_pages(first, pages.min(MOST_SENT as u64), &mut |page| found.push(page));
    let mut sent = SENT.lock();
    found.into_iter().for_each(|page| sent.push(vm.id(), Range::new(page, 1)));
    drop(sent);
    if round_at() == u64::MAX {
        let at = plan_round(1);
        agenda::note(at, latest_round_at());
        // Whoever is in a guest now has set its timer without knowing.
        agenda::wake_control();
    }
}

/// Takes what was sent since the last time.
#[must_use]
pub fn take() -> Sent {
    SENT.lock().take()
}

/// When the next round begins; `u64::MAX` if none is planned.
#[must_use]
pub fn round_at() -> u64 {
    ROUND_AT.load(Ordering::Relaxed)
}

/// When it begins even if the control hart does not rest before.
#[must_use]
pub fn latest_round_at() -> u64 {
    round_at().saturating_add(PATIENCE_S * capabilities().timebase_hz)
}

/// No round is planned from here on: whoever sends plans one.
pub fn no_round() {
    ROUND_AT.store(u64::MAX, Ordering::SeqCst);
}

/// A round begins in so many seconds, if not before; returns when. After one: what was sent is in its receiver's memory by then,
/// and two rounds have passed within five.
pub fn plan_round(seconds: u64) -> u64 {
    let at = csr::time::read() + seconds * capabilities().timebase_hz;
    ROUND_AT.fetch_min(at, Ordering::SeqCst);
    at
}
