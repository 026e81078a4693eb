//! The machine timer of each hart: for the supervisor where it has no `stimecmp`, and for the faults' triggers.

use core::sync::atomic::Ordering::Relaxed;

use super::csr::{self, MIE, MIP};
use super::harts::{hardware, hart};
use super::memory::write_register64;
use super::{injection, setup};

const MACHINE_TIMER: u64 = 1 << 7;
const SUPERVISOR_TIMER: u64 = 1 << 5;

/// Sets the timer to the next thing that somebody waits for.
pub fn set(id: usize, watch: u64) {
    let next = watch.min(hart(id).deadline.load(Relaxed));
    let place = hardware().harts[id].and_then(|place| place.timer);
    if let Some(timer) = place {
        write_register64(timer.compare, next);
        if next == u64::MAX { csr::clear::<MIE>(MACHINE_TIMER) } else { csr::set::<MIE>(MACHINE_TIMER) }
    }
}

/// The supervisor wants its timer interrupt then.
pub fn set_supervisor(id: usize, deadline: u64) {
    if setup::has_sstc() {
        csr::write::<{ csr::STIMECMP }>(deadline);
        return;
    }
    csr::clear::<MIP>(SUPERVISOR_TIMER);
    hart(id).deadline.store(deadline, Relaxed);
    set(id, injection::next_look(id));
}

/// The timer of the executing hart has expired.
pub fn expired(id: usize) {
    let deadline = &hart(id).deadline;
    if csr::time() >= deadline.load(Relaxed) {
        deadline.store(u64::MAX, Relaxed);
        csr::set::<MIP>(SUPERVISOR_TIMER);
    }
    let next = injection::look(id);
    set(id, next);
}
