use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use addr::{Gfn, Mfn, NodeId, PageSize, SpuId, VmId};
use proptest::prelude::*;
use tlb::ShootdownTracker;

use crate::testing::{machine, small_machine};
use crate::{
    DyingList, Frame, FrameError, Frames, IdleWork, MAX_ORDER, MachineMemory, MemMapEntry, NodeRegion, PageOwner,
    PageState, PageUse, PendingShootdown, Pool, Sharing,
};

const MONITOR: PageUse = PageUse::Monitor { vm: None };
const VM: VmId = VmId(7);

fn private(gfn: u64) -> PageUse {
    PageUse::Private { vm: VM, gfn: Gfn::new(gfn), spu: SpuId(3) }
}

fn owner(gfn: u64) -> PageOwner {
    PageOwner { vm: VM, gfn: Gfn::new(gfn) }
}

fn free_list<M: MachineMemory>(frames: &Frames, memory: &M, dying: DyingList) -> u64 {
    let tracker = ShootdownTracker::new(1);
    let pending = PendingShootdown::new(tracker.retire(), dying);
    pending.redeem(&tracker).expect("nobody runs").free_all(frames, memory)
}

fn assert_counts_agree(frames: &Frames) {
    let census = frames.census();
    for state in PageState::ALL {
        if state != PageState::Bad {
            let running: u64 = (0..frames.node_count()).map(|n| frames.pages_in(NodeId(n as u8), state)).sum();
            assert_eq!(running, census.get(state), "{state:?}");
        }
    }
    let is_free_large = |entry: &crate::MemMapEntry| entry.is(PageState::Free, MAX_ORDER);
    let large = frames.map().blocks().filter(|(_, entry)| is_free_large(entry)).count() as u64;
    let told: u64 = (0..frames.node_count()).map(|n| frames.free_large_blocks(NodeId(n as u8))).sum();
    assert_eq!(told, large, "free large blocks");
}

#[test]
fn pages_that_were_neighbours_come_back_as_blocks() {
    let (memory, frames) = small_machine(&[4, 4]);
    let take = |count: u64| -> Vec<Mfn> {
        (0..count).map(|gfn| frames.alloc(NodeId(gfn as u8 % 2), 0, private(gfn)).unwrap().settle()).collect()
    };
    // Each order of dying, with another node's pages between them, beside pages that stay.
    for (count, step) in [(512, 1), (77, 1), (512, 3), (300, 7)] {
        let mut pages: Vec<(Mfn, u64)> = take(count).into_iter().zip(0..).collect();
        let kept = pages.split_off(pages.len() - 5);
        let mut dying = DyingList::new();
        for start in 0..step {
            for (page, gfn) in pages.iter().skip(start).step_by(step) {
                assert_eq!(frames.drop_mapping(&mut dying, *page, 0, owner(*gfn)), Ok(true));
            }
        }
        assert_eq!(free_list(&frames, &memory, dying), pages.len() as u64);
        assert_counts_agree(&frames);
        let mut dying = DyingList::new();
        kept.iter().for_each(|(page, gfn)| _ = frames.drop_mapping(&mut dying, *page, 0, owner(*gfn)));
        assert_eq!(free_list(&frames, &memory, dying), 5);
        // All that is not set aside has grown together again.
        let mut blocks = Vec::new();
        while let Some(block) = frames.alloc(NodeId(0), MAX_ORDER, MONITOR) {
            blocks.push(block);
        }
        assert_eq!(blocks.len(), 2, "after {count} pages by {step}");
        blocks.into_iter().for_each(|block| frames.free(block));
        assert_counts_agree(&frames);
    }
}

#[test]
fn a_held_page_is_kept_as_it_is() {
    let (memory, frames) = small_machine(&[8]);
    let page = frames.alloc(NodeId(0), 0, private(1)).unwrap().settle();
    assert_eq!(frames.hold(page, owner(2)), Err(FrameError::NotMapped { mfn: page, owner: owner(2) }));
    frames.hold(page, owner(1)).unwrap();
    assert_eq!(frames.make_private(page, owner(1)), Ok(false));
    assert_eq!(frames.sharing(NodeId(0)), Sharing { mapped_pages: 1, guest_pages: 1 });
    frames.attach_shared(&memory, page, owner(3)).unwrap();
    assert_eq!(frames.sharing(NodeId(0)), Sharing { mapped_pages: 1, guest_pages: 2 });
    // The guest pages go first: the page stays as long as it is held.
    let mut dying = DyingList::new();
    for gfn in [1, 3] {
        assert_eq!(frames.drop_mapping(&mut dying, page, 0, owner(gfn)), Ok(false));
    }
    free_list(&frames, &memory, dying);
    assert_counts_agree(&frames);
    assert!(frames.is_held_alone(page));
    assert_eq!(frames.release_hold(page), Ok(true));
    assert_eq!(frames.sharing(NodeId(0)), Sharing::default());

    let wrong = frames.alloc(NodeId(0), 0, MONITOR).unwrap();
    assert!(frames.hold(wrong.mfn(), owner(1)).is_err(), "the monitor's own");
    frames.free(wrong);
    let large = frames.alloc(NodeId(0), MAX_ORDER, private(0x200)).unwrap().settle();
    assert!(frames.hold(large, owner(0x200)).is_err(), "not a single page");
    assert_counts_agree(&frames);
}

#[test]
fn a_split_block_is_described_as_one_again() {
    let (memory, frames) = small_machine(&[8]);
    let node = NodeId(0);
    let first = frames.alloc(node, MAX_ORDER, private(0x400)).unwrap().settle();
    assert!(frames.merge_private(first, owner(0x400)).is_err(), "it is one block");
    frames.split_private(first, VM).unwrap();
    assert!(frames.merge_private(first, owner(0x401)).is_err(), "another guest page's");
    assert!(frames.merge_private(Mfn::new(first.raw() + 1), owner(0x401)).is_err(), "misaligned");
    frames.merge_private(first, owner(0x400)).unwrap();
    assert_counts_agree(&frames);
    assert_eq!(frames.map().info(Mfn::new(first.raw() + 7)).and_then(|info| info.owner), Some(owner(0x407)));

    frames.split_private(first, VM).unwrap();
    let mut dying = DyingList::new();
    let hole = Mfn::new(first.raw() + 9);
    frames.drop_mapping(&mut dying, hole, 0, owner(0x409)).unwrap();
    assert!(frames.merge_private(first, owner(0x400)).is_err(), "a page is missing");
    assert_eq!(free_list(&frames, &memory, dying), 1);
    assert_eq!(frames.alloc(node, 0, private(0x409)).map(Frame::settle), Some(hole), "the last one freed comes first");
    frames.merge_private(first, owner(0x400)).unwrap();
    let mut dying = DyingList::new();
    frames.drop_mapping(&mut dying, first, MAX_ORDER, owner(0x400)).unwrap();
    assert_eq!(free_list(&frames, &memory, dying), 512);
    assert_counts_agree(&frames);
}

#[test]
fn single_pages_come_from_the_smallest_blocks() {
    let (_, frames) = small_machine(&[4]);
    let node = NodeId(0);
    let page = frames.alloc(node, 0, MONITOR).unwrap();
    assert_eq!(frames.free_large_blocks(node), 1);
    let more: Vec<_> = (0..511).map(|_| frames.alloc(node, 0, MONITOR).unwrap()).collect();
    assert_eq!(frames.free_large_blocks(node), 1, "the block that is broken already serves all");
    more.into_iter().chain([page]).for_each(|page| frames.free(page));
    assert_counts_agree(&frames);
}

#[test]
fn everything_merges_again() {
    let (_, frames) = small_machine(&[8]);
    let node = NodeId(0);
    let pages: Vec<_> = core::iter::from_fn(|| frames.alloc(node, 0, MONITOR)).collect();
    assert_eq!(pages.len(), 2048);
    pages.into_iter().for_each(|page| frames.free(page));
    let blocks: Vec<_> = core::iter::from_fn(|| frames.alloc(node, MAX_ORDER, MONITOR)).collect();
    assert_eq!(blocks.len(), 4);
    assert_counts_agree(&frames);
}

#[test]
fn holes_and_reserved_pages_are_never_given() {
    let region = NodeRegion { node: NodeId(0), start: Mfn::new(0x80003), pages: 1500 };
    let plan = crate::MemMapPlan::new(&[region]).unwrap();
    let rows = (0..1500).map(|_| crate::MemMapEntry::new()).collect::<Vec<_>>().leak();
    let frames = Frames::new(plan.build(|_| rows).unwrap());
    let reserved = [(Mfn::new(0x80100), 16), (Mfn::new(0x80000), 8), (Mfn::new(0x80108), 20), (Mfn::new(0x805d0), 999)];
    frames.donate_except(region.start, region.pages, &reserved).unwrap();
    let is_reserved = |mfn: Mfn| reserved.iter().any(|(at, n)| mfn.raw() >= at.raw() && mfn.raw() < at.raw() + n);
    let got: Vec<_> = core::iter::from_fn(|| frames.alloc(NodeId(0), 0, MONITOR)).collect();
    assert!(got.iter().all(|f| f.mfn() >= region.start && f.mfn().raw() < 0x80003 + 1500 && !is_reserved(f.mfn())));
    let reserved_pages = (0x80003..0x80003 + 1500).filter(|p| is_reserved(Mfn::new(*p))).count();
    assert_eq!(got.len() + reserved_pages, 1500);
    let again = FrameError::AlreadyInUse { start: Mfn::new(0x80200), pages: 1 };
    assert_eq!(frames.donate(Mfn::new(0x80200), 1), Err(again));
    assert!(frames.map().entry(Mfn::new(0x80002)).is_none() && frames.map().entry(Mfn::new(0)).is_none());
}

#[test]
fn zeroed_pages_are_zero_and_made_ahead() {
    let (memory, frames) = small_machine(&[8]);
    let node = NodeId(0);
    let mut steps = 0;
    while frames.idle_step(&memory, node, 16) != IdleWork::Nothing {
        steps += 1;
    }
    assert_eq!(frames.zeroed(node), (128, 3), "one block went into single pages");
    assert_eq!(steps, 128 + 3 * 32);
    assert!(!frames.wants_zeroing(node));
    let large = frames.alloc_zeroed(&memory, node, MAX_ORDER, MONITOR).unwrap();
    assert!((0..512).all(|i| memory.is_zero(Mfn::new(large.mfn().raw() + i))));
    assert!(frames.wants_zeroing(node), "it is made up for");
    let all: Vec<_> = core::iter::from_fn(|| frames.alloc_zeroed(&memory, node, 0, MONITOR)).collect();
    assert_eq!(all.len(), 2048 - 512, "what was set aside is given when nothing else is left");
    assert!(all.iter().all(|page| memory.is_zero(page.mfn())));
    assert_counts_agree(&frames);
}

#[test]
fn a_half_zeroed_block_is_not_lost() {
    let (memory, frames) = small_machine(&[2]);
    let node = NodeId(0);
    let page = frames.alloc(node, 0, MONITOR).unwrap();
    while frames.idle_step(&memory, node, 100) == IdleWork::Zeroed(1) {}
    frames.free(page);
    let block = frames.alloc(node, MAX_ORDER, MONITOR).expect("reserves merge");
    frames.free(block);
    let (memory, frames) = small_machine(&[4]);
    while frames.zeroed(node).0 < 128 {
        let _ = frames.idle_step(&memory, node, 100);
    }
    assert_eq!(frames.idle_step(&memory, node, 100), IdleWork::Zeroed(100));
    let block = frames.alloc(node, MAX_ORDER, MONITOR);
    assert_eq!(frames.pages_in(node, PageState::Free), 512);
    assert!(block.is_some() && frames.alloc(node, MAX_ORDER, MONITOR).is_some());
}

#[test]
fn a_private_block_dies_page_by_page_after_a_split() {
    let (memory, frames) = small_machine(&[4]);
    let block = frames.alloc(NodeId(0), MAX_ORDER, private(0x80000)).unwrap().settle();
    let inside = Mfn::new(block.raw() + 5);
    assert_eq!(frames.map().info(inside).unwrap().owner, Some(owner(0x80005)));
    let mut dying = DyingList::new();
    assert!(frames.drop_mapping(&mut dying, inside, 0, owner(0x80005)).is_err());
    assert!(frames.split_private(block, VmId(1)).is_err());
    frames.split_private(block, VM).unwrap();
    assert_eq!(frames.map().info(inside).unwrap().owner, Some(owner(0x80005)));
    assert_eq!(
        frames.drop_mapping(&mut dying, inside, 0, owner(0x80006)),
        Err(FrameError::NotMapped { mfn: inside, owner: owner(0x80006) })
    );
    assert_eq!(frames.drop_mapping(&mut dying, inside, 0, owner(0x80005)), Ok(true));
    assert!(frames.drop_mapping(&mut dying, inside, 0, owner(0x80005)).is_err(), "only once");
    assert_eq!(frames.vm_pages(&memory, VM).private, 511);
    assert_counts_agree(&frames);
    for index in (0..512).filter(|index| *index != 5) {
        frames.drop_mapping(&mut dying, Mfn::new(block.raw() + index), 0, owner(0x80000 + index)).unwrap();
    }
    assert_eq!(free_list(&frames, &memory, dying), 512);
    assert!(frames.vm_pages(&memory, VM).is_empty());
    assert_counts_agree(&frames);
}

#[test]
fn the_last_reference_frees_a_shared_page() {
    let (memory, frames) = small_machine(&[2]);
    let drop_mapping = |n| {
        let mut dying = DyingList::new();
        assert_eq!(frames.drop_mapping(&mut dying, page_of(&frames), 0, owner(n)), Ok(false));
        dying
    };
    let page = frames.alloc(NodeId(0), 0, PageUse::Shared).unwrap().settle();
    assert_eq!(page, page_of(&frames));
    assert!(frames.is_held_alone(page));
    for n in 0..3 {
        frames.attach_shared(&memory, page, owner(n)).unwrap();
    }
    assert_eq!(frames.sharing(NodeId(0)), Sharing { mapped_pages: 1, guest_pages: 3 });
    assert_eq!(frames.vm_pages(&memory, VM).shared, 3);
    assert_eq!(free_list(&frames, &memory, drop_mapping(0)), 0);
    assert_eq!(frames.release_hold(page), Ok(false));
    assert_eq!(frames.make_private(page, owner(2)), Ok(false));
    assert_eq!(free_list(&frames, &memory, drop_mapping(1)), 0);
    assert_eq!(frames.make_private(page, owner(1)), Err(FrameError::NotMapped { mfn: page, owner: owner(1) }));
    assert_eq!(frames.make_private(page, owner(2)), Ok(true));
    assert_eq!(frames.sharing(NodeId(0)), Sharing::default());
    let mut dying = DyingList::new();
    assert_eq!(frames.drop_mapping(&mut dying, page, 0, owner(2)), Ok(true));
    assert_eq!(free_list(&frames, &memory, dying), 1);
    assert_counts_agree(&frames);
}

/// The only shared page.
fn page_of(frames: &Frames) -> Mfn {
    let shared = |(_, entry): &(Mfn, &MemMapEntry)| entry.state() == PageState::Shared;
    frames.map().blocks().find(shared).map(|(mfn, _)| mfn).unwrap()
}

/// What another VM's TLB may still know is not free when the last other holder lets go of it.
#[test]
fn a_shared_page_waits_for_the_shootdown_of_all_who_mapped_it() {
    let (memory, frames) = small_machine(&[2]);
    let page = frames.alloc(NodeId(0), 0, PageUse::Shared).unwrap().settle();
    frames.attach_shared(&memory, page, owner(0)).unwrap();
    let mut dying = DyingList::new();
    assert_eq!(frames.drop_mapping(&mut dying, page, 0, owner(0)), Ok(false));
    assert!(!frames.is_held_alone(page), "its TLB entries are not gone");
    assert_eq!(frames.release_hold(page), Ok(false));
    assert_eq!(frames.pages_in(NodeId(0), PageState::Free), 511);
    // The guest maps it once more before the first mapping's shootdown has ended.
    frames.attach_shared(&memory, page, owner(0)).unwrap();
    let tracker = ShootdownTracker::new(1);
    let cpu = addr::CpuIndex(0);
    let seen = tracker.enter(cpu);
    tracker.passed(cpu, seen);
    let pending = PendingShootdown::new(tracker.retire(), dying).redeem(&tracker).expect_err("the guest runs");
    tracker.leave(cpu);
    assert_eq!(pending.redeem(&tracker).unwrap().free_all(&frames, &memory), 0);
    assert_eq!(frames.vm_pages(&memory, VM).shared, 1);
    let mut dying = DyingList::new();
    frames.drop_mapping(&mut dying, page, 0, owner(0)).unwrap();
    assert_eq!(free_list(&frames, &memory, dying), 1);
    assert_eq!(frames.pages_in(NodeId(0), PageState::Free), 511, "a page of links is kept");
    assert_counts_agree(&frames);
}

#[test]
fn back_maps_need_memory_of_their_node() {
    let (memory, frames) = small_machine(&[2]);
    let page = frames.alloc(NodeId(0), 0, PageUse::Shared).unwrap().settle();
    let rest: Vec<_> = core::iter::from_fn(|| frames.alloc(NodeId(0), 0, MONITOR)).collect();
    frames.attach_shared(&memory, page, owner(0)).unwrap();
    assert_eq!(frames.attach_shared(&memory, page, owner(1)), Err(FrameError::TooManyReferences(page)));
    rest.into_iter().for_each(|frame| frames.free(frame));
    for n in 1..300 {
        frames.attach_shared(&memory, page, owner(n)).unwrap();
    }
    assert_eq!(frames.pages_in(NodeId(0), PageState::Monitor), 2);
    let mut dying = DyingList::new();
    (0..300).for_each(|n| assert_eq!(frames.drop_mapping(&mut dying, page, 0, owner(n)), Ok(false)));
    assert_eq!(free_list(&frames, &memory, dying), 0);
    assert_eq!((frames.pages_in(NodeId(0), PageState::Monitor), frames.release_hold(page)), (1, Ok(true)));
    assert_counts_agree(&frames);
}

/// Guests choose how often a page is mapped, and whoever lets go of it looks at all who do.
#[test]
fn a_page_has_a_bounded_number_of_owners() {
    let (memory, frames) = small_machine(&[2]);
    let page = frames.alloc(NodeId(0), 0, PageUse::Shared).unwrap().settle();
    let most = u64::from(crate::MOST_REFERENCES) - 1;
    (0..most).for_each(|n| assert!(frames.attach_shared(&memory, page, owner(n)).is_ok()));
    assert_eq!(frames.attach_shared(&memory, page, owner(most)), Err(FrameError::TooManyReferences(page)));
    let mut dying = DyingList::new();
    frames.drop_mapping(&mut dying, page, 0, owner(7)).unwrap();
    assert_eq!(free_list(&frames, &memory, dying), 0);
    assert!(frames.attach_shared(&memory, page, owner(most)).is_ok());
    assert_counts_agree(&frames);
}

#[test]
fn long_lists_are_freed_in_steps() {
    let (memory, frames) = small_machine(&[2]);
    let mut dying = DyingList::new();
    for n in 0..10 {
        let page = frames.alloc(NodeId(0), 0, private(n)).unwrap().settle();
        frames.drop_mapping(&mut dying, page, 0, owner(n)).unwrap();
    }
    let tracker = ShootdownTracker::new(1);
    let mut left = PendingShootdown::new(tracker.retire(), dying).redeem(&tracker).ok();
    let mut steps = 0;
    while let Some(list) = left {
        left = list.free_some(&frames, &memory, 3);
        steps += 1;
    }
    assert_eq!(steps, 4);
    assert_eq!(frames.pages_in(NodeId(0), PageState::Free), 512);
}

#[test]
fn a_block_in_motion_can_go_page_by_page() {
    let (memory, frames) = small_machine(&[2]);
    let to = PageUse::Replica { vm: owner(0).vm, gfn: Gfn::new(0x400), spu: SpuId(0) };
    let block = frames.alloc(NodeId(0), MAX_ORDER, to).unwrap().zero(&memory);
    let first = block.mfn();
    let pages: Vec<_> = frames.split_frame(block).collect();
    assert_eq!(pages.len(), 512);
    for (index, page) in pages.into_iter().enumerate() {
        let mfn = Mfn::new(first.raw() + index as u64);
        assert_eq!((page.mfn(), page.order(), page.node()), (mfn, 0, NodeId(0)));
        let info = frames.map().info(mfn).unwrap();
        let back = PageOwner { vm: owner(0).vm, gfn: Gfn::new(0x400 + index as u64) };
        assert_eq!((info.state, info.order, info.owner), (PageState::Replica, 0, Some(back)));
        frames.free(page);
    }
    assert_eq!(frames.pages_in(NodeId(0), PageState::Free), 512);
    assert!(frames.alloc(NodeId(0), MAX_ORDER, to).is_some(), "they are one block again");
}

#[test]
fn a_pool_falls_back_in_the_given_order() {
    let (memory, frames) = small_machine(&[2, 2]);
    let nodes = [NodeId(1), NodeId(0)];
    let pool = Pool { frames: &frames, memory: &memory, nodes: &nodes, vm: VM, spu: SpuId(0) };
    let homes: Vec<_> = core::iter::from_fn(|| pool.guest_page(PageSize::Large, Gfn::new(0)))
        .map(|frame| frames.map().node_of(frame.mfn()).unwrap().0)
        .collect();
    assert_eq!(homes, [1, 0]);
    assert!(pool.table().is_none());
}

#[test]
fn wrong_claims_are_refused() {
    let (memory, frames) = small_machine(&[2]);
    assert!(frames.alloc(NodeId(9), 0, MONITOR).is_none());
    assert!(frames.alloc(NodeId(0), 10, MONITOR).is_none());
    assert!(frames.alloc(NodeId(0), 0, PageUse::Monitor { vm: Some(VmId(u16::MAX)) }).is_none(), "no such VM");
    let page = frames.alloc(NodeId(0), 0, MONITOR).unwrap().settle();
    let wrong = FrameError::WrongState { mfn: page, state: PageState::Monitor, order: 0 };
    assert_eq!(frames.retake_monitor(page, 1).unwrap_err(), wrong);
    assert_eq!(frames.attach_shared(&memory, page, owner(0)), Err(wrong));
    frames.free(frames.retake_monitor(page, 0).unwrap());
    assert!(frames.retake_monitor(page, 0).is_err(), "it is free now");
}

#[test]
fn history_survives_until_the_page_is_freed() {
    let (_, frames) = small_machine(&[2]);
    let page = frames.alloc(NodeId(0), 0, private(1)).unwrap().settle();
    let entry = frames.map().entry(page).unwrap();
    entry.set_history(255, 9);
    let info = frames.map().info(page).unwrap();
    assert_eq!((info.moves, entry.history().1, info.spu, info.node), (255, 9, SpuId(3), NodeId(0)));
    assert_eq!((info.state, info.owner), (PageState::Private, Some(owner(1))));
}

#[derive(Clone, Debug)]
enum Op {
    Alloc { node: u8, order: u8, zeroed: bool },
    Free(usize),
    Idle { node: u8, pages: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    let order = prop_oneof![4 => Just(0u8), 2 => Just(MAX_ORDER), 1 => 0u8..=MAX_ORDER];
    prop_oneof![
        4 => (0u8..3, order, any::<bool>()).prop_map(|(node, order, zeroed)| Op::Alloc { node, order, zeroed }),
        3 => any::<usize>().prop_map(Op::Free),
        1 => (0u8..3, 1u64..600).prop_map(|(node, pages)| Op::Idle { node, pages }),
    ]
}

/// Node 1 starts in the middle of a large block; node 2 is small and odd.
fn odd_regions() -> Vec<NodeRegion> {
    let region = |node, start, pages| NodeRegion { node: NodeId(node), start: Mfn::new(start), pages };
    [region(0, 0x80000, 1024), region(1, 0x80480, 1664), region(2, 0xc0001, 77), region(0, 0x100000, 515)].to_vec()
}

proptest! {
    #[test]
    fn random_use_agrees_with_a_set_of_pages(ops in prop::collection::vec(op(), 0..150)) {
        let (memory, frames) = machine(&odd_regions());
        let total: u64 = odd_regions().iter().map(|r| r.pages).sum();
        let mut held: Vec<Frame<crate::Dirty>> = Vec::new();
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        for op in ops {
            match op {
                Op::Alloc { node, order, zeroed } => {
                    let node = NodeId(node);
                    let frame = if zeroed {
                        let frame = frames.alloc_zeroed(&memory, node, order, MONITOR);
                        if let Some(f) = &frame {
                            prop_assert!(memory.is_zero(f.mfn()));
                            prop_assert!(memory.is_zero(Mfn::new(f.mfn().raw() + f.pages() - 1)));
                        }
                        frame.map(Frame::into_dirty)
                    } else {
                        frames.alloc(node, order, MONITOR)
                    };
                    let Some(frame) = frame else { continue };
                    let (start, pages) = (frame.mfn().raw(), frame.pages());
                    prop_assert_eq!(start % pages, 0, "aligned");
                    prop_assert_eq!(frames.map().node_of(frame.mfn()), Some(node));
                    let before = model.range(..start + pages).next_back();
                    prop_assert!(before.is_none_or(|(at, len)| at + len <= start), "given twice");
                    model.insert(start, pages);
                    memory.soil(frame.mfn());
                    memory.soil(Mfn::new(start + pages - 1));
                    held.push(frame);
                }
                Op::Free(which) if !held.is_empty() => {
                    let frame = held.swap_remove(which % held.len());
                    model.remove(&frame.mfn().raw());
                    frames.free(frame);
                }
                Op::Free(_) => {}
                Op::Idle { node, pages } => {
                    let _ = frames.idle_step(&memory, NodeId(node), pages);
                }
            }
            let used: u64 = model.values().sum();
            prop_assert_eq!(frames.census().get(PageState::Free), total - used, "none lost");
        }
        assert_counts_agree(&frames);
        for (start, pages) in &model {
            for page in *start..start + pages {
                prop_assert_eq!(frames.map().block_of(Mfn::new(page)), Some(Mfn::new(*start)));
            }
        }
        held.into_iter().for_each(|frame| frames.free(frame));
        let large = core::iter::from_fn(|| frames.alloc(NodeId(0), MAX_ORDER, MONITOR)).count();
        prop_assert_eq!(large, 3, "all merged again");
    }
}

#[test]
fn copies_and_overwrites_count_as_clean() {
    let (memory, frames) = small_machine(&[2]);
    let source = frames.alloc(NodeId(0), 0, MONITOR).unwrap();
    memory.write_u64(source.mfn().addr(), 42);
    let copy = frames.alloc(NodeId(0), 0, MONITOR).unwrap().copy_from(&memory, source.mfn()).unwrap();
    assert_eq!(memory.read_u64(copy.mfn().addr()), 42);
    let page = frames.alloc(NodeId(0), 0, MONITOR).unwrap();
    let page = page.overwritten(4095).expect_err("not all of it");
    assert!(page.overwritten(4096).is_ok());
}

/// What waits for several shootdowns waits for the last of them, and comes back whole.
#[test]
fn pending_shootdowns_can_be_joined() {
    let (memory, frames) = small_machine(&[2]);
    let tracker = ShootdownTracker::new(1);
    let cpu = addr::CpuIndex(0);
    let shared = frames.alloc(NodeId(0), 0, PageUse::Shared).unwrap().settle();
    frames.attach_shared(&memory, shared, owner(200)).unwrap();
    let mut next = 0;
    let mut pending = |pages: u64| {
        let mut dying = DyingList::new();
        for _ in 0..pages {
            let page = frames.alloc(NodeId(0), 0, private(next)).unwrap().settle();
            frames.drop_mapping(&mut dying, page, 0, owner(next)).unwrap();
            next += 1;
        }
        dying
    };
    let seen = tracker.enter(cpu);
    tracker.passed(cpu, seen);
    let first = PendingShootdown::new(tracker.retire(), pending(0));
    let second = PendingShootdown::new(tracker.retire(), pending(3));
    let passed = tracker.current();
    let third = PendingShootdown::new(tracker.retire(), pending(2));
    let mut references = DyingList::new();
    assert_eq!(frames.drop_mapping(&mut references, shared, 0, owner(200)), Ok(false));
    let fourth = PendingShootdown::new(tracker.retire(), references);
    assert!(first.is_empty() && !fourth.is_empty());
    let all = [second, third, fourth].into_iter().fold(first, |all, later| all.joined(later, &frames));
    assert_eq!((all.pages(), all.generation()), (5, tracker.current()));
    tracker.passed(cpu, passed);
    let all = all.redeem(&tracker).expect_err("the hart has not passed the last one");
    tracker.leave(cpu);
    assert_eq!(all.redeem(&tracker).unwrap().free_all(&frames, &memory), 5);
    assert_eq!(frames.release_hold(shared), Ok(true), "its reference ended, too");
    assert_eq!(frames.pages_in(NodeId(0), PageState::Dying), 0);
    assert_counts_agree(&frames);
}
