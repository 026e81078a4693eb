//! What takes several steps, as the monitor's duties carry it out.

use super::world::{PAGES, World, gfn};
use crate::{Candidates, CopyStep, Machine as _, Merge, Migration, MoveStep, Replication, Tries, Watched, ZeroPages};
use addr::{Gfn, NodeId};
use alloc::{boxed::Box, vec::Vec};

/// Something under way.
pub enum Job {
    Migration(usize, Migration),
    Replication(usize, Replication),
    Merge(usize, usize, Box<Merge<super::machine::Handle>>),
    ZeroPages(usize, ZeroPages),
    /// A block that may be all zeroes; how far it was seen.
    ZeroBlock(usize, Gfn, Watched, u64),
    BlockMove(usize, NodeId),
    BlockCopy(usize, NodeId),
    /// Copies of shared pages that nobody is led to any more.
    Retired(frames::RetiredCopies, Vec<tlb::TlbGeneration>),
}

/// A page's tries with one more.
pub const fn tried((tries, last): Tries) -> Tries {
    (tries.saturating_add(1), last)
}

/// Pages of a job's step, as in the monitor; blocks are copied faster here.
const STEP: u64 = 128;

impl Job {
    /// Pages of `original` and `copy` become one where they are equal.
    pub fn merge(world: &World, original: usize, copy: usize, pages: &[(u64, u64)]) -> Option<Self> {
        let pages: Candidates = pages.iter().map(|(from, to)| (gfn(*from), gfn(*to))).collect();
        let merge = Merge::begin(world.ram(original), world.ram(copy), &pages, || ())?;
        Some(Self::Merge(original, copy, Box::new(merge)))
    }

    /// Copies of shared pages are given up, as the monitor does in a shortage.
    pub fn retire(world: &World) -> Self {
        let (frames, memory) = (world.machine.frames(), world.machine.memory());
        let copies = frames.retire_spread(64);
        for (page, nodes) in copies.pages() {
            let nodes: Vec<_> = nodes.collect();
            let mut owners = Vec::new();
            frames.for_each_owner(memory, page, |owner| owners.push(owner));
            for owner in owners {
                world.ram(usize::from(owner.vm.0) - 1).forget_spread(owner.gfn, page, &nodes);
            }
        }
        let generations = world.guests.iter().map(|guest| guest.ram.forgotten()).collect();
        Self::Retired(copies, generations)
    }

    /// Goes on; what is left to do.
    pub fn step(self, world: &World, hart: usize) -> Option<Self> {
        world.leave(hart);
        world.on(hart, || self.step_here(world))
    }

    fn step_here(self, world: &World) -> Option<Self> {
        match self {
            Self::Migration(vm, mut migration) => {
                let done = world.ram(vm).step_migration(&mut migration, tried, || false);
                done.is_none().then_some(Self::Migration(vm, migration))
            }
            Self::Replication(vm, mut replication) => {
                let done = world.ram(vm).step_replication(&mut replication, tried, || false);
                done.is_none().then_some(Self::Replication(vm, replication))
            }
            Self::Merge(original, copy, mut merge) => {
                let done = merge.step(world.ram(original), world.ram(copy), || false);
                done.is_none().then_some(Self::Merge(original, copy, merge))
            }
            Self::ZeroPages(vm, pages) => {
                let done = world.ram(vm).drop_zero_pages(&pages, || ());
                done.is_none().then_some(Self::ZeroPages(vm, pages))
            }
            Self::ZeroBlock(vm, first, watched, seen) => Self::step_zeroes(world, vm, first, watched, seen),
            Self::BlockMove(vm, node) => {
                let done = world.ram(vm).step_block_move(node, STEP);
                (done != MoveStep::Nothing).then_some(self)
            }
            Self::BlockCopy(vm, node) => {
                let done = world.ram(vm).step_block_copy(node, STEP, tried);
                (done == CopyStep::More).then_some(self)
            }
            Self::Retired(copies, seen) => {
                let is_over = world.guests.iter().zip(&seen).all(|(guest, seen)| guest.ram.tlb().all_passed(*seen));
                if !is_over {
                    return Some(Self::Retired(copies, seen));
                }
                copies.free(world.machine.frames());
                None
            }
        }
    }

    fn step_zeroes(world: &World, vm: usize, first: Gfn, watched: Watched, seen: u64) -> Option<Self> {
        let ram = world.ram(vm);
        if !ram.is_in_force(watched) {
            return Some(Self::ZeroBlock(vm, first, watched, seen));
        }
        if seen == addr::PAGES_PER_LARGE {
            ram.drop_zeroes(first, watched);
            return None;
        }
        let bits = ram.zeroes(Gfn::new(first.raw() + seen), 64);
        (bits == u64::MAX).then_some(Self::ZeroBlock(vm, first, watched, seen + 64))
    }
}

const _: () = assert!(PAGES.is_multiple_of(64), "zeroes are looked for in 64 pages at a time");
