//! Pages on their way, with guests on both sides.

use super::{
    jobs::{Job, tried},
    world::{Did, World, at, gfn},
};
use crate::{CopyStep, Machine as _, MoveStep, PlacedCounts, Replication, machine::has_reserve};
use addr::{NodeId, PAGES_PER_LARGE, PageSize};
use alloc::{boxed::Box, rc::Rc, vec};
use control::PlacementReason;
use core::cell::Cell;

const TO: NodeId = NodeId(1);

/// Single pages on node 0, each beginning with 5, that the harts 0 and 1 know.
fn world() -> Rc<World> {
    let world = World::new(&[false], 2, 4);
    for page in 0..3 {
        assert_eq!(world.store(0, 0, page, 5), Did::Value(5));
        assert_eq!(world.load(1, 0, page), Did::Value(5));
    }
    world
}

fn block() -> Rc<World> {
    let world = World::new(&[true], 3, 4);
    for page in [0, 1, 511] {
        assert_eq!(world.store(0, 0, page, 5), Did::Value(5));
        assert_eq!(world.load(1, 0, page), Did::Value(5));
    }
    world
}

fn outcome(counts: &PlacedCounts) -> (u64, u64, Option<PlacementReason>) {
    (counts.placed, counts.refused, counts.reason)
}

#[test]
fn a_page_moves_between_a_reader_and_a_writer() {
    let world = world();
    let ram = world.ram(0);
    let mut migration = ram.begin_migration(&[gfn(0), gfn(1)], TO);
    assert!(ram.step_migration(&mut migration, tried, || true).is_none(), "hart 1 can write it unseen");
    assert_eq!(world.load(1, 0, 0), Did::Value(5));
    world.interrupt_all();
    // The reader comes back and knows the old page; the writer is held.
    assert_eq!(world.load(1, 0, 0), Did::Value(5));
    assert_eq!(world.store(0, 0, 0, 6), Did::Busy);
    assert!(ram.step_migration(&mut migration, tried, || true).is_none(), "hart 1 sees the old page");
    assert_eq!(world.store(0, 0, 0, 6), Did::Busy);
    assert_eq!(world.load(1, 0, 0), Did::Value(5));
    world.check_all();
    world.interrupt_all();
    let counts = ram.step_migration(&mut migration, tried, || true).expect("nobody is behind");
    assert_eq!(outcome(&counts), (2, 0, None));
    assert_eq!([0, 1, 2].map(|page| ram.node_of(gfn(page))), [Some(TO), Some(TO), Some(NodeId(0))]);
    assert_eq!(world.store(0, 0, 0, 6), Did::Value(6));
    assert_eq!(world.load(1, 0, 0), Did::Value(6));
    world.interrupt_all();
    ram.free_deferred();
    world.check_at_rest();
    world.end();
}

/// Whoever is called stops after a page, and goes on later where it was.
#[test]
fn moves_and_copies_stop_after_a_page_when_somebody_calls() {
    let world = world();
    let ram = world.ram(0);
    let mut migration = ram.begin_migration(&[gfn(0), gfn(1)], TO);
    world.interrupt_all();
    assert!(ram.step_migration(&mut migration, tried, || false).is_none() && migration.has_more());
    assert_eq!([0, 1].map(|page| ram.node_of(gfn(page))), [Some(TO), Some(NodeId(0))]);
    assert_eq!(world.load(0, 0, 1), Did::Value(5));
    assert!(ram.step_migration(&mut migration, tried, || false).is_none() && !migration.has_more());
    world.interrupt_all();
    let counts = ram.step_migration(&mut migration, tried, || false).expect("nobody is behind");
    assert_eq!(outcome(&counts), (2, 0, None));
    let mut pages = vec![gfn(0), gfn(1)];
    ram.watch_pages(&mut pages, TO);
    world.interrupt_all();
    let mut replication = Replication::new(pages, NodeId(0));
    assert!(ram.step_replication(&mut replication, tried, || false).is_none() && replication.has_more());
    let counts = ram.step_replication(&mut replication, tried, || false).expect("it is the last page");
    assert_eq!(outcome(&counts), (2, 0, None));
    world.interrupt_all();
    ram.free_deferred();
    world.check_at_rest();
    world.end();
}

/// A device writes a page that is to move: the guest may write it again, and does. Another job watches it anew. While some hart can
/// still write it unseen it does not move, though it is watched.
#[test]
fn a_page_that_is_written_and_watched_again_moves_later() {
    let world = world();
    let ram = world.ram(0);
    let mut migration = ram.begin_migration(&[gfn(0), gfn(1)], TO);
    world.interrupt_all();
    world.device_write(2, 0, at(0, 1), 7);
    assert_eq!(world.store(0, 0, 0, 6), Did::Value(6));
    ram.watch_pages(&mut vec![gfn(0)], NodeId(0));
    assert!(ram.step_migration(&mut migration, tried, || true).is_none() && !migration.has_more());
    assert_eq!(ram.node_of(gfn(0)), Some(NodeId(0)), "hart 0 can write it unseen");
    assert_eq!(world.store(0, 0, 0, 8), Did::Value(8), "until it leaves, a hart writes what it knows");
    world.check_all();
    world.interrupt_all();
    let counts = ram.step_migration(&mut migration, tried, || true).expect("nobody is inside");
    assert_eq!(outcome(&counts), (2, 0, None));
    assert_eq!((world.load(1, 0, 0), ram.node_of(gfn(0))), (Did::Value(8), Some(TO)));
    world.interrupt_all();
    ram.free_deferred();
    world.check_at_rest();
    world.end();
}

/// Others watch pages all the time, and some hart never leaves: the move does not wait for ever.
#[test]
fn a_move_gives_up_where_others_watch_for_ever() {
    let world = world();
    let ram = world.ram(0);
    let mut migration = ram.begin_migration(&[gfn(0)], TO);
    world.interrupt_all();
    assert_eq!(world.load(1, 0, 1), Did::Value(5));
    ram.watch_pages(&mut vec![gfn(2)], NodeId(0));
    let mut steps = 0;
    let counts = loop {
        steps += 1;
        assert!(steps < 1000, "it waits for ever");
        if let Some(counts) = ram.step_migration(&mut migration, tried, || true) {
            break counts;
        }
        if steps > 100 {
            world.interrupt_all();
        }
    };
    assert_eq!(outcome(&counts), (0, 1, Some(PlacementReason::Raced)));
    assert_eq!(ram.node_of(gfn(0)), Some(NodeId(0)));
    world.interrupt_all();
    ram.free_deferred();
    world.check_at_rest();
    world.end();
}

/// The guest gives a page back while it moves: there is nothing to move any more, and nothing is lost.
#[test]
fn a_page_that_is_given_back_does_not_move() {
    let world = world();
    let ram = world.ram(0);
    let mut migration = ram.begin_migration(&[gfn(0), gfn(1)], TO);
    world.interrupt_all();
    world.give_back(2, 0, 0, 1);
    let counts = ram.step_migration(&mut migration, tried, || true).expect("nobody is inside");
    assert_eq!(outcome(&counts), (1, 1, Some(PlacementReason::Raced)));
    assert_eq!((ram.node_of(gfn(0)), world.load(0, 0, 0)), (None, Did::Value(0)));
    world.check_at_rest();
    world.end();
}

#[test]
fn readers_get_copies_and_a_write_ends_them() {
    let world = world();
    let ram = world.ram(0);
    let mut pages = vec![gfn(0)];
    ram.watch_pages(&mut pages, TO);
    let mut replication = Replication::new(pages, TO);
    assert!(ram.step_replication(&mut replication, tried, || true).is_none(), "hart 1 can write it unseen");
    world.interrupt_all();
    let counts = ram.step_replication(&mut replication, tried, || true).expect("nobody is behind");
    assert_eq!(outcome(&counts), (1, 0, None));
    assert_eq!((world.load(1, 0, 0), world.load(0, 0, 0)), (Did::Value(5), Did::Value(5)));
    let leaf = |node: usize| ram.inner.lock().tables[node].lookup(world.machine.memory(), gfn(0)).unwrap();
    assert_ne!(leaf(0).mfn, leaf(1).mfn, "each node reads its own");
    world.check_all();
    assert!(matches!(world.store(0, 0, 0, 6), Did::Waits(_)), "hart 1 reads the copy");
    assert_eq!(world.load(1, 0, 0), Did::Value(5));
    world.interrupt(1);
    assert_eq!((world.store(0, 0, 0, 6), world.load(1, 0, 0)), (Did::Value(6), Did::Value(6)));
    assert_eq!(ram.take_collapses(), (1, NodeId(0)));
    world.interrupt_all();
    ram.free_deferred();
    world.check_at_rest();
    world.end();
}

/// The copy is made without the lock. A write that comes meanwhile ends the watch, and the copy is dropped.
#[test]
fn a_copy_of_a_page_that_is_written_meanwhile_is_dropped() {
    let world = world();
    let mut pages = vec![gfn(0)];
    world.ram(0).watch_pages(&mut pages, TO);
    world.interrupt_all();
    let (others, came) = (Rc::downgrade(&world), Rc::new(Cell::new(false)));
    let has_come = came.clone();
    world.machine.set_others(Box::new(move || {
        let Some(world) = others.upgrade().filter(|world| world.is_unlocked() && !has_come.replace(true)) else {
            return;
        };
        assert_eq!(world.store(2, 0, 0, 6), Did::Value(6));
    }));
    let counts =
        world.ram(0).step_replication(&mut Replication::new(pages, TO), tried, || true).expect("nobody is inside");
    assert!(came.get(), "nobody came");
    assert_eq!(outcome(&counts), (0, 1, Some(PlacementReason::WriteShared)));
    assert_eq!(world.load(1, 0, 0), Did::Value(6));
    world.interrupt_all();
    world.check_at_rest();
    world.end();
}

/// The same, and somebody has watched the page anew since: that it is watched does not make the copy right.
#[test]
fn a_copy_of_a_page_that_is_written_and_watched_again_is_dropped() {
    let world = world();
    let mut pages = vec![gfn(0)];
    world.ram(0).watch_pages(&mut pages, TO);
    world.interrupt_all();
    let (others, came) = (Rc::downgrade(&world), Rc::new(Cell::new(false)));
    let has_come = came.clone();
    world.machine.set_others(Box::new(move || {
        let Some(world) = others.upgrade().filter(|world| world.is_unlocked() && !has_come.replace(true)) else {
            return;
        };
        assert_eq!(world.store(2, 0, 0, 6), Did::Value(6));
        world.leave(2);
        world.ram(0).watch_pages(&mut vec![gfn(0)], NodeId(0));
    }));
    let mut replication = Replication::new(pages, TO);
    assert!(world.ram(0).step_replication(&mut replication, tried, || true).is_none(), "the copy may be out of date");
    assert!(came.get(), "nobody came");
    let counts = world.ram(0).step_replication(&mut replication, tried, || true).expect("a new one is not");
    assert_eq!((outcome(&counts), world.load(1, 0, 0)), ((1, 0, None), Did::Value(6)));
    world.interrupt_all();
    world.check_at_rest();
    world.end();
}

/// Who writes to a block that moves copies some of it, until it is there.
#[test]
fn a_block_moves_with_the_help_of_who_waits_for_it() {
    let world = block();
    let ram = world.ram(0);
    ram.begin_block_move(gfn(0), TO, tried).unwrap();
    assert_eq!(ram.step_block_move(TO, 16), MoveStep::Waits, "hart 1 can write it unseen");
    assert_eq!(world.store(2, 0, 0, 6), Did::Busy);
    assert_eq!(world.store(0, 0, 0, 6), Did::Value(6), "until it leaves, a hart writes what it knows");
    world.interrupt_all();
    assert_eq!(ram.step_block_move(TO, 16), MoveStep::More);
    assert_eq!((world.load(1, 0, 511), world.load(1, 0, 0)), (Did::Value(5), Did::Value(6)));
    assert_eq!(world.store(0, 0, 511, 6), Did::Busy, "the reader sees the old block");
    assert_eq!((ram.node_of(gfn(0)), ram.take_block_moves()), (Some(TO), (1, TO)), "it is there nevertheless");
    world.check_all();
    assert!(matches!(world.store(0, 0, 511, 6), Did::Waits(_)));
    assert_eq!(world.load(1, 0, 511), Did::Value(5));
    world.interrupt(1);
    assert_eq!((world.store(0, 0, 511, 6), world.load(1, 0, 511)), (Did::Value(6), Did::Value(6)));
    assert!(ram.is_large(gfn(0)));
    world.interrupt_all();
    ram.free_deferred();
    world.check_at_rest();
    world.end();
}

/// A device writes to the block, or the guest gives a page of it back: it stays, and the new one is free.
#[test]
fn a_block_that_is_touched_stays() {
    for touch in [|world: &World| world.device_write(2, 0, at(1, 0), 6), |world: &World| world.give_back(2, 0, 1, 1)] {
        let world = block();
        let ram = world.ram(0);
        ram.begin_block_move(gfn(0), TO, tried).unwrap();
        world.interrupt_all();
        assert_eq!(ram.step_block_move(TO, 16), MoveStep::More);
        touch(&world);
        while ram.step_block_move(TO, 64) != MoveStep::Nothing {}
        assert_eq!((ram.node_of(gfn(0)), ram.block_moves(TO)), (Some(NodeId(0)), 0));
        world.interrupt_all();
        ram.free_deferred();
        assert_eq!(ram.pages_by_node()[1], 0);
        world.check_at_rest();
        world.end();
    }
}

/// Each node reads its own copy of a block by one leaf. A write ends the copies of its page alone. When all copies are given up, the
/// block is one page again.
#[test]
fn copies_of_a_block_come_and_go() {
    let world = block();
    let ram = world.ram(0);
    ram.begin_block_copies(gfn(0), 0b110).unwrap();
    assert!(ram.is_copying_block(gfn(1)) && ram.watch_block(gfn(0)).is_none(), "nobody else watches it");
    assert_eq!(ram.step_block_copy(NodeId(1), 128, tried), CopyStep::More);
    assert_eq!(world.store(0, 0, 0, 7), Did::Value(7), "until it leaves, a hart writes what it knows");
    world.interrupt_all();
    while ram.step_block_copy(NodeId(1), 128, tried) != CopyStep::Nothing {}
    while ram.step_block_copy(NodeId(2), 100, tried) == CopyStep::More {}
    let leaf = |node: usize| ram.inner.lock().tables[node].lookup(world.machine.memory(), gfn(1)).unwrap();
    assert_eq!([1, 2].map(|node| leaf(node).size), [PageSize::Large; 2]);
    assert_eq!((world.load(1, 0, 511), world.load(2, 0, 511)), (Did::Value(5), Did::Value(5)));
    assert_eq!((world.load(1, 0, 0), world.load(2, 0, 0)), (Did::Value(7), Did::Value(7)));
    world.check_all();
    let resident = ram.resident();
    assert_eq!([1, 2].map(|node| resident[node].replica_pages), [PAGES_PER_LARGE; 2]);

    assert!(matches!(world.store(0, 0, 1, 6), Did::Waits(_)));
    assert_eq!(world.load(2, 0, 1), Did::Value(5));
    world.interrupt_all();
    assert_eq!((world.store(0, 0, 1, 6), world.load(1, 0, 1)), (Did::Value(6), Did::Value(6)));
    assert_eq!(ram.resident()[1].replica_pages, PAGES_PER_LARGE - 1);

    assert_eq!(world.load(1, 0, 511), Did::Value(5));
    world.machine.pass(100 * super::machine::HZ);
    assert_eq!(ram.give_up_copies(600), 2 * (PAGES_PER_LARGE - 1));
    assert!((0..2).all(|_| !ram.join_next(1, u64::MAX)), "hart 1 reads the copies");
    assert!(matches!(world.store(0, 0, 511, 6), Did::Waits(_)));
    assert_eq!(world.load(1, 0, 511), Did::Value(5));
    world.interrupt_all();
    while ram.free_deferred() {}
    world.check_all();
    assert_eq!((world.load(1, 0, 511), ram.resident()[1].replica_pages), (Did::Value(5), 0));
    assert!((0..2).any(|_| ram.join_next(1, u64::MAX)));
    assert!(ram.is_large(gfn(0)));
    world.interrupt_all();
    while ram.free_deferred() {}
    world.check_at_rest();
    world.end();
}

/// A shared page has one copy on a node for all VMs. Whoever gives it up waits for those who read it.
#[test]
fn readers_of_a_shared_page_have_copies_in_common() {
    let world = World::new(&[false, false], 2, 4);
    for vm in 0..2 {
        world.map_from_disk(0, vm, 0, 77);
    }
    let page = world.cached(0, 77).unwrap();
    assert_eq!(outcome(&world.ram(0).spread_pages(&[gfn(0), gfn(1)], TO)), (1, 1, Some(PlacementReason::Raced)));
    assert_eq!(
        (world.load(1, 0, 0), world.load(3, 1, 0), world.load(0, 1, 0)),
        (Did::Value(77), Did::Value(77), Did::Value(77))
    );
    let leaf = |vm: usize, node: usize| {
        let inner = world.ram(vm).inner.lock();
        inner.tables[node].lookup(world.machine.memory(), gfn(0)).unwrap().mfn
    };
    assert!(leaf(0, 1) == leaf(1, 1) && leaf(0, 1) != page && leaf(1, 0) == page);
    assert_eq!(world.ram(1).shared_leaf(gfn(0), page, NodeId(0)), Some(PageSize::Base));
    assert_eq!(world.ram(1).shared_leaf(gfn(0), page, TO), None, "its harts see the copy");
    world.check_all();
    let job = Job::retire(&world).step(&world, 2).expect("harts 1 and 3 read it");
    assert_eq!((world.load(1, 0, 0), world.load(3, 1, 0)), (Did::Value(77), Did::Value(77)));
    world.interrupt_all();
    assert!(job.step(&world, 2).is_none());
    assert_eq!((world.load(1, 0, 0), world.load(3, 1, 0)), (Did::Value(77), Did::Value(77)));
    assert_eq!((leaf(0, 1), leaf(1, 1)), (page, page));
    world.check_at_rest();
    world.end();
}

/// A write while a block is copied ends the copying; a guest that writes does not wait for it.
#[test]
fn a_block_that_is_written_gets_no_copies() {
    let world = block();
    let ram = world.ram(0);
    ram.begin_block_copies(gfn(0), 0b10).unwrap();
    world.interrupt_all();
    assert_eq!(ram.step_block_copy(TO, 64, tried), CopyStep::More);
    assert_eq!(world.store(0, 0, 0, 6), Did::Value(6));
    assert_eq!(ram.step_block_copy(TO, 64, tried), CopyStep::Nothing);
    assert!(!ram.is_copying_block(gfn(0)));
    assert_eq!((world.load(1, 0, 0), ram.resident()[1].replica_pages), (Did::Value(6), 0));
    world.interrupt_all();
    world.check_at_rest();
    world.end();
}

#[test]
fn a_split_block_stays_apart_for_a_while() {
    let world = block();
    let ram = world.ram(0);
    assert!(ram.split_block(gfn(0)) && !ram.is_large(gfn(0)));
    let now = world.machine.now();
    assert!(!ram.join_next(2, now), "it was split for a reason");
    assert!(ram.join_next(2, now + 11 * super::machine::HZ) && ram.is_large(gfn(0)));
    assert_eq!(world.store(0, 0, 511, 6), Did::Value(6));
    world.interrupt_all();
    ram.free_deferred();
    world.check_at_rest();
    world.end();
}

/// Copies leave a node some memory for who needs it.
#[test]
fn a_node_that_is_nearly_full_gets_no_copies() {
    let world = World::with_memory(&[false], &[8, 2], 4);
    let mut page = 0;
    while has_reserve(world.machine.frames(), TO) {
        assert_eq!(world.store(1, 0, page, 5), Did::Value(5));
        page += 1;
    }
    assert_eq!(world.store(0, 0, page, 5), Did::Value(5));
    let mut pages = vec![gfn(page)];
    world.ram(0).watch_pages(&mut pages, TO);
    world.interrupt_all();
    let counts =
        world.ram(0).step_replication(&mut Replication::new(pages, TO), tried, || true).expect("nobody is inside");
    assert_eq!(outcome(&counts), (0, 1, Some(PlacementReason::NoMemory)));
    world.end();
}
