//! Pages that move and have copies, at random, against what the guest has written.

use std::collections::BTreeMap;

use addr::{Gfn, MachineAddr, Mfn, NodeId, PAGES_PER_LARGE, PageSize, SpuId, VmId};
use frames::testing::{FakeMemory, small_machine};
use frames::{DyingList, Frames, MachineMemory, PageUse, PendingShootdown, Pool};
use pmap::{PageState, Pmap, Refused, Rights, StateKind};
use proptest::prelude::*;
use tlb::ShootdownTracker;

const VM: VmId = VmId(5);
const BASE: u64 = 0x80000;
/// Two blocks; the operations meet on a few pages of each.
const PAGES: u64 = 2 * PAGES_PER_LARGE;
const NODES: u8 = 3;
/// Memory of each node. Two blocks of the guest, one to move to, and one for single pages would do, were it not that pages which
/// come back one by one may be used again before their block is whole.
const MIB: [u64; NODES as usize] = [16; NODES as usize];

#[derive(Clone, Copy, Debug)]
enum Op {
    Touch { page: u64, node: u8, large: bool },
    Watch { page: u64 },
    Write { page: u64 },
    Migrate { page: u64, node: u8 },
    MigrateBlock { page: u64, node: u8 },
    Replicate { page: u64, node: u8 },
    ReplicateBlock { page: u64, node: u8 },
    Join { page: u64 },
    Spread { page: u64, node: u8 },
    Sweep,
    Retire,
    Collapse { page: u64 },
    Share { page: u64 },
    Split { page: u64 },
    Pin { page: u64 },
    Release { page: u64, pages: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    let page = || prop_oneof![Just(0u64), Just(1), Just(2), Just(512), Just(513)];
    let node = || 0..NODES;
    prop_oneof![
        3 => (page(), node(), any::<bool>()).prop_map(|(page, node, large)| Op::Touch { page, node, large }),
        4 => page().prop_map(|page| Op::Watch { page }),
        3 => page().prop_map(|page| Op::Write { page }),
        3 => (page(), node()).prop_map(|(page, node)| Op::Migrate { page, node }),
        1 => (page(), node()).prop_map(|(page, node)| Op::MigrateBlock { page, node }),
        6 => (page(), node()).prop_map(|(page, node)| Op::Replicate { page, node }),
        2 => (page(), node()).prop_map(|(page, node)| Op::ReplicateBlock { page, node }),
        2 => page().prop_map(|page| Op::Join { page }),
        2 => (page(), node()).prop_map(|(page, node)| Op::Spread { page, node }),
        1 => Just(Op::Sweep),
        1 => Just(Op::Retire),
        1 => page().prop_map(|page| Op::Collapse { page }),
        1 => page().prop_map(|page| Op::Share { page }),
        2 => page().prop_map(|page| Op::Split { page }),
        1 => page().prop_map(|page| Op::Pin { page }),
        1 => (page(), prop_oneof![Just(1u64), Just(512)]).prop_map(|(page, pages)| Op::Release { page, pages }),
    ]
}

struct Bench<'a> {
    frames: &'a Frames,
    memory: &'a FakeMemory,
    pmap: Pmap,
    /// What the guest sees in the first word of each page that it has.
    seen: BTreeMap<u64, u64>,
    /// A page of the disk cache, and what is in it.
    cached: Mfn,
    writes: u64,
}

impl<'a> Bench<'a> {
    fn pool<'n>(&self, nodes: &'n [NodeId]) -> Pool<'n, FakeMemory>
    where
        'a: 'n,
    {
        Pool { frames: self.frames, memory: self.memory, nodes, vm: VM, spu: SpuId(0) }
    }

    fn state(&self, gfn: Gfn) -> PageState {
        self.pmap.lookup(self.memory, gfn).expect("it is RAM").state
    }

    fn size(&self, gfn: Gfn) -> PageSize {
        self.pmap.lookup(self.memory, gfn).expect("it is RAM").size
    }

    /// The shootdowns of these operations end at once: when they may is for `explore.rs`.
    fn end(&self, dying: DyingList) {
        let tracker = ShootdownTracker::new(1);
        let pending = PendingShootdown::new(tracker.retire(), dying);
        pending.redeem(&tracker).expect("nobody runs").free_all(self.frames, self.memory);
    }

    fn touch(&mut self, gfn: Gfn, node: u8, large: bool) {
        if !matches!(self.state(gfn), PageState::Absent) {
            return;
        }
        let nodes = [NodeId(node)];
        let pool = self.pool(&nodes);
        if large && self.pmap.can_be_large(gfn) {
            let frame = pool.guest_page(PageSize::Large, gfn.large_base()).expect("there is memory");
            self.pmap.populate_large(self.frames, gfn, frame).expect("the block is absent");
            let first = gfn.large_base().raw();
            self.seen.extend((first..first + PAGES_PER_LARGE).map(|page| (page, 0)));
        } else {
            let frame = pool.guest_page(PageSize::Base, gfn).expect("there is memory");
            self.pmap.populate_base(&pool, gfn, frame).expect("the page is absent");
            self.seen.insert(gfn.raw(), 0);
        }
    }

    /// What a write fault does, and the write.
    fn write(&mut self, gfn: Gfn) {
        let nodes = [NodeId(0)];
        let pool = self.pool(&nodes);
        let mut dying = DyingList::new();
        match self.state(gfn) {
            PageState::Absent => return,
            PageState::Replicated { .. } => {
                self.pmap.collapse_replicas(&pool, gfn, &mut dying).expect("it has replicas");
            }
            PageState::Shared { .. } => {
                self.pmap.break_sharing(&pool, gfn, &mut dying, || pool.page_to_fill(gfn)).expect("there is memory");
            }
            _ => {}
        }
        self.end(dying);
        let is_done = Self::is_quick(gfn) && self.pmap.note_write_quickly(self.memory, gfn).is_some();
        if !is_done {
            self.pmap.note_write(&pool, gfn).expect("it is RAM");
        }
        let mapping = self.pmap.lookup(self.memory, gfn).expect("it is RAM");
        assert_eq!(mapping.rights(), Rights::ReadWrite, "{:?}", mapping.state);
        self.writes += 1;
        let page = mapping.machine_page(gfn).expect("it is backed");
        self.memory.write_u64(page.addr(), self.writes);
        self.seen.insert(gfn.raw(), self.writes);
    }

    /// Every second page is tried the quick way first, which does the same or nothing.
    const fn is_quick(gfn: Gfn) -> bool {
        gfn.raw().is_multiple_of(2)
    }

    fn migrate(&mut self, gfn: Gfn, node: u8) {
        let nodes = [NodeId(node)];
        let pool = self.pool(&nodes);
        let before = self.state(gfn);
        let may =
            matches!(before, PageState::Private { pins: 0, watched: true, .. }) && self.size(gfn) == PageSize::Base;
        let mut dying = DyingList::new();
        if Self::is_quick(gfn) {
            // It stays where it is there already.
            let home = before.mfn().and_then(|page| self.frames.map().node_of(page));
            let may = may && home != Some(NodeId(node));
            let row = |page| self.frames.map().entry(page).expect("it is memory");
            let old = before.mfn().map(|page| row(page).history());
            let moved = self.pmap.migrate_quickly(&pool, gfn, &mut dying, |(moves, _)| (moves.wrapping_add(1), 77));
            assert_eq!(moved.is_some(), may, "{before:?}");
            if let (Some(to), Some((moves, _))) = (moved, old) {
                assert_eq!(self.state(gfn).mfn(), Some(to), "{before:?}");
                assert_eq!(row(to).history(), (moves.wrapping_add(1), 77), "what is known of the page goes with it");
            }
        } else {
            let moved = self.pmap.migrate(&pool, gfn, pool.page_to_fill(gfn).expect("there is memory"), &mut dying);
            assert_eq!(moved.is_ok(), may, "{before:?}: {moved:?}");
        }
        self.end(dying);
        if may {
            let page = self.state(gfn).mfn().expect("it is backed");
            assert_eq!(self.frames.map().node_of(page), Some(NodeId(node)));
            assert!(matches!(self.state(gfn), PageState::Private { watched: true, .. }), "not to be written yet");
        }
    }

    fn migrate_block(&mut self, gfn: Gfn, node: u8) {
        let nodes = [NodeId(node)];
        let pool = self.pool(&nodes);
        let before = self.state(gfn);
        let is_large = self.size(gfn) == PageSize::Large && before != PageState::Absent;
        let may = matches!(before, PageState::Private { pins: 0, watched: true, .. }) && is_large;
        let mut block = pool.block_to_fill(gfn).expect("there is memory");
        if let Some(source) = before.mfn().filter(|_| is_large) {
            for at in (0..PAGES_PER_LARGE).step_by(100) {
                block.fill_some(self.memory, source, at, 100);
            }
        }
        let block = block.overwritten(PageSize::Large.bytes()).expect("all of it was");
        let mut dying = DyingList::new();
        let moved = self.pmap.migrate_large(self.frames, gfn, block, &mut dying);
        self.end(dying);
        assert_eq!(moved.is_ok(), may, "{before:?}");
        match moved {
            Ok(_) => {
                assert_eq!(self.state(gfn).mfn().and_then(|page| self.frames.map().node_of(page)), Some(NodeId(node)))
            }
            Err(refused) => self.frames.free(refused.frame),
        }
    }

    fn replicate(&mut self, gfn: Gfn, node: u8) {
        let nodes = [NodeId(node)];
        let pool = self.pool(&nodes);
        let before = self.state(gfn);
        let home = before.mfn().and_then(|page| self.frames.map().node_of(page));
        let has_none = self.size(gfn) == PageSize::Base
            && match before {
                PageState::Private { pins, watched, .. } => pins == 0 && watched,
                PageState::Replicated { nodes, .. } => nodes & 1 << node == 0,
                _ => false,
            };
        let may = has_none && home != Some(NodeId(node));
        if Self::is_quick(gfn) {
            let master = self.pmap.master_for_copy(&pool, gfn);
            assert_eq!(master, before.mfn().filter(|_| has_none), "{before:?} to {node}");
            let history = || before.mfn().and_then(|page| self.frames.map().entry(page)).map(|row| row.history());
            let old = history();
            let tried = |(moves, _): (u8, u16)| (moves.wrapping_add(1), 78);
            let copy = pool.replica_to_fill(gfn).expect("there is memory");
            let from = before.mfn().unwrap_or(copy.mfn());
            let copy = copy.copy_from(self.memory, from).expect("it is memory");
            let other = copy.mfn();
            let refused = self.pmap.replicate_quickly(&pool, gfn, (other, copy), tried);
            let copy = refused.expect_err("it is not what the page is a copy of");
            match self.pmap.replicate_quickly(&pool, gfn, (from, copy), tried) {
                Ok(copy) => {
                    assert!(may, "{before:?} to {node}");
                    let own = self.pmap.own_page_for(self.frames, self.memory, gfn, NodeId(node));
                    assert!(own.is_some_and(|(_, seen, _)| seen == copy), "{own:?}");
                }
                Err(copy) => {
                    assert!(!may, "{before:?} to {node}");
                    self.frames.free(copy);
                }
            }
            let is_first = may && matches!(before, PageState::Private { .. });
            let new = old.map(|(moves, tick)| if is_first { (moves.wrapping_add(1), 78) } else { (moves, tick) });
            assert_eq!(history(), new, "the first copy was a try");
            return;
        }
        let got = self.pmap.replicate(&pool, gfn, pool.replica_to_fill(gfn).expect("there is memory"));
        assert_eq!(got.is_ok(), may, "{before:?} to {node}: {got:?}");
    }

    /// A block that is watched as a whole gets a copy as a whole, page by page.
    fn replicate_block(&mut self, gfn: Gfn, node: u8) {
        let nodes = [NodeId(node)];
        let pool = self.pool(&nodes);
        let gfn = gfn.large_base();
        let PageState::Private { mfn: source, pins: 0, watched: true } = self.state(gfn) else { return };
        if self.size(gfn) == PageSize::Base {
            return;
        }
        let block = pool.replica_block_to_fill(gfn).expect("there is memory");
        let block = block.copy_from(self.memory, source).expect("it is memory");
        self.pmap.split(&pool, gfn).expect("there is memory");
        let is_home = self.frames.map().node_of(source) == Some(NodeId(node));
        for (index, page) in (0..).zip(self.frames.split_frame(block)) {
            let (gfn, master) = (Gfn::new(gfn.raw() + index), Mfn::new(source.raw() + index));
            match self.pmap.replicate_quickly(&pool, gfn, (master, page), |history| history) {
                Ok(_) => assert!(!is_home),
                Err(page) => {
                    assert!(is_home, "{gfn:?}");
                    self.frames.free(page);
                }
            }
        }
    }

    /// What was split is put together where that can be.
    fn join(&mut self, gfn: Gfn) {
        let nodes = [NodeId(0)];
        let pool = self.pool(&nodes);
        let gfn = gfn.large_base();
        if !self.pmap.is_one_block(self.memory, gfn) {
            return;
        }
        for page in (gfn.raw()..gfn.raw() + PAGES_PER_LARGE).map(Gfn::new) {
            let _ = self.pmap.note_write_quickly(self.memory, page);
        }
        let joined = self.pmap.collapse(&pool, gfn).expect("its pages are those of one block, and none is watched");
        assert_eq!(joined.rights(), Rights::ReadWrite);
    }

    /// The shared page gets a copy for all who have it.
    fn spread(&mut self, gfn: Gfn, node: u8) {
        let PageState::Shared { mfn, .. } = self.state(gfn) else { return };
        let frame = self.frames.alloc(NodeId(node), 0, PageUse::Shared).expect("there is memory");
        let copy = frame.copy_from(self.memory, mfn).expect("it is memory");
        let home = self.frames.map().node_of(mfn);
        let may = home != Some(NodeId(node)) && self.frames.spread_on(mfn, NodeId(node)).is_none();
        match self.frames.attach_spread(mfn, copy) {
            Ok(_) => assert!(may),
            Err((why, copy)) => {
                assert!(!may, "{why}");
                self.frames.free(copy);
            }
        }
    }

    fn apply(&mut self, op: Op) {
        let nodes = [NodeId(0)];
        let pool = self.pool(&nodes);
        let at = |page: u64| Gfn::new(BASE + page);
        match op {
            Op::Touch { page, node, large } => self.touch(at(page), node, large),
            Op::Watch { page } => {
                let may = matches!(self.state(at(page)), PageState::Private { .. });
                let sole = matches!(self.state(at(page)), PageState::Private { pins: 0, .. });
                let is_sole = sole && self.size(at(page)) == PageSize::Base;
                let page_before = self.state(at(page)).mfn().filter(|_| is_sole);
                assert_eq!(self.pmap.sole_page(self.memory, at(page)), page_before);
                if Self::is_quick(at(page)) {
                    assert_eq!(self.pmap.watch_quickly(self.memory, at(page)), page_before);
                }
                let watched = match self.size(at(page)) {
                    PageSize::Base => self.pmap.watch(&pool, at(page)),
                    PageSize::Large => self.pmap.watch_large(&pool, at(page)),
                };
                assert_eq!(watched.is_ok(), may);
            }
            Op::Write { page } => self.write(at(page)),
            Op::Migrate { page, node } => self.migrate(at(page), node),
            Op::MigrateBlock { page, node } => self.migrate_block(at(page), node),
            Op::Replicate { page, node } => self.replicate(at(page), node),
            Op::ReplicateBlock { page, node } => self.replicate_block(at(page), node),
            Op::Join { page } => self.join(at(page)),
            Op::Spread { page, node } => self.spread(at(page), node),
            Op::Sweep => {
                self.frames.sweep_spread(1);
            }
            Op::Retire => {
                self.frames.retire_spread(1).free(self.frames);
            }
            Op::Collapse { page } => {
                let mut dying = DyingList::new();
                let may = matches!(self.state(at(page)), PageState::Replicated { .. });
                assert_eq!(self.pmap.collapse_replicas(&pool, at(page), &mut dying).is_ok(), may);
                self.end(dying);
            }
            Op::Share { page } => {
                let mut dying = DyingList::new();
                if self.pmap.map_shared(&pool, at(page), self.cached, &mut dying).is_ok() {
                    self.seen.insert(BASE + page, u64::MAX);
                }
                self.end(dying);
            }
            Op::Split { page } => self.pmap.split(&pool, at(page)).expect("there is memory"),
            Op::Pin { page } => {
                // A device's glance: it lets go again.
                if self.pmap.pin(&pool, at(page), true).is_ok() {
                    let refused = self.pmap.replicate(&pool, at(page), pool.replica_to_fill(at(page)).expect("memory"));
                    assert!(refused.is_err());
                    self.pmap.pin(&pool, at(page), false).expect("it is pinned");
                }
            }
            Op::Release { page, pages } => {
                let mut dying = DyingList::new();
                let done = self.pmap.release(&pool, at(page), pages, &mut dying).expect("there is memory");
                self.end(dying);
                let end = done.next.map_or(at(page).raw() + pages, Gfn::raw);
                self.seen.retain(|gfn, _| *gfn < at(page).raw() || *gfn >= end);
            }
        }
    }

    fn check(&self) {
        let (mut replicated, mut copies) = (Vec::new(), [0; NODES as usize]);
        for gfn in (BASE..BASE + PAGES).map(Gfn::new) {
            let mapping = self.pmap.lookup(self.memory, gfn).expect("it is RAM");
            assert_eq!(mapping.is_absent(), !self.seen.contains_key(&gfn.raw()), "{gfn:?}");
            let Some(want) = self.seen.get(&gfn.raw()) else { continue };
            for node in (0..NODES).map(NodeId) {
                let first = self.pmap.page_for(self.frames, &mapping, node).expect("it is backed");
                let page = Mfn::new(first.raw() + gfn.raw() - mapping.gfn.raw());
                let word = self.memory.read_u64(MachineAddr::new(page.addr().raw()));
                assert_eq!(word, *want, "{gfn:?} on {node:?}: {:?}", mapping.state);
                let is_copy = Some(page) != mapping.machine_page(gfn);
                assert!(!is_copy || self.frames.map().node_of(page) == Some(node), "a copy of another node");
                copies[node.index()] += u64::from(is_copy && mapping.state.kind() != StateKind::Shared);
                let owner = self.frames.map().info(page).and_then(|info| info.owner);
                let is_its = owner.is_some_and(|owner| owner.vm == VM && owner.gfn == gfn);
                assert!(is_its || mapping.state.kind() == StateKind::Shared, "{gfn:?} is not found from {page:?}");
            }
            replicated.extend(Some(gfn).filter(|_| mapping.state.kind() == StateKind::Replicated));
        }
        assert_eq!(self.pmap.replicated_pages(), replicated.len() as u64);
        let next = |from: Gfn| self.pmap.next_replicated(self.memory, from);
        let found = std::iter::successors(next(Gfn::new(0)), |gfn| next(Gfn::new(gfn.raw() + 1)));
        assert_eq!(found.collect::<Vec<_>>(), replicated);
        for node in (0..NODES).map(NodeId) {
            assert_eq!(self.pmap.counts().replicas_on(node), copies[node.index()]);
        }
        assert_eq!(self.frames.vm_pages(self.memory, VM).replicas, copies.iter().sum::<u64>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn pages_keep_their_contents_wherever_they_are(ops in prop::collection::vec(op(), 1..60)) {
        let (memory, frames) = small_machine(&MIB);
        let cached = frames.alloc(NodeId(0), 0, PageUse::Shared).expect("there is memory").settle();
        memory.write_u64(cached.addr(), u64::MAX);
        let all: Vec<_> = (0..NODES).map(|node| frames.counts(NodeId(node))).collect();
        let pmap = Pmap::new(VM, Gfn::new(BASE), PAGES).expect("a sane range");
        let mut bench = Bench { frames: &frames, memory: &memory, pmap, seen: BTreeMap::new(), cached, writes: 0 };
        for op in ops {
            bench.apply(op);
            bench.check();
        }
        for page in [0, 512] {
            bench.apply(Op::Release { page, pages: 512 });
        }
        bench.check();
        // What nobody maps any more keeps no copies.
        frames.sweep_spread(usize::MAX);
        prop_assert_eq!(frames.spread_pages(), 0);
        prop_assert!(frames.is_held_alone(cached));
        prop_assert!(frames.vm_pages(&memory, VM).is_empty());
        // A page of links for back-maps may stay for the next ones.
        let links = frames.counts(NodeId(0)).get(frames::PageState::Monitor);
        prop_assert!(links <= 1, "{} pages of the monitor's own are left", links);
        for node in (0..NODES).map(NodeId) {
            let free = frames.counts(node).get(frames::PageState::Free) + if node == NodeId(0) { links } else { 0 };
            prop_assert_eq!(free, all[node.index()].get(frames::PageState::Free), "no page is lost, tables included");
        }
    }
}

#[test]
fn a_copy_beside_the_master_is_refused() {
    let (memory, frames) = small_machine(&[4, 4]);
    let nodes = [NodeId(0)];
    let pool = Pool { frames: &frames, memory: &memory, nodes: &nodes, vm: VM, spu: SpuId(0) };
    let gfn = Gfn::new(BASE + 3);
    let mut pmap = Pmap::new(VM, Gfn::new(BASE), PAGES).unwrap();
    pmap.populate_base(&pool, gfn, pool.guest_page(PageSize::Base, gfn).unwrap()).unwrap();
    pmap.watch(&pool, gfn).unwrap();
    let free = frames.counts(NodeId(0));
    let refused = pmap.replicate(&pool, gfn, pool.replica_to_fill(gfn).unwrap());
    assert_eq!(refused, Err(pmap::PmapError::Refused(Refused::BadNode)));
    assert_eq!(frames.counts(NodeId(0)), free, "the copy is back");
}

/// A page that was offered to others, and that a disk read takes the place of before anybody has come: nobody else knows it, so it is
/// free when its shootdown has ended.
#[test]
fn an_offered_page_that_nobody_took_is_freed_once() {
    let (memory, frames) = small_machine(&[8]);
    let pool = Pool { frames: &frames, memory: &memory, nodes: &[NodeId(0)], vm: VM, spu: SpuId(0) };
    let mut pmap = Pmap::new(VM, Gfn::new(BASE), PAGES).unwrap();
    let block = pool.frames.alloc_page(NodeId(0), PageUse::Shared).unwrap().settle();
    let gfn = Gfn::new(BASE);
    let page = pool.guest_page(PageSize::Base, gfn).unwrap();
    pmap.populate_base(&pool, gfn, page).map_err(|refused| frames.free(refused.frame)).unwrap();
    let offered = pmap.share(&pool, gfn).unwrap();
    let mut dying = DyingList::new();
    assert_eq!(pmap.share_quickly(&pool, gfn, block, &mut dying), pmap::Swap::Done);
    let tracker = ShootdownTracker::new(1);
    let freeable = PendingShootdown::new(tracker.retire(), dying).redeem(&tracker).expect("nobody is inside");
    assert_eq!(freeable.free_all(&frames, &memory), 1);
    assert_eq!(frames.map().info(offered).unwrap().state, frames::PageState::Free);
}
