//! Large pages: judged when the counters' interval ends, moved one at a time per VM.

use super::{Guests, INTERVAL_HZ, Job, Locality, THRESHOLDS, Work, is_unsettled, misses_on, stays, told};
use crate::{hart, machine::capabilities, trace, vm::Vm};
use addr::{Gfn, Mfn, NodeId, PAGES_PER_LARGE, PageSize, VmId};
use control::{EventKind, PlacementAction, PlacementReason};
use machine_io::MissCounters;
use placement::{BlockFacts, BlockProposal, Misses, decide_block};
use tlb::CpuSet;

/// Blocks that are judged at a look: each asks for the misses of 512 pages.
const JUDGED: usize = 2;
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
    /// Did an interval say that its pages have different users? It is split when the next one says so, too: between two
    /// phases of a guest all pages look as if.
    was_mixed: bool,
    /// Where it goes, once that is decided.
    to: Option<NodeId>,
}

impl Locality {
    /// A page of the block of `gfn` is hot: `page` backs it.
    pub(super) fn note_block(&mut self, vm: &Vm, gfn: Gfn, page: Mfn, now: u64) {
        let first = Mfn::new(page.raw() & !(PAGES_PER_LARGE - 1));
        let block = Block { vm: vm.id, gfn: gfn.large_base(), page: first, since: now, was_mixed: false, to: None };
        let same = |other: &Block| other.vm == block.vm && other.gfn == block.gfn;
        if self.blocks.len() < MOST && !self.blocks.iter().any(same) {
            self.blocks.push_back(block);
        }
    }

    /// The block at `gfn`, which `page` backs, goes to `to`.
    pub(super) fn note_sampled_block(&mut self, vm: VmId, gfn: Gfn, page: Mfn, to: NodeId, now: u64) {
        let is_known = self.blocks.iter().any(|other| other.vm == vm && other.gfn == gfn);
        if self.blocks.len() < MOST && !is_known {
            self.blocks.push_back(Block { vm, gfn, page, since: now, was_mixed: false, to: Some(to) });
        }
    }

    /// When the interval is over: judges blocks, and lets the counters begin anew when all are judged.
    pub(super) fn end_interval(&mut self, counters: &mut MissCounters, guests: &Guests, now: u64) {
        if now < self.interval_end {
            return;
        }
        let interval = capabilities().timebase_hz / INTERVAL_HZ;
        let is_due = |block: &Block| block.to.is_none() && block.since + interval / 2 <= self.interval_end;
        for _ in 0..JUDGED {
            let Some(at) = self.blocks.iter().position(is_due) else {
                counters.reset();
                self.tick = self.tick.wrapping_add(1);
                self.interval_end = now + interval;
                return;
            };
            let Some(block) = self.blocks.remove(at) else { return };
            self.blocks.extend(self.judge_block(counters, guests, block, now));
        }
    }

    /// The block, if there is more to do with it: it goes somewhere, or is looked at again.
    fn judge_block(&self, counters: &MissCounters, guests: &Guests, block: Block, now: u64) -> Option<Block> {
        let (vm, switches) = guests.find(block.vm)?;
        let found = vm.memory().locate(block.gfn, block.page).filter(|found| found.size == PageSize::Large)?;
        let home = crate::machine::memory::frames().map().node_of(block.page)?;
        let facts = BlockFacts {
            home,
            misses: misses_on_block(counters, block.page),
            is_pinned: found.is_pinned,
            is_unsettled: is_unsettled(vm, now),
            history: found.history,
        };
        match decide_block(&facts, self.tick, *switches, &THRESHOLDS) {
            BlockProposal::Migrate { to } => return Some(Block { to: Some(to), ..block }),
            BlockProposal::Split if !block.was_mixed => return Some(Block { since: now, was_mixed: true, ..block }),
            BlockProposal::Split => {
                if vm.memory().split_block(block.gfn) {
                    let (action, reason) = (PlacementAction::Split, PlacementReason::SeveralUsers);
                    let pages = PAGES_PER_LARGE;
                    trace::record(Some(vm.id), EventKind::PagesPlaced { action, pages, node: home, reason });
                } else {
                    stays(vm, PAGES_PER_LARGE, PlacementReason::NoMemory);
                }
            }
            BlockProposal::Leave(reason) => _ = told(reason).map(|reason| stays(vm, 1, reason)),
        }
        None
    }

    /// For each VM the next step of the block that moves, or else the next block that is to; how many.
    pub(super) fn send_block_steps(&mut self, guests: &Guests, busy: &mut CpuSet) -> usize {
        let mut sent = 0;
        for (vm, _) in guests.0.iter().filter(|(vm, _)| !vm.is_ending()) {
            let goes = |block: &Block| block.to.filter(|_| block.vm == vm.id);
            let (node, work, begun) = if let Some(node) = vm.memory().block_move() {
                (node, Work::StepBlock, None)
            } else if let Some(at) = self.blocks.iter().position(|block| goes(block).is_some()) {
                let Some(node) = goes(&self.blocks[at]) else { continue };
                (node, Work::BeginBlock(self.blocks[at].gfn), Some(at))
            } else {
                continue;
            };
            let Some(target) = self.free_hart(node, busy) else { continue };
            if let Some(at) = begun {
                self.blocks.remove(at);
            }
            *busy = busy.with(target.cpu);
            target.send(hart::Message::Place(Job::new(vm, work, node, self.tick)));
            sent += 1;
        }
        // Those of VMs that are gone.
        self.blocks.retain(|block| guests.find(block.vm).is_some());
        sent
    }
}

fn misses_on_block(counters: &MissCounters, first: Mfn) -> Misses {
    let mut sum = Misses::default();
    for page in 0..PAGES_PER_LARGE {
        let misses = misses_on(counters, Mfn::new(first.raw() + page));
        sum.iter_mut().zip(misses).for_each(|(sum, misses)| *sum = sum.saturating_add(misses));
    }
    sum
}
