//! The trace of what the monitor did and why: typed events, a ring for each hart, and the latest exits, a ring for each
//! vCPU. Formatted only by clients.

mod exits;

pub use exits::ExitRing;

use addr::{CpuIndex, VmId};
use alloc::{boxed::Box, collections::VecDeque, vec::Vec};
use control::{Event, EventBatch, EventKind, Followed, VmLabel};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rv::csr;
use spin::{Mutex, Once};

/// Events kept per hart.
const CAPACITY: usize = 1024;
/// Events that are looked at in a read, wanted or not: all rings are locked meanwhile, and other harts wait to add to theirs.
const LOOKED_AT: u64 = 128;

/// The events of one hart. Sequence numbers are taken under its lock, so that who holds all rings sees no gap that is
/// still to be filled.
type Ring = Mutex<VecDeque<Event>>;

static RINGS: Once<Box<[Ring]>> = Once::new();
static NEXT: AtomicU64 = AtomicU64::new(0);
/// The number behind that of the latest event of a VM's life.
static NEXT_LIFE: AtomicU64 = AtomicU64::new(0);
/// Whether a client follows all events. Only then is one that is of no life worth waking the control hart for.
static ALL_FOLLOWED: AtomicBool = AtomicBool::new(false);

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
    let vm = vm.map(|id| VmLabel { id, name: None });
    let cell = crate::machine::cell::index() as u8;
    keep(hart, Event { sequence: 0, ticks: csr::time::read(), hart, cell, vm, kind });
}

/// Adds an event that another cell has told. It is kept as the control hart's, who calls this, but says what it said.
pub fn import(cell: u8, event: Event) {
    keep(crate::hart::CONTROL_HART, Event { cell, ..event });
}

/// Keeps an event in the ring of `hart`, with the next number.
fn keep(hart: CpuIndex, event: Event) {
    let Some(ring) = rings().get(hart.index()) else { return };
    let is_of_life = event.kind.is_of_life();
    let mut events = ring.lock();
    if events.len() == CAPACITY {
        events.pop_front();
    }
    let sequence = NEXT.fetch_add(1, Ordering::SeqCst);
    if is_of_life {
        NEXT_LIFE.fetch_max(sequence + 1, Ordering::SeqCst);
    }
    events.push_back(Event { sequence, ..event });
    drop(events);
    if is_of_life || ALL_FOLLOWED.load(Ordering::SeqCst) {
        crate::machine::agenda::call_soon();
    }
}

/// Says whether a client follows all events.
pub fn set_all_followed(is_followed: bool) {
    // Whoever has not seen this has counted its event before the events are looked at.
    ALL_FOLLOWED.store(is_followed, Ordering::SeqCst);
}

/// Up to `max` of the events that are `wanted` from sequence number `from`; names are filled in by `name_of`.
#[must_use]
pub fn read(from: u64, max: usize, wanted: Followed, name_of: impl Fn(VmId) -> Option<control::Name>) -> EventBatch {
    let locked: Vec<_> = rings().iter().map(|ring| ring.lock()).collect();
    let end = NEXT.load(Ordering::SeqCst);
    let later = |ring: &VecDeque<Event>| ring.partition_point(|event| event.sequence < from);
    let mut rest: Vec<_> = locked.iter().map(|ring| ring.range(later(ring)..).peekable()).collect();
    let (mut events, mut passed, mut next) = (Vec::new(), 0, end);
    loop {
        let nearest = rest.iter_mut().filter_map(|ring| Some((ring.peek()?.sequence, ring)));
        let Some((sequence, ring)) = nearest.min_by_key(|(sequence, _)| *sequence) else { break };
        if events.len() >= max || passed >= LOOKED_AT {
            next = sequence;
            break;
        }
        events.extend(ring.next().filter(|event| wanted == Followed::All || event.kind.is_of_life()).cloned());
        passed += 1;
    }
    drop(rest);
    drop(locked);
    for label in events.iter_mut().filter_map(|event| event.vm.as_mut()) {
        // Of other cells' VMs only the event knows.
        label.name = name_of(label.id).or_else(|| label.name.take());
    }
    let next = next.max(from.min(end));
    EventBatch { lost: (next - from.min(next)).saturating_sub(passed), events, next }
}

/// Shows `each` of the latest `most` events of a hart, the oldest first; none if somebody is at them, who may be dead.
pub fn latest(hart: CpuIndex, most: usize, each: impl FnMut(&Event)) {
    // Not `rings`, which takes memory the first time.
    let Some(events) = RINGS.get().and_then(|rings| rings.get(hart.index())).and_then(Ring::try_lock) else { return };
    let surplus = events.len().saturating_sub(most);
    events.iter().skip(surplus).for_each(each);
}

/// The sequence number behind that of the latest event of these.
#[must_use]
pub fn next_sequence(which: Followed) -> u64 {
    let next = match which {
        Followed::All => &NEXT,
        Followed::Lives => &NEXT_LIFE,
    };
    next.load(Ordering::SeqCst)
}
