//! A VM's memory: the pmap (the truth), one G-stage table per node (its caches), and the door for devices.
//!
//! The crates `pmap`, `gstage`, `frames` and `tlb` say what one step may do. This crate puts steps together: what a guest's fault, a
//! device's write, a merge or a move does from its first look at the pmap to the last leaf, while other harts do the same.
//!
//! # Key types
//! - [`GuestRam`]: the memory of one VM. [`GuestRam::touch`] is the fault path; as a [`guest_access::GuestMemory`] it is the door for
//!   devices.
//! - [`Merge`], [`Migration`], [`Replication`], [`GuestRam::begin_block_move`], [`GuestRam::begin_block_copies`]: what takes several
//!   steps. No step waits for a hart: it says what has to pass, and the caller comes back.
//! - [`Machine`], [`ByteMemory`]: what it needs of the machine. The monitor implements both over its direct map and harts, host tests
//!   over a machine that they play.
//!
//! # What it promises
//! No hart reaches a page that is free or that another VM has for itself. A guest reads what was last written at each address, whatever
//! happens to the page behind it. What a proposal asks for is checked when it is carried out, so a wrong one costs time only.
//! When a VM has been taken down, all its pages are free.
//!
//! # What it refuses
//! It decides nothing: which pages move, merge or are looked at is the caller's policy.
//!
//! # Locking
//! One lock guards pmap and tables of a VM. Nobody waits for other harts with it locked, and no two memories are locked at a time. What
//! must come after a shootdown is left to a later step (module `later`). Long copies are made without the lock. Locks of `frames` come
//! after it.
//!
//! # Tests
//! `tests` play a machine with several nodes, whose harts keep every translation that they may keep. Wherever the lock is let go in
//! the middle of something, other harts act.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod block;
mod block_copy;
mod door;
mod fault;
mod give_back;
mod give_up;
mod join;
mod later;
mod locate;
mod machine;
mod merge;
mod place;
mod placed;
mod sample;
mod share;
mod shown;
mod spread;
#[cfg(test)]
mod tests;
mod zeroing;

pub use block::{BLOCK_MOVES, MoveStep};
pub use block_copy::CopyStep;
pub use give_back::GivenBack;
pub use locate::{Backing, Located, Tries};
pub use machine::{ByteMemory, Machine, has_reserve};
pub use merge::{Candidates, Merge, PORTION, Watched, ZeroPages, equal_places, fingerprint};
pub use place::{Migration, Replication};
pub use placed::{PlacedCounts, Wish};
pub use sample::{Found, Leaves};
pub use shown::Held;

use addr::{BASE_PAGE, Gfn, GuestPhysAddr, Mfn, NodeId, PageSize, SpuId, VmId};
use alloc::{boxed::Box, vec::Vec};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use frames::{DyingList, Frames, Pool};
use gstage::{Dismantling, NodeTable};
use pmap::Pmap;
use rv_pte::{Mode, PteFlags};
use spin::Mutex;
use tlb::{ShootdownTracker, TlbGeneration};

/// Nodes that copies of a page can be told apart on.
pub const NODES: usize = u8::BITS as usize;

/// First byte of guest RAM, as on QEMU's `virt` machine.
pub const RAM_START: u64 = 0x8000_0000;

/// How the guest touched memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Load.
    Read,
    /// Store or AMO.
    Write,
    /// Instruction fetch.
    Execute,
}

/// What came of a touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// There is a leaf now: try again.
    Mapped,
    /// The page can be written when no hart inside the VM is behind this generation: the vCPU waits, then tries again.
    Waits(TlbGeneration),
    /// Somebody is at it, for a bounded time: the vCPU tries again after a moment.
    Busy,
    /// A piece of the block was zeroed: the hart looks whether anybody wants something else of it, then the vCPU tries again.
    GoesOn,
    /// There was a leaf: the hart remembers that there was none, or a weaker one, and has to forget it.
    Repeated,
    /// The machine has no memory left; the VM has been told to stop.
    OutOfMemory,
}

/// What memory a VM is to have.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Bytes of RAM.
    pub bytes: u64,
    /// The mode of its tables.
    pub mode: Mode,
    /// Whether blocks of 2 MiB may back it.
    pub large_pages: bool,
    /// Whether it may have pages in common with others.
    pub may_share: bool,
}

/// A VM's memory.
pub struct GuestRam<M: Machine> {
    machine: M,
    vm: VmId,
    base: Gfn,
    pages: u64,
    large_allowed: bool,
    /// Whether it may have pages in common with others.
    may_share: bool,
    inner: Mutex<Inner<M>>,
    tlb: ShootdownTracker,
    roots: Box<[u64]>,
    /// Pages that the guest gave back.
    returned: AtomicU64,
    /// Pages that came back and are in no event yet.
    untold: AtomicU64,
    /// Frames that wait for shootdowns; a leaf of the lock order.
    later: Mutex<later::Later>,
    /// Whether frames are in `later`.
    has_later: AtomicBool,
    /// Whether so many references to shared pages are in `later` that no more may come.
    is_later_full: AtomicBool,
    /// From when on split blocks may be put together.
    join_from: AtomicU64,
    sharing: share::Counters,
    placing: placed::Counters,
}

struct Inner<M: Machine> {
    machine: M,
    pmap: Pmap,
    tables: Box<[NodeTable]>,
    /// What mapped pages have replaced since the last [`GuestMemory::settle_maps`].
    replaced: DyingList,
    /// The shootdown of the last page that a disk mapped: the guest does not hear of a request before it has ended.
    unsettled: TlbGeneration,
    /// The shootdown of the last page that a copy took the place of: copies are not written before it has ended.
    last_replaced: TlbGeneration,
    /// Writes to watched pages so far: what was watched and is still the same has not been written meanwhile.
    watched_writes: u64,
    /// The shootdown of the last page that is watched: copies are not made before it has ended.
    last_watched: TlbGeneration,
    /// The shootdown of the last own page that was shared: others do not get such pages before it has ended.
    last_shared: TlbGeneration,
    /// Blocks that are being zeroed for guests that touched them.
    zeroing: Vec<zeroing::Zeroing>,
    /// Pages that a hart is moving at this moment: whoever wants to write one tries again until it is there.
    held: Vec<Gfn>,
    /// Blocks on their way to other nodes, one to each at most.
    moving: Vec<block::BlockMove>,
    /// Blocks that are being copied for other nodes. Nobody else watches those.
    copying: Vec<block_copy::BlockCopy>,
    /// The VM's end has begun: nothing gets behind its pages any more.
    is_closed: bool,
    teardown_at: Option<Gfn>,
    /// Tables that go then.
    dismantling: Vec<Dismantling>,
    /// The number of the last block that was asked whether it can be put together.
    join_at: u64,
}

impl<M: Machine> GuestRam<M> {
    #[inline(always)]
    fn memory(&self) -> &M::Memory {
        self.machine.memory()
    }

    #[inline(always)]
    fn frames(&self) -> &Frames {
        self.machine.frames()
    }

    #[inline(always)]
    fn nearest(&self, node: NodeId) -> &[NodeId] {
        self.machine.nearest(node)
    }

    #[inline(always)]
    fn pool<'a>(&'a self, nodes: &'a [NodeId]) -> Pool<'a, M::Memory> {
        Pool { frames: self.frames(), memory: self.memory(), nodes, vm: self.vm, spu: SpuId(0) }
    }

    /// Who may hold translations of this memory.
    #[inline]
    #[must_use]
    pub const fn tlb(&self) -> &ShootdownTracker {
        &self.tlb
    }

    /// Whether `addr` is RAM.
    #[inline]
    #[must_use]
    pub const fn is_ram(&self, addr: GuestPhysAddr) -> bool {
        addr.gfn().raw().wrapping_sub(self.base.raw()) < self.pages
    }

    /// Its first page.
    #[must_use]
    pub const fn base(&self) -> Gfn {
        self.base
    }

    /// Bytes of RAM.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.pages * BASE_PAGE
    }

    /// The G-stage root for harts of `node`, with the mode, as in `hgatp`.
    #[must_use]
    pub fn root(&self, node: NodeId) -> u64 {
        self.roots[node.index()]
    }

    /// Memory returned by the guest so far, in pages.
    #[must_use]
    pub fn pages_returned(&self) -> u64 {
        self.returned.load(Ordering::Relaxed)
    }
}

impl<M: Machine> GuestRam<M> {
    /// The RAM of `vm`, all absent. `None` when there is no memory for the tables.
    #[must_use]
    pub fn new(machine: M, vm: VmId, spec: &Spec) -> Option<Self> {
        let base = GuestPhysAddr::new(RAM_START).gfn();
        let count = spec.bytes / BASE_PAGE;
        // The only part whose size the client chose; it needs no frames that would have to go back.
        let pmap = Pmap::new(vm, base, count).ok()?;
        let tables = empty_tables(&machine, vm, spec.mode)?;
        let roots: Option<Vec<u64>> = tables.iter().map(|table| table.hgatp().ok()).collect();
        Some(Self {
            vm,
            base,
            pages: count,
            large_allowed: spec.large_pages,
            may_share: spec.may_share,
            roots: roots?.into_boxed_slice(),
            inner: Mutex::new(Inner {
                machine: machine.clone(),
                pmap,
                tables: tables.into_boxed_slice(),
                replaced: DyingList::new(),
                unsettled: TlbGeneration::NONE,
                last_replaced: TlbGeneration::NONE,
                watched_writes: 0,
                last_watched: TlbGeneration::NONE,
                last_shared: TlbGeneration::NONE,
                zeroing: Vec::new(),
                held: Vec::new(),
                moving: Vec::new(),
                copying: Vec::new(),
                is_closed: false,
                teardown_at: Some(base),
                dismantling: Vec::new(),
                join_at: 0,
            }),
            tlb: ShootdownTracker::new(machine.harts()),
            returned: AtomicU64::new(0),
            untold: AtomicU64::new(0),
            later: Mutex::new(later::Later::default()),
            has_later: AtomicBool::new(false),
            is_later_full: AtomicBool::new(false),
            join_from: AtomicU64::new(0),
            sharing: share::Counters::default(),
            placing: placed::Counters::default(),
            machine,
        })
    }

    /// Maps the page `page` of registers at `gfn`, which is no RAM, in all nodes' tables. `false` if some have no memory for it.
    #[must_use]
    pub fn map_registers(&self, gfn: Gfn, page: Mfn) -> bool {
        let mut inner = self.inner.lock();
        let mut all = true;
        for (node, table) in inner.tables.iter_mut().enumerate() {
            let pool = self.pool(self.nearest(NodeId(node as u8)));
            all &= table.install(&pool, gfn, page, PageSize::Base, PteFlags::RW).is_ok();
        }
        all
    }

    /// Takes registers at `gfn` out of the tables: no vCPU reaches them any more when all harts have passed the generation.
    #[must_use]
    pub fn unmap_registers(&self, gfn: Gfn) -> TlbGeneration {
        self.inner.lock().remove_leaves(gfn, 1);
        self.begin_generation()
    }
}

/// An empty table for each node. `None` when there is not enough memory: then all of it is free again.
fn empty_tables<M: Machine>(machine: &M, vm: VmId, mode: Mode) -> Option<Vec<NodeTable>> {
    let mut tables: Vec<NodeTable> = Vec::new();
    for node in 0..machine.nearest(NodeId(0)).len() {
        let nodes = machine.nearest(NodeId(node as u8));
        let pool = Pool { frames: machine.frames(), memory: machine.memory(), nodes, vm, spu: SpuId(0) };
        let Some(table) = NodeTable::new(&pool, mode) else {
            tables.into_iter().for_each(|table| table.discard(machine.frames()));
            return None;
        };
        tables.push(table);
    }
    Some(tables)
}
