//! Disk servers' holds on virtual time, see [`Gate`].

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use machine_model::Shared;
use model_file::{Gate, at};

/// A hart that is held, or time that is, looks again after so long.
pub const LOOK: Duration = Duration::from_micros(50);
/// How long servers are given, in real time, to see the requests of a doorbell.
pub const PATIENCE: Duration = Duration::from_millis(100);

/// Doorbells that were waited for in vain.
static GIVEN_UP: AtomicU64 = AtomicU64::new(0);

/// The time that the machine's clock may not pass, in ps.
pub fn limit_ps(shared: &Shared) -> Option<u64> {
    let limits = gates(shared).map(|gate| shared.get(gate + Gate::LIMIT));
    limits.filter(|limit| *limit != Gate::OPEN).min()
}

/// A hart has rung a doorbell at `now_ps`.
pub fn ring(shared: &Shared, now_ps: u64) {
    shared.set(at::DOORBELL_PS, now_ps);
    shared.set(at::DOORBELLS, shared.get(at::DOORBELLS) + 1);
}

/// Whether a server has not yet seen all requests.
pub fn are_behind(shared: &Shared) -> bool {
    let doorbells = shared.get(at::DOORBELLS);
    let is_behind =
        |gate: u64| shared.get(gate + Gate::ATTACHED) != 0 && shared.get(gate + Gate::ACKNOWLEDGED) < doorbells;
    GIVEN_UP.load(Relaxed) < doorbells && gates(shared).any(is_behind)
}

/// The servers are too slow: time goes on without them.
pub fn give_up(shared: &Shared) {
    GIVEN_UP.store(shared.get(at::DOORBELLS), Relaxed);
    shared.set(at::DOORBELLS_LATE, shared.get(at::DOORBELLS_LATE) + 1);
}

fn gates(shared: &Shared) -> impl Iterator<Item = u64> {
    let count = shared.get(at::GATES).min(Gate::COUNT);
    (0..count).filter_map(|gate| shared.header().gate_at(gate))
}
