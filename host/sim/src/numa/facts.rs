//! The synthetic machine's answers to the planner, and where its proposals go.

use addr::{Gfn, Mfn, NodeId};
use placement::{
    Backed, Backing, Facts, Found, Hands, Hart, Hot, Job, Located, Misses, Order, Reason, Samples, Shared, Wish,
};

use super::{
    guest::{BASE, GuestMemory},
    machine::{By, World},
    memory::node_of,
};

/// Ticks that a look at samples takes, and microseconds that a fault does.
const LOOK_TICKS: u64 = 50;
const FAULT_US: u64 = 4;

impl<const N: usize> World<N> {
    fn located(&self, guest: usize, gfn: Gfn, page: Mfn) -> Option<Located> {
        let memory = self.guests.get(guest)?;
        let found = memory.page(gfn)?;
        if found.master != page && !found.copies.values().any(|copy| *copy == page) {
            return None;
        }
        let copies = GuestMemory::copies_of(found);
        let backing = if copies == 0 { Backing::Private } else { Backing::Replicated { nodes: copies } };
        let history = memory.page(memory.head_of(gfn))?.history;
        let (home, size) = (node_of(page), memory.size_of(gfn));
        Some(Located { guest, gfn, home, size, backing, is_pinned: false, history })
    }
}

impl<const N: usize> Facts<N> for World<N> {
    fn counts_misses(&self) -> bool {
        self.by == By::Misses
    }

    fn take_hot(&mut self, most: usize) -> usize {
        self.taken = self.queue.drain(..most.min(self.queue.len())).collect();
        self.taken.len()
    }

    fn hot(&self, at: usize) -> Option<Hot> {
        self.taken.get(at).copied()
    }

    fn add_misses(&self, first: Mfn, pages: u64, to: &mut Misses<N>) {
        self.memory.add_misses(first, pages, to);
    }

    fn locate(&self, page: Mfn) -> Option<Located> {
        let (guest, at) = self.memory.row(page)?.owner?;
        self.located(guest, Gfn::new(BASE + at), page)
    }

    fn look_up(&self, guest: usize, gfn: Gfn, page: Mfn) -> Option<Backed> {
        self.located(guest, gfn, page).map(Backed::Own)
    }

    fn shared(&self, _: Mfn, _: NodeId) -> Option<Shared> {
        None
    }

    fn has_copy(&self, _: Mfn, _: NodeId) -> bool {
        false
    }

    fn is_copying_block(&self, guest: usize, gfn: Gfn) -> bool {
        let block = self.guests.get(guest).and_then(|guest| guest.block(gfn));
        block.is_some_and(|block| !block.copying.is_empty())
    }

    fn is_unwritten(&self, guest: usize, gfn: Gfn, page: Mfn) -> bool {
        let Some(guest) = self.guests.get(guest) else { return false };
        guest.page(gfn).is_some_and(|found| found.master == page) && guest.block(gfn).is_some_and(|b| b.is_watched)
    }

    fn block_moves(&self, guest: usize, node: NodeId) -> usize {
        let blocks = self.guests.get(guest).map_or(&[][..], |guest| &guest.blocks);
        blocks.iter().filter(|block| block.moving.is_some_and(|way| way.to == node)).count()
    }

    fn has_block_copy(&self, guest: usize, node: NodeId) -> bool {
        let blocks = self.guests.get(guest).map_or(&[][..], |guest| &guest.blocks);
        blocks.iter().flat_map(|block| &block.copying).any(|way| way.to == node)
    }

    fn harts(&self) -> usize {
        self.jobs.len()
    }

    fn hart(&self, at: usize) -> Option<Hart> {
        let is_idle = self.jobs.get(at)?.is_none();
        Some(Hart { node: self.node_of_hart(at), is_online: is_idle, is_control: at == 0 })
    }

    fn ran(&self, _: usize) -> u64 {
        self.now + 1
    }

    fn spent(&self) -> u64 {
        LOOK_TICKS
    }

    fn fault_us(&self) -> u64 {
        FAULT_US
    }
}

impl<const N: usize> Hands<N> for World<N> {
    fn may_go_on(&mut self) -> bool {
        true
    }

    fn set_threshold(&mut self, misses: u32) {
        self.threshold = misses;
    }

    fn count_anew(&mut self) {
        self.memory.count_anew();
        self.queue.clear();
    }

    fn watch(&mut self, guest: usize, _: NodeId, gfns: &mut Vec<Gfn>) {
        let Some(guest) = self.guests.get_mut(guest) else { return gfns.clear() };
        gfns.retain(|gfn| guest.watch(*gfn));
    }

    fn begin_samples(&mut self, guest: usize, samples: &mut Samples<N>) {
        let Some(guest) = self.guests.get_mut(guest) else { return };
        samples.begin(|gfn| {
            let (head, size) = (guest.head_of(gfn), guest.size_of(gfn));
            match guest.page_mut(head) {
                Some(page) => {
                    page.used = 0;
                    Found::Page { gfn: head, page: page.master, size }
                }
                None => Found::Nothing { pages: 1 },
            }
        });
    }

    fn look_at(&mut self, guest: usize, samples: &mut Samples<N>) -> u64 {
        let mut faults = 0;
        let Some(guest) = self.guests.get_mut(guest) else { return 0 };
        samples.look(|sample| {
            if guest.size_of(sample.gfn) != sample.size {
                return false;
            }
            let Some(page) = guest.page_mut(sample.gfn).filter(|page| page.master == sample.page) else { return false };
            let users = std::mem::take(&mut page.used);
            sample.note(users);
            faults += u64::from(users.count_ones());
            true
        });
        faults
    }

    fn carry_out(&mut self, guest: usize, order: Order) -> bool {
        guest < self.guests.len() && self.do_order(guest, order)
    }

    fn send(&mut self, hart: usize, job: Job) {
        self.leave_job(hart, job);
    }

    fn leave(&mut self, _: usize, _: u64, _: Reason) {}

    fn compare(&mut self, _: usize, _: Wish, _: Wish) {}
}
