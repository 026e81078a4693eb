//! Pages where they are used: what the monitor knows goes to the planner (crate `placement`), and what the planner proposes goes to
//! harts.
//!
//! The control hart looks some hundred times a second. The planner asks about hot pages, decides, and leaves harts of the nodes that
//! pages go to a job each: see `port` for what it is told, and `job` for what a hart does. Where the machine counts no misses, or is
//! told not to believe its counters, samples of the pages take their place.

mod job;
mod port;

pub use job::Job;

use super::registry;
use crate::{
    hart::PreemptionPoint,
    machine::{capabilities, description, devices, memory, options},
    trace,
    vm::Vm,
};
use addr::VmId;
use alloc::{sync::Arc, vec::Vec};
use control::{EventKind, Placement, PlacementAction, PlacementBy, PlacementReason};
use core::sync::atomic::{AtomicU64, Ordering};
use job::Lanes;
use machine_io::{MissCounters, MissedPage};
use placement::{Guest, IDLE_HZ, Look, NODES, Planner, Switches, Thresholds};
use port::{Numbering, Port};
use rv::csr;
use spin::Mutex;

/// Pages with copies that are looked at, at each look, to see whether they still need them; and how many times as many while there
/// is nothing else to do.
const SWEPT: usize = 8;
const SWEEPS_IDLE: usize = 64;
/// How tries of pages are counted, whoever proposes them.
const THRESHOLDS: Thresholds = Thresholds::for_misses();

/// When the control hart looks next.
static NEXT_LOOK: AtomicU64 = AtomicU64::new(0);
static STATE: Mutex<Locality> = Mutex::new(Locality::new());

/// When to look next; never on a machine where there is nothing to see.
#[inline]
#[must_use]
pub fn next_look() -> u64 {
    NEXT_LOOK.load(Ordering::Relaxed)
}

fn is_due() -> bool {
    let next = next_look();
    next != u64::MAX && csr::time::read() >= next
}

/// One look, if it is due.
pub fn step(point: &mut PreemptionPoint<'_>) {
    if !is_due() {
        return;
    }
    let now = csr::time::read();
    let hz = if description().nodes.count() < 2 {
        0
    } else {
        let mut counters = devices::all().counters.as_ref().map(|counters| counters.lock());
        STATE.lock().look(counters.as_deref_mut(), now, point)
    };
    let next = capabilities().timebase_hz.checked_div(hz).map_or(u64::MAX, |ticks| now + ticks);
    NEXT_LOOK.store(next, Ordering::Relaxed);
}

/// The planner, and what its questions and proposals need.
struct Locality {
    planner: Planner<NODES>,
    /// The counters' nodes, once they are known.
    numbering: Option<Numbering>,
    /// Room for reports.
    reports: Vec<MissedPage>,
    /// Jobs of VMs that are under way.
    lanes: Vec<(VmId, Lanes)>,
}

/// The VMs that take part, and what the planner is told of each.
struct Guests {
    vms: Vec<Arc<Vm>>,
    facts: Vec<Guest>,
}

impl Guests {
    fn now(lanes: &mut Vec<(VmId, Lanes)>) -> Self {
        let registry = registry::lock();
        let mut guests = Self { vms: Vec::new(), facts: Vec::new() };
        for record in registry.records() {
            let switches = switches(record.spec.placement);
            if let Some(vm) = record.launched().filter(|vm| vm.is_running() && switches != Switches::NEITHER) {
                guests.facts.push(facts_of(vm, switches, lanes));
                guests.vms.push(vm.clone());
            }
        }
        lanes.retain(|(vm, _)| guests.find(*vm).is_some());
        guests
    }

    /// The VM's place among them.
    #[inline(always)]
    fn find(&self, id: VmId) -> Option<usize> {
        self.facts.iter().position(|guest| guest.vm == id)
    }

    #[inline(always)]
    fn vm(&self, guest: usize) -> Option<&Arc<Vm>> {
        self.vms.get(guest)
    }
}

fn facts_of(vm: &Vm, switches: Switches, lanes: &mut Vec<(VmId, Lanes)>) -> Guest {
    let ram = vm.memory();
    Guest {
        vm: vm.id,
        switches,
        base: ram.base(),
        pages: ram.bytes() / addr::BASE_PAGE,
        node_change_at: vm.node_change_at(),
        is_ending: vm.is_ending(),
        jobs: Lanes::of(lanes, vm.id).taken(),
    }
}

const fn switches(placement: Placement) -> Switches {
    match placement {
        Placement::Dynamic => Switches::BOTH,
        Placement::Migrate => Switches { migrate: true, replicate: false },
        Placement::Replicate => Switches { migrate: false, replicate: true },
        Placement::FirstTouch => Switches::NEITHER,
    }
}

/// A page, or several, stay where they are.
fn stays(vm: &Vm, pages: u64, reason: PlacementReason) {
    if vm.memory().note_stays(pages, reason) {
        trace::record(Some(vm.id), EventKind::PlacementRefused { reason });
    }
}

/// Events of what guests have had a hand in.
fn tell_news(guests: &Guests) {
    for vm in &guests.vms {
        let tell = |action, (pages, node), reason| {
            if pages != 0 {
                trace::record(Some(vm.id), EventKind::PagesPlaced { action, pages, node, reason });
            }
        };
        let (blocks, node) = vm.memory().take_block_moves();
        let pages = blocks * addr::PAGES_PER_LARGE;
        tell(PlacementAction::MigratedBlock, (pages, node), PlacementReason::OneUser);
        tell(PlacementAction::Collapsed, vm.memory().take_collapses(), PlacementReason::Written);
    }
}

impl Locality {
    const fn new() -> Self {
        Self { planner: Planner::new(), numbering: None, reports: Vec::new(), lanes: Vec::new() }
    }

    /// One look: how many there should be per second from now on.
    fn look(&mut self, counters: Option<&mut MissCounters>, now: u64, point: &mut PreemptionPoint<'_>) -> u64 {
        memory::frames().sweep_spread(SWEPT);
        let by_misses = options().placement_by == PlacementBy::Misses && counters.is_some();
        let counters = counters.filter(|counters| counters.is_on());
        if by_misses && counters.is_none() {
            return IDLE_HZ;
        }
        let guests = Guests::now(&mut self.lanes);
        if guests.vms.is_empty() {
            for _ in 0..SWEEPS_IDLE {
                memory::frames().sweep_spread(SWEPT);
                if !point.may_go_on() {
                    break;
                }
            }
        }
        tell_news(&guests);
        let Self { planner, numbering, reports, lanes } = self;
        if let (Some(counters), None) = (&counters, &numbering) {
            *numbering = Some(Numbering::of(counters));
        }
        let look =
            Look { now, hz: capabilities().timebase_hz, nodes: description().nodes.count(), guests: &guests.facts };
        let mut port =
            Port { guests: &guests, counters: counters.zip(numbering.as_ref()), reports, lanes, began: now, point };
        if by_misses { planner.look(&look, &mut port) } else { planner.look_at_samples(&look, &mut port) }
    }
}
