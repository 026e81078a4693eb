//! What the planner is told of the machine, and how its proposals reach it.
//!
//! Nothing here decides. A proposal is checked by who carries it out: the pmap, with the VM's lock held.

use super::{
    Guests, THRESHOLDS,
    job::{self, Lanes},
    stays,
};
use crate::{
    hart::{self, PreemptionPoint},
    machine::memory::{DirectMemory, frames},
    services::mail::{self, Message},
    trace,
    vm::{
        Vm,
        memory::{BLOCK_MOVES, Facts as _, Wish as Wished, one_more},
    },
};
use addr::{Gfn, MachineAddr, Mfn, NodeId, PAGES_PER_LARGE, VmId};
use alloc::{sync::Arc, vec::Vec};
use arrayvec::ArrayVec;
use control::{EventKind, PlacementAction, PlacementReason};
use frames::{PageInfo, PageOwner, PageState};
use machine_io::{MissCounters, MissedPage};
use placement::{
    Backed, Facts, Hands, Hart, Hot, Job, Located, Misses, NODES, Order, Reason, SHARERS, Samples, Shared, Sharer,
    Thresholds, Wish,
};
use rv::csr;
use sched::Entity;

// What the planner sends is what a VM's memory takes.
const _: () = assert!(placement::BLOCK_MOVES == BLOCK_MOVES);

/// Room for reports that are taken from the device at a time.
const REPORTS: usize = 128;

/// The counters' nodes as everybody else numbers them.
pub struct Numbering {
    nodes: [Option<NodeId>; NODES],
    /// Whether both number them alike.
    is_alike: bool,
}

impl Numbering {
    /// That of these counters.
    pub fn of(counters: &MissCounters) -> Self {
        let map = frames().map();
        let mut found = counters.nodes().iter().map(|node| map.node_of(MachineAddr::new(node.base).mfn()));
        let nodes: [_; NODES] = core::array::from_fn(|_| found.next().flatten());
        let mut numbered = nodes.iter().enumerate().take(counters.nodes().len());
        let is_alike = numbered.all(|(index, node)| node.is_some_and(|node| node.index() == index));
        Self { nodes, is_alike }
    }

    #[cold]
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
}

/// Who answers the planner during a look.
pub struct Port<'a, 'p> {
    pub guests: &'a Guests,
    /// The counters, where they count, and their nodes.
    pub counters: Option<(&'a mut MissCounters, &'a Numbering)>,
    /// The reports that were taken last.
    pub reports: &'a mut Vec<MissedPage>,
    pub lanes: &'a mut Vec<(VmId, Lanes)>,
    /// When the look began.
    pub began: u64,
    pub point: &'a mut PreemptionPoint<'p>,
}

impl Port<'_, '_> {
    fn vm(&self, guest: usize) -> Option<&Arc<Vm>> {
        self.guests.vm(guest)
    }

    /// Whose `page` is, if it is a VM's own and this is its row.
    #[inline(always)]
    fn owner_of(&self, row: &PageInfo) -> Option<(usize, Gfn)> {
        let (Some(owner), PageState::Private | PageState::Replica) = (row.owner, row.state) else { return None };
        Some((self.guests.find(owner.vm)?, owner.gfn))
    }

    #[inline(never)]
    fn locate_in_block(&self, page: Mfn) -> Option<Located> {
        let row = frames().map().info(page)?;
        let (guest, gfn) = self.owner_of(&row)?;
        self.locate_slowly(guest, gfn, page, &row)
    }

    /// The same as [`Port::locate_at`], for what is asked less often.
    #[inline(never)]
    fn locate_slowly(&self, guest: usize, gfn: Gfn, page: Mfn, row: &PageInfo) -> Option<Located> {
        self.locate_at(guest, gfn, page, row)
    }

    /// What `gfn` is, if `page` backs it, whose row this is.
    #[inline(always)]
    fn locate_at(&self, guest: usize, gfn: Gfn, page: Mfn, row: &PageInfo) -> Option<Located> {
        let found = self.vm(guest)?.memory().facts(gfn, page, row)?;
        Some(Located {
            guest,
            gfn,
            home: row.node,
            size: found.size,
            backing: found.backing,
            is_pinned: found.is_pinned,
            history: found.history,
        })
    }
}

impl Facts for Port<'_, '_> {
    fn counts_misses(&self) -> bool {
        self.counters.is_some()
    }

    #[inline(always)]
    fn take_hot(&mut self, most: usize) -> usize {
        let Some((counters, _)) = &mut self.counters else { return 0 };
        if self.reports.is_empty() {
            self.reports.resize(REPORTS, MissedPage::default());
        }
        let room = most.min(REPORTS);
        self.reports.get_mut(..room).map_or(0, |reports| counters.take_hot(reports))
    }

    #[inline(always)]
    fn hot(&self, at: usize) -> Option<Hot> {
        let (report, (_, numbering)) = (self.reports.get(at)?, self.counters.as_ref()?);
        let by = numbering.nodes.get(report.by).copied().flatten()?;
        Some(Hot { page: report.page.mfn(), by })
    }

    #[inline(always)]
    fn add_misses(&self, first: Mfn, pages: u64, to: &mut Misses) {
        let Some((counters, numbering)) = &self.counters else { return };
        if numbering.is_alike {
            counters.add_misses(first.addr(), pages, to);
        } else {
            numbering.add_translated(counters, first, pages, to);
        }
    }

    #[inline(always)]
    fn locate(&self, page: Mfn) -> Option<Located> {
        // Nearly all are single pages; the row of one in a large page is out of date, and then the pmap disagrees.
        let row = frames().map().glance(page)?;
        let found = self.owner_of(&row).and_then(|(guest, gfn)| self.locate_at(guest, gfn, page, &row));
        if let Some(found) = found { Some(found) } else { self.locate_in_block(page) }
    }

    fn look_up(&self, guest: usize, gfn: Gfn, page: Mfn) -> Option<Backed> {
        let row = frames().map().glance(page)?;
        if row.state == PageState::Shared {
            return Some(Backed::Shared { home: row.node });
        }
        self.locate_slowly(guest, gfn, page, &row).map(Backed::Own)
    }

    fn shared(&self, page: Mfn, by: NodeId) -> Option<Shared> {
        let mut owners = ArrayVec::<PageOwner, SHARERS>::new();
        frames().for_some_owners(&DirectMemory, page, SHARERS, |owner| owners.push(owner));
        let home = frames().map().node_of(page).filter(|_| !owners.is_empty())?;
        let sharer = |owner: PageOwner| {
            let guest = self.guests.find(owner.vm)?;
            let backing = self.vm(guest)?.memory().shared_facts(owner.gfn, page, by)?;
            Some(Sharer { guest, gfn: owner.gfn, backing })
        };
        Some(Shared { home, sharers: owners.into_iter().filter_map(sharer).collect() })
    }

    fn has_copy(&self, page: Mfn, on: NodeId) -> bool {
        frames().spread_on(page, on).is_some()
    }

    fn is_copying_block(&self, guest: usize, gfn: Gfn) -> bool {
        self.vm(guest).is_some_and(|vm| vm.memory().is_copying_block(gfn))
    }

    fn is_unwritten(&self, guest: usize, gfn: Gfn, page: Mfn) -> bool {
        self.vm(guest).is_some_and(|vm| vm.memory().is_unwritten(gfn, page))
    }

    fn block_moves(&self, guest: usize, node: NodeId) -> usize {
        self.vm(guest).map_or(0, |vm| vm.memory().block_moves(node))
    }

    fn has_block_copy(&self, guest: usize, node: NodeId) -> bool {
        self.vm(guest).is_some_and(|vm| vm.memory().has_block_copy(node))
    }

    fn harts(&self) -> usize {
        hart::all().len()
    }

    fn hart(&self, at: usize) -> Option<Hart> {
        let hart = hart::all().get(at)?;
        Some(Hart { node: hart.node, is_online: hart.is_online(), is_control: hart.is_control() })
    }

    fn ran(&self, guest: usize) -> u64 {
        let Some(vm) = self.vm(guest) else { return 0 };
        let ran = vm.vcpus().iter();
        let ran = ran.map(|vcpu| vcpu.run_ticks(Entity { vm: vm.id, vcpu: vcpu.index }, self.began));
        ran.fold(0, u64::wrapping_add)
    }

    fn spent(&self) -> u64 {
        csr::time::read().wrapping_sub(self.began)
    }

    fn fault_us(&self) -> u64 {
        hart::mean_stretch_us(hart::all())
    }
}

impl Hands for Port<'_, '_> {
    fn may_go_on(&mut self) -> bool {
        self.point.may_go_on()
    }

    fn set_threshold(&mut self, misses: u32) {
        if let Some((counters, _)) = &mut self.counters {
            counters.set_threshold(misses);
        }
    }

    fn count_anew(&mut self) {
        if let Some((counters, _)) = &mut self.counters {
            counters.reset();
            counters.forget_hot();
        }
    }

    fn watch(&mut self, guest: usize, node: NodeId, gfns: &mut Vec<Gfn>) {
        match self.vm(guest) {
            Some(vm) => vm.memory().watch_pages(gfns, node),
            None => gfns.clear(),
        }
    }

    fn begin_samples(&mut self, guest: usize, samples: &mut Samples) {
        if let Some(vm) = self.vm(guest) {
            vm.memory().begin_samples(samples);
        }
    }

    fn look_at(&mut self, guest: usize, samples: &mut Samples) -> u64 {
        self.vm(guest).map_or(0, |vm| vm.memory().look_at(samples))
    }

    fn carry_out(&mut self, guest: usize, order: Order) -> bool {
        self.vm(guest).is_some_and(|vm| carry_out(vm, order))
    }

    fn send(&mut self, hart: usize, job: Job) {
        let (Some(vm), Some(hart)) = (self.guests.vm(job.guest), hart::all().get(hart)) else { return };
        let lane = job.work.takes_lane().then(|| Lanes::of(self.lanes, vm.id).take());
        mail::send(hart, Message::Place(job::Job::new(vm, job, lane)));
    }

    fn leave(&mut self, guest: usize, pages: u64, reason: Reason) {
        if let (Some(vm), Some(reason)) = (self.vm(guest), told(reason)) {
            stays(vm, pages, reason);
        }
    }

    fn compare(&mut self, guest: usize, by_samples: Wish, by_misses: Wish) {
        if let Some(vm) = self.vm(guest) {
            vm.memory().note_agreement(wished(by_samples), wished(by_misses));
        }
    }
}

fn carry_out(vm: &Vm, order: Order) -> bool {
    let memory = vm.memory();
    match order {
        Order::Split(gfn) => {
            let is_done = memory.split_block(gfn);
            if is_done {
                tell_split(vm, gfn)
            } else {
                stays(vm, PAGES_PER_LARGE, PlacementReason::NoMemory)
            }
            is_done
        }
        Order::Examine(gfn) => memory.split_block(gfn),
        Order::Join(gfn) => {
            let is_done = memory.join_block(gfn);
            if !is_done {
                tell_split(vm, gfn);
            }
            is_done
        }
        Order::WatchBlock(gfn) => memory.watch_block_writes(gfn),
        Order::CopyBlock { gfn, nodes } => {
            // There are no more nodes than these: the planner knows as many.
            let outcome = memory.begin_block_copies(gfn, nodes as u8);
            outcome.map_err(|why| stays(vm, PAGES_PER_LARGE, why)).is_ok()
        }
        Order::CopyShared { gfn, on } => memory.begin_shared_copy(gfn, on),
        Order::NoteTry { gfn, tick, by_samples } => {
            const BY_SAMPLES: Thresholds = Thresholds::for_samples();
            memory.note_try(gfn, one_more(tick, if by_samples { &BY_SAMPLES } else { &THRESHOLDS }));
            true
        }
    }
}

/// The block's pages go their own ways.
fn tell_split(vm: &Vm, gfn: Gfn) {
    let Some(node) = vm.memory().node_of(gfn) else { return };
    let (action, reason, pages) = (PlacementAction::Split, PlacementReason::SeveralUsers, PAGES_PER_LARGE);
    trace::record(Some(vm.id), EventKind::PagesPlaced { action, pages, node, reason });
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

const fn wished(wish: Wish) -> Wished {
    match wish {
        Wish::Stay => Wished::Stay,
        Wish::Move => Wished::Move,
        Wish::Copy => Wished::Copy,
    }
}
