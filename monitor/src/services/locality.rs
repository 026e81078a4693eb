//! Pages where they are used: from the machine's hot pages to jobs for harts.
//!
//! The control hart looks some hundred times a second at what the miss counters report, asks the policy (crate `placement`),
//! and sends jobs to harts of the nodes that the pages go to: who copies a page has it in its cache then, and pays for it. A
//! job is a few pages of one VM; a hart gets one at a look, so what a look costs anybody is bounded, and so is what waits.
//!
//! Pages that several nodes use are watched first: those that were not written for a while are replicated. Large pages are
//! judged by the misses on all their pages, see `blocks`.
//!
//! Pages that VMs have in common are for all of them to have copies of, see `spread`.
//!
//! Where the machine counts no misses, samples of the pages take their place: see `sampling`.

mod batches;
mod blocks;
mod dispatch;
mod job;
mod sampling;
mod spread;

pub use job::Job;

use super::registry;
use crate::{
    machine::{capabilities, description, devices, memory, options},
    trace,
    vm::{
        Vm,
        memory::{Facts as _, Located},
    },
};
use addr::{Gfn, Mfn, NodeId, PageSize, VmId};
use alloc::{collections::VecDeque, sync::Arc, vec::Vec};
use batches::{Batch, Batches, Kind, Known, Watched};
use blocks::Block;
use control::{EventKind, Placement, PlacementAction, PlacementBy, PlacementReason};
use core::sync::atomic::{AtomicU64, Ordering};
use frames::{PageInfo, PageState};
use job::Lanes;
use machine_io::{MissCounters, MissedPage};
use placement::{
    Backing, Budget, Misses, NODES, PageFacts, Proposal, Reason, Switches, Thresholds, Writes, decide, other_readers,
};
use rv::csr;
use sampling::Sampling;
use spin::Mutex;
use spread::{SWEPT, SWEPT_IDLE, SharedBlock};

/// Looks per second while there is something to place, while there is not, and while no VM takes part.
const BUSY_HZ: u64 = 200;
const CALM_HZ: u64 = 100;
const IDLE_HZ: u64 = 10;
/// Intervals of the counters per second, and ticks of the policy's clock.
const INTERVAL_HZ: u64 = 10;
/// How long a page is watched, in fractions of a second.
const WATCH_HZ: u64 = 100;
/// Hot pages that are judged at a look, and those taken from the device.
const REPORTS: usize = 128;
const MOST_REPORTS: usize = 512;
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

/// What the looks remember.
struct Locality {
    /// When the counters' interval ends.
    interval_end: u64,
    /// Number of the interval: the policy's clock.
    tick: u16,
    /// Intervals that have ended since the counters began anew, and pages that have become hot since the last one.
    intervals: u32,
    hot: u64,
    /// The counters' nodes as everybody else numbers them.
    nodes: [Option<NodeId>; NODES],
    /// Do both number them alike?
    is_alike: bool,
    /// Room for reports.
    reports: Vec<MissedPage>,
    /// Pages that are to migrate or to be replicated.
    planned: Batches,
    /// Watched pages, those that were watched first in front.
    watched: VecDeque<Watched>,
    /// Pages that have been taken up lately.
    known: Known,
    /// What VMs may spend on pages that were tried before.
    budgets: Vec<(VmId, Budget)>,
    /// Jobs of VMs that are under way.
    lanes: Vec<(VmId, Lanes)>,
    /// Large pages with hot pages in this interval.
    blocks: VecDeque<Block>,
    /// Blocks that only their own node used, by number.
    local_blocks: Known,
    /// Blocks that may not be tried for now, by number: nothing is to be found out about more of their pages.
    left_blocks: Known,
    /// These and those that are noted: most pages are of neither, which is soon found out here.
    told_blocks: Known,
    /// Blocks of shared pages that are hot in this interval, and how many of their pages.
    shared_blocks: Vec<(SharedBlock, u32)>,
    /// How many of the former are new at this look.
    noted: usize,
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

/// Has a vCPU of the VM changed nodes so lately, within an interval of what counts, that its counts tell of where it was?
fn is_unsettled(vm: &Vm, now: u64, intervals_hz: u64) -> bool {
    let changed = vm.node_change_at();
    changed != 0 && now.saturating_sub(changed) < capabilities().timebase_hz / intervals_hz
}

/// The counters' nodes as everybody else numbers them.
fn nodes_of(counters: &MissCounters) -> [Option<NodeId>; NODES] {
    let map = memory::frames().map();
    let mut nodes = counters.nodes().iter().map(|node| map.node_of(addr::MachineAddr::new(node.base).mfn()));
    core::array::from_fn(|_| nodes.next().flatten())
}

/// What is left of a VM's budget.
fn budget<'a>(budgets: &'a mut Vec<(VmId, Budget)>, vm: &Vm, tick: u16) -> &'a mut Budget {
    let at = budgets.iter().position(|(id, _)| *id == vm.id).unwrap_or_else(|| {
        let pages = u32::try_from(vm.memory().bytes() / addr::BASE_PAGE).unwrap_or(u32::MAX);
        budgets.push((vm.id, Budget::new(pages, tick, &THRESHOLDS)));
        budgets.len() - 1
    });
    &mut budgets[at].1
}

/// What a machine page is to a VM that takes part.
struct Found<'a> {
    vm: &'a Arc<Vm>,
    switches: Switches,
    gfn: Gfn,
    home: NodeId,
    /// What the VM's pmap says of it.
    located: Located,
}

#[inline(always)]
fn locate(guests: &Guests, page: Mfn) -> Option<Found<'_>> {
    // Nearly all are single pages; the row of one in a large page is out of date, and then the pmap disagrees.
    let row = memory::frames().map().glance(page)?;
    if let Some(found) = locate_by(guests, page, &row) { Some(found) } else { locate_in_block(guests, page) }
}

#[inline(never)]
fn locate_in_block(guests: &Guests, page: Mfn) -> Option<Found<'_>> {
    locate_by(guests, page, &memory::frames().map().info(page)?)
}

/// What `page` is, if it is a VM's own and this is its row.
#[inline(always)]
fn locate_by<'a>(guests: &'a Guests, page: Mfn, row: &PageInfo) -> Option<Found<'a>> {
    let (Some(owner), PageState::Private | PageState::Replica) = (row.owner, row.state) else { return None };
    let (vm, switches) = guests.find(owner.vm)?;
    let located = vm.memory().facts(owner.gfn, page, row)?;
    Some(Found { vm, switches: *switches, gfn: owner.gfn, home: row.node, located })
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
            intervals: 0,
            hot: 0,
            nodes: [None; NODES],
            is_alike: false,
            reports: Vec::new(),
            planned: Batches::new(),
            watched: VecDeque::new(),
            known: Known::new(),
            budgets: Vec::new(),
            lanes: Vec::new(),
            blocks: VecDeque::new(),
            local_blocks: Known::new(),
            left_blocks: Known::new(),
            told_blocks: Known::new(),
            shared_blocks: Vec::new(),
            noted: 0,
            turn: 0,
            sampling: Sampling::new(),
        }
    }

    /// One look: how many there should be per second from now on.
    fn look(&mut self, counters: &mut MissCounters, now: u64) -> u64 {
        memory::frames().sweep_spread(SWEPT);
        if !counters.is_on() {
            return IDLE_HZ;
        }
        if self.interval_end == 0 {
            counters.set_threshold(THRESHOLDS.hot);
            self.learn_nodes(counters);
            self.reports.resize(REPORTS, MissedPage::default());
        }
        let guests = Guests::now();
        if guests.0.is_empty() {
            self.forget();
            memory::frames().sweep_spread(SWEPT_IDLE);
            return IDLE_HZ;
        }
        self.tell_news(&guests);
        self.end_watches(now);
        let reports = self.take_reports(counters, &guests, now);
        self.end_interval(counters, &guests, now);
        let jobs = self.send_jobs(&guests);
        if reports + jobs == 0 && self.watched.is_empty() { CALM_HZ } else { BUSY_HZ }
    }

    fn learn_nodes(&mut self, counters: &MissCounters) {
        self.nodes = nodes_of(counters);
        let mut numbered = self.nodes.iter().enumerate().take(counters.nodes().len());
        self.is_alike = numbered.all(|(index, node)| node.is_some_and(|node| node.index() == index));
    }

    /// Nobody takes part: what waits is of VMs that are gone.
    fn forget(&mut self) {
        self.interval_end = 0;
        self.planned = Batches::new();
        self.budgets.clear();
        self.lanes.clear();
        self.watched.clear();
        self.blocks.clear();
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

    /// Pages that were watched long enough: those that nobody wrote get their copies. Who makes these finds out.
    fn end_watches(&mut self, now: u64) {
        while self.watched.front().is_some_and(|watched| watched.due <= now)
            && let Some(watched) = self.watched.pop_front()
        {
            self.planned.add(watched.vm, Kind::Replicate, watched.node, watched.gfns);
        }
    }

    /// Asks the policy about the pages that have become hot.
    fn take_reports(&mut self, counters: &mut MissCounters, guests: &Guests, now: u64) -> usize {
        let mut reports = core::mem::take(&mut self.reports);
        // No more than can be done soon: what waits for long is out of date then. The device keeps the others, or they will
        // be hot again.
        let watched = self.watched.iter().map(|watched| watched.gfns.len()).sum();
        let mut room = self.planned.room(watched).min(REPORTS);
        let mut to_watch = Batches::new();
        let mut count = 0;
        // What is no news needs no room, or a block would be noted when all hot pages of those before it have been told.
        while room > 0 && count < MOST_REPORTS {
            let taken = counters.take_hot(&mut reports[..room]);
            if taken == 0 {
                break;
            }
            count += taken;
            for report in reports.iter().take(taken) {
                let Some(node) = self.nodes.get(report.by).copied().flatten() else { continue };
                if self.is_news(report.page.mfn(), node) {
                    self.judge(counters, guests, report.page.mfn(), node, now, &mut to_watch);
                    room -= 1;
                }
            }
        }
        self.hot += count as u64;
        self.reports = reports;
        for (vm, _) in &guests.0 {
            self.watch(vm, &mut to_watch, now);
        }
        count
    }

    /// Is there anything to be found out about a page that is hot for `by`? Not if it waits, or if its block is left alone or is to be judged:
    /// then it counts for that.
    #[inline(always)]
    fn is_news(&mut self, page: Mfn, by: NodeId) -> bool {
        if self.known.is_known(page, by, self.tick, 1) {
            return false;
        }
        !self.is_of_told_block(page) || !self.count_for_block(page, by)
    }

    /// Watches those of these pages that are the VM's.
    fn watch(&mut self, vm: &Vm, pages: &mut Batches, now: u64) {
        let due = now + capabilities().timebase_hz / WATCH_HZ;
        while let Some(Batch { vm: id, node, mut gfns, .. }) = pages.take(|batch| batch.vm == vm.id) {
            if self.watched.iter().map(|watched| watched.gfns.len()).sum::<usize>() < batches::WAITING {
                vm.memory().watch_pages(&mut gfns, node);
                self.watched.push_back(Watched { vm: id, node, gfns, due });
            }
        }
    }

    fn judge(
        &mut self,
        counters: &MissCounters,
        guests: &Guests,
        page: Mfn,
        node: NodeId,
        now: u64,
        to_watch: &mut Batches,
    ) {
        let Some(Found { vm, switches, gfn, home, located }) = locate(guests, page) else {
            self.judge_shared(counters, guests, page, node, now);
            return;
        };
        // Who needs no budget is not asked for it.
        let is_retry = located.history.needs_budget(self.tick, &THRESHOLDS);
        let may_retry = !is_retry || budget(&mut self.budgets, vm, self.tick).allows(self.tick, &THRESHOLDS);
        if located.size == PageSize::Large {
            // The misses on a block that may not be tried need not be added up.
            if located.history.lets(may_retry, self.tick, &THRESHOLDS) {
                self.note_block(counters, vm, gfn, page, now);
            } else {
                self.leave_block(page, node);
                stays(vm, 1, PlacementReason::Tried);
            }
            return;
        }
        let mut facts = PageFacts {
            by: node,
            home,
            misses: [0; NODES],
            backing: located.backing,
            writes: Writes::Unknown,
            is_pinned: located.is_pinned,
            is_unsettled: is_unsettled(vm, now, INTERVAL_HZ),
            history: located.history,
            may_retry,
        };
        self.add_misses(counters, page, 1, &mut facts.misses);
        let proposal = decide(&facts, self.tick, switches, &THRESHOLDS);
        if is_retry && matches!(proposal, Proposal::Migrate { .. } | Proposal::Watch) {
            budget(&mut self.budgets, vm, self.tick).spend(1);
        }
        if !matches!(proposal, Proposal::Leave(_)) {
            self.known.note(page, node, self.tick);
        }
        match proposal {
            Proposal::Migrate { .. } => self.planned.add_one(vm.id, Kind::Migrate, node, gfn),
            Proposal::Replicate { .. } | Proposal::Watch => {
                let to = if proposal == Proposal::Watch { to_watch } else { &mut self.planned };
                to.add_one(vm.id, Kind::Replicate, node, gfn);
                let nodes = description().nodes.count();
                // Of two nodes one has it and the other asks.
                let mut others = if nodes > 2 { other_readers(&facts, &THRESHOLDS, nodes) } else { 0 };
                while others != 0 {
                    let on = NodeId(others.trailing_zeros() as u8);
                    others &= others - 1;
                    if !self.known.is_known(page, on, self.tick, 1) {
                        self.known.note(page, on, self.tick);
                        to.add_one(vm.id, Kind::Replicate, on, gfn);
                    }
                }
            }
            Proposal::Leave(reason) => _ = told(reason).map(|reason| stays(vm, 1, reason)),
            // Only a VM that may not have replicas is told so, and it has none.
            Proposal::Collapse(_) => debug_assert!(matches!(located.backing, Backing::Replicated { .. })),
        }
    }

    /// Adds the misses on the pages from `first` on to `misses`, which has everybody else's number of nodes.
    #[inline(always)]
    fn add_misses(&self, counters: &MissCounters, first: Mfn, pages: u64, misses: &mut Misses) {
        if self.is_alike {
            counters.add_misses(first.addr(), pages, misses);
        } else {
            self.add_translated(counters, first, pages, misses);
        }
    }

    #[inline(never)]
    fn add_translated(&self, counters: &MissCounters, first: Mfn, pages: u64, misses: &mut Misses) {
        let mut counted = [0; NODES];
        counters.add_misses(first.addr(), pages, &mut counted);
        for (node, count) in self.nodes.iter().zip(counted) {
            if let Some(slot) = node.and_then(|node| misses.get_mut(node.index())) {
                *slot = slot.saturating_add(count);
            }
        }
    }

    fn misses_on(&self, counters: &MissCounters, first: Mfn, pages: u64) -> Misses {
        let mut misses = [0; NODES];
        self.add_misses(counters, first, pages, &mut misses);
        misses
    }
}
