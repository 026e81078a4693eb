//! Which hart does what at a look: one of the node that pages or a block go to, by turns, and no hart two jobs.

use super::{
    Guests, Locality,
    batches::{Batch, Kind},
    job::{Job, Lane, Lanes, Work},
};
use crate::services::mail::{self, Message};
use crate::{
    hart::{self, Hart},
    vm::memory::Replication,
};
use addr::{NodeId, VmId};
use tlb::CpuSet;

/// Is it a hart of `node` that has no job of this look?
fn is_free(hart: &Hart, node: NodeId, busy: &CpuSet) -> bool {
    hart.node == node && hart.is_online() && !busy.contains(hart.cpu)
}

impl Locality {
    /// Sends each hart at most one job; returns how many were sent.
    pub(super) fn send_jobs(&mut self, guests: &Guests) -> usize {
        let mut busy = CpuSet::EMPTY;
        self.lanes.retain(|(vm, _)| guests.find(*vm).is_some());
        // What waits for VMs that are gone.
        self.planned.drop_unless(|vm| guests.find(vm).is_some());
        let mut sent = self.send_block_steps(guests, &mut busy);
        for (vm, _) in guests.0.iter().filter(|(vm, _)| !vm.is_ending()) {
            while let Some(lane) = self.free_lane(vm.id)
                && let Some(batch) = self.next_batch(vm.id, &busy)
                && let Some(target) = self.free_hart(batch.node, &busy)
            {
                busy = busy.with(target.cpu);
                let work = match batch.kind {
                    Kind::Migrate => Work::Migrate(batch.gfns),
                    Kind::Replicate => Work::Replicate(Replication::new(batch.gfns, batch.node)),
                    Kind::Spread => Work::Spread(batch.gfns),
                };
                mail::send(target, Message::Place(Job::new(vm, work, batch.node, self.tick, Some(lane))));
                sent += 1;
            }
        }
        sent
    }

    /// The VM's oldest batch that goes to a node one of whose harts is free.
    fn next_batch(&mut self, vm: VmId, busy: &CpuSet) -> Option<Batch> {
        let is_free = |node| hart::all().iter().any(|hart| is_free(hart, node, busy));
        self.planned.take(|batch| batch.vm == vm && is_free(batch.node))
    }

    /// Room for one more job of the VM, if there is any.
    fn free_lane(&mut self, vm: VmId) -> Option<Lane> {
        let at = self.lanes.iter().position(|(id, _)| *id == vm).unwrap_or_else(|| {
            self.lanes.push((vm, Lanes::default()));
            self.lanes.len() - 1
        });
        self.lanes.get(at)?.1.take()
    }

    /// A hart of `node` that has no job of this look, by turns. The control hart has enough to do: it copies if nobody else can.
    pub(super) fn free_hart(&mut self, node: NodeId, busy: &CpuSet) -> Option<&'static Hart> {
        let harts = hart::all();
        let (before, behind) = harts.split_at_checked(self.turn + 1).unwrap_or((harts, &[]));
        let mut by_turns = behind.iter().chain(before).filter(|hart| is_free(hart, node, busy));
        let first = by_turns.next()?;
        let found = if first.is_control() { by_turns.next().unwrap_or(first) } else { first };
        self.turn = found.cpu.index();
        Some(found)
    }
}
