//! A synthetic machine with a planner.

use std::collections::VecDeque;

use addr::{NodeId, VmId};
use placement::{BATCH, Guest, Hot, Job, Look, Planner, Switches};

use super::{
    STEP_MS,
    guest::GuestMemory,
    load::Load,
    memory::{Memory, node_of},
    report::{PlacementReport, Share},
};

/// Ticks of a second and of a millisecond.
const HZ: u64 = 1_000_000;
const TICKS_PER_MS: u64 = HZ / 1_000;
/// Harts of a node.
const HARTS_PER_NODE: usize = 4;
/// Hot pages that the device keeps; the oldest go first.
const QUEUE: usize = 4096;
/// Of the first misses, and of the last ones, so many milliseconds count.
const FIRST_MS: u64 = 100;
const LAST_MS: u64 = 1_000;

/// How the planner finds out who uses what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Miss counters.
    Misses,
    /// Samples.
    Samples,
    /// Not at all: pages stay where they are.
    Nothing,
}

/// What the planner asks and tells.
pub(super) struct World<const N: usize> {
    pub nodes: usize,
    pub by: By,
    pub now: u64,
    pub memory: Memory<N>,
    pub guests: Vec<GuestMemory>,
    /// Reports of hot pages, and those that were taken last.
    pub queue: VecDeque<Hot>,
    pub taken: Vec<Hot>,
    pub threshold: u32,
    /// Jobs that harts do in this step, by hart.
    pub jobs: Vec<Option<Job>>,
    pub report: PlacementReport,
}

/// Nodes of memory and harts, guests, and a planner for up to `N` nodes.
pub struct Numa<const N: usize> {
    world: World<N>,
    planner: Planner<N>,
    loads: Vec<Load>,
    next_look: u64,
    first: Share,
    all: Share,
    /// Those of each step of the last second.
    last: VecDeque<Share>,
}

impl<const N: usize> Numa<N> {
    /// `nodes` nodes (at most `N`) with so many pages each, and no guest yet.
    #[must_use]
    pub fn new(nodes: usize, pages_per_node: u64, by: By) -> Self {
        let nodes = nodes.clamp(1, N);
        let world = World {
            nodes,
            by,
            now: 0,
            memory: Memory::new(nodes, pages_per_node),
            guests: Vec::new(),
            queue: VecDeque::new(),
            taken: Vec::new(),
            threshold: 0,
            jobs: (0..nodes * HARTS_PER_NODE).map(|_| None).collect(),
            report: PlacementReport { nodes, ..PlacementReport::default() },
        };
        let (first, all) = (Share::default(), Share::default());
        Self { world, planner: Planner::new(), loads: Vec::new(), next_look: 0, first, all, last: VecDeque::new() }
    }

    /// Starts a guest; `false` if there is no memory for it.
    pub fn start(&mut self, load: Load, is_large: bool) -> bool {
        let World { nodes, memory, guests, report, .. } = &mut self.world;
        let pages = load.pages(*nodes);
        let made = GuestMemory::new(memory, guests.len(), pages, is_large, |page| load.home(page, *nodes));
        let Some(guest) = made else { return false };
        guests.push(guest);
        self.loads.push(load);
        report.pages += pages;
        true
    }

    /// Lets `ms` milliseconds pass.
    pub fn run(&mut self, ms: u64) {
        let end = self.world.now + ms * TICKS_PER_MS;
        while self.world.now < end {
            let share = self.access();
            self.world.do_jobs();
            if self.world.now >= self.next_look {
                self.look();
            }
            self.note(share);
            self.world.now += STEP_MS * TICKS_PER_MS;
        }
    }

    /// How it went so far.
    #[must_use]
    pub fn report(&self) -> PlacementReport {
        let last = self
            .last
            .iter()
            .fold(Share::default(), |sum, share| Share { local: sum.local + share.local, all: sum.all + share.all });
        let pages = self.world.guests.iter().flat_map(|guest| &guest.pages);
        PlacementReport {
            first_permille: self.first.permille(),
            all_permille: self.all.permille(),
            last_permille: last.permille(),
            most_moves: pages.map(|page| page.moves).max().unwrap_or(0),
            ..self.world.report.clone()
        }
    }

    /// The threads of all guests use their pages.
    fn access(&mut self) -> Share {
        let mut share = Share::default();
        for (at, load) in self.loads.iter().enumerate() {
            load.step(self.world.now / TICKS_PER_MS, self.world.nodes, |access| {
                let World { memory, guests, queue, threshold, report, .. } = &mut self.world;
                let touched = guests[at].touch(memory, access.page, access.by, access.is_write);
                let Some((page, ended)) = touched else { return };
                report.ended += ended;
                share.add(access.misses, node_of(page) == access.by);
                if memory.miss(page, access.by, access.misses, *threshold) {
                    if queue.len() == QUEUE {
                        queue.pop_front();
                    }
                    queue.push_back(Hot { page, by: access.by });
                }
            });
        }
        share
    }

    fn note(&mut self, share: Share) {
        self.all = Share { local: self.all.local + share.local, all: self.all.all + share.all };
        if self.world.now < FIRST_MS * TICKS_PER_MS {
            self.first = self.all;
        }
        if self.last.len() as u64 == LAST_MS / STEP_MS {
            self.last.pop_front();
        }
        self.last.push_back(share);
    }

    fn look(&mut self) {
        let Self { world, planner, next_look, .. } = self;
        let facts = |(at, guest): (usize, &GuestMemory)| guest.facts(VmId(at as u16), Switches::BOTH);
        let guests: Vec<Guest> = world.guests.iter().enumerate().map(facts).collect();
        let look = Look { now: world.now, hz: HZ, nodes: world.nodes, guests: &guests };
        let looks_hz = match world.by {
            By::Misses => planner.look(&look, world),
            By::Samples => planner.look_at_samples(&look, world),
            By::Nothing => 1,
        };
        *next_look = look.now + HZ / looks_hz.max(1);
    }
}

impl<const N: usize> World<N> {
    /// The node of a hart.
    pub fn node_of_hart(&self, at: usize) -> NodeId {
        NodeId((at / HARTS_PER_NODE) as u8)
    }

    /// Harts do what they were left in the step before.
    fn do_jobs(&mut self) {
        for hart in 0..self.jobs.len() {
            if let Some(job) = self.jobs[hart].take() {
                assert_eq!(job.node, self.node_of_hart(hart), "a hart has jobs for its own node");
                self.do_job(job);
            }
        }
    }

    /// A job for a hart.
    pub fn leave_job(&mut self, hart: usize, job: Job) {
        assert!(self.jobs[hart].is_none(), "a hart has one job at a time");
        if job.work.takes_lane() {
            self.guests[job.guest].jobs += 1;
        }
        let pages = super::carry::pages_of(&job.work);
        assert!(pages <= BATCH, "a job is bounded");
        self.report.most_pages = self.report.most_pages.max(pages);
        self.report.jobs += 1;
        self.jobs[hart] = Some(job);
    }
}
