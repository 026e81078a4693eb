//! Random operations on a pmap against a map from guest pages to machine pages.

use std::collections::BTreeMap;

use addr::{Gfn, Mfn, NodeId, PAGES_PER_LARGE, PageSize, SpuId, VmId};
use frames::testing::{FakeMemory, small_machine};
use frames::{DyingList, Frames, PageOwner, PageUse, PendingShootdown, Pool};
use pmap::{Glance, LeafChange, PageState, Pmap, PmapError, Rights, StateKind, Swap};
use proptest::prelude::*;
use tlb::ShootdownTracker;

const NODES: [NodeId; 2] = [NodeId(1), NodeId(0)];
const VM: VmId = VmId(5);
/// Three whole blocks, and parts of one before and one behind.
const BASE: u64 = 0x80000 - 100;
const PAGES: u64 = 100 + 3 * PAGES_PER_LARGE + 37;

#[derive(Clone, Debug)]
enum Op {
    /// What a fault does.
    Touch {
        page: u64,
        large: bool,
    },
    /// Touches all single pages of a block that has a table.
    Fill {
        page: u64,
    },
    Split {
        page: u64,
    },
    Collapse {
        page: u64,
    },
    Release {
        page: u64,
        pages: u64,
    },
    Pin {
        page: u64,
        on: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let page = || prop_oneof![0..PAGES, Just(0), Just(100), Just(PAGES - 1), Just(PAGES)];
    let pages = prop_oneof![Just(1u64), Just(1), Just(512), 0u64..1200];
    prop_oneof![
        5 => (page(), any::<bool>()).prop_map(|(page, large)| Op::Touch { page, large }),
        2 => page().prop_map(|page| Op::Fill { page }),
        2 => page().prop_map(|page| Op::Split { page }),
        3 => page().prop_map(|page| Op::Collapse { page }),
        3 => (page(), pages).prop_map(|(page, pages)| Op::Release { page, pages }),
        1 => (page(), any::<bool>()).prop_map(|(page, on)| Op::Pin { page, on }),
    ]
}

struct Bench<'a> {
    pool: Pool<'a, FakeMemory>,
    pmap: Pmap,
    /// Guest page -> machine page, pins.
    model: BTreeMap<u64, (u64, u8)>,
    /// Blocks, by their first guest page, that one large page backs.
    large: Vec<u64>,
}

fn block(gfn: u64) -> u64 {
    gfn / PAGES_PER_LARGE * PAGES_PER_LARGE
}

impl Bench<'_> {
    fn is_whole(gfn: u64) -> bool {
        block(gfn) >= BASE && block(gfn) + PAGES_PER_LARGE <= BASE + PAGES
    }

    fn is_large(&self, gfn: u64) -> bool {
        self.large.contains(&block(gfn))
    }

    fn of_block(&self, gfn: u64) -> Vec<(u64, (u64, u8))> {
        self.model.range(block(gfn)..block(gfn) + PAGES_PER_LARGE).map(|(gfn, page)| (*gfn, *page)).collect()
    }

    fn touch(&mut self, gfn: u64, large: bool) {
        let at = Gfn::new(gfn);
        if gfn >= BASE + PAGES {
            assert_eq!(self.pmap.glance(self.pool.memory, at), Glance::Other);
            assert_eq!(self.pmap.populate_vacant(&self.pool, at), None);
            return;
        }
        if self.model.contains_key(&gfn) {
            assert_eq!(self.pmap.populate_vacant(&self.pool, at), None);
            return;
        }
        if self.pmap.glance(self.pool.memory, at) == Glance::Vacant {
            let (page, is_full) = self.pmap.populate_vacant(&self.pool, at).expect("there is memory");
            assert!(self.pool.memory.is_zero(page));
            self.model.insert(gfn, (page.raw(), 0));
            assert_eq!(is_full, self.of_block(gfn).len() as u64 == PAGES_PER_LARGE);
            return;
        }
        assert!(self.of_block(gfn).is_empty(), "a block with pages has a table");
        assert_eq!(self.pmap.can_be_large(at), Self::is_whole(gfn));
        if large && Self::is_whole(gfn) {
            let frame = self.pool.guest_page(PageSize::Large, at.large_base()).expect("there is memory");
            let first = frame.mfn().raw();
            self.pmap.populate_large(self.pool.frames, at, frame).expect("the block is absent");
            self.model.extend((0..PAGES_PER_LARGE).map(|page| (block(gfn) + page, (first + page, 0))));
            self.large.push(block(gfn));
        } else {
            let frame = self.pool.guest_page(PageSize::Base, at).expect("there is memory");
            let page = frame.mfn().raw();
            self.pmap.populate_base(&self.pool, at, frame).expect("the page is absent");
            self.model.insert(gfn, (page, 0));
        }
    }

    fn collapse(&mut self, gfn: u64) {
        let pages = self.of_block(gfn);
        let is_run = pages.len() as u64 == PAGES_PER_LARGE
            && pages[0].1.0.is_multiple_of(PAGES_PER_LARGE)
            && pages.iter().all(|(at, page)| *page == (pages[0].1.0 + at - pages[0].0, 0));
        let got = self.pmap.collapse(&self.pool, Gfn::new(gfn));
        if gfn >= BASE + PAGES {
            assert!(matches!(got, Err(PmapError::NotRam { .. })));
        } else if is_run && !self.is_large(gfn) {
            assert_eq!(got.map(|mapping| mapping.size), Ok(PageSize::Large));
            self.large.push(block(gfn));
        } else {
            assert!(matches!(got, Err(PmapError::NotLarge { .. })), "{got:?}");
        }
    }

    fn release(&mut self, start: u64, pages: u64) {
        let end = start.saturating_add(pages).min(BASE + PAGES);
        let mut next = Some(Gfn::new(start));
        let (mut released, mut pinned) = (0, 0);
        while let Some(at) = next {
            let mut dying = DyingList::new();
            let left = end.saturating_sub(at.raw());
            let done = self.pmap.release(&self.pool, at, left, &mut dying).expect("there is memory");
            released += done.pages;
            pinned += done.pinned;
            next = done.next;
            free(self.pool.frames, self.pool.memory, dying);
        }
        let touched: Vec<u64> =
            if start < end { self.model.range(start..end).map(|(gfn, _)| *gfn).collect() } else { vec![] };
        for gfn in &touched {
            // What is covered in part is split.
            let whole = block(*gfn) >= start && block(*gfn) + PAGES_PER_LARGE <= end;
            if self.is_large(*gfn) && !whole {
                self.large.retain(|at| *at != block(*gfn));
            }
        }
        let before = self.model.len() as u64;
        self.model.retain(|gfn, page| page.1 != 0 || !touched.contains(gfn));
        self.large.retain(|at| self.model.contains_key(at));
        assert_eq!(released, before - self.model.len() as u64);
        assert_eq!(pinned, touched.len() as u64 - released);
    }

    fn pin(&mut self, gfn: u64, on: bool) {
        let got = self.pmap.pin(&self.pool, Gfn::new(gfn), on);
        let can = self.model.get(&gfn).is_some_and(|page| on || page.1 > 0);
        assert_eq!(got.is_ok(), can, "{got:?}");
        let pages = if self.is_large(gfn) { block(gfn)..block(gfn) + PAGES_PER_LARGE } else { gfn..gfn + 1 };
        if can {
            let change = |pins: u8| if on { pins + 1 } else { pins - 1 };
            self.model.range_mut(pages).for_each(|(_, page)| page.1 = change(page.1));
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Touch { page, large } => self.touch(BASE + page, large),
            Op::Fill { page } => {
                let first = block(BASE + page);
                (first.max(BASE)..(first + PAGES_PER_LARGE).min(BASE + PAGES)).for_each(|gfn| self.touch(gfn, false));
            }
            Op::Split { page } => {
                let got = self.pmap.split(&self.pool, Gfn::new(BASE + page));
                assert_eq!(got.is_ok(), page < PAGES);
                self.large.retain(|at| *at != block(BASE + page));
            }
            Op::Collapse { page } => self.collapse(BASE + page),
            Op::Release { page, pages } => self.release(BASE + page, pages),
            Op::Pin { page, on } => self.pin(BASE + page, on),
        }
    }

    fn check(&mut self) {
        let memory = self.pool.memory;
        let mut seen = BTreeMap::new();
        self.pmap.for_each(memory, |mapping| {
            assert_eq!(mapping.rights(), Rights::ReadWrite);
            assert_eq!(mapping.size == PageSize::Large, self.is_large(mapping.gfn.raw()));
            for page in 0..mapping.size.base_pages() {
                let gfn = Gfn::new(mapping.gfn.raw() + page);
                let mfn = mapping.machine_page(gfn).expect("it is in use");
                let info = self.pool.frames.map().info(mfn).expect("it is memory");
                assert_eq!(info.owner.map(|owner| (owner.vm, owner.gfn)), Some((VM, gfn)), "the back-map");
                let left = if mapping.size == PageSize::Large { PAGES_PER_LARGE - page } else { 1 };
                assert_eq!(self.pmap.private_run(memory, gfn), Some((mfn, left)));
                seen.insert(gfn.raw(), mfn.raw());
            }
        });
        let wanted: BTreeMap<u64, u64> = self.model.iter().map(|(gfn, page)| (*gfn, page.0)).collect();
        assert!(seen == wanted, "pmap and model differ");
        // Twice: what was found first is remembered, and nothing that has changed may be.
        for gfn in (BASE..BASE + PAGES).step_by(3).chain(BASE..BASE + PAGES).chain([BASE, BASE]) {
            let page = self.pmap.private_page(memory, Gfn::new(gfn)).map(Mfn::raw);
            assert_eq!(page, wanted.get(&gfn).copied());
        }
        let counts = self.pmap.counts();
        assert_eq!(counts.of(StateKind::Private), wanted.len() as u64);
        assert_eq!(counts.of(StateKind::Absent), PAGES - wanted.len() as u64);
        assert_eq!(counts.on(NodeId(0)) + counts.on(NodeId(1)), wanted.len() as u64);
        assert_eq!(counts.large_blocks(), self.large.len() as u64);
    }
}

fn free(frames: &Frames, memory: &FakeMemory, dying: DyingList) {
    let tracker = ShootdownTracker::new(1);
    let pending = PendingShootdown::new(tracker.retire(), dying);
    pending.redeem(&tracker).expect("nobody runs").free_all(frames, memory);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_pmap_agrees_with_a_map(ops in prop::collection::vec(op(), 1..40)) {
        // The nearer node is full soon.
        let (memory, frames) = small_machine(&[16, 3]);
        let all: Vec<_> = NODES.iter().map(|node| frames.counts(*node)).collect();
        let pool = Pool { frames: &frames, memory: &memory, nodes: &NODES, vm: VM, spu: SpuId(0) };
        let pmap = Pmap::new(VM, Gfn::new(BASE), PAGES).expect("a sane range");
        let mut bench = Bench { pool, pmap, model: BTreeMap::new(), large: Vec::new() };
        for op in &ops {
            bench.apply(op);
            bench.check();
        }
        for (gfn, (_, pins)) in bench.model.clone() {
            let block_is_done = bench.is_large(gfn) && gfn != block(gfn);
            (0..if block_is_done { 0 } else { pins }).for_each(|_| bench.pin(gfn, false));
        }
        bench.release(BASE, PAGES);
        bench.check();
        let left: Vec<_> = NODES.iter().map(|node| frames.counts(*node)).collect();
        prop_assert_eq!(left, all, "no page is lost, tables included");
        prop_assert!(frames.vm_pages(&memory, VM).is_empty());
    }
}

#[test]
fn a_page_given_back_and_taken_again_makes_the_block_whole() {
    let (memory, frames) = small_machine(&[8]);
    let pool = Pool { frames: &frames, memory: &memory, nodes: &[NodeId(0)], vm: VM, spu: SpuId(0) };
    let first = Gfn::new(0x80000);
    let mut pmap = Pmap::new(VM, first, 1024).unwrap();
    let frame = pool.guest_page(PageSize::Large, first).unwrap();
    let mapping = pmap.populate_large(&frames, first, frame).unwrap();
    let hole = Gfn::new(0x80007);
    let mut dying = DyingList::new();
    assert_eq!(pmap.release(&pool, hole, 1, &mut dying).unwrap().pages, 1);
    free(&frames, &memory, dying);
    assert_eq!(pmap.collapse(&pool, first), Err(PmapError::NotLarge { gfn: first }));
    let same = Mfn::new(mapping.state.mfn().unwrap().raw() + 7);
    // The page went on top of the node's stack, and comes from there.
    assert_eq!(pmap.populate_vacant(&pool, hole), Some((same, true)));
    assert_eq!(pmap.collapse(&pool, hole), Ok(mapping));
    assert_eq!((pmap.counts().large_blocks(), pmap.counts().table_pages()), (1, 0));
}

/// The quick way to share does what the other one does: page by page, private and shared ones, with the same counts.
#[test]
fn sharing_quickly_is_sharing() {
    let (memory, frames) = small_machine(&[4, 4]);
    let pool = Pool { frames: &frames, memory: &memory, nodes: &NODES, vm: VM, spu: SpuId(0) };
    let first = Gfn::new(0x80000);
    let mut pmap = Pmap::new(VM, first, 1024).unwrap();
    let frame = pool.guest_page(PageSize::Large, first).unwrap();
    pmap.populate_large(&frames, first, frame).unwrap();
    let cached = [0, 1, 1].map(|node| frames.alloc(NodeId(node), 0, PageUse::Shared).unwrap().settle());
    let mut dying = DyingList::new();
    // A large page, an absent one, one that is not RAM: the other way.
    for gfn in [0x80001, 0x80300, 0x80400] {
        assert_eq!(pmap.share_quickly(&pool, Gfn::new(gfn), cached[0], &mut dying), Swap::Other);
    }
    pmap.map_shared(&pool, Gfn::new(0x80001), cached[0], &mut dying).unwrap();
    for (gfn, page, want) in [
        (0x80001, cached[0], Swap::Same),
        (0x80001, cached[1], Swap::Done),
        (0x80002, cached[1], Swap::Done),
        (0x80002, cached[2], Swap::Done),
        (0x80003, cached[0], Swap::Done),
    ] {
        assert_eq!(pmap.share_quickly(&pool, Gfn::new(gfn), page, &mut dying), want);
        assert_eq!(pmap.lookup(&memory, Gfn::new(gfn)).unwrap().state, PageState::Shared { mfn: page, pins: 0 });
        assert_eq!(pmap.private_page(&memory, Gfn::new(gfn)), None);
    }
    pmap.pin(&pool, Gfn::new(0x80004), true).unwrap();
    assert_eq!(pmap.share_quickly(&pool, Gfn::new(0x80004), cached[0], &mut dying), Swap::Other);
    pmap.pin(&pool, Gfn::new(0x80004), false).unwrap();
    let counts = pmap.counts();
    assert_eq!((counts.of(StateKind::Shared), counts.of(StateKind::Private)), (3, 509));
    assert_eq!(counts.shared_on(NodeId(0)) + counts.shared_on(NodeId(1)), 3);
    assert_eq!((counts.shared_on(NodeId(0)), counts.on(NodeId(0)) + counts.on(NodeId(1))), (1, 512));
    free(&frames, &memory, dying);
    assert_eq!(cached.map(|page| frames.is_held_alone(page)), [false; 3]);

    // A write: a copy that is written behind its shootdown; the last holder keeps the page.
    let mut dying = DyingList::new();
    let copied = pmap.break_sharing(&pool, Gfn::new(0x80001), &mut dying, || pool.page_to_fill(Gfn::new(0x80001)));
    assert_eq!(copied.unwrap().leaves, LeafChange::Remove);
    assert_eq!(pmap.private_page(&memory, Gfn::new(0x80001)), None);
    free(&frames, &memory, dying);
    assert_eq!(pmap.note_write(&pool, Gfn::new(0x80001)), Ok(true));
    assert!(pmap.private_page(&memory, Gfn::new(0x80001)).is_some());
    assert_eq!(frames.release_hold(cached[2]), Ok(false));
    let mut dying = DyingList::new();
    let kept = pmap.break_sharing(&pool, Gfn::new(0x80002), &mut dying, || panic!("nobody else has the page"));
    assert_eq!((kept.unwrap().leaves, dying.is_empty()), (LeafChange::Strengthen, true));
    assert_eq!(pmap.private_page(&memory, Gfn::new(0x80002)), Some(cached[2]));

    let mut dying = DyingList::new();
    let mut next = Some(first);
    while let Some(at) = next {
        next = pmap.release(&pool, at, 0x80400 - at.raw(), &mut dying).unwrap().next;
    }
    free(&frames, &memory, dying);
    assert!(frames.vm_pages(&memory, VM).is_empty());
    assert_eq!([cached[0], cached[1]].map(|page| frames.release_hold(page)), [Ok(true); 2]);
}

/// Two VMs with equal blocks: all of one's pages become the other's, as the monitor does it, and part again.
#[test]
fn equal_blocks_of_two_vms_become_one() {
    const OTHER: VmId = VmId(6);
    let (memory, frames) = small_machine(&[8, 8]);
    let pool = Pool { frames: &frames, memory: &memory, nodes: &NODES, vm: VM, spu: SpuId(0) };
    let other_pool = Pool { vm: OTHER, ..pool };
    let base = Gfn::new(0x80000);
    let block = |vm, pool: &Pool<'_, _>| {
        let mut pmap = Pmap::new(vm, base, PAGES_PER_LARGE).unwrap();
        let frame = pool.guest_page(PageSize::Large, base).unwrap();
        pmap.populate_large(&frames, base, frame).unwrap();
        pmap
    };
    let (mut original, mut copy) = (block(VM, &pool), block(OTHER, &other_pool));
    let first = original.lookup(&memory, base).unwrap().state.mfn().unwrap();
    assert_eq!(original.shared_block(&memory, base), None);

    // A large page is watched as a whole, and may be written again.
    assert_eq!(original.watch_large(&pool, base), Ok(first));
    assert_eq!(original.private_page(&memory, base), None);
    assert_eq!(original.note_write(&pool, Gfn::new(0x80007)), Ok(true));
    assert_eq!(original.private_page(&memory, base), Some(first));

    let mut dying = DyingList::new();
    for gfn in (base.raw()..base.raw() + PAGES_PER_LARGE).map(Gfn::new) {
        let page = original.share(&pool, gfn).unwrap();
        frames.hold(page, PageOwner { vm: VM, gfn }).unwrap();
        assert!(frames.hold(page, PageOwner { vm: VM, gfn }).is_ok(), "held twice is held");
        assert_eq!(frames.release_hold(page), Ok(false));
        copy.watch(&other_pool, gfn).unwrap();
        copy.map_shared(&other_pool, gfn, page, &mut dying).unwrap();
        assert_eq!(frames.release_hold(page), Ok(false));
    }
    assert!(original.watch_large(&pool, base).is_err() && copy.watch(&other_pool, base).is_err());
    free(&frames, &memory, dying);
    assert_eq!([&original, &copy].map(|pmap| pmap.shared_block(&memory, base)), [Some(first); 2]);
    let sharing = [0, 1].map(|node| frames.sharing(NodeId(node)).guest_pages);
    assert_eq!(sharing.iter().sum::<u64>(), 2 * PAGES_PER_LARGE);

    // One page of one of them is written: that block is no run any more; the last holder of the page need not copy it.
    let (at, mut dying) = (Gfn::new(0x80009), DyingList::new());
    copy.break_sharing(&other_pool, at, &mut dying, || other_pool.page_to_fill(at)).unwrap();
    free(&frames, &memory, dying);
    assert_eq!([&original, &copy].map(|pmap| pmap.shared_block(&memory, base)), [Some(first), None]);
    let mut dying = DyingList::new();
    original.break_sharing(&pool, at, &mut dying, || panic!("nobody else has the page")).unwrap();
    free(&frames, &memory, dying);

    for (mut pmap, pool, vm) in [(original, pool, VM), (copy, other_pool, OTHER)] {
        let mut dying = DyingList::new();
        let mut next = Some(base);
        while let Some(at) = next {
            next = pmap.release_some(&pool, at, PAGES_PER_LARGE, &mut dying, 64).unwrap().next;
        }
        free(&frames, &memory, dying);
        assert!(frames.vm_pages(&memory, vm).is_empty());
    }
}

#[test]
fn another_vms_pool_is_refused() {
    let (memory, frames) = small_machine(&[8]);
    let mut pmap = Pmap::new(VM, Gfn::new(0x80000), 512).unwrap();
    let own = Pool { frames: &frames, memory: &memory, nodes: &[NodeId(0)], vm: VM, spu: SpuId(0) };
    let frame = own.guest_page(PageSize::Base, Gfn::new(0x80000)).unwrap();
    pmap.populate_base(&own, Gfn::new(0x80000), frame).unwrap();
    let other = Pool { vm: VmId(6), ..own };
    assert_eq!(pmap.populate_vacant(&other, Gfn::new(0x80001)), None);
}
