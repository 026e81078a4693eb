//! What waits for harts, what goes back, and the end of a VM.

use super::{
    jobs::tried,
    machine::Handle,
    world::{Did, PAGES, World, at, gfn},
};
use crate::{Found, GuestRam, Machine as _, MoveStep, Spec};
use addr::{BASE_PAGE, Gfn, Mfn, NodeId, PageSize, VmId};
use alloc::vec::Vec;
use control::EventKind;
use frames::{Frames, MachineMemory as _, PageState, PageUse};
use guest_access::{GuestMemory as _, MemoryFault, PageMap};
use rv_pte::Mode;

fn free(world: &World) -> u64 {
    world.machine.frames().pages_in(NodeId(0), PageState::Free)
}

/// Frames are free when no hart knows them, a bounded number at a time, and somebody is told to come back for them.
#[test]
fn what_a_hart_may_know_is_not_free() {
    let world = World::new(&[false], 1, 2);
    for page in 0..400 {
        assert_eq!(world.store(0, 0, page, 1), Did::Value(1));
    }
    let before = free(&world);
    world.give_back(1, 0, 0, 400);
    assert_eq!(world.machine.deferred(), 4, "a step gives back 128");
    let ram = world.ram(0);
    // The pmap's own table of the block is in no TLB.
    assert!(ram.free_deferred() && free(&world) == before + 1, "hart 0 knows them");
    let before = free(&world);
    world.interrupt(0);
    let mut freed = 0;
    loop {
        let has_more = ram.free_deferred();
        let now = free(&world) - before;
        assert!(now - freed <= 256, "a bounded number");
        freed = now;
        if !has_more {
            break;
        }
    }
    assert_eq!(freed, 400);
    assert_eq!(ram.pages_returned(), 400);
    world.check_at_rest();
    world.end();
}

/// A hart that never leaves keeps what it may know, and nothing else.
#[test]
fn later_shootdowns_do_not_wait_for_earlier_ones_for_ever() {
    let world = World::new(&[false], 1, 3);
    for page in 0..8 {
        assert_eq!(world.store(0, 0, page, 1), Did::Value(1));
    }
    for page in 0..8 {
        world.give_back(1, 0, page, 1);
        world.ram(0).free_deferred();
        world.check();
    }
    assert!(world.ram(0).free_deferred());
    world.interrupt(0);
    // The older ones and the newer ones, in a step each.
    while world.ram(0).free_deferred() {}
    world.check_at_rest();
    world.end();
}

/// A VM ends in the middle of everything: all pages come back.
#[test]
fn a_vm_that_ends_loses_nothing() {
    let world = World::new(&[true, true], 2, 4);
    for vm in 0..2 {
        for page in [0, 512] {
            assert_eq!(world.store(0, vm, page, 1), Did::Value(1));
        }
    }
    let ram = world.ram(0);
    ram.begin_block_move(gfn(0), NodeId(1), tried).unwrap();
    ram.begin_block_copies(gfn(512), 0b10).unwrap();
    world.ram(1).split_block(gfn(0));
    let held = world.ram(1).begin_migration(&[gfn(3)], NodeId(1));
    world.interrupt_all();
    assert_eq!(ram.step_block_move(NodeId(1), 100), MoveStep::More);
    _ = ram.step_block_copy(NodeId(1), 100, tried);
    world.map_from_disk(0, 1, 1, 77);
    world.give_back(0, 1, 20, 30);
    world.machine.take_told();
    drop(held);
    let machine = world.machine.clone();
    world.end();
    let returned = machine.take_told().into_iter().map(|what| match what {
        EventKind::PagesReturned { pages } => pages,
        other => panic!("{other:?}"),
    });
    assert_eq!(returned.sum::<u64>(), 2 * PAGES, "each page is told of once");
}

/// Copies that are being made of a VM's blocks end one by one: each may hold 512 pages.
#[test]
fn copies_that_are_being_made_end_one_by_one() {
    let world = World::new(&[true], 3, 2);
    for page in [0, 512] {
        assert_eq!(world.store(0, 0, page, 1), Did::Value(1));
        world.ram(0).begin_block_copies(gfn(page), 0b110).unwrap();
    }
    world.leave(0);
    let copies = || world.ram(0).inner.lock().copying.len();
    let resident = || world.ram(0).pages_by_node().iter().sum::<u64>();
    for left in (0..4).rev() {
        assert!(world.ram(0).tear_down_step());
        assert_eq!((copies(), resident()), (left, PAGES));
    }
    assert!(world.ram(0).tear_down_step() && resident() < PAGES);
    world.end();
}

/// Who gives back what has nothing behind it calls nobody away for that.
#[test]
fn to_give_back_nothing_interrupts_nobody() {
    let world = World::new(&[false], 1, 2);
    assert_eq!(world.store(0, 0, 0, 1), Did::Value(1));
    world.give_back(1, 0, 2, 1000);
    assert!(!world.machine.take_kick(0));
    world.give_back(1, 0, 0, 1);
    assert!(world.machine.take_kick(0));
    world.leave(0);
    world.end();
}

/// Devices find nothing where a VM that ends has nothing any more: they put nothing behind what the teardown has passed.
#[test]
fn devices_put_nothing_into_a_vm_that_ends() {
    for large in [false, true] {
        let world = World::new(&[large], 1, 2);
        assert_eq!(world.store(0, 0, 600, 1), Did::Value(1));
        let block = world.cached(0, 77).unwrap();
        world.leave(0);
        let ram = world.ram(0);
        let mut is_ending = true;
        while is_ending {
            is_ending = ram.tear_down_step();
            for page in [0, 1, 600] {
                let wrote = ram.write(at(page, 0), &[7; 100]);
                assert!(wrote.is_err() || page == 600, "page {page}");
                assert_eq!(ram.map_page(at(page, 0), block), PageMap::Refused);
            }
        }
        assert_eq!(ram.write_u64(at(600, 0), 7), Err(MemoryFault { addr: at(600, 0) }));
        world.end();
    }
}

/// A page's leaves are taken away; who uses it brings its node's back.
#[test]
fn a_sample_shows_which_nodes_use_a_page() {
    let world = World::new(&[false], 2, 4);
    assert_eq!(world.store(0, 0, 0, 5), Did::Value(5));
    assert_eq!(world.load(1, 0, 0), Did::Value(5));
    let users = || world.ram(0).sample(|leaves| leaves.users(gfn(0)));
    assert_eq!(users(), 0b11);
    world.ram(0).sample(|leaves| {
        let Found::Page { gfn: first, size, .. } = leaves.find(gfn(0)) else { panic!("there is a page") };
        assert_eq!((first, size), (gfn(0), PageSize::Base));
        leaves.take(first, size);
        assert!(matches!(leaves.find(gfn(1)), Found::Nothing { pages: 1 }));
    });
    assert_eq!(users(), 0);
    assert_eq!(world.load(1, 0, 0), Did::Value(5), "until it leaves, a hart uses what it knows");
    assert_eq!(users(), 0);
    world.interrupt_all();
    assert_eq!(world.load(1, 0, 0), Did::Value(5));
    assert_eq!(users(), 0b10);
    assert_eq!(world.store(0, 0, 0, 6), Did::Value(6));
    assert_eq!(users(), 0b11);
    world.interrupt_all();
    world.check_at_rest();
    world.end();
}

/// Registers beside the RAM are in all tables, and go.
#[test]
fn registers_come_and_go() {
    let world = World::new(&[false], 2, 2);
    let (file, page) = (Gfn::new(0x2_8000), addr::Mfn::new(0x2_4000));
    let ram = world.ram(0);
    assert!(ram.map_registers(file, page));
    let leaf = |node: usize| ram.inner.lock().tables[node].lookup(world.machine.memory(), file).map(|leaf| leaf.mfn);
    assert_eq!([leaf(0), leaf(1)], [Some(page); 2]);
    assert_eq!(world.store(0, 0, 0, 1), Did::Value(1));
    let gone = ram.unmap_registers(file);
    assert_eq!([leaf(0), leaf(1)], [None; 2]);
    assert!(!ram.tlb().all_passed(gone));
    world.interrupt(0);
    assert!(ram.tlb().all_passed(gone));
    world.end();
}

/// Pages that nobody has written are zeroes, whoever had them before.
#[test]
fn no_page_keeps_what_another_vm_wrote() {
    let world = World::new(&[false, false], 1, 2);
    let fill = |vm: usize| (0..300).for_each(|page| assert_eq!(world.store(0, vm, page, 0x5ec7), Did::Value(0x5ec7)));
    fill(0);
    world.give_back(0, 0, 0, 300);
    for page in 0..300 {
        let _ = world.load(0, 1, page);
        let inner = world.ram(1).inner.lock();
        let mfn = inner.pmap.lookup(world.machine.memory(), gfn(page)).unwrap().state.mfn().unwrap();
        let word = |at: u64| world.machine.memory().read_u64(addr::MachineAddr::new(mfn.addr().raw() + at));
        assert!((0..BASE_PAGE).step_by(8).all(|at| word(at) == 0), "page {page}");
    }
    assert_eq!(world.access(1, 0, at(0, 0), None), Did::Value(0));
    world.end();
}

/// A VM that cannot be made for want of tables leaves the machine as it was.
#[test]
fn a_memory_without_room_for_its_tables_costs_nothing() {
    let machine = Handle::new(&[4, 4], 1);
    let frames = machine.frames();
    let free = || [0, 1].map(|node| frames.pages_in(NodeId(node), PageState::Free));
    // The root of one table has four pages: there is room for one node's, and not for the other's.
    let taken: Vec<_> = [0, 1].iter().flat_map(|node| all_of(frames, NodeId(*node))).collect();
    let (kept, back) = taken.split_at(taken.len() - 4);
    back.iter().for_each(|page| frames.free(frames.retake_monitor(*page, 0).unwrap()));
    assert_eq!(free(), [0, 4], "and these lie together");
    let spec = Spec { bytes: PAGES * BASE_PAGE, mode: Mode::Sv39x4, large_pages: false, may_share: false };
    assert!(GuestRam::new(machine.clone(), VmId(1), &spec).is_none());
    assert_eq!(free(), [0, 4]);
    kept.iter().for_each(|page| frames.free(frames.retake_monitor(*page, 0).unwrap()));
    assert!(GuestRam::new(machine.clone(), VmId(1), &spec).is_some());
}

/// Takes every page of a node, in the order of their numbers.
fn all_of(frames: &Frames, node: NodeId) -> Vec<Mfn> {
    let page = || Some(frames.alloc_page(node, PageUse::Monitor { vm: None })?.settle());
    let mut pages: Vec<Mfn> = core::iter::from_fn(page).collect();
    pages.sort_unstable();
    pages
}
