//! Large pages: judged by the misses on all their pages since the first of these was hot, as soon as they are enough or the
//! counters' interval ends; moved two at a time to each node.

use super::{
    Guests, INTERVAL_HZ, Locality, THRESHOLDS, budget, is_unsettled,
    job::{Job, Work},
    stays, told,
};
use crate::services::mail::{self, Message};
use crate::{
    machine::{capabilities, description},
    trace,
    vm::{
        Vm,
        memory::{BLOCK_MOVES, Facts as _, one_more},
    },
};
use addr::{Gfn, Mfn, NodeId, PAGES_PER_LARGE, PageSize, VmId};
use alloc::sync::Arc;
use control::{EventKind, PlacementAction, PlacementReason};
use machine_io::MissCounters;
use placement::{BlockFacts, BlockProposal, Misses, NODES, Parts, Reason, Uses, Writes, decide_block};
use tlb::CpuSet;

/// Blocks that are judged at a look, and those that are noted: each asks for the misses of 512 pages, some ten thousand instructions.
const JUDGED: usize = 4;
/// Hot pages of a block after which it is judged before the interval ends: their misses may be enough.
const ENOUGH: u32 = 64;
/// Intervals for which it is remembered that a block's own node used it: whoever has it by turns that are no longer leaves it there.
const LOCAL_FOR: u16 = 3;
/// Intervals for which a block that was noted is known as one by its pages.
const TOLD_FOR: u16 = 3;
/// Blocks of an interval, at most; those beyond will be hot again.
const MOST: usize = 256;

/// A large page with a hot page in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    vm: VmId,
    /// Its first guest page.
    gfn: Gfn,
    /// Its first machine page.
    page: Mfn,
    /// When it was noted: it is judged by most of an interval, not by the rest of one.
    since: u64,
    /// Misses before, or at the last look: they may be of another phase of the guest.
    before: Misses,
    /// Has it been noted since before the counters began anew?
    is_whole: bool,
    /// Hot pages since it was noted or judged.
    hot: u32,
    /// Did the look before say that its pages have different users?
    was_mixed: bool,
    /// Would many of its pages have found a place of their own at the end of the last interval?
    was_divided: bool,
    /// Are writes noticed since then?
    is_watched: bool,
    /// Where it goes, once that is decided.
    to: Option<NodeId>,
}

/// Neighbours have places of their own where blocks are remembered.
const fn number_of(page: Mfn) -> Mfn {
    Mfn::new(page.raw() / PAGES_PER_LARGE)
}

impl Locality {
    /// The block of `page`, which is hot for `by`, may not be tried.
    pub(super) fn leave_block(&mut self, page: Mfn, by: NodeId) {
        self.left_blocks.note(number_of(page), by, self.tick);
        self.tell_block(page);
    }

    fn tell_block(&mut self, page: Mfn) {
        self.told_blocks.note(number_of(page), NodeId(0), self.tick);
    }

    /// May the page be one of a block that is noted or left alone? One that was told longer ago is asked about with its pages.
    #[inline(always)]
    pub(super) fn is_of_told_block(&self, page: Mfn) -> bool {
        self.told_blocks.is_known(number_of(page), NodeId(0), self.tick, TOLD_FOR)
    }

    /// Counts a page that is hot for `by` for its block, if that is noted. Whether there is no more to know of it: that is so, too, if the
    /// block may not be tried, in this interval and the next one.
    #[inline(never)]
    pub(super) fn count_for_block(&mut self, page: Mfn, by: NodeId) -> bool {
        if self.left_blocks.is_known(number_of(page), by, self.tick, 1) {
            return true;
        }
        let noted = self.blocks.iter_mut().find(|block| number_of(block.page) == number_of(page));
        noted.map(|block| block.hot += 1).is_some()
    }

    /// A page of the block of `gfn` is hot: `page` backs it.
    pub(super) fn note_block(&mut self, counters: &MissCounters, vm: &Vm, gfn: Gfn, page: Mfn, now: u64) {
        let gfn = gfn.large_base();
        if let Some(block) = self.blocks.iter_mut().find(|block| block.vm == vm.id && block.gfn == gfn) {
            block.hot += 1;
        } else if self.blocks.len() < MOST && self.noted < JUDGED && !vm.memory().is_copying_block(gfn) {
            self.noted += 1;
            let page = Mfn::new(page.raw() & !(PAGES_PER_LARGE - 1));
            let before = self.misses_on(counters, page, PAGES_PER_LARGE);
            self.tell_block(page);
            self.blocks.push_back(Block {
                vm: vm.id,
                gfn,
                page,
                since: now,
                before,
                is_whole: false,
                hot: 1,
                was_mixed: false,
                was_divided: false,
                is_watched: false,
                to: None,
            });
        }
    }

    /// The block at `gfn`, which `page` backs, goes to `to`.
    pub(super) fn note_sampled_block(&mut self, vm: VmId, gfn: Gfn, page: Mfn, to: NodeId, now: u64) {
        let is_known = self.blocks.iter().any(|other| other.vm == vm && other.gfn == gfn);
        if self.blocks.len() < MOST && !is_known {
            self.blocks.push_back(Block {
                vm,
                gfn,
                page,
                since: now,
                before: [0; NODES],
                is_whole: false,
                hot: 0,
                was_mixed: false,
                was_divided: false,
                is_watched: false,
                to: Some(to),
            });
        }
    }

    /// Judges blocks: those of which enough is known, and when the interval is over all; then the counters begin anew.
    pub(super) fn end_interval(&mut self, counters: &mut MissCounters, guests: &Guests, now: u64) {
        let interval = capabilities().timebase_hz / INTERVAL_HZ;
        self.noted = 0;
        let (end, is_over) = (self.interval_end, now >= self.interval_end);
        let is_due = |block: &Block| {
            let is_noted_long = is_over && block.since + interval / 2 <= end;
            block.to.is_none() && (is_noted_long || block.hot >= ENOUGH)
        };
        for _ in 0..JUDGED {
            let Some(at) = self.blocks.iter().position(is_due) else {
                if is_over {
                    self.begin_interval(counters, guests, now, interval);
                }
                return;
            };
            let Some(block) = self.blocks.remove(at) else { return };
            let more = self.judge_block(counters, guests, block, now);
            self.blocks.extend(more);
        }
    }

    /// The next interval begins, mostly with counters that begin anew.
    fn begin_interval(&mut self, counters: &mut MissCounters, guests: &Guests, now: u64, interval: u64) {
        self.tick = self.tick.wrapping_add(1);
        self.budgets.retain(|(vm, _)| guests.find(*vm).is_some());
        // What was counted before there was a guest is of no use,
        let was_counting = self.interval_end != 0;
        self.interval_end = now + interval;
        // nor is what was counted where a vCPU was before.
        let is_settled = guests.0.iter().all(|(vm, _)| !is_unsettled(vm, now, INTERVAL_HZ));
        let goes_on = was_counting && is_settled && self.goes_on();
        self.hot = 0;
        if goes_on {
            self.intervals += 1;
            return;
        }
        self.intervals = 0;
        counters.reset();
        // What is reported and not judged yet has no misses to show for it any more.
        counters.forget_hot();
        self.blocks.iter_mut().for_each(|block| (block.before, block.is_whole) = ([0; NODES], true));
        self.shared_blocks.clear();
    }

    /// Will the counters go on when the interval is over?
    const fn goes_on(&self) -> bool {
        THRESHOLDS.go_on(self.intervals + 1, self.hot)
    }

    /// The block, if there is more to do with it: it goes somewhere, or is looked at again.
    fn judge_block(&mut self, counters: &MissCounters, guests: &Guests, block: Block, now: u64) -> Option<Block> {
        let (vm, switches) = guests.find(block.vm)?;
        let row = crate::machine::memory::frames().map().glance(block.page)?;
        let home = row.node;
        let found = vm.memory().facts(block.gfn, block.page, &row).filter(|found| found.size == PageSize::Large)?;
        let counted = self.misses_on(counters, block.page, PAGES_PER_LARGE);
        let mut misses = counted;
        misses.iter_mut().zip(block.before).for_each(|(misses, before)| *misses = misses.saturating_sub(before));
        let mut facts = BlockFacts {
            home,
            misses,
            is_over: now >= self.interval_end,
            may_grow: self.goes_on() || !block.is_whole,
            was_mixed: block.was_mixed,
            was_local: self.local_blocks.is_known(number_of(block.page), home, self.tick, LOCAL_FOR),
            is_pinned: found.is_pinned,
            is_unsettled: is_unsettled(vm, now, INTERVAL_HZ),
            parts: None,
            history: found.history,
            may_retry: budget(&mut self.budgets, vm, self.tick).allows(self.tick, &THRESHOLDS),
        };
        let writes = match block.is_watched {
            true if vm.memory().is_unwritten(block.gfn, block.page) => Writes::None,
            true => Writes::Seen,
            false => Writes::Unknown,
        };
        if facts.wants_parts(writes, &THRESHOLDS) {
            facts.parts = Some(self.parts(counters, &block, home, writes));
        }
        match decide_block(&facts, self.tick, *switches, &THRESHOLDS) {
            BlockProposal::Migrate { to } => {
                if found.history.needs_budget(self.tick, &THRESHOLDS) {
                    budget(&mut self.budgets, vm, self.tick).spend(PAGES_PER_LARGE as u32);
                }
                return Some(Block { to: Some(to), ..block });
            }
            BlockProposal::Wait => {
                // The interval is not held up by it.
                let since = if facts.is_over { now } else { block.since };
                return Some(Block { since, hot: 0, ..block });
            }
            BlockProposal::LookAgain => {
                let was_divided = facts.is_over && facts.parts.is_some_and(|parts| parts.is_divided);
                let is_watched = vm.memory().watch_block_writes(block.gfn);
                let (before, was_mixed) = (counted, true);
                return Some(Block { since: now, before, was_mixed, was_divided, is_watched, hot: 0, ..block });
            }
            BlockProposal::Replicate { nodes } => match vm.memory().begin_block_copies(block.gfn, nodes) {
                Ok(()) => {}
                Err(why) => stays(vm, PAGES_PER_LARGE, why),
            },
            BlockProposal::Split => {
                if vm.memory().split_block(block.gfn) {
                    let (action, reason) = (PlacementAction::Split, PlacementReason::SeveralUsers);
                    let pages = PAGES_PER_LARGE;
                    trace::record(Some(vm.id), EventKind::PagesPlaced { action, pages, node: home, reason });
                } else {
                    stays(vm, PAGES_PER_LARGE, PlacementReason::NoMemory);
                }
            }
            BlockProposal::Leave(reason) => {
                match reason {
                    Reason::Local => self.local_blocks.note(number_of(block.page), home, self.tick),
                    // Not again before its time, or whoever uses it so is asked all the time.
                    Reason::WriteShared => vm.memory().note_try(block.gfn, one_more(self.tick, &THRESHOLDS)),
                    _ => {}
                }
                _ = told(reason).map(|reason| stays(vm, 1, reason));
            }
        }
        None
    }

    /// More about a block that several nodes use.
    #[inline(never)]
    fn parts(&self, counters: &MissCounters, block: &Block, home: NodeId, writes: Writes) -> Parts {
        let mut uses = Uses::default();
        for page in block.page.raw()..block.page.raw() + PAGES_PER_LARGE {
            uses.add(&self.misses_on(counters, Mfn::new(page), 1), home, &THRESHOLDS);
        }
        Parts { is_divided: uses.is_divided(writes), was_divided: block.was_divided, writes }
    }

    /// For each VM and node the next steps of the blocks that move there, or else the next blocks that are to; how many. They need no
    /// lanes: what they copy they copy without the VM's lock.
    pub(super) fn send_block_steps(&mut self, guests: &Guests, busy: &mut CpuSet) -> usize {
        let mut sent = 0;
        for (vm, _) in guests.0.iter().filter(|(vm, _)| !vm.is_ending()) {
            for node in description().nodes.ids() {
                let goes = |block: &Block| block.vm == vm.id && block.to == Some(node);
                sent += usize::from(self.send_copy_step(vm, node, busy));
                let moving = vm.memory().block_moves(node);
                for number in 0..BLOCK_MOVES {
                    let next = self.blocks.iter().position(goes).filter(|_| number >= moving);
                    let work = match next.and_then(|at| self.blocks.get(at)) {
                        Some(block) => Work::BeginBlock(block.gfn),
                        None if number < moving => Work::StepBlock,
                        None => break,
                    };
                    let Some(target) = self.free_hart(node, busy) else { break };
                    next.and_then(|at| self.blocks.remove(at));
                    *busy = busy.with(target.cpu);
                    mail::send(target, Message::Place(Job::new(vm, work, node, self.tick, None)));
                    sent += 1;
                }
            }
        }
        // Those of VMs that are gone.
        self.blocks.retain(|block| guests.find(block.vm).is_some());
        sent
    }

    /// A step of a block that `node` is to have a copy of.
    fn send_copy_step(&mut self, vm: &Arc<Vm>, node: NodeId, busy: &mut CpuSet) -> bool {
        if !vm.memory().has_block_copy(node) {
            return false;
        }
        let Some(target) = self.free_hart(node, busy) else { return false };
        *busy = busy.with(target.cpu);
        mail::send(target, Message::Place(Job::new(vm, Work::CopyBlock, node, self.tick, None)));
        true
    }
}
