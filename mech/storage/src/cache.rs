//! The cached blocks of one machine disk.

use addr::{Mfn, NodeId};
use alloc::vec::Vec;
use scarce::NoMemory;

use crate::contract::PageStore;
use crate::index::{BlockIndex, RANGE_BLOCKS};

/// Blocks that one call to make room looks at: keeps it short with a large cache.
const MAX_SCAN: u32 = 1_024;

/// Block number to machine page, with the clock algorithm to choose which to give up.
///
/// Invariants: `pages` is the number of slots, `on_nodes` counts them by their pages' nodes; a loading or pinned slot is never given up.
#[derive(Debug)]
pub struct Cache {
    index: BlockIndex<Slot>,
    pages: u64,
    on_nodes: Vec<u64>,
    limit: u64,
    /// The clock's hand: the block at which the next scan begins.
    hand: u64,
}

/// A block's page.
#[derive(Clone, Copy, Debug)]
struct Slot {
    page: Mfn,
    /// The page's.
    node: NodeId,
    /// Requests that were woken for this block and have not looked yet.
    pins: u16,
    is_loading: bool,
    /// Used since the hand came by.
    is_referenced: bool,
}

/// What a look at a block finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// It is here.
    Present(Mfn),
    /// It is being read.
    Loading,
    /// It is neither.
    Absent,
}

impl Cache {
    pub const fn new(limit: u64) -> Self {
        Self { index: BlockIndex::new(), pages: 0, on_nodes: Vec::new(), limit, hand: 0 }
    }

    /// Pages held, loading ones included.
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// Pages held in memory of `node`.
    pub fn pages_on(&self, node: NodeId) -> u64 {
        self.on_nodes.get(node.index()).copied().unwrap_or(0)
    }

    pub const fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Pages that may be added.
    pub const fn room(&self) -> u64 {
        self.limit.saturating_sub(self.pages)
    }

    /// Looks a block up because somebody needs it.
    #[inline]
    pub fn touch(&mut self, block: u64) -> Lookup {
        match self.index.get_mut(block) {
            Some(slot) if slot.is_loading => Lookup::Loading,
            Some(slot) => {
                slot.is_referenced = true;
                Lookup::Present(slot.page)
            }
            None => Lookup::Absent,
        }
    }

    /// Looks a block up without consequences.
    pub fn peek(&self, block: u64) -> Lookup {
        match self.index.get(block) {
            Some(slot) if slot.is_loading => Lookup::Loading,
            Some(slot) => Lookup::Present(slot.page),
            None => Lookup::Absent,
        }
    }

    /// Makes room for saying something of `block`.
    ///
    /// # Errors
    /// [`NoMemory`].
    #[track_caller]
    pub fn reach(&mut self, block: u64) -> Result<(), NoMemory> {
        self.index.reach(block)
    }

    /// `page`, of `node`, is being filled with `block`. Returns the page that was there.
    pub fn insert_loading(&mut self, block: u64, page: Mfn, node: NodeId) -> Option<Mfn> {
        self.put(block, Slot { page, node, pins: 0, is_loading: true, is_referenced: false })
    }

    /// `page`, of `node`, holds `block` now, in the place of another page if there was one: that one is returned.
    pub fn replace(&mut self, block: u64, page: Mfn, node: NodeId) -> Option<Mfn> {
        let pins = self.index.get(block).map_or(0, |slot| slot.pins);
        self.put(block, Slot { page, node, pins, is_loading: false, is_referenced: true })
    }

    fn put(&mut self, block: u64, slot: Slot) -> Option<Mfn> {
        if self.on_nodes.len() <= slot.node.index() {
            // Bounded: nodes of the machine.
            self.on_nodes.resize(slot.node.index() + 1, 0);
        }
        self.on_nodes[slot.node.index()] += 1;
        self.pages += 1;
        let before = self.index.insert(block, slot)?;
        Some(self.without(before))
    }

    /// The page of a slot that is not in the index any more.
    fn without(&mut self, slot: Slot) -> Mfn {
        self.on_nodes[slot.node.index()] -= 1;
        self.pages -= 1;
        slot.page
    }

    /// Reading `block` has ended well.
    pub fn loaded(&mut self, block: u64) {
        if let Some(slot) = self.index.get_mut(block) {
            slot.is_loading = false;
        }
    }

    /// Forgets `block`; its page is returned.
    pub fn remove(&mut self, block: u64) -> Option<Mfn> {
        let slot = self.index.remove(block)?;
        Some(self.without(slot))
    }

    /// Keeps `block` until [`Cache::unpin`].
    pub fn pin(&mut self, block: u64) {
        if let Some(slot) = self.index.get_mut(block) {
            slot.pins = slot.pins.saturating_add(1);
        }
    }

    /// Takes a pin back. After a failed read or write the slot may be another than the pinned one; a pin lost this
    /// way costs a second read at worst.
    pub fn unpin(&mut self, block: u64) {
        if let Some(slot) = self.index.get_mut(block) {
            slot.pins = slot.pins.saturating_sub(1);
        }
    }

    /// Gives up to `wanted` pages that no guest maps back, those first that were not used since the hand came by. Returns
    /// how many: at least one if any may go.
    pub fn reclaim(&mut self, wanted: u64, pages: &dyn PageStore) -> u64 {
        self.give_up(wanted, pages, &mut Scan::default())
    }

    /// Makes room for up to `wanted` more pages. The same, but if guests map all that the hand comes by, the cache lets go
    /// of one of those: memory is not gained by it.
    pub fn make_room(&mut self, wanted: u64, pages: &dyn PageStore) -> u64 {
        let mut scan = Scan::default();
        let freed = self.give_up(wanted, pages, &mut scan);
        match scan.mapped.filter(|_| freed == 0).and_then(|block| self.remove(block)) {
            Some(page) => {
                pages.free(page);
                1
            }
            None => freed,
        }
    }

    fn give_up(&mut self, wanted: u64, pages: &dyn PageStore, scan: &mut Scan) -> u64 {
        let mut freed = 0;
        while freed < wanted {
            let victim = self.next_victim(scan, pages);
            let Some(victim) = victim.or(scan.fallback.take_if(|_| freed == 0)) else { break };
            if let Some(page) = self.remove(victim) {
                pages.free(page);
                freed += 1;
            }
        }
        freed
    }

    /// Moves the hand to the next block that may go; clears the marks on the way.
    fn next_victim(&mut self, scan: &mut Scan, pages: &dyn PageStore) -> Option<u64> {
        while scan.looked_at < MAX_SCAN && self.pages > 0 {
            scan.looked_at += 1;
            let Some(mut range) = self.index.range_from(self.hand) else {
                self.hand = 0;
                continue;
            };
            let Some((block, slot)) = range.next().map(|(block, slot)| (block, *slot)) else {
                // The rest of this range is empty.
                self.hand = (self.hand / RANGE_BLOCKS + 1) * RANGE_BLOCKS;
                continue;
            };
            self.hand = block + 1;
            if slot.is_loading || slot.pins > 0 {
                continue;
            }
            if pages.is_mapped(slot.page) {
                scan.mapped.get_or_insert(block);
                continue;
            }
            if !slot.is_referenced {
                return Some(block);
            }
            scan.fallback.get_or_insert(block);
            drop(range);
            if let Some(slot) = self.index.get_mut(block) {
                slot.is_referenced = false;
            }
        }
        None
    }
}

/// One call's walk around the clock.
#[derive(Default)]
struct Scan {
    looked_at: u32,
    /// The first block that may go but was used lately.
    fallback: Option<u64>,
    /// The first block that guests map.
    mapped: Option<u64>,
}
