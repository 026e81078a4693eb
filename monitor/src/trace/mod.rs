//! The trace of what the monitor did and why: typed events in a ring, formatted only by clients.

use addr::{CpuIndex, VmId};
use alloc::{collections::VecDeque, vec::Vec};
use control::{Event, EventBatch, EventKind, VmLabel};
use rv::csr;
use spin::Mutex;

/// Events kept.
const CAPACITY: usize = 2048;

#[derive(Debug, Default)]
struct Ring {
    events: VecDeque<Event>,
    next: u64,
}

static RING: Mutex<Ring> = Mutex::new(Ring { events: VecDeque::new(), next: 0 });

/// Adds an event. For what happens rarely (lives of VMs, faults, moves), not for exits.
pub fn record(vm: Option<VmId>, kind: EventKind) {
    let mut ring = RING.lock();
    let sequence = ring.next;
    ring.next += 1;
    if ring.events.len() == CAPACITY {
        ring.events.pop_front();
    }
    ring.events.push_back(Event {
        sequence,
        ticks: csr::time::read(),
        hart: crate::hart::current().unwrap_or(CpuIndex(0)),
        vm: vm.map(|id| VmLabel { id, name: None }),
        kind,
    });
    drop(ring);
    crate::machine::wake_control();
}

/// Up to `max` events from sequence number `from`; names are filled in by `name_of`.
#[must_use]
pub fn read(from: u64, max: usize, name_of: impl Fn(VmId) -> Option<control::Name>) -> EventBatch {
    let ring = RING.lock();
    let oldest = ring.next - ring.events.len() as u64;
    let first = from.clamp(oldest, ring.next);
    let mut events: Vec<Event> = ring.events.iter().skip((first - oldest) as usize).take(max).cloned().collect();
    drop(ring);
    for label in events.iter_mut().filter_map(|event| event.vm.as_mut()) {
        label.name = name_of(label.id);
    }
    let next = first + events.len() as u64;
    EventBatch { lost: first.saturating_sub(from), events, next }
}

/// The sequence number that the next event will get.
#[must_use]
pub fn next_sequence() -> u64 {
    RING.lock().next
}
