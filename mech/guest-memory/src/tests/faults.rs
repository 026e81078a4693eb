//! Faults of guests.

use super::world::{Did, World, at, gfn};
use crate::{Access, Machine as _, Touch};
use addr::NodeId;
use alloc::{boxed::Box, rc::Rc};
use core::cell::Cell;

#[test]
fn a_page_comes_from_the_node_of_who_touches_it_first() {
    let world = World::new(&[false], 2, 4);
    assert_eq!(world.store(1, 0, 0, 5), Did::Value(5));
    assert_eq!(world.ram(0).node_of(gfn(0)), Some(NodeId(1)));
    assert_eq!(world.load(0, 0, 0), Did::Value(5));
    assert_eq!(world.access(0, 0, at(0, 511), None), Did::Value(0));
    assert_eq!(world.ram(0).pages_by_node()[..2], [0, 1]);
    world.check_at_rest();
    world.end();
}

#[test]
fn a_large_page_backs_the_whole_block() {
    let world = World::new(&[true], 2, 4);
    assert_eq!(world.store(1, 0, 7, 5), Did::Value(5));
    assert!(world.ram(0).is_large(gfn(0)));
    assert_eq!(world.load(1, 0, 511), Did::Value(0));
    assert_eq!(world.load(0, 0, 7), Did::Value(5));
    assert_eq!(world.ram(0).pages_by_node()[..2], [0, 512]);
    world.end();
}

/// While one hart zeroes a block, another that wants the same is told to come back, one that wants another block gets it, and a device
/// that needs a page of it takes one.
#[test]
fn two_harts_touch_one_block() {
    let world = World::new(&[true], 2, 4);
    let (others, came) = (Rc::downgrade(&world), Rc::new(Cell::new(false)));
    let has_come = came.clone();
    world.machine.set_others(Box::new(move || {
        let Some(world) = others.upgrade().filter(|world| world.is_unlocked() && !has_come.replace(true)) else {
            return;
        };
        assert_eq!(world.touch(1, 0, at(3, 0), Access::Write), Touch::Busy);
        assert_eq!(world.store(2, 0, 512, 6), Did::Value(6));
        world.device_write(3, 0, at(9, 0), 7);
        assert_eq!(world.store(1, 0, 3, 8), Did::Value(8));
    }));
    assert_eq!(world.store(0, 0, 0, 5), Did::Value(5));
    assert!(came.get(), "nobody came");
    world.check_at_rest();
    for (page, value) in [(0, 5), (3, 8), (9, 7), (512, 6)] {
        assert_eq!(world.load(1, 0, page), Did::Value(value));
    }
    world.end();
}

/// Others may still read the page that was shared: the copy is written when they have left.
#[test]
fn a_write_to_a_shared_page_waits_for_its_readers() {
    let world = World::new(&[false], 2, 4);
    world.map_from_disk(0, 0, 0, 77);
    let block = world.cached(0, 77).unwrap();
    assert_eq!(world.load(1, 0, 0), Did::Value(77));
    let Did::Waits(generation) = world.store(0, 0, 0, 5) else { panic!("nobody may write yet") };
    assert_eq!(world.load(1, 0, 0), Did::Value(77), "who has not left reads what was there");
    assert_eq!(world.store(0, 0, 0, 5), Did::Waits(generation));
    assert!(!world.ram(0).tlb().all_passed(generation));
    world.interrupt(1);
    assert!(world.ram(0).tlb().all_passed(generation));
    assert_eq!(world.store(0, 0, 0, 5), Did::Value(5));
    assert_eq!(world.load(1, 0, 0), Did::Value(5));
    assert_eq!(frames::MachineMemory::read_u64(world.machine.memory(), block.addr()), 77, "the cache keeps its block");
    assert_eq!(world.ram(0).pages_shared(), (1, 1));
    world.interrupt_all();
    world.ram(0).free_deferred();
    world.check_at_rest();
    world.end();
}

/// Nobody is inside the VM but who writes: nothing is waited for, and nobody is interrupted.
#[test]
fn a_write_to_a_shared_page_of_a_single_vcpu_does_not_wait() {
    let world = World::new(&[false], 1, 2);
    world.map_from_disk(0, 0, 0, 77);
    assert_eq!(world.store(0, 0, 0, 5), Did::Value(5));
    assert!(!world.machine.take_kick(0) && !world.machine.take_kick(1));
    world.check_at_rest();
    world.end();
}

#[test]
fn a_machine_without_memory_says_so_until_some_comes_back() {
    let world = World::with_memory(&[false], &[1], 1);
    let refused = (0..512).find(|page| world.store(0, 0, *page, 1) == Did::OutOfMemory).expect("1 MiB has an end");
    assert!(refused > 200, "{refused} pages of 256");
    world.check();
    world.give_back(0, 0, 0, 2);
    assert_eq!(world.store(0, 0, refused, 1), Did::Value(1));
    world.check_at_rest();
    world.end();
}

/// A block is zeroed by pieces: whoever touches it meanwhile does the next one, and what was begun for a VM that ends goes back.
#[test]
fn a_block_is_zeroed_by_pieces() {
    let world = World::new(&[true], 2, 4);
    let touch = |hart, page| world.touch(hart, 0, at(page, 0), Access::Write);
    let mut pieces = 1;
    assert_eq!(touch(0, 0), Touch::GoesOn);
    // A second vCPU takes its turns, with another page of the block.
    while touch(pieces % 2, 7) == Touch::GoesOn {
        pieces += 1;
    }
    assert!((100..=512).contains(&pieces), "{pieces} pieces");
    assert!(world.ram(0).is_large(gfn(7)));
    assert_eq!(world.access(1, 0, at(9, 0), None), Did::Value(0));
    assert_eq!(touch(0, 512), Touch::GoesOn, "another block");
    world.end();
}

/// A device puts a page into a block that is half zeroed: the block goes back.
#[test]
fn a_device_comes_before_the_block_is_zero() {
    let world = World::new(&[true], 1, 4);
    assert_eq!(world.touch(0, 0, at(0, 0), Access::Write), Touch::GoesOn);
    world.device_write(0, 0, at(9, 0), 7);
    world.check_at_rest();
    assert_eq!(world.load(0, 0, 9), Did::Value(7));
    assert_eq!(world.load(0, 0, 0), Did::Value(0));
    world.end();
}

/// After an exit the monitor looks at an instruction of its guest. Meanwhile the page has become another VM's, and the hart's TLB knows
/// it still.
#[test]
fn the_monitor_loads_from_its_guest_only() {
    let world = World::new(&[false, false], 1, 2);
    assert_eq!(world.store(0, 0, 0, 5), Did::Value(5));
    assert_eq!(world.monitor_load(0, 0, at(0, 0)), Some(5));
    world.give_back(1, 0, 0, 1);
    assert_eq!(world.store(1, 1, 0, 6), Did::Value(6));
    assert_eq!(world.monitor_load(0, 0, at(0, 0)), None, "the page is gone");
    world.end();
}

/// The check is worth something only if it sees the mistake.
#[test]
#[should_panic(expected = "which it is outside of")]
fn a_load_of_the_monitor_from_outside_is_caught() {
    let world = World::new(&[false], 1, 1);
    assert_eq!(world.store(0, 0, 0, 5), Did::Value(5));
    world.leave(0);
    world.load_through(0, 0, at(0, 0));
}
