//! What becomes of the planner's proposals, by the rules of the monitor's memory.

use addr::{Gfn, Mfn, NodeId, PAGES_PER_LARGE, PageSize};
use placement::{Job, NodeBits, Order, Thresholds, Work};

use super::{
    guest::{BASE, GuestMemory, Way},
    machine::World,
};

const THRESHOLDS: Thresholds = Thresholds::for_misses();
/// Pages of a moving block, and of one that is copied, that a job copies.
const MOVED: u64 = 64;
const COPIED: u64 = 128;

/// Pages that a job has.
pub(super) fn pages_of(work: &Work) -> usize {
    match work {
        Work::Migrate(gfns) | Work::Replicate(gfns) | Work::Spread(gfns) => gfns.len(),
        Work::BeginBlock(_) | Work::StepBlock | Work::CopyBlock => 0,
    }
}

impl GuestMemory {
    /// Notices the next write to a private single page; whether it is one.
    pub fn watch(&mut self, gfn: Gfn) -> bool {
        let is_single = self.size_of(gfn) == PageSize::Base;
        let page = self.page_mut(gfn).filter(|page| is_single && page.copies.is_empty());
        page.map(|page| page.is_watched = true).is_some()
    }
}

impl<const N: usize> World<N> {
    pub(super) fn do_job(&mut self, job: Job) {
        let Job { guest, node, tick, work } = job;
        if work.takes_lane() {
            self.guests[guest].jobs -= 1;
        }
        match work {
            Work::Migrate(gfns) => gfns.iter().for_each(|gfn| {
                let is_done = self.migrate(guest, *gfn, node, tick).is_some();
                self.count(is_done);
            }),
            Work::Replicate(gfns) => gfns.iter().for_each(|gfn| {
                let is_done = self.replicate(guest, *gfn, node, tick).is_some();
                self.count(is_done);
            }),
            Work::Spread(gfns) => gfns.iter().for_each(|_| self.count(false)),
            Work::BeginBlock(gfn) => {
                let is_done = self.begin_move(guest, gfn, node).is_some();
                self.count(is_done);
                self.step_move(guest, node, tick);
            }
            Work::StepBlock => self.step_move(guest, node, tick),
            Work::CopyBlock => self.step_copy(guest, node, tick),
        }
    }

    fn count(&mut self, is_done: bool) {
        self.report.refused += u64::from(!is_done);
    }

    /// Moves a private single page.
    fn migrate(&mut self, guest: usize, gfn: Gfn, to: NodeId, tick: u16) -> Option<()> {
        let Self { memory, guests, report, .. } = self;
        let guest_memory = guests.get_mut(guest)?;
        let is_single = guest_memory.size_of(gfn) == PageSize::Base;
        let page =
            guest_memory.page_mut(gfn).filter(|page| is_single && page.copies.is_empty() && page.home() != to)?;
        let frame = memory.take(to, (guest, gfn.raw() - BASE))?;
        memory.free(std::mem::replace(&mut page.master, frame));
        page.history = page.history.tried(tick, &THRESHOLDS);
        page.moves += 1;
        report.moved += 1;
        Some(())
    }

    /// Gives a page a copy that has some already, or that nobody has written since it was watched.
    fn replicate(&mut self, guest: usize, gfn: Gfn, on: NodeId, tick: u16) -> Option<()> {
        let Self { memory, guests, report, .. } = self;
        let page = guests.get_mut(guest)?.page_mut(gfn)?;
        let is_first = page.copies.is_empty();
        if page.home() == on || page.copies.contains_key(&on) {
            return None;
        }
        if is_first {
            // It is a try whatever comes of it; further copies are none.
            page.history = page.history.tried(tick, &THRESHOLDS);
            if !page.is_watched {
                return None;
            }
            page.moves += 1;
        }
        let frame = memory.take(on, (guest, gfn.raw() - BASE))?;
        page.copies.insert(on, frame);
        report.copied += 1;
        Some(())
    }

    fn begin_move(&mut self, guest: usize, gfn: Gfn, to: NodeId) -> Option<()> {
        let Self { memory, guests, .. } = self;
        let block = guests.get_mut(guest)?.block_mut(gfn)?;
        if !block.is_large || block.moving.is_some() || !block.copying.is_empty() {
            return None;
        }
        let frame = memory.take_block(to, (guest, gfn.large_base().raw() - BASE))?;
        block.moving = Some(Way { to, frame, copied: 0 });
        Some(())
    }

    /// Moves a block on that is on its way to `node`.
    fn step_move(&mut self, guest: usize, node: NodeId, tick: u16) {
        let Self { memory, guests, report, .. } = self;
        let guest = &mut guests[guest];
        let is_going = |way: &Way| way.to == node;
        let Some(at) = guest.blocks.iter().position(|block| block.moving.as_ref().is_some_and(is_going)) else {
            return;
        };
        let block = &mut guest.blocks[at];
        let Some(way) = &mut block.moving else { return };
        way.copied += MOVED;
        if way.copied < PAGES_PER_LARGE {
            return;
        }
        let frame = way.frame;
        block.moving = None;
        let first = at * PAGES_PER_LARGE as usize;
        memory.free_block(guest.pages[first].master);
        let history = guest.pages[first].history.tried(tick, &THRESHOLDS);
        for (page, at) in guest.pages[first..].iter_mut().take(PAGES_PER_LARGE as usize).zip(0..) {
            page.master = Mfn::new(frame.raw() + at);
            page.history = history;
            page.moves += 1;
        }
        report.moved += PAGES_PER_LARGE;
    }

    /// Copies a block on that `node` is to have a copy of.
    fn step_copy(&mut self, guest: usize, node: NodeId, tick: u16) {
        let blocks = &mut self.guests[guest].blocks;
        let has_copy = |ways: &[Way]| ways.iter().position(|way| way.to == node && way.copied < PAGES_PER_LARGE);
        let found = blocks.iter_mut().enumerate().find_map(|(at, block)| Some((at, has_copy(&block.copying)?)));
        let Some((at, way)) = found else { return };
        blocks[at].copying[way].copied += COPIED;
        if blocks[at].copying.iter().all(|way| way.copied >= PAGES_PER_LARGE) {
            self.end_copies(guest, at, tick);
        }
    }

    /// All copies of a block are there: they become copies of its pages, unless somebody has written any.
    fn end_copies(&mut self, guest: usize, at: usize, tick: u16) {
        let Self { memory, guests, report, .. } = self;
        let guest = &mut guests[guest];
        let ways = std::mem::take(&mut guest.blocks[at].copying);
        if !guest.blocks[at].is_watched {
            ways.iter().for_each(|way| memory.free_block(way.frame));
            report.refused += PAGES_PER_LARGE;
            return;
        }
        guest.blocks[at].is_large = false;
        let first = at * PAGES_PER_LARGE as usize;
        for (page, at) in guest.pages[first..].iter_mut().take(PAGES_PER_LARGE as usize).zip(0..) {
            page.copies.extend(ways.iter().map(|way| (way.to, Mfn::new(way.frame.raw() + at))));
            page.history = page.history.tried(tick, &THRESHOLDS);
            page.moves += 1;
        }
        report.copied += PAGES_PER_LARGE * ways.len() as u64;
    }

    pub(super) fn do_order(&mut self, guest: usize, order: Order) -> bool {
        match order {
            Order::Split(gfn) => {
                let is_done = self.split(guest, gfn);
                self.report.split += u64::from(is_done);
                is_done
            }
            Order::Examine(gfn) => self.split(guest, gfn),
            Order::Join(gfn) => self.join(guest, gfn),
            Order::WatchBlock(gfn) => match self.guests[guest].block_mut(gfn).filter(|block| block.is_large) {
                Some(block) => {
                    block.is_watched = true;
                    true
                }
                None => false,
            },
            Order::CopyBlock { gfn, nodes } => self.begin_copies(guest, gfn, nodes).is_some(),
            Order::CopyShared { .. } => false,
            Order::NoteTry { gfn, tick, by_samples } => {
                let thresholds = if by_samples { Thresholds::for_samples() } else { THRESHOLDS };
                let page = self.guests[guest].page_mut(gfn);
                page.map(|page| page.history = page.history.tried(tick, &thresholds)).is_some()
            }
        }
    }

    fn split(&mut self, guest: usize, gfn: Gfn) -> bool {
        let block = self.guests[guest].block_mut(gfn);
        let Some(block) = block.filter(|block| block.is_large && block.moving.is_none() && block.copying.is_empty())
        else {
            return false;
        };
        block.is_large = false;
        true
    }

    /// A block is one large page again, if its pages are where they were.
    fn join(&mut self, guest: usize, gfn: Gfn) -> bool {
        let guest = &mut self.guests[guest];
        let Some(first) = guest.page(gfn).map(|page| page.master.raw()) else { return false };
        let is_there = |at: u64| {
            let page = guest.page(Gfn::new(gfn.raw() + at));
            page.is_some_and(|page| page.master.raw() == first + at && page.copies.is_empty())
        };
        let is_whole = first.is_multiple_of(PAGES_PER_LARGE) && (0..PAGES_PER_LARGE).all(is_there);
        guest.block_mut(gfn).filter(|_| is_whole).map(|block| block.is_large = true).is_some()
    }

    /// Begins to make copies of a block for these nodes.
    fn begin_copies(&mut self, guest: usize, gfn: Gfn, nodes: NodeBits) -> Option<()> {
        let Self { memory, guests, nodes: count, .. } = self;
        let gfn = gfn.large_base();
        let home = guests[guest].page(gfn)?.home();
        let block = guests[guest].block_mut(gfn)?;
        if !block.is_large || block.moving.is_some() || !block.copying.is_empty() {
            return None;
        }
        let wanted = (0..*count as u8).map(NodeId).filter(|node| nodes >> node.0 & 1 != 0 && *node != home);
        let way = |to| Some(Way { to, frame: memory.take_block(to, (guest, gfn.raw() - BASE))?, copied: 0 });
        block.copying = wanted.filter_map(way).collect();
        block.is_watched = true;
        (!block.copying.is_empty()).then_some(())
    }
}
