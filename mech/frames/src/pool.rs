//! Where a VM's fault path gets its pages.

use addr::{Gfn, NodeId, PageSize, SpuId, VmId};

use crate::{Clean, Dirty, Frame, Frames, MAX_ORDER, MachineMemory, PageUse};

/// The allocator, the memory and the nodes to try, for one VM on one hart.
///
/// The order of nodes is policy and comes from the caller: the faulting hart's node first, then by distance, or only the
/// first where a remote page would be worse than a small one.
pub struct Pool<'a, M> {
    /// The allocator.
    pub frames: &'a Frames,
    /// The memory's contents.
    pub memory: &'a M,
    /// Nodes to try, in this order.
    pub nodes: &'a [NodeId],
    /// For whom.
    pub vm: VmId,
    /// Who is charged.
    pub spu: SpuId,
}

impl<M: MachineMemory> Pool<'_, M> {
    /// A zeroed page to back `gfn` of the VM (for [`PageSize::Large`]: and the 511 guest pages behind it).
    #[inline(always)]
    pub fn guest_page(&self, size: PageSize, gfn: Gfn) -> Option<Frame<Clean>> {
        let order = match size {
            PageSize::Base => 0,
            PageSize::Large => MAX_ORDER,
        };
        self.zeroed(order, PageUse::Private { vm: self.vm, gfn, spu: self.spu })
    }

    /// 2 MiB to back the block of `gfn`: zeroed ahead, or, as the error, for the caller to zero, which takes long.
    #[must_use]
    pub fn guest_block(&self, gfn: Gfn) -> Option<Result<Frame<Clean>, Frame<Dirty>>> {
        let to = PageUse::Private { vm: self.vm, gfn: gfn.large_base(), spu: self.spu };
        self.nodes.iter().find_map(|&node| self.frames.alloc_large(node, to))
    }

    /// The same, if it has been zeroed ahead: for who cannot take long.
    #[must_use]
    pub fn ready_block(&self, gfn: Gfn) -> Option<Frame<Clean>> {
        match self.guest_block(gfn)? {
            Ok(frame) => Some(frame),
            Err(frame) => {
                self.frames.free(frame);
                None
            }
        }
    }

    /// A page to back `gfn` of the VM with contents from elsewhere.
    #[must_use]
    pub fn page_to_fill(&self, gfn: Gfn) -> Option<Frame<Dirty>> {
        let to = PageUse::Private { vm: self.vm, gfn, spu: self.spu };
        self.nodes.iter().find_map(|&node| self.frames.alloc_page(node, to))
    }

    /// A page for a copy of what backs `gfn`, on the first of the nodes or not at all: elsewhere it would be of no use.
    #[must_use]
    pub fn replica_to_fill(&self, gfn: Gfn) -> Option<Frame<Dirty>> {
        let to = PageUse::Replica { vm: self.vm, gfn, spu: self.spu };
        self.frames.alloc_page(*self.nodes.first()?, to)
    }

    /// A 2 MiB block for a copy of the one of `gfn`, on the first of the nodes or not at all.
    #[must_use]
    pub fn replica_block_to_fill(&self, gfn: Gfn) -> Option<Frame<Dirty>> {
        let to = PageUse::Replica { vm: self.vm, gfn: gfn.large_base(), spu: self.spu };
        self.frames.alloc(*self.nodes.first()?, MAX_ORDER, to)
    }

    /// 2 MiB for copies of shared pages, on the first of the nodes or not at all.
    #[must_use]
    pub fn shared_block_to_fill(&self) -> Option<Frame<Dirty>> {
        self.frames.alloc(*self.nodes.first()?, MAX_ORDER, PageUse::Shared)
    }

    /// A 2 MiB block to back the one of `gfn` with contents from elsewhere, on the first of the nodes or not at all.
    #[must_use]
    pub fn block_to_fill(&self, gfn: Gfn) -> Option<Frame<Dirty>> {
        let to = PageUse::Private { vm: self.vm, gfn: gfn.large_base(), spu: self.spu };
        self.frames.alloc(*self.nodes.first()?, MAX_ORDER, to)
    }

    /// A zeroed page for the VM's tables.
    pub fn table(&self) -> Option<Frame<Clean>> {
        self.table_block(0)
    }

    /// `1 << order` zeroed, naturally aligned pages for the VM's tables (a G-stage root has order 2).
    #[inline(never)]
    pub fn table_block(&self, order: u8) -> Option<Frame<Clean>> {
        self.zeroed(order, PageUse::Monitor { vm: Some(self.vm) })
    }

    #[inline(always)]
    fn zeroed(&self, order: u8, to: PageUse) -> Option<Frame<Clean>> {
        let (&first, others) = self.nodes.split_first()?;
        let nearest = self.frames.alloc_zeroed(self.memory, first, order, to);
        if nearest.is_some() { nearest } else { self.zeroed_elsewhere(others, order, to) }
    }

    #[cold]
    fn zeroed_elsewhere(&self, nodes: &[NodeId], order: u8, to: PageUse) -> Option<Frame<Clean>> {
        nodes.iter().find_map(|&node| self.frames.alloc_zeroed(self.memory, node, order, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::small_machine;
    use crate::{IdleWork, PageOwner};
    use addr::Mfn;

    #[test]
    fn a_block_that_nobody_zeroed_is_said_to_be_dirty() {
        let (memory, frames) = small_machine(&[4]);
        let pool = Pool { frames: &frames, memory: &memory, nodes: &[NodeId(0)], vm: VmId(1), spu: SpuId(0) };
        let gfn = Gfn::new(0x203);
        let dirty = pool.guest_block(gfn).unwrap().expect_err("nothing was zeroed ahead");
        assert!(frames.is_private_of(&dirty, PageOwner { vm: VmId(1), gfn: gfn.large_base() }));
        frames.free(dirty);
        while frames.idle_step(&memory, NodeId(0), 512) != IdleWork::Nothing {}
        let clean = pool.guest_block(gfn).unwrap().expect("one is zeroed");
        assert!((0..512).all(|page| memory.is_zero(Mfn::new(clean.mfn().raw() + page))));
        frames.free(clean);
    }
}
