//! A machine for the planner that says what a test wants, and remembers what it was told.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::{BTreeMap, VecDeque};

use addr::{Gfn, Mfn, NodeId, PAGES_PER_LARGE, PageSize, VmId};
use placement::{
    Backed, Backing, Facts, Found, Guest, Hands, Hart, History, Hot, Job, Located, Look, Misses, Order, Planner,
    Reason, Samples, Shared, Switches, Wish, Work,
};

/// Ticks of a second.
pub const HZ: u64 = 10_000_000;
/// Nodes of the machine, each with this many harts.
pub const NODES: usize = 4;
pub const HARTS: usize = 2;

/// See the module.
#[derive(Default)]
pub struct Fake {
    pub guests: Vec<Guest>,
    /// What is at machine pages.
    pub pages: BTreeMap<u64, Located>,
    pub shared: BTreeMap<u64, Shared>,
    pub misses: BTreeMap<u64, Misses>,
    pub queue: VecDeque<Hot>,
    taken: Vec<Hot>,
    /// Whether somebody writes the watched blocks.
    pub is_written: bool,
    /// Somebody calls the hart.
    pub is_called: bool,
    /// Orders are refused.
    pub refuses: bool,
    pub moving: BTreeMap<(usize, NodeId), usize>,
    pub counts: bool,
    pub ran: u64,
    pub spent: u64,
    /// What was told, in order.
    pub threshold: u32,
    pub resets: u32,
    pub sent: Vec<(usize, Job)>,
    pub orders: Vec<(usize, Order)>,
    pub left: Vec<(usize, u64, Reason)>,
    pub watched: Vec<(usize, NodeId, Vec<Gfn>)>,
    pub compared: Vec<(Wish, Wish)>,
    pub begun: u32,
    /// Nodes that use a sampled page, by guest page.
    pub users: BTreeMap<u64, u64>,
}

/// A guest that takes part in everything.
pub fn guest(vm: u16) -> Guest {
    Guest {
        vm: VmId(vm),
        switches: Switches::BOTH,
        base: Gfn::new(0x8_0000),
        pages: 4096,
        node_change_at: 0,
        is_ending: false,
        jobs: 0,
    }
}

impl Fake {
    pub fn new(guests: usize) -> Self {
        Self { guests: (1..=guests as u16).map(guest).collect(), counts: true, ..Self::default() }
    }

    /// Backs a single page of a guest on `home`.
    pub fn back(&mut self, guest: usize, gfn: u64, page: u64, home: u8) {
        let located = Located {
            guest,
            gfn: Gfn::new(gfn),
            home: NodeId(home),
            size: PageSize::Base,
            backing: Backing::Private,
            is_pinned: false,
            history: History::default(),
        };
        self.pages.insert(page, located);
    }

    /// Backs a block of a guest on `home`; both begin at multiples of 512.
    pub fn back_block(&mut self, guest: usize, gfn: u64, page: u64, home: u8) {
        for at in 0..PAGES_PER_LARGE {
            self.back(guest, gfn + at, page + at, home);
            self.pages.get_mut(&(page + at)).unwrap().size = PageSize::Large;
        }
    }

    /// So many more misses of a node on a page; it is reported.
    pub fn miss(&mut self, page: u64, by: u8, misses: u32) {
        self.miss_quietly(page, by, misses);
        self.queue.push_back(Hot { page: Mfn::new(page), by: NodeId(by) });
    }

    pub fn miss_quietly(&mut self, page: u64, by: u8, misses: u32) {
        if let Some(count) = self.misses.entry(page).or_default().get_mut(usize::from(by)) {
            *count += misses;
        }
    }

    /// One look at `ms` milliseconds.
    pub fn look(&mut self, planner: &mut Planner, ms: u64) -> u64 {
        self.at(ms, |look, fake| planner.look(look, fake))
    }

    pub fn look_at_samples(&mut self, planner: &mut Planner, ms: u64) -> u64 {
        self.ran = self.ran.wrapping_add(1);
        self.at(ms, |look, fake| planner.look_at_samples(look, fake))
    }

    fn at(&mut self, ms: u64, then: impl FnOnce(&Look<'_>, &mut Self) -> u64) -> u64 {
        let guests = self.guests.clone();
        then(&Look { now: ms * (HZ / 1000), hz: HZ, nodes: NODES, guests: &guests }, self)
    }

    /// The jobs that were sent, and none afterwards.
    pub fn take_sent(&mut self) -> Vec<(usize, Job)> {
        std::mem::take(&mut self.sent)
    }
}

/// The pages of a job.
pub fn pages_of(job: &Job) -> usize {
    match &job.work {
        Work::Migrate(gfns) | Work::Replicate(gfns) | Work::Spread(gfns) => gfns.len(),
        Work::BeginBlock(_) | Work::StepBlock | Work::CopyBlock => 0,
    }
}

impl Facts for Fake {
    fn counts_misses(&self) -> bool {
        self.counts
    }

    fn take_hot(&mut self, most: usize) -> usize {
        self.taken = self.queue.drain(..most.min(self.queue.len())).collect();
        self.taken.len()
    }

    fn hot(&self, at: usize) -> Option<Hot> {
        self.taken.get(at).copied()
    }

    fn add_misses(&self, first: Mfn, pages: u64, to: &mut Misses) {
        for (_, misses) in self.misses.range(first.raw()..first.raw().saturating_add(pages)) {
            to.iter_mut().zip(misses).for_each(|(to, misses)| *to += misses);
        }
    }

    fn locate(&self, page: Mfn) -> Option<Located> {
        self.pages.get(&page.raw()).copied()
    }

    fn look_up(&self, guest: usize, gfn: Gfn, page: Mfn) -> Option<Backed> {
        if let Some(shared) = self.shared.get(&page.raw()) {
            return Some(Backed::Shared { home: shared.home });
        }
        self.locate(page).filter(|found| (found.guest, found.gfn) == (guest, gfn)).map(Backed::Own)
    }

    fn shared(&self, page: Mfn, _: NodeId) -> Option<Shared> {
        self.shared.get(&page.raw()).cloned()
    }

    fn has_copy(&self, _: Mfn, _: NodeId) -> bool {
        false
    }

    fn is_copying_block(&self, _: usize, _: Gfn) -> bool {
        false
    }

    fn is_unwritten(&self, _: usize, _: Gfn, _: Mfn) -> bool {
        !self.is_written
    }

    fn block_moves(&self, guest: usize, node: NodeId) -> usize {
        self.moving.get(&(guest, node)).copied().unwrap_or(0)
    }

    fn has_block_copy(&self, _: usize, _: NodeId) -> bool {
        false
    }

    fn harts(&self) -> usize {
        NODES * HARTS
    }

    fn hart(&self, at: usize) -> Option<Hart> {
        (at < self.harts()).then_some(Hart { node: NodeId((at / HARTS) as u8), is_online: true, is_control: at == 0 })
    }

    fn ran(&self, _: usize) -> u64 {
        self.ran
    }

    fn spent(&self) -> u64 {
        self.spent
    }

    fn fault_us(&self) -> u64 {
        10
    }
}

impl Hands for Fake {
    fn may_go_on(&mut self) -> bool {
        !self.is_called
    }

    fn set_threshold(&mut self, misses: u32) {
        self.threshold = misses;
    }

    fn count_anew(&mut self) {
        self.resets += 1;
        self.misses.clear();
        self.queue.clear();
    }

    fn watch(&mut self, guest: usize, node: NodeId, gfns: &mut Vec<Gfn>) {
        self.watched.push((guest, node, gfns.clone()));
    }

    fn begin_samples(&mut self, guest: usize, samples: &mut Samples) {
        self.begun += 1;
        let backed = |gfn: Gfn| self.pages.iter().find(|(_, found)| found.guest == guest && found.gfn == gfn);
        samples.begin(|gfn| match backed(gfn) {
            Some((page, found)) => Found::Page { gfn, page: Mfn::new(*page), size: found.size },
            None => Found::Nothing { pages: 1 },
        });
    }

    fn look_at(&mut self, _: usize, samples: &mut Samples) -> u64 {
        samples.look(|sample| {
            sample.note(self.users.get(&sample.gfn.raw()).copied().unwrap_or(0));
            true
        });
        0
    }

    fn carry_out(&mut self, guest: usize, order: Order) -> bool {
        self.orders.push((guest, order));
        !self.refuses
    }

    fn send(&mut self, hart: usize, job: Job) {
        self.sent.push((hart, job));
    }

    fn leave(&mut self, guest: usize, pages: u64, reason: Reason) {
        self.left.push((guest, pages, reason));
    }

    fn compare(&mut self, _: usize, by_samples: Wish, by_misses: Wish) {
        self.compared.push((by_samples, by_misses));
    }
}
