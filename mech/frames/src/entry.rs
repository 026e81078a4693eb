//! One row of the memmap.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use addr::{Gfn, NodeId, SpuId, VmId};

/// What a machine page is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum PageState {
    /// A hole, broken, or not ours: never handed out. All rows start so.
    Bad = 0,
    /// In the allocator.
    Free = 1,
    /// The monitor's own, page tables of VMs included.
    Monitor = 2,
    /// Maps one guest page of one VM, which may write it.
    Private = 3,
    /// Read-only for all who map it; a write makes a private copy (Disco, "Copy-on-Write Disks").
    Shared = 4,
    /// A read-only copy of a page on another node.
    Replica = 5,
    /// Belongs to another cell's VMs for now (Cellular Disco, "Memory balancing"). Nothing lends pages yet.
    Lent = 6,
    /// Out of all tables, but some TLB may still know it.
    Dying = 7,
}

impl PageState {
    /// How many states there are.
    pub const COUNT: usize = 8;
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Bad, Self::Free, Self::Monitor, Self::Private, Self::Shared, Self::Replica, Self::Lent, Self::Dying];
}

/// What a page is taken from the allocator for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageUse {
    /// The monitor's own; `vm` says on whose behalf (page tables), if anyone's.
    Monitor {
        /// The VM that it is counted for.
        vm: Option<VmId>,
    },
    /// Guest memory: the first page backs `gfn` of `vm`, the next ones the guest pages behind it.
    Private {
        /// The VM.
        vm: VmId,
        /// Its guest page.
        gfn: Gfn,
        /// Who is charged.
        spu: SpuId,
    },
    /// A read-only copy of the page that backs `gfn` of `vm`, for the readers of another node.
    Replica {
        /// The VM.
        vm: VmId,
        /// Its guest page.
        gfn: Gfn,
        /// Who is charged.
        spu: SpuId,
    },
    /// To be shared read-only (disk cache): the taker holds the first reference, nobody maps it yet.
    Shared,
}

/// A guest page that a machine page backs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageOwner {
    /// The VM.
    pub vm: VmId,
    /// Its guest page.
    pub gfn: Gfn,
}

/// A row read out, of the block that the page asked about belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageInfo {
    /// Use.
    pub state: PageState,
    /// log2 of the block's pages.
    pub order: u8,
    /// Home node.
    pub node: NodeId,
    /// First (often only) guest page that maps it; `gfn` is that of the page asked about. For page tables `gfn` is 0.
    pub owner: Option<PageOwner>,
    /// Guest pages that map it, and holders like the disk cache.
    pub references: u32,
    /// Who is charged.
    pub spu: SpuId,
    /// How often a better place was tried for it lately ([`MemMapEntry::history`]).
    pub moves: u8,
    /// The tick that they count from.
    pub tick: u16,
}

/// One row: 24 bytes per machine page.
///
/// - `meta`: state 0..4, order 4..8, pooled 8, node 16..24, SPU 32..48; of the placement history the moves 24..32 and the
///   tick 48..64;
/// - `back`: VM 48..64, guest page 0..48; in a free block's row the previous block of its list;
/// - `link`: references 0..32, chain of further back-maps or replicas 32..64; in a free or dying block's row the next block.
///
/// Only the row of a block's first page counts; the others are stale until the block is split.
#[derive(Debug)]
pub struct MemMapEntry {
    meta: AtomicU64,
    back: AtomicU64,
    link: AtomicU64,
}

const _: () = assert!(size_of::<MemMapEntry>() == 24, "DESIGN: at most 32 bytes per page");

const ORDER_SHIFT: u32 = 4;
const POOLED: u64 = 1 << 8;
const NODE_SHIFT: u32 = 16;
const NODE_MASK: u64 = 0xff << NODE_SHIFT;
const MOVES_SHIFT: u32 = 24;
const SPU_SHIFT: u32 = 32;
const TICK_SHIFT: u32 = 48;
const STATE_AND_ORDER: u64 = 0xff;
const VM_SHIFT: u32 = 48;
const GFN_MASK: u64 = (1 << VM_SHIFT) - 1;
/// The VM field of a back-map that names nobody.
const NO_VM: u16 = u16::MAX;
/// A `back` word that names nobody.
pub(crate) const NO_OWNER: u64 = (NO_VM as u64) << VM_SHIFT;

/// The `back` word for an owner. `None` for values that do not fit (48-bit guest pages are more than Sv57x4 has).
pub(crate) const fn pack_owner(owner: PageOwner) -> Option<u64> {
    if owner.vm.0 == NO_VM || owner.gfn.raw() > GFN_MASK {
        return None;
    }
    Some((owner.vm.0 as u64) << VM_SHIFT | owner.gfn.raw())
}

pub(crate) const fn unpack_owner(back: u64) -> Option<PageOwner> {
    let vm = (back >> VM_SHIFT) as u16;
    if vm == NO_VM { None } else { Some(PageOwner { vm: VmId(vm), gfn: Gfn::new(back & GFN_MASK) }) }
}

const fn state_of(meta: u64) -> PageState {
    match meta & 0xf {
        1 => PageState::Free,
        2 => PageState::Monitor,
        3 => PageState::Private,
        4 => PageState::Shared,
        5 => PageState::Replica,
        6 => PageState::Lent,
        7 => PageState::Dying,
        _ => PageState::Bad,
    }
}

impl MemMapEntry {
    /// A row as it is before the memmap is built.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "a row only makes sense inside a memmap")]
    pub const fn new() -> Self {
        Self { meta: AtomicU64::new(0), back: AtomicU64::new(NO_OWNER), link: AtomicU64::new(0) }
    }

    /// What the page is used for.
    #[must_use]
    #[inline]
    pub fn state(&self) -> PageState {
        state_of(self.meta.load(Relaxed))
    }

    /// log2 of the pages in the block that starts here.
    #[must_use]
    #[inline]
    pub fn order(&self) -> u8 {
        (self.meta.load(Relaxed) >> ORDER_SHIFT & 0xf) as u8
    }

    /// Home node.
    #[must_use]
    #[inline]
    pub fn node(&self) -> NodeId {
        NodeId((self.meta.load(Relaxed) >> NODE_SHIFT) as u8)
    }

    pub(crate) fn reset(&self, node: NodeId) {
        self.meta.store(u64::from(node.0) << NODE_SHIFT, Relaxed);
        self.back.store(NO_OWNER, Relaxed);
        self.link.store(0, Relaxed);
    }

    /// Whether it is in `state`, in a block of this order.
    #[inline]
    pub(crate) fn is(&self, state: PageState, order: u8) -> bool {
        self.meta.load(Relaxed) & STATE_AND_ORDER == state as u64 | u64::from(order) << ORDER_SHIFT
    }

    /// Whether it is the first page of a block of this order in the buddy lists.
    #[inline]
    pub(crate) fn is_listed(&self, order: u8) -> bool {
        let want = PageState::Free as u64 | u64::from(order) << ORDER_SHIFT;
        self.meta.load(Relaxed) & (STATE_AND_ORDER | POOLED) == want
    }

    /// Free, in a buddy list, or (`pooled`) held outside of them. The node stays, all else is forgotten.
    #[inline]
    pub(crate) fn set_free(&self, order: u8, pooled: bool) {
        let node = self.meta.load(Relaxed) & NODE_MASK;
        let pooled = if pooled { POOLED } else { 0 };
        self.meta.store(node | pooled | u64::from(order) << ORDER_SHIFT | PageState::Free as u64, Relaxed);
    }

    /// Taken for a use. `back` is an owner word, `references` the first count.
    #[inline(always)]
    pub(crate) fn set_used(&self, state: PageState, order: u8, spu: SpuId, back: u64, references: u32) {
        let node = self.meta.load(Relaxed) & NODE_MASK;
        let meta = node | u64::from(spu.0) << SPU_SHIFT | u64::from(order) << ORDER_SHIFT | state as u64;
        self.meta.store(meta, Relaxed);
        self.back.store(back, Relaxed);
        self.link.store(u64::from(references), Relaxed);
    }

    #[inline]
    pub(crate) fn set_state(&self, state: PageState) {
        self.meta.store(self.meta.load(Relaxed) & !0xf | state as u64, Relaxed);
    }

    /// The rows of a whole block are one again: this is the first, the others are stale from now on.
    pub(crate) fn set_order(&self, order: u8) {
        let meta = self.meta.load(Relaxed) & !(0xf << ORDER_SHIFT);
        self.meta.store(meta | u64::from(order) << ORDER_SHIFT, Relaxed);
    }

    /// This row for page `index` of a block that is split into single pages.
    pub(crate) fn copy_for_page(&self, of: &Self, index: u64) {
        let meta = of.meta.load(Relaxed) & !(0xf << ORDER_SHIFT);
        self.meta.store(meta, Relaxed);
        self.back.store(of.back.load(Relaxed) + index, Relaxed);
        self.link.store(of.link.load(Relaxed), Relaxed);
    }

    #[inline]
    pub(crate) fn back(&self) -> u64 {
        self.back.load(Relaxed)
    }

    #[inline]
    pub(crate) fn set_back(&self, back: u64) {
        self.back.store(back, Relaxed);
    }

    /// The next block of a list that this block is in.
    #[inline(always)]
    pub(crate) fn next(&self) -> u64 {
        self.link.load(Relaxed)
    }

    #[inline]
    pub(crate) fn set_next(&self, next: u64) {
        self.link.store(next, Relaxed);
    }

    /// References and the head of the chain of further back-maps.
    pub(crate) fn references(&self) -> (u32, u32) {
        let link = self.link.load(Relaxed);
        (link as u32, (link >> 32) as u32)
    }

    pub(crate) fn set_references(&self, references: u32, chain: u32) {
        self.link.store(u64::from(references) | u64::from(chain) << 32, Relaxed);
    }

    /// Remembers what the placement policy wants to know of the page later: how often it was tried, and the tick (a coarse
    /// clock of its own) that it counts from. The page is the caller's VM's, whose lock it holds.
    #[inline]
    pub fn set_history(&self, moves: u8, tick: u16) {
        let kept = self.meta.load(Relaxed) & (((1 << MOVES_SHIFT) - 1) | (0xffff << SPU_SHIFT));
        self.meta.store(kept | u64::from(moves) << MOVES_SHIFT | u64::from(tick) << TICK_SHIFT, Relaxed);
    }

    /// What was remembered: moves and tick.
    #[must_use]
    #[inline]
    pub fn history(&self) -> (u8, u16) {
        let meta = self.meta.load(Relaxed);
        ((meta >> MOVES_SHIFT) as u8, (meta >> TICK_SHIFT) as u16)
    }

    /// The row read out, for the page `index` pages into its block.
    #[inline]
    pub(crate) fn info(&self, index: u64) -> PageInfo {
        let meta = self.meta.load(Relaxed);
        let state = state_of(meta);
        let is_used = !matches!(state, PageState::Bad | PageState::Free);
        let owner = unpack_owner(self.back()).filter(|_| is_used);
        let advance = if matches!(state, PageState::Monitor) { 0 } else { index };
        let counts = is_used && !matches!(state, PageState::Dying);
        PageInfo {
            state,
            order: (meta >> ORDER_SHIFT & 0xf) as u8,
            node: NodeId((meta >> NODE_SHIFT) as u8),
            owner: owner.map(|o| PageOwner { vm: o.vm, gfn: Gfn::new(o.gfn.raw() + advance) }),
            references: if counts { self.references().0 } else { 0 },
            spu: SpuId((meta >> SPU_SHIFT) as u16),
            moves: (meta >> MOVES_SHIFT) as u8,
            tick: (meta >> TICK_SHIFT) as u16,
        }
    }
}
