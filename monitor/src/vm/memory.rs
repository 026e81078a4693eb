//! A VM's memory: the pmap (the truth), one G-stage table per node (its caches), and the door for devices.
//!
//! One lock guards pmap and tables of a VM. Nobody waits for other harts: what must come after a shootdown is left to a later
//! step (module `later`).

mod block;
mod block_copy;
mod door;
mod fault;
mod give_up;
mod join;
mod later;
mod merge;
mod place;
mod placed;
mod sample;
mod share;
mod spread;

pub use block::{BLOCK_MOVES, MoveStep};
pub use block_copy::CopyStep;
pub use merge::{Candidates, Merge, Watched, ZeroPages, equal_places, fingerprint};
pub use place::{Located, Migration, PlacedCounts, Replication};
pub use placed::Wish;

use crate::machine::{
    self,
    memory::{DirectMemory, frames, nearest},
};
use addr::{BASE_PAGE, Gfn, GuestPhysAddr, Mfn, NodeId, PageSize, SpuId, VmId};
use alloc::{boxed::Box, vec::Vec};
use control::{EventKind, PageKind, Pages, VmMemory, VmSpec};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use frames::{DyingList, PendingShootdown, Pool};
use gstage::NodeTable;
use pmap::{PageState, Pmap};
use rv_pte::PteFlags;
use spin::Mutex;
use tlb::{ShootdownTracker, TlbGeneration};

/// First byte of guest RAM, as on QEMU's `virt` machine.
pub const RAM_START: u64 = control::RAM_START;

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
    /// There was a leaf: the hart remembers that there was none, or a weaker one, and has to forget it.
    Repeated,
    /// The machine has no memory left; the VM has been told to stop.
    OutOfMemory,
}

/// A VM's memory.
pub struct GuestRam {
    vm: VmId,
    base: Gfn,
    pages: u64,
    large_allowed: bool,
    /// May it have pages in common with others?
    may_share: bool,
    inner: Mutex<Inner>,
    tlb: ShootdownTracker,
    roots: Box<[u64]>,
    /// Pages that the guest gave back.
    returned: AtomicU64,
    /// Pages that came back and are in no event yet.
    untold: AtomicU64,
    /// Frames that wait for shootdowns; a leaf of the lock order.
    later: Mutex<later::Later>,
    /// Are there any?
    has_later: AtomicBool,
    /// From when on split blocks may be put together.
    join_from: AtomicU64,
    sharing: share::Counters,
    placing: placed::Counters,
}

struct Inner {
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
    /// Blocks that harts are zeroing at this moment for guests that touched them.
    zeroing: Vec<Gfn>,
    /// Pages that a hart is moving at this moment: whoever wants to write one tries again until it is there.
    held: Vec<Gfn>,
    /// Blocks on their way to other nodes, one to each at most.
    moving: Vec<block::BlockMove>,
    /// Blocks that are being copied for other nodes. Nobody else watches those.
    copying: Vec<block_copy::BlockCopy>,
    teardown_at: Option<Gfn>,
    /// The number of the block that was looked at last: can it be put together?
    join_at: u64,
}

impl GuestRam {
    fn pool<'a>(&self, nodes: &'a [NodeId]) -> Pool<'a, DirectMemory> {
        Pool { frames: frames(), memory: &DirectMemory, nodes, vm: self.vm, spu: SpuId(0) }
    }

    /// Who may hold translations of this memory.
    #[inline]
    #[must_use]
    pub const fn tlb(&self) -> &ShootdownTracker {
        &self.tlb
    }

    /// Is `addr` RAM?
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

/// Pages that a guest gives back before an event tells: 16 MiB.
const PAGES_PER_EVENT: u64 = 4096;
/// Guest pages that one teardown step gives back: bounded work.
const TEARDOWN_BLOCKS: u64 = 4 * addr::PAGES_PER_LARGE;

impl GuestRam {
    /// RAM of `bytes` bytes, all absent. `None` when there is no memory for the tables.
    #[must_use]
    pub fn new(vm: VmId, bytes: u64, spec: &VmSpec) -> Option<Self> {
        let base = GuestPhysAddr::new(RAM_START).gfn();
        let count = bytes / BASE_PAGE;
        let mode = machine::capabilities().gstage_mode;
        let mut tables = Vec::new();
        for node in machine::description().nodes.ids() {
            let nodes = nearest(node);
            let pool = Pool { frames: frames(), memory: &DirectMemory, nodes, vm, spu: SpuId(0) };
            tables.push(NodeTable::new(&pool, mode)?);
        }
        let roots: Option<Vec<u64>> = tables.iter().map(|table| table.hgatp().ok()).collect();
        Some(Self {
            vm,
            base,
            pages: count,
            large_allowed: spec.pages == Pages::Large,
            may_share: spec.sharing,
            roots: roots?.into_boxed_slice(),
            inner: Mutex::new(Inner {
                pmap: Pmap::new(vm, base, count).ok()?,
                tables: tables.into_boxed_slice(),
                replaced: DyingList::new(),
                unsettled: TlbGeneration::NONE,
                last_replaced: TlbGeneration::NONE,
                watched_writes: 0,
                last_watched: TlbGeneration::NONE,
                zeroing: Vec::new(),
                held: Vec::new(),
                moving: Vec::new(),
                copying: Vec::new(),
                teardown_at: Some(base),
                join_at: 0,
            }),
            tlb: ShootdownTracker::new(crate::hart::all().len()),
            returned: AtomicU64::new(0),
            untold: AtomicU64::new(0),
            later: Mutex::new(later::Later::default()),
            has_later: AtomicBool::new(false),
            join_from: AtomicU64::new(0),
            sharing: share::Counters::default(),
            placing: placed::Counters::default(),
        })
    }

    /// Maps the interrupt file `page` of a hart as vCPU `vcpu`'s file, in all nodes' tables.
    #[must_use]
    pub fn map_file(&self, vcpu: addr::VcpuIndex, page: Mfn) -> bool {
        let gfn = file_gfn(vcpu);
        let mut inner = self.inner.lock();
        let mut all = true;
        for (node, table) in inner.tables.iter_mut().enumerate() {
            let pool = self.pool(nearest(NodeId(node as u8)));
            all &= table.install(&pool, gfn, page, PageSize::Base, PteFlags::RW).is_ok();
        }
        all
    }

    /// Takes vCPU `vcpu`'s file out of the tables: no vCPU stores into it any more when all harts have passed the generation.
    #[must_use]
    pub fn unmap_file(&self, vcpu: addr::VcpuIndex) -> TlbGeneration {
        self.inner.lock().remove_leaves(file_gfn(vcpu), 1);
        self.begin_generation()
    }

    /// The guest does not need `[start, start + len)` any more: its machine pages are free as soon as no TLB knows them.
    pub fn give_back(&self, start: GuestPhysAddr, len: u64) {
        let node = crate::hart::this_hart().map_or(NodeId(0), |hart| hart.node);
        let pool = self.pool(nearest(node));
        let mut next = Some(start.gfn());
        let end = start.gfn().raw() + len / BASE_PAGE;
        let mut returned = 0;
        while let Some(at) = next {
            let mut dying = DyingList::new();
            let token = {
                let mut inner = self.inner.lock();
                let pages = end.saturating_sub(at.raw());
                let outcome = inner.pmap.release(&pool, at, pages, &mut dying);
                next = outcome.as_ref().ok().and_then(|released| released.next);
                returned += outcome.map_or(0, |released| released.pages);
                let covered = next.map_or(pages, |next| next.raw() - at.raw());
                inner.remove_leaves(at, covered);
                self.tlb.retire()
            };
            self.defer(PendingShootdown::new(token, dying));
        }
        self.returned.fetch_add(returned, Ordering::Relaxed);
        self.tell_returned(returned, PAGES_PER_EVENT);
    }

    /// So many pages came back; an event says so when there are `enough`.
    fn tell_returned(&self, pages: u64, enough: u64) {
        if self.untold.fetch_add(pages, Ordering::Relaxed) + pages < enough {
            return;
        }
        let untold = self.untold.swap(0, Ordering::Relaxed);
        if untold != 0 {
            crate::trace::record(Some(self.vm), EventKind::PagesReturned { pages: untold });
        }
    }

    /// One bounded step of giving everything back; no vCPU is left. `true` while there is more.
    pub fn tear_down_step(&self) -> bool {
        let pool = self.pool(nearest(NodeId(0)));
        let mut inner = self.inner.lock();
        let mut dying = core::mem::take(&mut inner.replaced);
        inner.forget_block_move();
        inner.forget_block_copies();
        let more = match inner.teardown_at {
            Some(at) => {
                let end = self.base.raw() + self.pages;
                let pages = TEARDOWN_BLOCKS.min(end - at.raw());
                let released = inner.pmap.release(&pool, at, pages, &mut dying).ok();
                self.untold.fetch_add(released.map_or(0, |released| released.pages), Ordering::Relaxed);
                let next = released.and_then(|released| released.next);
                let next = next.unwrap_or(Gfn::new(at.raw() + pages));
                inner.teardown_at = (next.raw() < end).then_some(next);
                true
            }
            None if !inner.tables.is_empty() => {
                for table in core::mem::take(&mut inner.tables) {
                    if let Err(why) = table.dismantle(&pool, &mut dying) {
                        log::error!("G-stage table of VM {:?}: {why:?}", self.vm);
                    }
                }
                true
            }
            None => false,
        };
        drop(inner);
        if !more {
            self.tell_returned(0, 0);
        }
        self.defer(PendingShootdown::new(self.tlb.retire(), dying));
        // Nobody is inside any more: what waited can be freed.
        self.free_deferred() || more
    }

    /// What is behind its pages, from the `first` one of its RAM on, as numbers of [`PageKind`]; at most
    /// [`control::PAGE_MAP_PART`] of them.
    #[must_use]
    pub fn page_kinds(&self, first: u64) -> Vec<u8> {
        let last = first.saturating_add(control::PAGE_MAP_PART).min(self.bytes() / BASE_PAGE);
        let inner = self.inner.lock();
        let kind = |page| match inner.pmap.lookup(&DirectMemory, Gfn::new(self.base().raw() + page)).map(|at| at.state)
        {
            Ok(PageState::Private { .. }) => PageKind::Private,
            Ok(PageState::Shared { .. }) => PageKind::Shared,
            Ok(PageState::Replicated { .. }) => PageKind::Replicated,
            _ => PageKind::Absent,
        };
        (first..last).map(|page| kind(page) as u8).collect()
    }

    /// How many pages it has on each node.
    #[must_use]
    pub fn pages_by_node(&self) -> [u64; machine_tree::MAX_NODES] {
        let inner = self.inner.lock();
        core::array::from_fn(|node| inner.pmap.counts().on(NodeId(node as u8)))
    }

    /// Its pages by node.
    #[must_use]
    pub fn resident(&self) -> Vec<VmMemory> {
        let inner = self.inner.lock();
        let counts = inner.pmap.counts();
        let large = counts.large_blocks() * addr::PAGES_PER_LARGE;
        let mut left = large;
        machine::description()
            .nodes
            .ids()
            .map(|node| {
                let on_node = counts.on(node);
                // The pmap counts large blocks for the whole VM; they are shown where there is room for them.
                let own = on_node - counts.shared_on(node);
                let large_pages = left.min(own & !(addr::PAGES_PER_LARGE - 1));
                left -= large_pages;
                VmMemory {
                    node,
                    large_pages,
                    private_pages: own - large_pages,
                    shared_pages: on_node - own,
                    replica_pages: counts.replicas_on(node),
                    table_pages: inner.tables.get(node.index()).map_or(0, NodeTable::pages),
                    // Where they lie is not counted: on the nodes of those who touched first.
                    monitor_pages: if node == NodeId(0) { counts.table_pages() } else { 0 },
                    ..VmMemory::default()
                }
            })
            .collect()
    }
}

fn file_gfn(vcpu: addr::VcpuIndex) -> Gfn {
    GuestPhysAddr::new(::platform::map::IMSIC.base + u64::from(vcpu.0) * BASE_PAGE).gfn()
}
