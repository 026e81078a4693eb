//! A hart's TLB and its page walker.
//!
//! The caller, who can read memory, gives the page-table entries of a full walk in the order in which hardware reads
//! them; the TLB says which of these a walker with its caches really reads. In a two-dimensional walk every VS-stage
//! entry comes after the G-stage entries that translate its address, and the G-stage entries of the data come last.

use crate::TlbShape;
use crate::lru::LruSets;

/// An address space: the tags that tell translations apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// `hgatp.VMID`; `None` without virtualization.
    pub vmid: Option<u16>,
    /// ASID; `None` for global translations and for G-stage entries.
    pub asid: Option<u16>,
}

/// Reach of a translation: the smaller of its two stages' leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageSize {
    /// 4 KiB.
    Small,
    /// 2 MiB.
    Mega,
    /// 1 GiB.
    Giga,
}

/// Whose table an entry is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The only stage without virtualization, or the VS-stage.
    First,
    /// The G-stage.
    Guest,
}

/// One read of a full walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkStep {
    /// Whose table.
    pub stage: Stage,
    /// Machine address of the entry.
    pub pte_addr: u64,
    /// Whether the entry is a leaf.
    pub is_leaf: bool,
}

/// TLB and page-walk cache of one hart.
#[derive(Debug)]
pub struct Tlb {
    entries: LruSets<(Space, PageSize, u64)>,
    /// Entries that the walker remembers, by address: an address is read for one purpose only while its table lives.
    walk: LruSets<(Space, u64)>,
}

impl Tlb {
    /// An empty TLB; `shape` is one that [`crate::Config::check`] accepts.
    pub fn new(shape: TlbShape) -> Self {
        Self { entries: LruSets::new(1, shape.entries), walk: LruSets::new(1, shape.walk_entries) }
    }

    /// Whether a translation of `addr` of any size is held, for this ASID or global.
    pub fn lookup(&mut self, space: Space, addr: u64) -> bool {
        let global = Space { asid: None, ..space };
        let sizes = [PageSize::Small, PageSize::Mega, PageSize::Giga];
        let mut keys = sizes.into_iter().flat_map(|size| [(space, size), (global, size)]);
        keys.any(|(space, size)| self.entries.touch(0, (space, size, addr >> size.bits())))
    }

    /// After a miss: calls `read` for each entry that the walker reads from memory, then holds the translation.
    pub fn walk(&mut self, space: Space, addr: u64, size: PageSize, steps: &[WalkStep], mut read: impl FnMut(u64)) {
        let mut rest = &steps[self.known(space, steps, Stage::First)..];
        while let Some(first) = rest.first() {
            let run = rest.iter().take_while(|step| step.stage == first.stage).count();
            let (same, after) = rest.split_at(run);
            let from = if first.stage == Stage::Guest { self.known(space, same, Stage::Guest) } else { 0 };
            for step in &same[from..] {
                read(step.pte_addr);
                self.remember(space, step);
            }
            rest = after;
        }
        self.entries.insert(0, (space, size, addr >> size.bits()));
    }

    /// Forgets the translations of `vmid` (`HFENCE.GVMA`, `HFENCE.VVMA`, or `SFENCE.VMA` for `None`); with an ASID,
    /// only its own, global ones stay. The walk cache forgets all of the VMID.
    pub fn flush(&mut self, vmid: Option<u16>, asid: Option<u16>) {
        self.entries.retain(|(space, _, _)| space.vmid != vmid || (asid.is_some() && space.asid != asid));
        self.walk.retain(|(space, _)| space.vmid != vmid);
    }

    /// How many of `steps` need no reading, since a later entry of `stage` is remembered.
    fn known(&mut self, space: Space, steps: &[WalkStep], stage: Stage) -> usize {
        let last = steps.iter().rposition(|step| step.stage == stage && self.walk.contains(0, tag(space, step)));
        let Some(last) = last else { return 0 };
        self.walk.touch(0, tag(space, &steps[last]));
        last + 1
    }

    /// The leaf of the first stage is the TLB's business; every other entry is worth keeping.
    fn remember(&mut self, space: Space, step: &WalkStep) {
        if step.stage == Stage::Guest || !step.is_leaf {
            self.walk.insert(0, tag(space, step));
        }
    }
}

impl PageSize {
    /// Bits of the offset in the page.
    pub fn bits(self) -> u32 {
        match self {
            Self::Small => 12,
            Self::Mega => 21,
            Self::Giga => 30,
        }
    }
}

/// G-stage entries serve every address space of their VM.
fn tag(space: Space, step: &WalkStep) -> (Space, u64) {
    let asid = if step.stage == Stage::Guest { None } else { space.asid };
    (Space { asid, ..space }, step.pte_addr)
}
