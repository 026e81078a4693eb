//! What a hart does for pages of its node.

use super::{THRESHOLDS, stays};
use crate::{
    trace,
    vm::{
        Vm,
        memory::{CopyStep, Migration, MoveStep, PlacedCounts, Replication, one_more},
    },
};
use addr::{Gfn, NodeId, VmId};
use alloc::{sync::Arc, vec::Vec};
use control::{EventKind, PlacementAction, PlacementReason};

/// Steps of a block in a job: they take a hart of FLASH half of the time between two looks of the planner.
const STEPS: usize = 64;
/// Of a copy there is one on each node at a time, so it may take a hart twice as long.
const COPY_STEPS: usize = 128;
/// Pages of a step, 40 us on FLASH. Between two steps the hart does whatever else there is.
const STEP: usize = 1;

/// A few pages of a VM that go to a node.
pub struct Job {
    vm: Arc<Vm>,
    work: Work,
    node: NodeId,
    tick: u16,
    /// Steps that it has taken.
    steps: usize,
    _lane: Option<Lane>,
}

/// The lanes of a VM: its jobs that are under way.
#[derive(Debug, Default)]
pub struct Lanes(Arc<()>);

/// One of them: taken until it is dropped.
#[derive(Debug)]
pub struct Lane {
    _taken: Arc<()>,
}

impl Lanes {
    /// Those of this VM.
    pub fn of(lanes: &mut Vec<(VmId, Self)>, vm: VmId) -> &Self {
        let at = lanes.iter().position(|(id, _)| *id == vm).unwrap_or_else(|| {
            lanes.push((vm, Self::default()));
            lanes.len() - 1
        });
        &lanes[at].1
    }

    /// How many are taken. Only the control hart takes any: nobody else adds to the count.
    pub fn taken(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }

    /// A lane for one more job; the planner knows how many there may be.
    pub fn take(&self) -> Lane {
        Lane { _taken: self.0.clone() }
    }
}

/// What is left to be done.
#[derive(Debug)]
enum Work {
    /// Move these pages.
    Migrate(Vec<Gfn>),
    /// Move these on, which nobody is to write.
    Moving(Migration),
    /// Copy these pages.
    Replicate(Replication),
    /// Let harts of the node have copies of these shared pages.
    Spread(Vec<Gfn>),
    /// Begin to move this block.
    BeginBlock(Gfn),
    /// Move it on.
    StepBlock,
    /// Copy on the block that the node is to have a copy of.
    CopyBlock,
}

impl Job {
    /// Something to do for `vm`, which does not end before it is done.
    pub fn new(vm: &Arc<Vm>, job: placement::Job, lane: Option<Lane>) -> Self {
        let placement::Job { node, tick, work, .. } = job;
        let work = match work {
            placement::Work::Migrate(gfns) => Work::Migrate(gfns),
            placement::Work::Replicate(gfns) => Work::Replicate(Replication::new(gfns, node)),
            placement::Work::Spread(gfns) => Work::Spread(gfns),
            placement::Work::BeginBlock(gfn) => Work::BeginBlock(gfn),
            placement::Work::StepBlock => Work::StepBlock,
            placement::Work::CopyBlock => Work::CopyBlock,
        };
        vm.hold();
        Self { vm: vm.clone(), work, node, tick, steps: 0, _lane: lane }
    }

    /// Does it, in short steps and without waiting for other harts, as long as `may_go_on` says so between two of them. What is left of it
    /// is to be done later.
    #[must_use = "what is left has to be done"]
    pub fn step(mut self, mut may_go_on: impl FnMut() -> bool) -> Option<Self> {
        while !self.vm.is_ending() {
            match self.perform(&mut may_go_on) {
                Progress::Done => break,
                Progress::More if may_go_on() => {}
                Progress::More | Progress::Waits => return Some(self),
            }
        }
        if let Work::Moving(migration) = &mut self.work {
            self.vm.memory().abandon_migration(migration);
        }
        self.vm.vcpu_released();
        None
    }

    fn perform(&mut self, may_go_on: &mut impl FnMut() -> bool) -> Progress {
        let Self { vm, work, node, tick, steps, _lane } = self;
        let (memory, node, tick) = (vm.memory(), *node, *tick);
        *steps += 1;
        if let Work::Migrate(gfns) = work {
            *work = Work::Moving(memory.begin_migration(gfns, node));
        }
        match work {
            Work::Migrate(_) => Progress::Done,
            Work::Moving(migration) => {
                let Some(counts) = memory.step_migration(migration, one_more(tick, &THRESHOLDS), may_go_on) else {
                    return Progress::unfinished(migration.has_more());
                };
                tell(vm, counts, PlacementAction::Migrated, node, PlacementReason::OneUser)
            }
            Work::Replicate(replication) => {
                let Some(counts) = memory.step_replication(replication, one_more(tick, &THRESHOLDS), may_go_on) else {
                    return Progress::unfinished(replication.has_more());
                };
                tell(vm, counts, PlacementAction::Replicated, node, PlacementReason::Readers)
            }
            Work::Spread(gfns) => {
                let some: Vec<Gfn> = gfns.drain(..gfns.len().min(STEP)).collect();
                let counts = memory.spread_pages(&some, node);
                let done = tell(vm, counts, PlacementAction::Replicated, node, PlacementReason::Readers);
                if gfns.is_empty() { done } else { Progress::More }
            }
            Work::BeginBlock(gfn) => match memory.begin_block_move(*gfn, node, one_more(tick, &THRESHOLDS)) {
                Ok(()) => {
                    *work = Work::StepBlock;
                    step_block(vm, node, *steps)
                }
                Err(why) => {
                    stays(vm, addr::PAGES_PER_LARGE, why);
                    Progress::Done
                }
            },
            // What comes of it is seen at the next look.
            Work::StepBlock => step_block(vm, node, *steps),
            Work::CopyBlock => copy_block(vm, node, tick, *steps),
        }
    }
}

/// What a step of a job came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The job is done.
    Done,
    /// It can go on at once.
    More,
    /// It goes on when other harts have left what it changed.
    Waits,
}

impl Progress {
    const fn unfinished(has_more: bool) -> Self {
        if has_more { Self::More } else { Self::Waits }
    }
}

impl core::fmt::Debug for Job {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Job").field("vm", &self.vm.id).field("work", &self.work).field("node", &self.node).finish()
    }
}

fn copy_block(vm: &Vm, node: NodeId, tick: u16, steps: usize) -> Progress {
    match vm.memory().step_block_copy(node, STEP as u64, one_more(tick, &THRESHOLDS)) {
        CopyStep::More if steps < COPY_STEPS => return Progress::More,
        CopyStep::More | CopyStep::Nothing => {}
        CopyStep::Done(copies) => {
            for (node, pages) in copies.into_iter().filter(|(_, pages)| *pages > 0) {
                let (action, reason) = (PlacementAction::Replicated, PlacementReason::Readers);
                trace::record(Some(vm.id), EventKind::PagesPlaced { action, pages, node, reason });
            }
        }
    }
    Progress::Done
}

/// What else there is to do of it is done with the next jobs.
fn step_block(vm: &Vm, node: NodeId, steps: usize) -> Progress {
    match vm.memory().step_block_move(node, STEP as u64) {
        MoveStep::More if steps < STEPS => Progress::More,
        MoveStep::More | MoveStep::Nothing => Progress::Done,
        MoveStep::Waits => Progress::Waits,
    }
}

/// Says what came of pages, and that the job is done.
fn tell(vm: &Vm, counts: PlacedCounts, action: PlacementAction, node: NodeId, reason: PlacementReason) -> Progress {
    if counts.placed != 0 {
        let kind = EventKind::PagesPlaced { action, pages: counts.placed, node, reason };
        trace::record(Some(vm.id), kind);
    }
    if let Some(why) = counts.reason {
        stays(vm, counts.refused, why);
    }
    Progress::Done
}
