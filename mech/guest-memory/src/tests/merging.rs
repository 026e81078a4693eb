//! Pages of two VMs that become one, and zeroes that go back.

use super::{
    jobs::Job,
    world::{Did, World, gfn},
};
use crate::{Machine as _, equal_places};
use addr::{Gfn, Mfn, PAGES_PER_LARGE};
use alloc::rc::Rc;

/// Two VMs with equal pages 0, which harts 0 and 1 know.
fn twins() -> Rc<World> {
    let world = World::new(&[false, false], 2, 4);
    for vm in 0..2 {
        assert_eq!(world.store(vm, vm, 0, 9), Did::Value(9));
        assert_eq!(world.store(vm, vm, 1, vm as u64), Did::Value(vm as u64));
    }
    world
}

fn page(world: &World, vm: usize, at: Gfn) -> Option<Mfn> {
    let inner = world.ram(vm).inner.lock();
    inner.pmap.lookup(world.machine.memory(), at).unwrap().machine_page(at)
}

fn rest(world: &World) {
    world.interrupt_all();
    while world.guests.iter().filter(|guest| guest.ram.free_deferred()).count() > 0 {}
    world.check_at_rest();
}

#[test]
fn equal_pages_become_one_until_somebody_writes() {
    let world = twins();
    assert_eq!(equal_places(world.ram(0), world.ram(1), gfn(0), 64), 0b1);
    let merge = Job::merge(&world, 0, 1, &[(0, 0)]).unwrap();
    let merge = merge.step(&world, 2).expect("hart 0 can write the original unseen");
    world.interrupt(0);
    let merge = merge.step(&world, 2).expect("hart 1 can write the copy unseen");
    assert_eq!((world.load(0, 0, 0), world.load(1, 1, 0)), (Did::Value(9), Did::Value(9)));
    world.interrupt_all();
    assert!(merge.step(&world, 2).is_none());
    assert_eq!(page(&world, 0, gfn(0)), page(&world, 1, gfn(0)));
    assert_eq!(world.ram(1).pages_merged(), (1, 0));
    rest(&world);
    assert_eq!((world.load(0, 0, 0), world.load(1, 1, 0)), (Did::Value(9), Did::Value(9)));
    assert_eq!((world.store(1, 1, 0, 3), world.load(0, 0, 0)), (Did::Value(3), Did::Value(9)));
    assert_ne!(page(&world, 0, gfn(0)), page(&world, 1, gfn(0)));
    rest(&world);
    world.end();
}

/// Who wants an original that somebody else has shared a moment ago waits for the same harts.
#[test]
fn an_original_that_was_just_shared_is_waited_for_again() {
    let world = twins();
    assert_eq!(world.store(1, 1, 2, 9), Did::Value(9));
    let first = Job::merge(&world, 0, 1, &[(0, 0)]).unwrap();
    let second = Job::merge(&world, 0, 1, &[(0, 2)]).unwrap();
    world.leave(1);
    let second = second.step(&world, 2).expect("hart 0 can write the original unseen");
    world.check();
    world.interrupt_all();
    assert!(first.step(&world, 2).is_none() && second.step(&world, 2).is_none());
    assert_eq!(page(&world, 0, gfn(0)), page(&world, 1, gfn(2)));
    rest(&world);
    world.end();
}

#[test]
fn pages_that_differ_are_not_merged() {
    let world = twins();
    assert!(Job::merge(&world, 0, 1, &[(1, 1), (0, 1), (5, 0)]).is_none());
    rest(&world);
    world.end();
}

/// A write of either guest between two steps keeps its page.
#[test]
fn a_write_between_the_steps_keeps_a_page() {
    for (vm, after) in [(0, 1), (0, 2), (1, 1), (1, 2)] {
        let world = twins();
        let mut merge = Job::merge(&world, 0, 1, &[(0, 0)]);
        for step in 1..4 {
            world.interrupt_all();
            if step == after {
                assert_eq!(world.store(vm, vm, 0, 4), Did::Value(4));
            }
            // A hart that stays inside keeps it from ending at once.
            let other = world.load(2, 1, 1);
            assert_eq!(other, Did::Value(1));
            merge = merge.and_then(|merge| merge.step(&world, 3));
        }
        world.interrupt_all();
        assert!(merge.and_then(|merge| merge.step(&world, 3)).is_none(), "it has ended");
        let (merged, _) = world.ram(1).pages_merged();
        assert!(merged == 0 || vm == 0 && after == 2, "VM {vm} wrote before step {after}");
        assert_eq!(world.load(vm, vm, 0), Did::Value(4));
        assert_eq!(world.load(1 - vm, 1 - vm, 0), Did::Value(9));
        rest(&world);
        world.end();
    }
}

/// A hart that can still write the original keeps the merge waiting, whatever the copy's harts do.
#[test]
fn an_original_that_a_hart_can_write_is_not_taken() {
    let world = twins();
    let mut merge = Job::merge(&world, 0, 1, &[(0, 0)]);
    for _ in 0..3 {
        world.interrupt(1);
        merge = merge.and_then(|merge| merge.step(&world, 2));
    }
    assert_eq!((world.store(0, 0, 0, 4), world.load(1, 1, 0)), (Did::Value(4), Did::Value(9)));
    for _ in 0..3 {
        world.interrupt_all();
        merge = merge.and_then(|merge| merge.step(&world, 2));
    }
    assert!(merge.is_none());
    assert_eq!((world.load(0, 0, 0), world.load(1, 1, 0)), (Did::Value(4), Did::Value(9)));
    rest(&world);
    world.end();
}

/// A page that was offered to others is replaced by a disk read before anybody has come.
#[test]
fn a_disk_takes_the_place_of_an_offered_page() {
    let world = twins();
    let merge = Job::merge(&world, 0, 1, &[(0, 0)]).unwrap();
    world.map_from_disk(2, 0, 0, 77);
    world.interrupt_all();
    let merge = merge.step(&world, 2);
    world.interrupt_all();
    assert!(merge.and_then(|merge| merge.step(&world, 2)).is_none());
    assert_eq!(world.ram(1).pages_merged(), (0, 0));
    assert_eq!((world.load(0, 0, 0), world.load(1, 1, 0)), (Did::Value(77), Did::Value(9)));
    rest(&world);
    world.end();
}

#[test]
fn a_block_of_zeroes_goes_back_unless_it_is_written() {
    for write in [None, Some(300)] {
        let world = World::new(&[true], 1, 2);
        assert_eq!(world.store(0, 0, 0, 0), Did::Value(0));
        let ram = world.ram(0);
        let watched = ram.watch_block(gfn(0)).unwrap();
        assert!(!ram.is_in_force(watched), "hart 0 can write it unseen");
        world.interrupt_all();
        assert!(ram.is_in_force(watched));
        for part in 0..PAGES_PER_LARGE / 64 {
            assert_eq!(ram.zeroes(gfn(part * 64), 64), u64::MAX);
        }
        if let Some(page) = write {
            // A zero again at the end: that it was written counts.
            assert_eq!(world.store(1, 0, page, 8), Did::Value(8));
            assert_eq!(world.store(1, 0, page, 0), Did::Value(0));
        }
        assert_eq!(ram.drop_zeroes(gfn(0), watched), write.is_none());
        assert_eq!(world.load(1, 0, 300), Did::Value(0));
        rest(&world);
        world.end();
    }
}

/// The block was written after it was seen, and somebody has watched it anew: it looks as if nobody had written it.
#[test]
fn a_block_that_is_written_and_watched_again_stays() {
    let world = World::new(&[true], 1, 2);
    assert_eq!(world.store(0, 0, 0, 0), Did::Value(0));
    let ram = world.ram(0);
    let watched = ram.watch_block(gfn(0)).unwrap();
    world.interrupt_all();
    assert_eq!(world.store(1, 0, 300, 8), Did::Value(8));
    assert!(ram.watch_block_writes(gfn(0)));
    world.interrupt_all();
    assert!(!ram.drop_zeroes(gfn(0), watched));
    assert_eq!(world.load(0, 0, 300), Did::Value(8));
    rest(&world);
    world.end();
}

/// The same, and the block was taken apart and put together in between: its pages could be written without a fault.
#[test]
fn a_block_that_was_put_together_meanwhile_stays() {
    let world = World::new(&[true], 1, 2);
    assert_eq!(world.store(0, 0, 0, 0), Did::Value(0));
    let ram = world.ram(0);
    let watched = ram.watch_block(gfn(0)).unwrap();
    world.interrupt_all();
    assert!(ram.split_block(gfn(0)) && ram.join_next(2, u64::MAX));
    world.interrupt_all();
    assert_eq!(world.store(1, 0, 300, 8), Did::Value(8));
    assert!(ram.watch_block_writes(gfn(0)));
    world.interrupt_all();
    assert!(!ram.drop_zeroes(gfn(0), watched));
    assert_eq!(world.load(0, 0, 300), Did::Value(8));
    rest(&world);
    world.end();
}

#[test]
fn single_pages_of_zeroes_go_back_unless_they_are_written() {
    let world = World::new(&[false], 1, 2);
    for page in 0..3 {
        assert_eq!(world.store(0, 0, page, 0), Did::Value(0));
    }
    let ram = world.ram(0);
    let zeroes = ram.watch_zero_pages(&(0..3).map(gfn).collect());
    // Until it leaves, a hart writes what it knows.
    assert_eq!(world.store(0, 0, 2, 7), Did::Value(7));
    assert!(ram.drop_zero_pages(&zeroes, || ()).is_none(), "hart 0 can write them unseen");
    world.interrupt_all();
    assert_eq!(world.store(1, 0, 1, 8), Did::Value(8));
    assert_eq!(ram.drop_zero_pages(&zeroes, || ()), Some(1));
    assert_eq!([0, 1, 2].map(|page| world.load(0, 0, page)), [0, 8, 7].map(Did::Value));
    rest(&world);
    world.end();
}
