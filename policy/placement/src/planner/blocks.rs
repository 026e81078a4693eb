//! Large pages: judged by the misses on all their pages since the first of these was hot, as soon as they are enough or the
//! counters' interval ends; moved two at a time to each node.

use addr::{Gfn, Mfn, NodeId, PAGES_PER_LARGE, PageSize, VmId};

use super::{INTERVAL_HZ, Planner, THRESHOLDS, budget};
use crate::{
    Backed, BlockFacts, BlockProposal, Facts, Guest, Located, Look, Machine, Misses, Order, Parts, Reason, Uses,
    Writes, decide_block,
};

/// Blocks that are judged at a look, and those that are noted: each asks for the misses of 512 pages, some ten thousand instructions.
const JUDGED: u32 = 4;
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
pub(super) struct Block<const N: usize> {
    pub(super) vm: VmId,
    /// Its first guest page.
    pub(super) gfn: Gfn,
    /// Its first machine page.
    page: Mfn,
    /// When it was noted: it is judged by most of an interval, not by the rest of one.
    since: u64,
    /// Misses before, or at the last look: they may be of another phase of the guest.
    before: Misses<N>,
    /// Whether it has been noted since before the counters began anew.
    is_whole: bool,
    /// Hot pages since it was noted or judged.
    hot: u32,
    /// Whether the look before said that its pages have different users.
    was_mixed: bool,
    /// Whether many of its pages would have found a place of their own at the end of the last interval.
    was_divided: bool,
    /// Whether writes are noticed since then.
    is_watched: bool,
    /// Where it goes, once that is decided.
    pub(super) to: Option<NodeId>,
}

impl<const N: usize> Block<N> {
    const fn new(vm: VmId, gfn: Gfn, page: Mfn, since: u64) -> Self {
        Self {
            vm,
            gfn,
            page,
            since,
            before: [0; N],
            is_whole: false,
            hot: 0,
            was_mixed: false,
            was_divided: false,
            is_watched: false,
            to: None,
        }
    }

    /// The misses since it was noted, of those that were `counted` by now.
    fn misses(&self, counted: &Misses<N>) -> Misses<N> {
        let mut misses = *counted;
        misses.iter_mut().zip(self.before).for_each(|(misses, before)| *misses = misses.saturating_sub(before));
        misses
    }
}

/// Neighbours have places of their own where blocks are remembered.
const fn number_of(page: Mfn) -> Mfn {
    Mfn::new(page.raw() / PAGES_PER_LARGE)
}

/// The first page of its block.
pub(super) const fn first_of(page: Mfn) -> Mfn {
    Mfn::new(page.raw() & !(PAGES_PER_LARGE - 1))
}

impl<const N: usize> Planner<N> {
    /// The block of `page`, which is hot for `by`, may not be tried.
    pub(super) fn leave_block(&mut self, page: Mfn, by: NodeId) {
        self.left_blocks.note(number_of(page), by, self.tick);
        self.tell_block(page);
    }

    fn tell_block(&mut self, page: Mfn) {
        self.told_blocks.note(number_of(page), NodeId(0), self.tick);
    }

    /// Whether the page may be one of a block that is noted or left alone. One that was told longer ago is asked about
    /// with its pages.
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

    /// A page of a block is hot: `page` backs it.
    pub(super) fn note_block(
        &mut self,
        machine: &impl Facts<N>,
        guest: &Guest,
        located: &Located,
        page: Mfn,
        now: u64,
    ) {
        let gfn = located.gfn.large_base();
        if let Some(block) = self.blocks.iter_mut().find(|block| block.vm == guest.vm && block.gfn == gfn) {
            block.hot += 1;
        } else if self.blocks.len() < MOST && self.noted < JUDGED && !machine.is_copying_block(located.guest, gfn) {
            self.noted += 1;
            let page = first_of(page);
            let before = misses_on(machine, page, PAGES_PER_LARGE);
            self.tell_block(page);
            self.blocks.push_back(Block { before, hot: 1, ..Block::new(guest.vm, gfn, page, now) });
        }
    }

    /// The block at `gfn`, which `page` backs, goes to `to`.
    pub(super) fn note_sampled_block(&mut self, vm: VmId, gfn: Gfn, page: Mfn, to: NodeId, now: u64) {
        let is_known = self.blocks.iter().any(|other| other.vm == vm && other.gfn == gfn);
        if self.blocks.len() < MOST && !is_known {
            self.blocks.push_back(Block { to: Some(to), ..Block::new(vm, gfn, page, now) });
        }
    }

    /// Judges blocks: those of which enough is known, and when the interval is over all; then the counters begin anew.
    pub(super) fn end_interval(&mut self, look: &Look<'_>, machine: &mut impl Machine<N>) {
        let interval = look.hz / INTERVAL_HZ;
        self.noted = 0;
        let (end, is_over) = (self.interval_end, look.now >= self.interval_end);
        let is_due = |block: &Block<N>| {
            let is_noted_long = is_over && block.since.saturating_add(interval / 2) <= end;
            block.to.is_none() && (is_noted_long || block.hot >= ENOUGH)
        };
        for judged in 0..JUDGED {
            // Interval or not: a block that is due is judged at the next look.
            if judged > 0 && !machine.may_go_on() {
                return;
            }
            let Some(at) = self.blocks.iter().position(is_due) else {
                if is_over {
                    self.begin_interval(look, machine, interval);
                }
                return;
            };
            let Some(block) = self.blocks.remove(at) else { return };
            let more = self.judge_block(look, machine, block);
            self.blocks.extend(more);
        }
    }

    /// The next interval begins, mostly with counters that begin anew.
    fn begin_interval(&mut self, look: &Look<'_>, machine: &mut impl Machine<N>, interval: u64) {
        self.tick = self.tick.wrapping_add(1);
        self.budgets.retain(|(vm, _)| look.find(*vm).is_some());
        // What was counted before there was a guest is of no use,
        let was_counting = self.interval_end != 0;
        self.interval_end = look.now.saturating_add(interval);
        // nor is what was counted where a vCPU was before.
        let is_settled = look.guests.iter().all(|guest| !look.is_unsettled(guest, INTERVAL_HZ));
        let goes_on = was_counting && is_settled && self.goes_on();
        self.hot = 0;
        if goes_on {
            self.intervals += 1;
            return;
        }
        self.intervals = 0;
        // What is reported and not judged yet has no misses to show for it any more.
        machine.count_anew();
        self.blocks.iter_mut().for_each(|block| (block.before, block.is_whole) = ([0; N], true));
        self.shared_blocks.clear();
    }

    /// Whether the counters will go on when the interval is over.
    const fn goes_on(&self) -> bool {
        THRESHOLDS.go_on(self.intervals + 1, self.hot)
    }

    /// The block, if there is more to do with it: it goes somewhere, or is looked at again.
    fn judge_block(&mut self, look: &Look<'_>, machine: &mut impl Machine<N>, block: Block<N>) -> Option<Block<N>> {
        let (at, guest) = look.find(block.vm)?;
        let Some(Backed::Own(found)) = machine.look_up(at, block.gfn, block.page) else { return None };
        if found.size != PageSize::Large {
            return None;
        }
        let counted = misses_on(machine, block.page, PAGES_PER_LARGE);
        let facts = self.block_facts(look, machine, guest, &block, &found, &counted);
        match decide_block(&facts, self.tick, guest.switches, &THRESHOLDS) {
            BlockProposal::Migrate { to } => {
                if found.history.needs_budget(self.tick, &THRESHOLDS) {
                    budget(&mut self.budgets, guest, self.tick).spend(PAGES_PER_LARGE as u32);
                }
                Some(Block { to: Some(to), ..block })
            }
            BlockProposal::Wait => {
                // The interval is not held up by it.
                let since = if facts.is_over { look.now } else { block.since };
                Some(Block { since, hot: 0, ..block })
            }
            BlockProposal::LookAgain => {
                let was_divided = facts.is_over && facts.parts.is_some_and(|parts| parts.is_divided);
                let is_watched = machine.carry_out(at, Order::WatchBlock(block.gfn));
                let (since, before, was_mixed) = (look.now, counted, true);
                Some(Block { since, before, was_mixed, was_divided, is_watched, hot: 0, ..block })
            }
            BlockProposal::Replicate { nodes } => {
                machine.carry_out(at, Order::CopyBlock { gfn: block.gfn, nodes });
                None
            }
            BlockProposal::Split => {
                machine.carry_out(at, Order::Split(block.gfn));
                None
            }
            BlockProposal::Leave(reason) => {
                self.stay_block(machine, at, &block, found.home, reason);
                None
            }
        }
    }

    /// What is known of a block on which so many misses were `counted` by now.
    fn block_facts(
        &mut self,
        look: &Look<'_>,
        machine: &impl Facts<N>,
        guest: &Guest,
        block: &Block<N>,
        found: &Located,
        counted: &Misses<N>,
    ) -> BlockFacts<N> {
        let home = found.home;
        let mut facts = BlockFacts {
            home,
            misses: block.misses(counted),
            is_over: look.now >= self.interval_end,
            may_grow: self.goes_on() || !block.is_whole,
            was_mixed: block.was_mixed,
            was_local: self.local_blocks.is_known(number_of(block.page), home, self.tick, LOCAL_FOR),
            is_pinned: found.is_pinned,
            is_unsettled: look.is_unsettled(guest, INTERVAL_HZ),
            parts: None,
            history: found.history,
            may_retry: budget(&mut self.budgets, guest, self.tick).allows(self.tick, &THRESHOLDS),
        };
        let writes = match block.is_watched {
            true if machine.is_unwritten(found.guest, block.gfn, block.page) => Writes::None,
            true => Writes::Seen,
            false => Writes::Unknown,
        };
        if facts.wants_parts(writes, &THRESHOLDS) {
            facts.parts = Some(parts(machine, block, home, writes));
        }
        facts
    }

    /// The block stays, and so do its pages.
    fn stay_block(
        &mut self,
        machine: &mut impl Machine<N>,
        guest: usize,
        block: &Block<N>,
        home: NodeId,
        reason: Reason,
    ) {
        match reason {
            Reason::Local => self.local_blocks.note(number_of(block.page), home, self.tick),
            // Not again before its time, or whoever uses it so is asked all the time.
            Reason::WriteShared => {
                machine.carry_out(guest, Order::NoteTry { gfn: block.gfn, tick: self.tick, by_samples: false });
            }
            _ => {}
        }
        machine.leave(guest, 1, reason);
    }
}

/// More about a block that several nodes use.
#[inline(never)]
fn parts<const N: usize>(machine: &impl Facts<N>, block: &Block<N>, home: NodeId, writes: Writes) -> Parts {
    let mut uses = Uses::default();
    for page in block.page.raw()..block.page.raw().saturating_add(PAGES_PER_LARGE) {
        uses.add(&misses_on(machine, Mfn::new(page), 1), home, &THRESHOLDS);
    }
    Parts { is_divided: uses.is_divided(writes), was_divided: block.was_divided, writes }
}

pub(super) fn misses_on<const N: usize>(machine: &impl Facts<N>, first: Mfn, pages: u64) -> Misses<N> {
    let mut misses = [0; N];
    machine.add_misses(first, pages, &mut misses);
    misses
}
