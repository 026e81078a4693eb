//! When the control hart has something to do, and how it is called.
//!
//! Whether anything is due is asked at every turn of a vCPU, so there is one number for all that has a date ([`next`]), and one
//! for what would have to interrupt a guest ([`latest`]). Who learns of a date brings them closer ([`note`]); only the control
//! hart moves them away, after its step. What is called for now has the date 0. What is to be done is the loop's business
//! (`run::duties`); this is at the bottom of the monitor so that everybody can call.

use super::irq;
use addr::{CpuIndex, HartId};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rv::csr;
use spin::Once;

/// Whether somebody has left something that has no date.
static IS_CALLED: AtomicBool = AtomicBool::new(true);
/// When the earliest duty is due.
static NEXT: AtomicU64 = AtomicU64::new(0);
/// When it is due even if the control hart runs guests all the time.
static LATEST: AtomicU64 = AtomicU64::new(0);
/// Whether something waits for harts to leave guests that the control hart looks after, when it comes by.
static IS_DEFERRED: AtomicBool = AtomicBool::new(false);
/// The hart that does the duties.
static CONTROL: Once<(CpuIndex, HartId)> = Once::new();

/// Ticks between two looks at devices that cannot call, and when the next one is; never where all can.
static POLL_TICKS: AtomicU64 = AtomicU64::new(0);
static NEXT_POLL: AtomicU64 = AtomicU64::new(u64::MAX);

/// Looks per second at what guests may cause as often as they like (they print, an event is recorded), at most.
const SOON_HZ: u64 = 200;
/// Whether there is such a thing.
static IS_WANTED: AtomicBool = AtomicBool::new(false);
/// When the control hart looks for it: it does once more after it has found something, so nobody need wake it meanwhile.
static SOON_AT: AtomicU64 = AtomicU64::new(u64::MAX);

/// Boot: some devices cannot call, so all are asked again after so many ticks.
pub fn poll_every(ticks: u64) {
    POLL_TICKS.store(ticks, Ordering::Relaxed);
    NEXT_POLL.store(0, Ordering::Relaxed);
}

/// When devices are to be asked that cannot call.
#[must_use]
pub fn next_poll() -> u64 {
    NEXT_POLL.load(Ordering::Relaxed)
}

/// Something has happened that the control hart should look at within 1 / [`SOON_HZ`] seconds. Guests may cause this in a loop.
pub fn call_soon() {
    IS_WANTED.store(true, Ordering::SeqCst);
    if SOON_AT.load(Ordering::SeqCst) == u64::MAX {
        wake_control();
    }
}

/// When the control hart looks for what was called for so.
#[must_use]
pub fn soon_at() -> u64 {
    SOON_AT.load(Ordering::Relaxed)
}

fn look_soon(now: u64) {
    let at = soon_at();
    if now < at && at != u64::MAX {
        return;
    }
    // Whoever calls from here on sees that no look is planned, or its call is seen below.
    SOON_AT.store(u64::MAX, Ordering::SeqCst);
    if IS_WANTED.swap(false, Ordering::SeqCst) {
        SOON_AT.store(now + super::capabilities().timebase_hz / SOON_HZ, Ordering::SeqCst);
        call();
    }
}

/// The control hart looks: if it is time, everything is asked as if it had called.
pub fn poll() {
    let now = csr::time::read();
    look_soon(now);
    if next_poll() <= now {
        NEXT_POLL.store(now + POLL_TICKS.load(Ordering::Relaxed), Ordering::Relaxed);
        call();
    }
}

/// Boot: this hart does the duties.
pub fn set_control(cpu: CpuIndex, hart: HartId) {
    CONTROL.call_once(|| (cpu, hart));
}

/// When the control hart looks at its duties though nothing interrupts it.
#[inline]
#[must_use]
pub fn next() -> u64 {
    NEXT.load(Ordering::Relaxed)
}

/// When it does so even while it runs a guest.
#[inline]
#[must_use]
pub fn latest() -> u64 {
    LATEST.load(Ordering::Relaxed)
}

/// Something has happened that the control hart should look at.
pub fn wake_control() {
    if call()
        && let Some((cpu, hart)) = CONTROL.get()
    {
        irq::ring(*cpu, *hart);
    }
}

/// Whether somebody has said that there is something to do now, and the control hart has not looked yet.
#[must_use]
pub fn is_called() -> bool {
    IS_CALLED.load(Ordering::SeqCst)
}

/// There is something to do now; whether that is news. The control hart itself need not be rung.
pub fn call() -> bool {
    let is_news = !IS_CALLED.swap(true, Ordering::SeqCst);
    if is_news {
        note(0, 0);
    }
    is_news
}

/// There is something to do at `at`, and no later than `latest` if the control hart does not rest before. Unless it is
/// the control hart that says so, it has to be woken too: its timer is set for what was known.
pub fn note(at: u64, latest: u64) {
    NEXT.fetch_min(at, Ordering::SeqCst);
    LATEST.fetch_min(latest, Ordering::SeqCst);
}

/// Something waits until harts have left a guest (frames, requests of disks). The control hart is not woken for it.
pub fn defer() {
    IS_DEFERRED.store(true, Ordering::Relaxed);
}

/// Whether something waits so.
#[must_use]
pub fn is_deferred() -> bool {
    IS_DEFERRED.load(Ordering::Relaxed)
}

/// The control hart is about to look. Who begins to wait from here on says so again.
pub fn take_deferred() -> bool {
    IS_DEFERRED.swap(false, Ordering::Relaxed)
}

/// The control hart is about to do what it was called for; whether it was.
pub fn take_call() -> bool {
    IS_CALLED.swap(false, Ordering::SeqCst)
}

/// The control hart has more to do at once.
pub fn call_again() {
    IS_CALLED.store(true, Ordering::SeqCst);
}

/// All dates anew, by the control hart: first far away, so that a date that comes to be known meanwhile is either seen by its
/// looks, which follow, or noted after this. Returns 0 if it was called since, else `u64::MAX`.
pub fn clear_dates() -> u64 {
    NEXT.store(u64::MAX, Ordering::SeqCst);
    LATEST.store(u64::MAX, Ordering::SeqCst);
    if IS_CALLED.load(Ordering::SeqCst) { 0 } else { u64::MAX }
}
