//! What the control hart does for the whole machine, and when: the control port, disks and network, the lives of VMs, alarms,
//! merging, hot pages, balancing. Each is a bounded step.
//!
//! When they are due is in [`agenda`].

use crate::{
    control::{ControlStream, Server},
    hart::{
        self, Hart, HartTools, PreemptionPoint,
        stretch::{self, Place},
    },
    io::{disks, network},
    machine::{agenda, capabilities, cell, clock, config, description, devices, heap_reserve, memory},
    services::{alarms, balance, cells, joining, locality, merging, promises, reclaim, registry, reports},
    trace,
};
use ::control::{EventKind, Name};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use frames::PageState;
use machine_tree::InterruptSource;
use rv::csr;
use spin::Mutex;

static NEXT_BALANCE: AtomicU64 = AtomicU64::new(0);
static SERVED: Mutex<Option<Served>> = Mutex::new(None);
/// The duty with which the round goes on that a call has ended, and whether somebody had called before the round. 0: the last round
/// came to its end. Of the control hart only.
static LEFT: AtomicU64 = AtomicU64::new(0);
const HAD_CALL: u64 = 1 << 8;

/// Whom the control hart serves.
struct Served {
    /// VMs that start with the machine and have not been built yet, the next one last: each takes a step of its own.
    to_start: Vec<Name>,
    server: Server,
    /// Whether lives of VMs went on last, or clients.
    is_lives_turn: bool,
}

/// When this hart has to look at its duties even if nothing interrupts it; `is_busy` with a guest, which then is not
/// interrupted for what can wait.
#[inline]
#[must_use]
pub fn next_tick(hart: &Hart, is_busy: bool) -> u64 {
    if !hart.is_control() {
        return u64::MAX;
    }
    let duty = if is_busy { agenda::latest() } else { agenda::next() };
    if balance::is_contended() { duty.min(NEXT_BALANCE.load(Ordering::Relaxed)) } else { duty }
}

/// Whether the control hart has anything to do now.
#[inline]
#[must_use]
pub fn is_due() -> bool {
    LEFT.load(Ordering::Relaxed) != 0 || is_past(agenda::next()) || is_balancing_due()
}

/// Whether background work waits for this hart to rest. Then a guest that has nothing to do should leave it, though
/// nobody else wants to run: in guest mode it would seem busy.
#[inline]
#[must_use]
pub fn wants_rest(hart: &Hart) -> bool {
    hart.is_control() && merging::is_under_way()
}

/// Whether this time has come, in ticks. `u64::MAX` never does.
#[inline]
fn is_past(when: u64) -> bool {
    when != u64::MAX && csr::time::read() >= when
}

#[inline]
fn is_balancing_due() -> bool {
    balance::is_contended() && csr::time::read() >= NEXT_BALANCE.load(Ordering::Relaxed)
}

/// A device of the machine has interrupted the hart `hart`.
pub fn device_interrupt(hart: &Hart, source: InterruptSource) {
    devices::acknowledge(source);
    if hart.is_control() {
        // It looks right after this; a ring to itself would only bring it here again.
        let _ = agenda::call();
    } else {
        // A PLIC has no wire from every source to every hart.
        agenda::wake_control();
    }
}

/// One bounded step of each duty that is due, with a preemption point between any two of them. A call ends the round there: the hart takes
/// its interrupts, and goes on with the next duty when it comes here again. So whoever calls all the time delays one duty, not all.
pub fn step(hart: &Hart, tools: &mut HartTools) {
    let left = LEFT.load(Ordering::Relaxed);
    let is_called = if left == 0 {
        agenda::poll();
        agenda::take_call()
    } else {
        left & HAD_CALL != 0
    };
    let (mut begin, mut longest) = (csr::time::read(), 0);
    for (at, (place, duty)) in DUTIES.into_iter().enumerate().skip((left % HAD_CALL) as usize) {
        let mut point = PreemptionPoint::new(tools, &hart.counters.stretches, place);
        duty(is_called, &mut point);
        let end = csr::time::read();
        let took = end.wrapping_sub(begin);
        begin = end;
        if took >= longest {
            longest = took;
            tools.stretch.note(place);
        }
        if !tools.is_called() {
            tools.look(end, &hart.counters.stretches);
            longest = 0;
        } else if at + 1 < DUTIES.len() {
            LEFT.store((at + 1) as u64 | if is_called { HAD_CALL } else { 0 }, Ordering::Relaxed);
            return;
        }
    }
    LEFT.store(0, Ordering::Relaxed);
    plan();
}

/// A step of one, told whether somebody has called, and with preemption points if it takes long.
type Duty = fn(bool, &mut PreemptionPoint<'_>);

/// What the control hart does, and what a long stretch of it is told as. Some of it is done when somebody has called.
const DUTIES: [(Place, Duty); 9] = [
    (stretch::DUTIES, |_, _| cells::step()),
    (stretch::CLIENTS, |is_called, point| if_busy(is_called, || serve(point))),
    (stretch::DISKS, |is_called, _| if_busy(is_called, disks::step)),
    (stretch::NETWORK, |is_called, point| if_busy(is_called, || network::step(|| point.may_go_on()))),
    (stretch::MEMORY, |_, point| {
        heap_reserve::step();
        promises::step();
        point.pause();
        reclaim::step();
        point.pause();
        joining::step();
    }),
    (stretch::DUTIES, |_, _| {
        alarms::step();
        reports::step();
    }),
    (stretch::MERGING, |_, point| merging::step(point)),
    (stretch::LOOKS, |_, point| locality::step(point)),
    (stretch::BALANCE, |_, _| spread_vcpus()),
];

/// Does a step of what was called for, if it was; there may be more to do at once.
fn if_busy(is_called: bool, step: impl FnOnce() -> bool) {
    if is_called && step() {
        agenda::call_again();
    }
}

/// Clients, and lives of VMs. Clients are heard when all VMs that start with the machine have been built.
fn serve(point: &mut PreemptionPoint<'_>) -> bool {
    let mut served = SERVED.lock();
    let served = served.get_or_insert_with(begin);
    if let Some(name) = served.to_start.pop() {
        if let Err(why) = registry::lock().start(&name) {
            log::error!("VM {name}: {why}");
        }
        return true;
    }
    let mut is_busy = false;
    // A call ends it after one of the two: then the other one comes next.
    for _ in 0..2 {
        served.is_lives_turn = !served.is_lives_turn;
        is_busy |= match served.is_lives_turn {
            false => served.server.step(&mut ControlStream, point),
            true => registry::lock().step(point),
        };
        if !point.may_go_on() {
            return true;
        }
    }
    is_busy
}

fn spread_vcpus() {
    if is_balancing_due() || is_past(balance::next_look()) {
        balance::step(&registry::lock());
        NEXT_BALANCE.store(csr::time::read() + capabilities().timebase_hz / balance::REBALANCE_HZ, Ordering::Relaxed);
    }
}

/// All dates anew.
fn plan() {
    let soon = agenda::clear_dates()
        .min(clock::next_alarm())
        .min(locality::next_look())
        .min(heap_reserve::next_look())
        .min(promises::next_look())
        .min(reclaim::next_look())
        .min(reports::next_look())
        .min(cells::next_look())
        .min(agenda::next_poll())
        .min(agenda::soon_at());
    agenda::note(soon.min(merging::next_step()).min(joining::next_look()), soon.min(merging::latest_step()));
}

/// The first step: create what the configuration says.
fn begin() -> Served {
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
    let mut to_start = Vec::new();
    for spec in config().vms.iter().filter(|spec| usize::from(spec.cell) == cell::index()).cloned() {
        let (name, autostart) = (spec.name.clone(), spec.autostart);
        match registry.create(spec) {
            Ok(_) if autostart => to_start.push(name),
            Ok(_) => {}
            Err(why) => log::error!("VM {name}: {why}"),
        }
    }
    to_start.reverse();
    Served { to_start, server: Server::new(), is_lives_turn: true }
}
