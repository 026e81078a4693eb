//! Random operations on a table, in all modes, against a map of leaves by guest page.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use crate::{Installed, NodeTable, TableError};
use addr::{Gfn, Mfn, NodeId, PAGES_PER_LARGE, PageSize, SpuId, VmId};
use frames::testing::{FakeMemory, small_machine};
use frames::{DyingList, Frames, PendingShootdown, Pool};
use proptest::prelude::*;
use rv_pte::{Mode, PteFlags};
use tlb::ShootdownTracker;

const NODES: [NodeId; 1] = [NodeId(0)];
const MODES: [Mode; 3] = [Mode::Sv39x4, Mode::Sv48x4, Mode::Sv57x4];

fn pool<'a>(frames: &'a Frames, memory: &'a FakeMemory) -> Pool<'a, FakeMemory> {
    Pool { frames, memory, nodes: &NODES, vm: VmId(1), spu: SpuId(0) }
}

/// What is mapped: per guest page its machine page, its rights, and whether a large leaf does it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model(BTreeMap<u64, (u64, PteFlags, bool)>);

impl Model {
    fn of(table: &NodeTable, memory: &FakeMemory) -> Self {
        let mut found = Self::default();
        table.for_each_leaf(memory, |leaf| {
            assert_eq!(table.lookup(memory, leaf.gfn), Some(leaf));
            found.set(leaf.gfn.raw(), leaf.mfn.raw(), leaf.size, leaf.rights);
        });
        found
    }

    fn set(&mut self, gfn: u64, mfn: u64, size: PageSize, rights: PteFlags) {
        for page in 0..size.base_pages() {
            self.0.insert(gfn + page, (mfn + page, rights, size == PageSize::Large));
        }
    }

    fn block(&self, gfn: u64) -> impl Iterator<Item = (&u64, &(u64, PteFlags, bool))> {
        let first = gfn / PAGES_PER_LARGE * PAGES_PER_LARGE;
        self.0.range(first..first + PAGES_PER_LARGE)
    }

    fn is_large(&self, gfn: u64) -> bool {
        self.0.get(&gfn).is_some_and(|leaf| leaf.2)
    }

    fn split(&mut self, gfn: u64) {
        let first = gfn / PAGES_PER_LARGE * PAGES_PER_LARGE;
        self.0.range_mut(first..first + PAGES_PER_LARGE).for_each(|(_, leaf)| leaf.2 = false);
    }

    /// Every leaf that the range touches: its guest pages, large leaves whole.
    fn touched(&self, start: u64, pages: u64) -> Vec<u64> {
        let touches = |gfn: u64, large: bool| {
            let first = if large { gfn / PAGES_PER_LARGE * PAGES_PER_LARGE } else { gfn };
            let last = if large { first + PAGES_PER_LARGE } else { first + 1 };
            first < start + pages && start < last
        };
        self.0.iter().filter(|(gfn, leaf)| touches(**gfn, leaf.2)).map(|(gfn, _)| *gfn).collect()
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// A leaf that maps the guest page to the one of `shift` blocks further.
    Install {
        gfn: u64,
        shift: u64,
        size: PageSize,
        rights: PteFlags,
    },
    Remove {
        start: u64,
        pages: u64,
    },
    Weaken {
        start: u64,
        pages: u64,
        rights: PteFlags,
    },
    Split {
        gfn: u64,
    },
    Collapse {
        gfn: u64,
        shift: u64,
        rights: PteFlags,
    },
    Exchange {
        gfn: u64,
        shift: u64,
        rights: PteFlags,
        make: bool,
    },
    /// All single pages of a block, as a fault after the other would.
    FillBlock {
        gfn: u64,
        rights: PteFlags,
    },
}

/// Six blocks of guest pages in two corners of the address space.
fn gfn() -> impl Strategy<Value = u64> {
    let page = prop_oneof![Just(0u64), Just(511), 0u64..512];
    (0u64..6, page).prop_map(|(block, page)| (if block < 3 { 0x80000 } else { 0x1f_0000 }) + block * 512 + page)
}

fn rights() -> impl Strategy<Value = PteFlags> {
    prop::sample::select(vec![PteFlags::RWX, PteFlags::RWX, PteFlags::RX, PteFlags::RW])
}

fn op() -> impl Strategy<Value = Op> {
    let size = prop::sample::select(vec![PageSize::Base, PageSize::Base, PageSize::Large]);
    let pages = prop_oneof![Just(1u64), Just(512), 0u64..1400];
    prop_oneof![
        4 => (gfn(), 0u64..2, size, rights())
            .prop_map(|(gfn, shift, size, rights)| Op::Install { gfn, shift, size, rights }),
        1 => (gfn(), pages.clone()).prop_map(|(start, pages)| Op::Remove { start, pages }),
        1 => (gfn(), pages, rights()).prop_map(|(start, pages, rights)| Op::Weaken { start, pages, rights }),
        1 => gfn().prop_map(|gfn| Op::Split { gfn }),
        2 => (gfn(), 0u64..2, rights()).prop_map(|(gfn, shift, rights)| Op::Collapse { gfn, shift, rights }),
        2 => (gfn(), 0u64..3, rights(), any::<bool>())
            .prop_map(|(gfn, shift, rights, make)| Op::Exchange { gfn, shift, rights, make }),
        2 => (gfn(), rights()).prop_map(|(gfn, rights)| Op::FillBlock { gfn, rights }),
    ]
}

struct Bench<'a> {
    pool: &'a Pool<'a, FakeMemory>,
    table: NodeTable,
    model: Model,
    dying: DyingList,
}

impl Bench<'_> {
    fn install(&mut self, gfn: u64, mfn: u64, size: PageSize, rights: PteFlags) {
        let is_large = size == PageSize::Large;
        let (gfn, mfn) = if is_large { (gfn & !511, mfn & !511) } else { (gfn, mfn) };
        let got = self.table.install(self.pool, Gfn::new(gfn), Mfn::new(mfn), size, rights);
        let before = self.model.0.get(&gfn).copied();
        if is_large && self.model.block(gfn).any(|(_, leaf)| !leaf.2) {
            assert_eq!(got, Err(TableError::HasTable { gfn: Gfn::new(gfn) }));
            return;
        }
        if is_large && before.is_none() && got == Err(TableError::HasTable { gfn: Gfn::new(gfn) }) {
            return; // An empty table, left from earlier.
        }
        if !is_large && self.model.is_large(gfn) {
            // The large leaf is split whatever comes of the rest.
            self.model.split(gfn);
        }
        match before {
            None => {
                assert_eq!(got, Ok(Installed::New));
                self.model.set(gfn, mfn, size, rights);
            }
            Some((old, had, _)) if old == mfn && had == rights => assert_eq!(got, Ok(Installed::Same)),
            Some((old, had, _)) if old == mfn && rights.contains(had) => {
                assert_eq!(got, Ok(Installed::Strengthened));
                self.model.set(gfn, mfn, size, rights);
            }
            Some(_) => assert_eq!(got, Err(TableError::Occupied { gfn: Gfn::new(gfn) })),
        }
    }

    fn change(&mut self, start: u64, pages: u64, rights: Option<PteFlags>) {
        let start_page = Gfn::new(start);
        let touched = self.model.touched(start, pages);
        let before = self.model.clone();
        let got = match rights {
            None => self.table.remove(self.pool.memory, start_page, pages),
            Some(rights) => {
                let mut quick = || self.table.weaken_quickly(self.pool.memory, start_page, rights).map(u64::from);
                let quick = if pages == 1 { quick() } else { None };
                quick.unwrap_or_else(|| self.table.weaken(self.pool.memory, start_page, pages, rights))
            }
        };
        for gfn in &touched {
            let leaf = self.model.0.get_mut(gfn).unwrap();
            leaf.1 &= rights.unwrap_or(PteFlags::empty());
            if !leaf.1.contains(PteFlags::R) {
                self.model.0.remove(gfn);
            }
        }
        let differs = |gfn: &&u64| before.0.get(gfn) != self.model.0.get(gfn);
        let leaf_of = |gfn: &u64| if before.is_large(*gfn) { gfn & !511 } else { *gfn };
        let changed: alloc::collections::BTreeSet<u64> = touched.iter().filter(differs).map(leaf_of).collect();
        assert_eq!(got, changed.len() as u64);
    }

    fn collapse(&mut self, gfn: u64, mfn: u64, rights: PteFlags) {
        let (gfn, mfn) = (gfn & !511, mfn & !511);
        let pages = self.table.pages();
        let had_leaf = self.model.is_large(gfn);
        let fits = self.model.block(gfn).all(|(page, leaf)| leaf.0 == mfn + (page - gfn) && rights.contains(leaf.1));
        let got = self.table.collapse(self.pool, Gfn::new(gfn), Mfn::new(mfn), rights, &mut self.dying);
        if had_leaf {
            assert_eq!(got, Ok(()));
        } else if fits {
            assert_eq!(got, Ok(()));
            // Without a table nothing is there to collapse; an empty one becomes a leaf.
            let pages_gone = pages - self.table.pages();
            assert!(pages_gone == 1 || pages_gone == 0 && self.model.block(gfn).next().is_none());
            if pages_gone == 1 {
                self.model.set(gfn, mfn, PageSize::Large, rights);
            }
        } else {
            assert!(matches!(got, Err(TableError::Occupied { .. })));
        }
    }

    fn apply(&mut self, op: &Op) {
        // Blocks of machine memory that this test only names.
        let target = |gfn: u64, shift: u64| 0x10_0000 + (gfn & 0xffff) + shift * 0x10_0000;
        match *op {
            Op::Install { gfn, shift, size, rights } => self.install(gfn, target(gfn, shift), size, rights),
            Op::Remove { start, pages } => self.change(start, pages, None),
            Op::Weaken { start, pages, rights } => self.change(start, pages, Some(rights)),
            Op::Split { gfn } => {
                self.table.split(self.pool, Gfn::new(gfn)).unwrap();
                if self.model.is_large(gfn) {
                    self.model.split(gfn);
                }
            }
            Op::Collapse { gfn, shift, rights } => self.collapse(gfn, target(gfn, shift), rights),
            Op::Exchange { gfn, shift, rights, make } => {
                let mfn = target(gfn, shift);
                let quick = if make {
                    self.table.exchange_quickly(self.pool.memory, Gfn::new(gfn), Mfn::new(mfn), rights)
                } else {
                    self.table.exchange_if_there(self.pool.memory, Gfn::new(gfn), Mfn::new(mfn), rights)
                };
                let got = match quick {
                    Some(changed) => Ok(changed),
                    None => self.table.exchange(self.pool, Gfn::new(gfn), Mfn::new(mfn), rights, make),
                };
                if self.model.is_large(gfn) {
                    self.model.split(gfn);
                }
                let before = self.model.0.get(&gfn).copied();
                let after = (mfn, rights, false);
                if make || before.is_some() {
                    self.model.0.insert(gfn, after);
                }
                assert_eq!(got, Ok(before.is_some_and(|before| before != after)));
            }
            Op::FillBlock { gfn, rights } => {
                (gfn & !511..(gfn & !511) + 512).for_each(|page| {
                    self.install(page, target(page, 0), PageSize::Base, rights);
                });
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn tables_agree_with_a_map(ops in prop::collection::vec(op(), 1..40)) {
        for mode in MODES {
            let (memory, frames) = small_machine(&[4]);
            let free = frames.counts(NodeId(0));
            let pool = pool(&frames, &memory);
            let table = NodeTable::new(&pool, mode).unwrap();
            let mut bench = Bench { pool: &pool, table, model: Model::default(), dying: DyingList::new() };
            for op in &ops {
                bench.apply(op);
                let found = Model::of(&bench.table, &memory);
                prop_assert!(found == bench.model, "after {op:?}");
            }
            let Bench { table, mut dying, .. } = bench;
            let pages = table.pages();
            let before = dying.pages();
            let mut rest = table.dismantle();
            let most = 7 * ops.len() as u64;
            let mut taken = 0;
            while rest.step(&pool, &mut dying, most).unwrap() {
                let now = dying.pages() - before;
                prop_assert!(now - taken <= most, "{} pages in a step of {most}", now - taken);
                prop_assert_eq!(now + rest.pages(), pages);
                taken = now;
            }
            prop_assert_eq!(dying.pages() - before, pages, "it counts its pages");
            let tracker = ShootdownTracker::new(1);
            PendingShootdown::new(tracker.retire(), dying).redeem(&tracker).unwrap().free_all(&frames, &memory);
            prop_assert_eq!(frames.counts(NodeId(0)), free, "no page is lost");
        }
    }
}

#[test]
fn a_full_machine_refuses_and_changes_nothing() {
    let (memory, frames) = small_machine(&[1]);
    let pool = pool(&frames, &memory);
    let mut table = NodeTable::new(&pool, Mode::Sv48x4).unwrap();
    let hoard: Vec<_> = core::iter::from_fn(|| pool.table()).collect();
    let (gfn, mfn) = (Gfn::new(0x80000), Mfn::new(0x8_0000));
    assert_eq!(table.install(&pool, gfn, mfn, PageSize::Base, PteFlags::RWX), Err(TableError::OutOfTables));
    assert_eq!(table.lookup(&memory, gfn), None);
    hoard.into_iter().for_each(|page| frames.free(page));
    assert_eq!(table.install(&pool, gfn, mfn, PageSize::Base, PteFlags::RWX), Ok(Installed::New));
}

#[test]
fn what_hardware_could_not_walk_is_refused() {
    let (memory, frames) = small_machine(&[1]);
    let pool = pool(&frames, &memory);
    let mut table = NodeTable::new(&pool, Mode::Sv39x4).unwrap();
    let mfn = Mfn::new(0x8_0001);
    let beyond = Gfn::new(1 << 29);
    assert_eq!(
        table.install(&pool, beyond, mfn, PageSize::Base, PteFlags::RWX),
        Err(TableError::OutOfRange { gfn: beyond })
    );
    let gfn = Gfn::new(0x80000);
    assert_eq!(table.install(&pool, gfn, mfn, PageSize::Large, PteFlags::RWX), Err(TableError::BadLeaf { mfn }));
    assert_eq!(table.install(&pool, gfn, mfn, PageSize::Base, PteFlags::W), Err(TableError::BadLeaf { mfn }));
    assert_eq!(table.remove(&memory, beyond, u64::MAX >> 12), 0);
    assert_eq!(table.hgatp().map(|word| word >> 60), Ok(8));
}
