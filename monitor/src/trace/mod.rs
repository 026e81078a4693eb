//! The trace of what the monitor did and why: typed events, a ring for each hart, and the latest exits, a ring for each
//! vCPU. Formatted only by clients.

mod exits;

pub use exits::ExitRing;

use addr::VmId;
use alloc::{boxed::Box, collections::VecDeque, vec::Vec};
use control::{Event, EventBatch, EventKind, VmLabel};
use core::sync::atomic::{AtomicU64, Ordering};
use rv::csr;
use spin::{Mutex, Once};

/// Events kept per hart.
const CAPACITY: usize = 1024;

/// The events of one hart. Sequence numbers are taken under its lock, so that who holds all rings sees no gap that is
/// still to be filled.
type Ring = Mutex<VecDeque<Event>>;

static RINGS: Once<Box<[Ring]>> = Once::new();
static NEXT: AtomicU64 = AtomicU64::new(0);

/// None before the harts are known: nothing happens then that is worth an event.
fn rings() -> &'static [Ring] {
    if crate::hart::all().is_empty() {
        return &[];
    }
    RINGS.call_once(|| crate::hart::all().iter().map(|_| Mutex::new(VecDeque::new())).collect())
}

/// Adds an event to the hart's ring. For what happens rarely (lives of VMs, faults, moves), not for exits.
pub fn record(vm: Option<VmId>, kind: EventKind) {
    let hart = crate::hart::current().unwrap_or(crate::hart::CONTROL_HART);
    let Some(ring) = rings().get(hart.index()) else { return };
    let mut events = ring.lock();
    if events.len() == CAPACITY {
        events.pop_front();
    }
    events.push_back(Event {
        sequence: NEXT.fetch_add(1, Ordering::SeqCst),
        ticks: csr::time::read(),
        hart,
        vm: vm.map(|id| VmLabel { id, name: None }),
        kind,
    });
    drop(events);
    crate::machine::duties::wake_control();
}

/// Up to `max` events from sequence number `from`; names are filled in by `name_of`.
#[must_use]
pub fn read(from: u64, max: usize, name_of: impl Fn(VmId) -> Option<control::Name>) -> EventBatch {
    let locked: Vec<_> = rings().iter().map(|ring| ring.lock()).collect();
    let end = NEXT.load(Ordering::SeqCst);
    let later = |ring: &VecDeque<Event>| ring.partition_point(|event| event.sequence < from);
    let mut rest: Vec<_> = locked.iter().map(|ring| ring.range(later(ring)..).peekable()).collect();
    let mut events = Vec::new();
    while events.len() < max {
        let nearest = rest.iter_mut().filter_map(|ring| Some((ring.peek()?.sequence, ring)));
        let Some((_, ring)) = nearest.min_by_key(|(sequence, _)| *sequence) else { break };
        events.extend(ring.next().cloned());
    }
    let next = if events.len() < max { end } else { events.last().map_or(end, |event: &Event| event.sequence + 1) };
    drop(rest);
    drop(locked);
    for label in events.iter_mut().filter_map(|event| event.vm.as_mut()) {
        label.name = name_of(label.id);
    }
    let next = next.max(from.min(end));
    EventBatch { lost: (next - from.min(next)).saturating_sub(events.len() as u64), events, next }
}

/// The sequence number that the next event will get.
#[must_use]
pub fn next_sequence() -> u64 {
    NEXT.load(Ordering::SeqCst)
}
