//! Machine memory for host tests.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::RefCell;

use addr::{BASE_PAGE, MachineAddr, Mfn, NodeId};

use crate::{Frames, MachineMemory, MemMapEntry, MemMapPlan, NodeRegion};

const WORDS: usize = BASE_PAGE as usize / 8;
/// What memory holds that nobody has written: not zero, so that a page handed out uncleaned is noticed.
pub const GARBAGE: u64 = 0xdead_beef_dead_beef;

/// Sparse machine memory.
///
/// # Panics
/// Every access outside the regions given, or misaligned, panics: the code under test lost its way.
#[derive(Debug, Default)]
pub struct FakeMemory {
    regions: Vec<NodeRegion>,
    pages: RefCell<BTreeMap<u64, Box<[u64; WORDS]>>>,
}

impl FakeMemory {
    /// Memory in these regions, full of [`GARBAGE`].
    #[must_use]
    pub fn new(regions: &[NodeRegion]) -> Self {
        Self { regions: regions.to_vec(), pages: RefCell::default() }
    }

    /// Whether all of the page is zero.
    #[must_use]
    pub fn is_zero(&self, mfn: Mfn) -> bool {
        self.with_page(mfn, |page| page.iter().all(|word| *word == 0))
    }

    /// Makes the page's contents garbage again.
    pub fn soil(&self, mfn: Mfn) {
        self.with_page(mfn, |page| page.fill(GARBAGE));
    }

    fn with_page<T>(&self, mfn: Mfn, act: impl FnOnce(&mut [u64; WORDS]) -> T) -> T {
        let exists = |r: &NodeRegion| mfn >= r.start && mfn.raw() - r.start.raw() < r.pages;
        assert!(self.regions.iter().any(exists), "{mfn:?} is no memory");
        let mut pages = self.pages.borrow_mut();
        act(pages.entry(mfn.raw()).or_insert_with(|| Box::new([GARBAGE; WORDS])))
    }
}

impl MachineMemory for FakeMemory {
    fn read_u64(&self, addr: MachineAddr) -> u64 {
        assert_eq!(addr.raw() % 8, 0, "{addr:?} is misaligned");
        self.with_page(addr.mfn(), |page| page[addr.page_offset() as usize / 8])
    }

    fn write_u64(&self, addr: MachineAddr, value: u64) {
        assert_eq!(addr.raw() % 8, 0, "{addr:?} is misaligned");
        self.with_page(addr.mfn(), |page| page[addr.page_offset() as usize / 8] = value);
    }

    fn zero_pages(&self, first: Mfn, pages: u64) {
        for page in 0..pages {
            self.with_page(Mfn::new(first.raw() + page), |page| page.fill(0));
        }
    }

    fn copy_page(&self, from: Mfn, to: Mfn) {
        let contents = self.with_page(from, |page| *page);
        self.with_page(to, |page| *page = contents);
    }
}

/// Memory and an allocator that owns all of it; the rows are leaked.
///
/// # Panics
/// If the regions contradict each other.
#[must_use]
pub fn machine(regions: &[NodeRegion]) -> (FakeMemory, Frames) {
    let plan = MemMapPlan::new(regions).expect("sane regions");
    let rows = |pages: u64| (0..pages).map(|_| MemMapEntry::new()).collect::<Vec<_>>().leak();
    let frames = Frames::new(plan.build(|span| rows(span.pages)).expect("enough rows"));
    for region in regions {
        frames.donate(region.start, region.pages).expect("fresh pages");
    }
    (FakeMemory::new(regions), frames)
}

/// A small machine: node `n` has `megabytes[n]` MiB from `0x8000_0000 + n * 1 GiB`.
#[must_use]
pub fn small_machine(megabytes: &[u64]) -> (FakeMemory, Frames) {
    let region = |(n, mib): (usize, &u64)| NodeRegion {
        node: NodeId(n as u8),
        start: Mfn::new(0x8_0000 + n as u64 * 0x4_0000),
        pages: mib * 256,
    };
    machine(&megabytes.iter().enumerate().map(region).collect::<Vec<_>>())
}
