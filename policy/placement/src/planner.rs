//! From hot pages to jobs for harts.
//!
//! Some hundred times a second the planner looks at what the miss counters report, judges it ([`decide`]), and leaves harts of the
//! nodes that the pages go to something to do: who copies a page has it in its cache then, and pays for it. A job is a few pages of
//! one VM; a hart gets one at a look, so what a look costs anybody is bounded, and so is what waits.
//!
//! Pages that several nodes use are watched first: those that were not written for a while are replicated. Large pages are judged by
//! the misses on all their pages, see `blocks`; pages that VMs have in common are for all of them to have copies of, see `shared`.
//! Where the machine counts no misses, samples of the pages take their place: see `rounds`.

mod batches;
mod blocks;
mod dispatch;
mod known;
mod rounds;
mod shared;

pub use batches::BATCH;
pub use dispatch::{AT_ONCE, BLOCK_MOVES};

use addr::{Mfn, NodeId, PageSize, VmId};
use alloc::{collections::VecDeque, vec::Vec};

use crate::{
    Backing, Budget, Guest, Hot, Located, Look, Machine, NODES, PageFacts, Proposal, Reason, Thresholds, Writes,
    decide, other_readers,
};
use batches::{Batch, Batches, Kind, WAITING, Watched};
use blocks::Block;
use known::Known;
use rounds::Sampling;
use shared::SharedBlock;

/// Looks per second while there is something to place, while there is not, and while no VM takes part.
const BUSY_HZ: u64 = 200;
const CALM_HZ: u64 = 100;
/// The last of these.
pub const IDLE_HZ: u64 = 10;
/// Intervals of the counters per second, and ticks of the policy's clock.
const INTERVAL_HZ: u64 = 10;
/// How long a page is watched, in fractions of a second.
const WATCH_HZ: u64 = 100;
/// Hot pages that are judged at a look, those taken from the device, and those between two preemption points.
const REPORTS: usize = 128;
const MOST_REPORTS: usize = 512;
const AT_A_TIME: usize = 32;
/// How pages are judged here.
const THRESHOLDS: Thresholds = Thresholds::for_misses();

/// What the looks remember.
pub struct Planner<const N: usize = NODES> {
    /// When the counters' interval ends; 0: they have not begun.
    interval_end: u64,
    /// Number of the interval: the policy's clock.
    tick: u16,
    /// Intervals that have ended since the counters began anew, and pages that have become hot since the last one.
    intervals: u32,
    hot: u64,
    /// Pages that are to migrate or to be replicated.
    planned: Batches,
    /// Watched pages, those that were watched first in front.
    watched: VecDeque<Watched>,
    /// Pages that have been taken up lately.
    known: Known<N>,
    /// What VMs may spend on pages that were tried before.
    budgets: Vec<(VmId, Budget)>,
    /// Large pages with hot pages in this interval.
    blocks: VecDeque<Block<N>>,
    /// Blocks that only their own node used, by number.
    local_blocks: Known<N>,
    /// Blocks that may not be tried for now, by number: nothing is to be found out about more of their pages.
    left_blocks: Known<N>,
    /// These and those that are noted: most pages are of neither, which is soon found out here.
    told_blocks: Known<N>,
    /// Blocks of shared pages that are hot in this interval, and how many of their pages.
    shared_blocks: Vec<(SharedBlock, u32)>,
    /// How many of the blocks are new at this look.
    noted: u32,
    /// The hart that got the last job.
    turn: u32,
    sampling: Sampling<N>,
}

/// What is left of a VM's budget.
fn budget<'a>(budgets: &'a mut Vec<(VmId, Budget)>, guest: &Guest, tick: u16) -> &'a mut Budget {
    let at = budgets.iter().position(|(vm, _)| *vm == guest.vm).unwrap_or_else(|| {
        let pages = u32::try_from(guest.pages).unwrap_or(u32::MAX);
        budgets.push((guest.vm, Budget::new(pages, tick, &THRESHOLDS)));
        budgets.len() - 1
    });
    &mut budgets[at].1
}

impl<const N: usize> Default for Planner<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Planner<N> {
    /// One that has seen nothing.
    #[must_use]
    pub const fn new() -> Self {
        const { assert!(N > 0 && N <= 64, "nodes are told apart by the bits of a word") };
        Self {
            interval_end: 0,
            tick: 0,
            intervals: 0,
            hot: 0,
            planned: Batches::new(),
            watched: VecDeque::new(),
            known: Known::new(),
            budgets: Vec::new(),
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

    /// One look at what the counters report: how many there should be per second from now on.
    pub fn look(&mut self, look: &Look<'_>, machine: &mut impl Machine<N>) -> u64 {
        if look.guests.is_empty() {
            self.forget();
            return IDLE_HZ;
        }
        if self.interval_end == 0 {
            machine.set_threshold(THRESHOLDS.hot);
        }
        self.end_watches(look.now);
        let reports = self.take_reports(look, machine);
        self.end_interval(look, machine);
        let jobs = self.send_jobs(look, machine);
        if reports + jobs == 0 && self.watched.is_empty() { CALM_HZ } else { BUSY_HZ }
    }

    /// Nobody takes part: what waits is of VMs that are gone.
    fn forget(&mut self) {
        self.interval_end = 0;
        self.planned = Batches::new();
        self.budgets.clear();
        self.watched.clear();
        self.blocks.clear();
    }

    /// Pages that were watched long enough: those that nobody wrote get their copies. Who makes these finds out.
    fn end_watches(&mut self, now: u64) {
        while self.watched.front().is_some_and(|watched| watched.due <= now)
            && let Some(watched) = self.watched.pop_front()
        {
            self.planned.add(watched.vm, Kind::Replicate, watched.node, watched.gfns);
        }
    }

    fn watched_pages(&self) -> usize {
        self.watched.iter().map(|watched| watched.gfns.len()).sum()
    }

    /// Asks the policy about the pages that have become hot.
    fn take_reports(&mut self, look: &Look<'_>, machine: &mut impl Machine<N>) -> usize {
        // No more than can be done soon: what waits for long is out of date then. The device keeps the others, or they will
        // be hot again.
        let mut room = self.planned.room(self.watched_pages()).min(REPORTS);
        let mut to_watch = Batches::new();
        let mut count = 0;
        // What is no news needs no room, or a block would be noted when all hot pages of those before it have been told.
        while room > 0 && count < MOST_REPORTS && (count == 0 || machine.may_go_on()) {
            let most = room.min(AT_A_TIME);
            let taken = machine.take_hot(most).min(most);
            if taken == 0 {
                break;
            }
            count += taken;
            for at in 0..taken {
                let Some(Hot { page, by }) = machine.hot(at) else { continue };
                if self.is_news(page, by) {
                    self.judge(look, machine, page, by, &mut to_watch);
                    room -= 1;
                }
            }
        }
        self.hot += count as u64;
        for (at, guest) in look.guests.iter().enumerate() {
            self.watch(look, machine, at, guest.vm, &mut to_watch);
        }
        count
    }

    /// Whether there is anything to be found out about a page that is hot for `by`. There is not if it waits, or if its
    /// block is left alone or is to be judged: then it counts for that.
    #[inline(always)]
    fn is_news(&mut self, page: Mfn, by: NodeId) -> bool {
        if self.known.is_known(page, by, self.tick, 1) {
            return false;
        }
        !self.is_of_told_block(page) || !self.count_for_block(page, by)
    }

    /// Watches those of these pages that are the VM's.
    fn watch(&mut self, look: &Look<'_>, machine: &mut impl Machine<N>, guest: usize, vm: VmId, pages: &mut Batches) {
        let due = look.now.saturating_add(look.hz / WATCH_HZ);
        while let Some(Batch { vm, node, mut gfns, .. }) = pages.take(|batch| batch.vm == vm) {
            if self.watched_pages() < WAITING {
                machine.watch(guest, node, &mut gfns);
                self.watched.push_back(Watched { vm, node, gfns, due });
            }
        }
    }

    /// Decides what is to become of `page`, which is hot for `by`.
    fn judge(&mut self, look: &Look<'_>, machine: &mut impl Machine<N>, page: Mfn, by: NodeId, to_watch: &mut Batches) {
        let Some(located) = machine.locate(page) else {
            self.judge_shared(look, machine, page, by);
            return;
        };
        let Some(guest) = look.guests.get(located.guest) else { return };
        // Who needs no budget is not asked for it.
        let is_retry = located.history.needs_budget(self.tick, &THRESHOLDS);
        let may_retry = !is_retry || budget(&mut self.budgets, guest, self.tick).allows(self.tick, &THRESHOLDS);
        if located.size == PageSize::Large {
            // The misses on a block that may not be tried need not be added up.
            if located.history.lets(may_retry, self.tick, &THRESHOLDS) {
                self.note_block(machine, guest, &located, page, look.now);
                // That took long. What was taken from the device is judged, whoever calls.
                let _ = machine.may_go_on();
            } else {
                self.leave_block(page, by);
                machine.leave(located.guest, 1, Reason::Tried);
            }
            return;
        }
        let mut facts = PageFacts {
            by,
            home: located.home,
            misses: [0; N],
            backing: located.backing,
            writes: Writes::Unknown,
            is_pinned: located.is_pinned,
            is_unsettled: look.is_unsettled(guest, INTERVAL_HZ),
            history: located.history,
            may_retry,
        };
        machine.add_misses(page, 1, &mut facts.misses);
        let proposal = decide(&facts, self.tick, guest.switches, &THRESHOLDS);
        if is_retry && matches!(proposal, Proposal::Migrate { .. } | Proposal::Watch) {
            budget(&mut self.budgets, guest, self.tick).spend(1);
        }
        if !matches!(proposal, Proposal::Leave(_)) {
            self.known.note(page, by, self.tick);
        }
        match proposal {
            Proposal::Migrate { .. } => self.planned.add_one(guest.vm, Kind::Migrate, by, located.gfn),
            Proposal::Replicate { .. } => self.replicate(look, guest, &located, page, &facts, None),
            Proposal::Watch => self.replicate(look, guest, &located, page, &facts, Some(to_watch)),
            Proposal::Leave(reason) => machine.leave(located.guest, 1, reason),
            // Only a VM that may not have replicas is told so, and it has none.
            Proposal::Collapse(_) => debug_assert!(matches!(located.backing, Backing::Replicated { .. })),
        }
    }

    /// The page is to have copies for whoever asked and those who will ask soon, perhaps when it was watched for a while.
    #[inline(always)]
    fn replicate(
        &mut self,
        look: &Look<'_>,
        guest: &Guest,
        located: &Located,
        page: Mfn,
        facts: &PageFacts<N>,
        to_watch: Option<&mut Batches>,
    ) {
        let to = to_watch.unwrap_or(&mut self.planned);
        to.add_one(guest.vm, Kind::Replicate, facts.by, located.gfn);
        // Of two nodes one has it and the other asks.
        let mut others = if look.nodes > 2 { other_readers(facts, &THRESHOLDS, look.nodes) } else { 0 };
        while others != 0 {
            let on = NodeId(others.trailing_zeros() as u8);
            others &= others - 1;
            if !self.known.is_known(page, on, self.tick, 1) {
                self.known.note(page, on, self.tick);
                to.add_one(guest.vm, Kind::Replicate, on, located.gfn);
            }
        }
    }
}
