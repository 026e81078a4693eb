//! A hart's TLB and its page walker.
//!
//! One TLB for instructions and data, fully associative, with entries of each page size. The walker has two smaller maps:
//! tables that it has found (of both stages; those of a guest by machine address, so that a hit saves the G-stage walk as
//! well), and translations of the G-stage. The TLB forgets its oldest entry, the walker what it used least recently.

use alloc::vec::Vec;

use crate::TlbShape;
use crate::entry::{Entry, index};
use crate::fifo::FifoMap;
use crate::lru::LruMap;
use crate::space::{Context, Owner, Space, SpaceId, Spaces};

/// Direct-mapped recent translations, so that the map is asked seldom. Holds only what the TLB holds.
const RECENT: usize = 64;
/// No key has this value.
const NONE: u64 = u64::MAX;
/// Bits of an address that tags keep: Sv57's, its sign, and those of Sv57x4.
const ADDR_MASK: u64 = (1 << 59) - 1;

/// Reach of a translation: the smaller of its two stages' leaves. 4 KiB, 2 MiB and 1 GiB; larger leaves count as 1 GiB.
pub const SIZES: u32 = 3;

/// A translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaf {
    /// Machine address of what was asked for.
    pub addr: u64,
    /// Its reach, below [`SIZES`].
    pub size: u32,
    /// Whether it serves every ASID.
    is_global: bool,
}

/// A translation that the TLB no longer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone {
    /// First virtual address, without what exceeds the tags.
    pub virt: u64,
    /// First machine address.
    pub addr: u64,
    /// Its reach.
    pub size: u32,
}

/// Which translations a fence is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// Those of a VM, or those without virtualization.
    pub vmid: Option<u16>,
    /// Only those of this ASID; global ones stay then.
    pub asid: Option<u16>,
    /// Only those of the page of this address.
    pub addr: Option<u64>,
    /// The G-stage's too: everything of the VM (`HFENCE.GVMA`).
    pub is_guest_stage: bool,
}

/// TLB and walker's cache of one hart.
#[derive(Debug)]
pub struct Tlb {
    entries: FifoMap,
    walk: LruMap,
    guest: LruMap,
    recent: Vec<(u64, u64)>,
    /// Whether entries of a size have been put in since the last flush of all.
    has_size: [bool; SIZES as usize],
    has_guest_size: [bool; SIZES as usize],
}

impl Tlb {
    /// An empty TLB; `shape` is one that [`crate::Config::check`] accepts.
    pub fn new(shape: TlbShape) -> Self {
        Self {
            entries: FifoMap::new(shape.entries),
            walk: LruMap::new(shape.walk_entries),
            guest: LruMap::new(shape.guest_entries),
            recent: alloc::vec![(NONE, 0); RECENT],
            has_size: [false; SIZES as usize],
            has_guest_size: [false; SIZES as usize],
        }
    }

    /// The machine address of `addr` if the TLB holds it.
    #[inline]
    pub fn lookup(&mut self, context: &Context, addr: u64) -> Option<u64> {
        let page = key(context.space, 0, addr);
        let recent = self.recent[page as usize % RECENT];
        if recent.0 == page {
            return Some(recent.1 | addr & 0xfff);
        }
        let found = self.search(context, addr)?;
        self.recent[page as usize % RECENT] = (page, found & !0xfff);
        Some(found)
    }

    fn search(&self, context: &Context, addr: u64) -> Option<u64> {
        for size in (0..SIZES).filter(|size| self.has_size[*size as usize]) {
            for space in [context.space, context.global] {
                if let Some(start) = self.entries.get(key(space, size, addr)) {
                    return Some(start | addr & mask(size));
                }
            }
        }
        None
    }

    /// After a miss: walks the tables, whose entries `read` gives, and holds the translation. `None` if there is none.
    /// Also tells what had to leave for it.
    pub fn walk(
        &mut self,
        context: &Context,
        addr: u64,
        read: &mut impl FnMut(u64) -> u64,
    ) -> Option<(u64, Option<Gone>)> {
        let leaf = self.first_stage(context, addr & ADDR_MASK, read)?;
        let space = if leaf.is_global { context.global } else { context.space };
        self.has_size[leaf.size as usize] = true;
        let gone = self.entries.insert(key(space, leaf.size, addr), leaf.addr & !mask(leaf.size));
        let gone = gone.map(|(key, start)| Gone { virt: key_addr(key), addr: start, size: key_size(key) });
        if let Some(gone) = gone {
            self.forget_recent(&gone);
        }
        Some((leaf.addr, gone))
    }

    /// Forgets translations.
    pub fn flush(&mut self, spaces: &Spaces, fence: &Fence) {
        let is_hit = |key: u64, addr: Option<u64>| {
            let Some(space) = spaces.get(key_space(key)) else { return false };
            let covers = addr.is_none_or(|addr| key_addr(key) == (addr & ADDR_MASK) & !mask(key_size(key)));
            covers && fence.is_about(space)
        };
        // The address of a G-stage fence is a guest's, and translations are tagged with virtual ones.
        let addr = if fence.is_guest_stage { None } else { fence.addr };
        self.entries.retain(|key| !is_hit(key, addr));
        // Tables are few: all that belong to these spaces go.
        let stays = |key: u64| {
            let Some(space) = spaces.get(key_space(key & !GUEST_STAGE)) else { return false };
            space.vmid != fence.vmid || (key & GUEST_STAGE != 0 && !fence.is_guest_stage)
        };
        self.walk.retain(stays);
        self.guest.retain(stays);
        self.recent.fill((NONE, 0));
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.walk.clear();
        self.guest.clear();
        self.recent.fill((NONE, 0));
        self.has_size = [false; SIZES as usize];
        self.has_guest_size = [false; SIZES as usize];
    }

    fn first_stage(&mut self, context: &Context, addr: u64, read: &mut impl FnMut(u64) -> u64) -> Option<Leaf> {
        let levels = context.first.levels;
        if levels == 0 {
            return self.guest_stage(context, addr, read);
        }
        let known = (1..=levels).find_map(|level| Some((level, self.walk.get(table_key(context.space, level, addr))?)));
        let (mut level, mut table) = match known {
            Some(known) => known,
            None => (levels, self.root(context, addr, read)?),
        };
        loop {
            let entry = Entry::decode(read(table + index(addr, level, 511) * 8))?;
            if entry.is_leaf {
                let guest = self.guest_stage(context, entry.target(addr, level), read)?;
                let is_global = entry.is_global;
                return Some(Leaf { size: guest.size.min(level - 1).min(SIZES - 1), is_global, ..guest });
            }
            level = level.checked_sub(1).filter(|level| *level > 0)?;
            table = self.guest_stage(context, entry.addr, read)?.addr;
            self.remember(table_key(context.space, level, addr), table);
        }
    }

    /// The machine address of the root table.
    fn root(&mut self, context: &Context, addr: u64, read: &mut impl FnMut(u64) -> u64) -> Option<u64> {
        let table = self.guest_stage(context, context.first.addr, read)?.addr;
        if context.guest.levels != 0 {
            self.remember(table_key(context.space, context.first.levels, addr), table);
        }
        Some(table)
    }

    /// Translates a guest's physical address; one of the host's is what it is.
    fn guest_stage(&mut self, context: &Context, addr: u64, read: &mut impl FnMut(u64) -> u64) -> Option<Leaf> {
        let levels = context.guest.levels;
        if levels == 0 {
            return Some(Leaf { addr, size: SIZES - 1, is_global: false });
        }
        for size in (0..SIZES).filter(|size| self.has_guest_size[*size as usize]) {
            if let Some(start) = self.guest.get(GUEST_STAGE | key(context.global, size, addr)) {
                return Some(Leaf { addr: start | addr & mask(size), size, is_global: false });
            }
        }
        let guest_key = |level| GUEST_STAGE | table_key(context.global, level, addr);
        let known = (1..levels).find_map(|level| Some((level, self.walk.get(guest_key(level))?)));
        let (mut level, mut table) = known.unwrap_or((levels, context.guest.addr));
        loop {
            // The root of the G-stage is four tables side by side.
            let last = if level == levels { 2047 } else { 511 };
            let entry = Entry::decode(read(table + index(addr, level, last) * 8))?;
            if entry.is_leaf {
                let (size, target) = ((level - 1).min(SIZES - 1), entry.target(addr, level));
                self.has_guest_size[size as usize] = true;
                self.guest.insert(GUEST_STAGE | key(context.global, size, addr), target & !mask(size));
                return Some(Leaf { addr: target, size, is_global: false });
            }
            level = level.checked_sub(1).filter(|level| *level > 0)?;
            table = entry.addr;
            self.remember(guest_key(level), table);
        }
    }

    fn remember(&mut self, key: u64, value: u64) {
        self.walk.insert(key, value);
    }

    fn forget_recent(&mut self, gone: &Gone) {
        if gone.size == 0 {
            self.recent[(gone.virt >> 12) as usize % RECENT] = (NONE, 0);
        } else {
            self.recent.fill((NONE, 0));
        }
    }
}

impl Fence {
    fn is_about(&self, space: Space) -> bool {
        let is_asid = self.asid.is_none_or(|asid| space.owner == Owner::Asid(asid));
        space.vmid == self.vmid && (is_asid || self.is_guest_stage)
    }
}

// A tag: bit 63 the stage, 12 bits the space, 3 bits the kind, 47 bits the page or table number.
const GUEST_STAGE: u64 = 1 << 63;
const SPACE_SHIFT: u32 = 51;
const KIND_SHIFT: u32 = 48;

/// Bytes that a size reaches, less one.
pub const fn mask(size: u32) -> u64 {
    (1 << (12 + 9 * size)) - 1
}

/// Tag of a translation.
fn key(space: SpaceId, size: u32, addr: u64) -> u64 {
    let page = (addr & ADDR_MASK) >> (12 + 9 * size);
    u64::from(space) << SPACE_SHIFT | u64::from(size) << KIND_SHIFT | page
}

/// Tag of the table that has the entries of `level` for `addr`.
fn table_key(space: SpaceId, level: u32, addr: u64) -> u64 {
    let table = (addr & ADDR_MASK) >> (12 + 9 * level);
    u64::from(space) << SPACE_SHIFT | u64::from(SIZES - 1 + level) << KIND_SHIFT | table
}

fn key_space(key: u64) -> SpaceId {
    (key >> SPACE_SHIFT & 0xfff) as SpaceId
}

fn key_size(key: u64) -> u32 {
    (key >> KIND_SHIFT & 7) as u32
}

fn key_addr(key: u64) -> u64 {
    (key & ((1 << KIND_SHIFT) - 1)) << (12 + 9 * key_size(key))
}
