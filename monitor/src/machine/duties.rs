//! What the control hart does for the whole machine, and when: the control port, disks and network, the lives of VMs, alarms,
//! merging, hot pages, balancing. Each is a bounded step.
//!
//! Whether anything is due is asked at every turn of a vCPU, so there is one number for all that has a date ([`NEXT`]), and
//! one for a hart that would have to interrupt a guest ([`LATEST`]). Who learns of a date brings them closer ([`note`]); only
//! the control hart moves them away, after its step. What is called for now has the date 0.

use super::{
    capabilities, clock, config, description, devices, disks, heap_reserve, joining, locality, memory, merging,
    network, reclaim,
};
use crate::{
    control::Server,
    hart::{self, Hart},
    trace,
    vm::registry,
};
use ::control::EventKind;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use frames::PageState;
use machine_tree::InterruptSource;
use rv::csr;
use spin::Mutex;

/// Has somebody left something that has no date?
static IS_CALLED: AtomicBool = AtomicBool::new(true);
/// When the earliest duty is due.
static NEXT: AtomicU64 = AtomicU64::new(0);
/// When it is due even if the control hart runs guests all the time.
static LATEST: AtomicU64 = AtomicU64::new(0);
static NEXT_BALANCE: AtomicU64 = AtomicU64::new(0);
static SERVER: Mutex<Option<Server>> = Mutex::new(None);

/// When this hart has to look at its duties even if nothing interrupts it; `is_busy` with a guest, which then is not
/// interrupted for what can wait.
#[inline]
#[must_use]
pub fn next_tick(hart: &Hart, is_busy: bool) -> u64 {
    if !hart.is_control() {
        return u64::MAX;
    }
    let duty = if is_busy { &LATEST } else { &NEXT }.load(Ordering::Relaxed);
    if hart::balance::is_contended() { duty.min(NEXT_BALANCE.load(Ordering::Relaxed)) } else { duty }
}

/// Has the control hart anything to do?
#[inline]
#[must_use]
pub fn is_due() -> bool {
    is_past(NEXT.load(Ordering::Relaxed)) || is_balancing_due()
}

/// Does background work wait for this hart to rest? Then a guest that has nothing to do should leave it, though nobody else
/// wants to run: in guest mode it would seem busy.
#[inline]
#[must_use]
pub fn wants_rest(hart: &Hart) -> bool {
    hart.is_control() && merging::is_under_way()
}

/// Has this time come? `u64::MAX` never does.
#[inline]
fn is_past(when: u64) -> bool {
    when != u64::MAX && csr::time::read() >= when
}

#[inline]
fn is_balancing_due() -> bool {
    hart::balance::is_contended() && csr::time::read() >= NEXT_BALANCE.load(Ordering::Relaxed)
}

/// Something has happened that the control hart should look at.
pub fn wake_control() {
    if call()
        && let Some(hart) = hart::all().get(hart::CONTROL_HART.index())
    {
        hart.kick();
    }
}

/// A device of the machine has interrupted the hart `hart`.
pub fn device_interrupt(hart: &Hart, source: InterruptSource) {
    devices::acknowledge(source);
    if hart.is_control() {
        // It looks right after this; a ring to itself would only bring it here again.
        call();
    } else {
        // A PLIC has no wire from every source to every hart.
        wake_control();
    }
}

/// There is something to do now; whether that is news.
fn call() -> bool {
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

/// One bounded step of each duty that is due.
pub fn step() {
    if IS_CALLED.swap(false, Ordering::SeqCst) {
        let mut server = SERVER.lock();
        let server = server.get_or_insert_with(begin);
        let is_busy =
            server.step(&mut devices::ControlStream) | disks::step() | network::step() | registry::lock().step();
        if is_busy {
            IS_CALLED.store(true, Ordering::SeqCst);
        }
    }
    heap_reserve::step();
    reclaim::step();
    clock::step();
    merging::step();
    locality::step();
    joining::step();
    if is_balancing_due() || is_past(hart::balance::next_look()) {
        hart::balance::step(&registry::lock());
        NEXT_BALANCE
            .store(csr::time::read() + capabilities().timebase_hz / hart::balance::REBALANCE_HZ, Ordering::Relaxed);
    }
    plan();
}

/// All dates anew. First far away, then the looks: a date that comes to be known meanwhile is either seen here or noted after
/// this.
fn plan() {
    NEXT.store(u64::MAX, Ordering::SeqCst);
    LATEST.store(u64::MAX, Ordering::SeqCst);
    let called = if IS_CALLED.load(Ordering::SeqCst) { 0 } else { u64::MAX };
    let soon = called
        .min(clock::next_alarm())
        .min(locality::next_look())
        .min(heap_reserve::next_look())
        .min(reclaim::next_look());
    note(soon.min(merging::next_step()).min(joining::next_look()), soon.min(merging::latest_step()));
}

/// The first step: create and start what the configuration says.
fn begin() -> Server {
    let free = description().nodes.ids().map(|node| memory::frames().counts(node).get(PageState::Free)).sum::<u64>();
    trace::record(
        None,
        EventKind::MachineBooted {
            harts: hart::all().len() as u16,
            nodes: description().nodes.count() as u8,
            free_bytes: free * addr::BASE_PAGE,
        },
    );
    let mut registry = registry::lock();
    for spec in config().vms.clone() {
        let (name, autostart) = (spec.name.clone(), spec.autostart);
        let outcome = registry.create(spec).and_then(|_| if autostart { registry.start(&name) } else { Ok(()) });
        if let Err(why) = outcome {
            log::error!("VM {name}: {why}");
        }
    }
    Server::default()
}
