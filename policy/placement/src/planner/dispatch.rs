//! Which hart does what at a look: one of the node that pages or a block go to, by turns, and no hart two jobs.

use addr::{NodeId, VmId};

use super::{Planner, batches::Batch, blocks::Block};
use crate::{Facts, Hart, Job, Look, Machine, Work};

/// Jobs with pages of a VM at a time. Pages are copied with the VM's lock held: of more jobs most would wait for each other, and so
/// would their harts.
pub const AT_ONCE: usize = 2;
/// Blocks of a VM that move to a node at a time: a vCPU that writes to one waits until it is there.
pub const BLOCK_MOVES: usize = 2;
/// Harts that get jobs, at most.
const HARTS: usize = 1024;

/// Harts that have a job of this look, by bit.
#[derive(Debug, Default)]
pub(super) struct Busy([u64; HARTS / 64]);

impl Busy {
    fn has(&self, hart: usize) -> bool {
        self.0.get(hart / 64).is_none_or(|bits| bits >> (hart % 64) & 1 != 0)
    }

    fn add(&mut self, hart: usize) {
        if let Some(bits) = self.0.get_mut(hart / 64) {
            *bits |= 1 << (hart % 64);
        }
    }
}

/// The hart, if it is of `node` and has no job of this look.
fn free<const N: usize>(machine: &impl Facts<N>, at: usize, node: NodeId, busy: &Busy) -> Option<Hart> {
    let hart = machine.hart(at)?;
    (hart.node == node && hart.is_online && !busy.has(at)).then_some(hart)
}

impl<const N: usize> Planner<N> {
    /// Sends each hart at most one job; returns how many were sent.
    pub(super) fn send_jobs(&mut self, look: &Look<'_>, machine: &mut impl Machine<N>) -> usize {
        let mut busy = Busy::default();
        // What waits for VMs that are gone.
        self.planned.drop_unless(|vm| look.find(vm).is_some());
        let mut sent = self.send_block_steps(look, machine, &mut busy);
        for (at, guest) in look.guests.iter().enumerate().filter(|(_, guest)| !guest.is_ending) {
            let mut jobs = guest.jobs;
            while jobs < AT_ONCE
                && let Some(batch) = self.next_batch(guest.vm, machine, &busy)
                && let Some(hart) = self.free_hart(machine, batch.node, &busy)
            {
                self.send(machine, &mut busy, hart, at, batch.node, batch.kind.work(batch.gfns));
                jobs += 1;
                sent += 1;
            }
        }
        sent
    }

    /// For each VM and node the next steps of the blocks that move there, or else the next blocks that are to; how many. They need no
    /// lanes: what they copy they copy without the VM's lock.
    fn send_block_steps(&mut self, look: &Look<'_>, machine: &mut impl Machine<N>, busy: &mut Busy) -> usize {
        let mut sent = 0;
        for (at, guest) in look.guests.iter().enumerate().filter(|(_, guest)| !guest.is_ending) {
            for node in look.node_ids::<N>() {
                if machine.has_block_copy(at, node)
                    && let Some(hart) = self.free_hart(machine, node, busy)
                {
                    self.send(machine, busy, hart, at, node, Work::CopyBlock);
                    sent += 1;
                }
                sent += self.send_block_moves(machine, at, guest.vm, node, busy);
            }
        }
        // Those of VMs that are gone.
        self.blocks.retain(|block| look.find(block.vm).is_some());
        sent
    }

    fn send_block_moves(
        &mut self,
        machine: &mut impl Machine<N>,
        guest: usize,
        vm: VmId,
        node: NodeId,
        busy: &mut Busy,
    ) -> usize {
        let goes = |block: &Block<N>| block.vm == vm && block.to == Some(node);
        let moving = machine.block_moves(guest, node);
        for number in 0..BLOCK_MOVES {
            let next = self.blocks.iter().position(goes).filter(|_| number >= moving);
            let work = match next.and_then(|at| self.blocks.get(at)) {
                Some(block) => Work::BeginBlock(block.gfn),
                None if number < moving => Work::StepBlock,
                None => return number,
            };
            let Some(hart) = self.free_hart(machine, node, busy) else { return number };
            next.and_then(|at| self.blocks.remove(at));
            self.send(machine, busy, hart, guest, node, work);
        }
        BLOCK_MOVES
    }

    fn send(
        &self,
        machine: &mut impl Machine<N>,
        busy: &mut Busy,
        hart: usize,
        guest: usize,
        node: NodeId,
        work: Work,
    ) {
        busy.add(hart);
        machine.send(hart, Job { guest, node, tick: self.tick, work });
    }

    /// The VM's oldest batch that goes to a node one of whose harts is free.
    fn next_batch(&mut self, vm: VmId, machine: &impl Facts<N>, busy: &Busy) -> Option<Batch> {
        let has_free = |node| (0..machine.harts().min(HARTS)).any(|at| free(machine, at, node, busy).is_some());
        self.planned.take(|batch| batch.vm == vm && has_free(batch.node))
    }

    /// A hart of `node` that has no job of this look, by turns. The control hart has enough to do: it copies if nobody else can.
    fn free_hart(&mut self, machine: &impl Facts<N>, node: NodeId, busy: &Busy) -> Option<usize> {
        let harts = machine.harts().min(HARTS);
        let by_turns = (1..=harts).map(|step| (self.turn as usize).wrapping_add(step) % harts);
        let mut by_turns = by_turns.filter_map(|at| free(machine, at, node, busy).map(|hart| (at, hart)));
        let (first, hart) = by_turns.next()?;
        let found = if hart.is_control { by_turns.next().map_or(first, |(next, _)| next) } else { first };
        self.turn = found as u32;
        Some(found)
    }
}
