//! Pages where they are used: from the machine's hot pages to jobs for harts.
//!
//! The control hart looks some hundred times a second at what the miss counters report, asks the policy (crate `placement`),
//! and sends jobs to harts of the nodes that the pages go to: who copies a page has it in its cache then, and pays for it. A
//! job is a few pages of one VM; a hart gets one at a look, so what a look costs anybody is bounded, and so is what waits.
//!
//! Pages that several nodes use are watched first: those that were not written for a while are replicated. Large pages are
//! judged when the interval of the counters ends, by the misses on all their pages; then the counters begin anew.
//!
//! Where the machine counts no misses, samples of the pages take their place: see `sampling`.

mod blocks;
mod job;
mod sampling;

pub use job::Job;

use super::{capabilities, description, devices, memory, options};
use crate::{
    hart::{self, Hart},
    trace,
    vm::{Vm, registry},
};
use addr::{Gfn, Mfn, NodeId, PageSize, VmId};
use alloc::{collections::VecDeque, sync::Arc, vec::Vec};
use blocks::Block;
use control::{EventKind, Placement, PlacementAction, PlacementBy, PlacementReason};
use core::sync::atomic::{AtomicU64, Ordering};
use frames::PageState;
use job::{BATCH, Work};
use machine_io::{MissCounters, MissedPage};
use placement::{Backing, Misses, NODES, PageFacts, Proposal, Reason, Switches, Thresholds, Writes, decide};
use rv::csr;
use sampling::Sampling;
use spin::Mutex;
use tlb::CpuSet;

/// Looks per second while there is something to place, and while there is not.
const BUSY_HZ: u64 = 500;
const CALM_HZ: u64 = 100;
/// Intervals of the counters per second, and ticks of the policy's clock.
const INTERVAL_HZ: u64 = 4;
/// How long a page is watched, in fractions of a second.
const WATCH_HZ: u64 = 100;
/// How long a VM's pages stay after a vCPU went to another node, in fractions of a second: an interval of the counters.
const SETTLE_HZ: u64 = INTERVAL_HZ;
/// Hot pages taken from the device at a look.
const REPORTS: usize = 64;
/// Pages that wait for something, at most; those beyond will be hot again.
const WAITING: usize = 1024;

/// How pages are judged here.
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
pub fn step() {
    if !is_due() {
        return;
    }
    let now = csr::time::read();
    let counters = devices::all().counters.as_ref();
    let hz = match (options().placement_by, counters) {
        _ if description().nodes.count() < 2 => 0,
        (PlacementBy::Misses, Some(counters)) => STATE.lock().look(&mut counters.lock(), now),
        (_, counters) => {
            let mut counters = counters.map(|counters| counters.lock());
            STATE.lock().look_at_samples(counters.as_deref_mut(), now)
        }
    };
    let next = capabilities().timebase_hz.checked_div(hz).map_or(u64::MAX, |ticks| now + ticks);
    NEXT_LOOK.store(next, Ordering::Relaxed);
}

/// A page on its way through a look or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    vm: VmId,
    gfn: Gfn,
    page: Mfn,
    /// The node that it goes to, or gets a copy on.
    node: NodeId,
}

/// What the looks remember.
struct Locality {
    /// When the counters' interval ends.
    interval_end: u64,
    /// Number of the interval: the policy's clock.
    tick: u16,
    /// Pages to migrate (`true`) or to replicate, oldest first.
    planned: VecDeque<(Wanted, bool)>,
    /// Watched pages, with the time from which they are known not to be written.
    watched: VecDeque<(Wanted, u64)>,
    /// Large pages with hot pages in this interval.
    blocks: VecDeque<Block>,
    /// Where the next job of a node goes.
    turn: usize,
    sampling: Sampling,
}

/// The VMs that take part.
struct Guests(Vec<(Arc<Vm>, Switches)>);

impl Guests {
    fn now() -> Self {
        let registry = registry::lock();
        let alive = registry.records().filter_map(|record| Some((record.life.clone()?, record.spec.placement)));
        let running = alive.filter(|(vm, _)| vm.is_running()).map(|(vm, placement)| (vm, switches(placement)));
        Self(running.filter(|(_, switches)| *switches != Switches::NEITHER).collect())
    }

    fn find(&self, id: VmId) -> Option<&(Arc<Vm>, Switches)> {
        self.0.iter().find(|(vm, _)| vm.id == id)
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

/// Has a vCPU of the VM changed nodes so lately that its misses tell of where it was?
fn is_unsettled(vm: &Vm, now: u64) -> bool {
    let changed = vm.node_change_at();
    changed != 0 && now.saturating_sub(changed) < capabilities().timebase_hz / SETTLE_HZ
}

/// The counters' number of a node as everybody else's.
fn node_at(counters: &MissCounters, index: usize) -> Option<NodeId> {
    let node = counters.nodes().get(index)?;
    memory::frames().map().node_of(addr::MachineAddr::new(node.base).mfn())
}

/// Misses on a page, by everybody else's number of nodes.
fn misses_on(counters: &MissCounters, page: Mfn) -> Misses {
    let mut misses = [0; NODES];
    let Some(counted) = counters.misses(page.addr()) else { return misses };
    for (index, count) in counted.iter().enumerate().take(counters.nodes().len()) {
        if let Some(slot) = node_at(counters, index).and_then(|node| misses.get_mut(node.index())) {
            *slot = *count;
        }
    }
    misses
}

const fn told(reason: Reason) -> Option<PlacementReason> {
    Some(match reason {
        Reason::OneUser => PlacementReason::OneUser,
        Reason::Readers => PlacementReason::Readers,
        Reason::WriteShared => PlacementReason::WriteShared,
        Reason::Shared => PlacementReason::Shared,
        Reason::Pinned => PlacementReason::Pinned,
        Reason::Tried => PlacementReason::Tried,
        Reason::Unsettled => PlacementReason::Unsettled,
        Reason::SwitchedOff => PlacementReason::SwitchedOff,
        // It is where it should be, or the report is out of date.
        Reason::Local | Reason::Cold | Reason::BadFacts => return None,
    })
}

/// A page, or several, stay where they are.
fn stays(vm: &Vm, pages: u64, reason: PlacementReason) {
    if vm.memory().note_stays(pages, reason) {
        trace::record(Some(vm.id), EventKind::PlacementRefused { reason });
    }
}

impl Locality {
    const fn new() -> Self {
        Self {
            interval_end: 0,
            tick: 0,
            planned: VecDeque::new(),
            watched: VecDeque::new(),
            blocks: VecDeque::new(),
            turn: 0,
            sampling: Sampling::new(),
        }
    }

    /// One look: how many there should be per second from now on.
    fn look(&mut self, counters: &mut MissCounters, now: u64) -> u64 {
        if !counters.is_on() {
            return CALM_HZ;
        }
        if self.interval_end == 0 {
            counters.set_threshold(THRESHOLDS.hot);
        }
        let guests = Guests::now();
        if guests.0.is_empty() {
            *self = Self { tick: self.tick, turn: self.turn, ..Self::new() };
            return CALM_HZ;
        }
        self.tell_news(&guests);
        self.end_watches(&guests, now);
        let reports = self.take_reports(counters, &guests, now);
        self.end_interval(counters, &guests, now);
        let jobs = self.send_jobs(&guests);
        if reports + jobs == 0 && self.watched.is_empty() { CALM_HZ } else { BUSY_HZ }
    }

    /// Events of what guests have had a hand in.
    fn tell_news(&self, guests: &Guests) {
        for (vm, _) in &guests.0 {
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

    /// Pages that were watched long enough: those that nobody wrote get their copies.
    fn end_watches(&mut self, guests: &Guests, now: u64) {
        while self.watched.front().is_some_and(|(_, due)| *due <= now) {
            let Some((wanted, _)) = self.watched.pop_front() else { return };
            let Some((vm, _)) = guests.find(wanted.vm) else { continue };
            match vm.memory().locate(wanted.gfn, wanted.page) {
                Some(found) if found.is_watched => self.plan(wanted, false),
                Some(_) => {
                    vm.memory().note_try(wanted.gfn, self.tick, &THRESHOLDS);
                    stays(vm, 1, PlacementReason::WriteShared);
                }
                None => {}
            }
        }
    }

    /// Asks the policy about the pages that have become hot.
    fn take_reports(&mut self, counters: &mut MissCounters, guests: &Guests, now: u64) -> usize {
        let mut to_watch: Vec<Wanted> = Vec::new();
        let mut reports = 0;
        while reports < REPORTS
            && let Some(report) = counters.take_hot()
        {
            reports += 1;
            self.judge(counters, guests, report, now, &mut to_watch);
        }
        for (vm, _) in &guests.0 {
            self.watch(vm, &to_watch, now);
        }
        reports
    }

    /// Watches those of these pages that are the VM's.
    fn watch(&mut self, vm: &Vm, pages: &[Wanted], now: u64) {
        let own = pages.iter().filter(|wanted| wanted.vm == vm.id);
        let gfns: Vec<Gfn> = own.clone().map(|wanted| wanted.gfn).collect();
        if !gfns.is_empty() {
            vm.memory().watch_pages(&gfns, NodeId(0));
            let due = now + capabilities().timebase_hz / WATCH_HZ;
            self.watched.extend(own.map(|wanted| (*wanted, due)));
        }
    }

    fn judge(
        &mut self,
        counters: &MissCounters,
        guests: &Guests,
        report: MissedPage,
        now: u64,
        to_watch: &mut Vec<Wanted>,
    ) {
        let page = report.page.mfn();
        let Some(node) = node_at(counters, report.by) else { return };
        let Some(info) = memory::frames().map().info(page) else { return };
        let (Some(owner), PageState::Private | PageState::Shared | PageState::Replica) = (info.owner, info.state)
        else {
            return;
        };
        let Some((vm, switches)) = guests.find(owner.vm) else { return };
        let wanted = Wanted { vm: owner.vm, gfn: owner.gfn, page, node };
        if self.is_known(&wanted) {
            return;
        }
        let Some(found) = vm.memory().locate(owner.gfn, page) else { return };
        if found.size == PageSize::Large {
            self.note_block(vm, owner.gfn, page, now);
            return;
        }
        let facts = PageFacts {
            by: node,
            home: info.node,
            misses: misses_on(counters, page),
            backing: found.backing,
            writes: Writes::Unknown,
            is_pinned: found.is_pinned,
            is_unsettled: is_unsettled(vm, now),
            history: found.history,
        };
        match decide(&facts, self.tick, *switches, &THRESHOLDS) {
            Proposal::Migrate { .. } => self.plan(wanted, true),
            Proposal::Replicate { .. } => self.plan(wanted, false),
            Proposal::Watch if self.watched.len() < WAITING => to_watch.push(wanted),
            Proposal::Watch => {}
            Proposal::Leave(reason) => _ = told(reason).map(|reason| stays(vm, 1, reason)),
            // Only a VM that may not have replicas is told so, and it has none.
            Proposal::Collapse(_) => debug_assert!(matches!(found.backing, Backing::Replicated { .. })),
        }
    }

    /// Is the page on its way to that node, or watched for it?
    fn is_known(&self, wanted: &Wanted) -> bool {
        let same = |other: &Wanted| other.vm == wanted.vm && other.gfn == wanted.gfn && other.node == wanted.node;
        self.planned.iter().any(|(other, _)| same(other)) || self.watched.iter().any(|(other, _)| same(other))
    }

    fn plan(&mut self, wanted: Wanted, migrate: bool) {
        if self.planned.len() < WAITING {
            self.planned.push_back((wanted, migrate));
        }
    }

    /// Sends each hart at most one job; returns how many were sent.
    fn send_jobs(&mut self, guests: &Guests) -> usize {
        let mut busy = CpuSet::EMPTY;
        let mut sent = self.send_block_steps(guests, &mut busy);
        let mut left = self.planned.len();
        while left > 0
            && let Some((wanted, migrate)) = self.planned.pop_front()
        {
            left -= 1;
            let Some((vm, _)) = guests.find(wanted.vm).filter(|(vm, _)| !vm.is_ending()) else { continue };
            let Some(target) = self.free_hart(wanted.node, &busy) else {
                self.planned.push_back((wanted, migrate));
                continue;
            };
            let mut gfns = alloc::vec![wanted.gfn];
            let goes_along =
                |other: &(Wanted, bool)| other.1 == migrate && other.0.vm == wanted.vm && other.0.node == wanted.node;
            let before = self.planned.len();
            self.planned.retain(|other| {
                let takes = gfns.len() < BATCH && goes_along(other);
                if takes {
                    gfns.push(other.0.gfn);
                }
                !takes
            });
            left = left.saturating_sub(before - self.planned.len());
            busy = busy.with(target.cpu);
            let work = if migrate { Work::Migrate(gfns) } else { Work::Replicate(gfns) };
            target.send(hart::Message::Place(Job::new(vm, work, wanted.node, self.tick)));
            sent += 1;
        }
        sent
    }

    /// A hart of `node` that has no job of this look, by turns.
    fn free_hart(&mut self, node: NodeId, busy: &CpuSet) -> Option<&'static Hart> {
        let harts = hart::all();
        let mut by_turns = (1..=harts.len()).map(|step| harts[(self.turn + step) % harts.len()]);
        let found = by_turns.find(|hart| hart.node == node && hart.is_online() && !busy.contains(hart.cpu))?;
        self.turn = found.cpu.index();
        Some(found)
    }
}
