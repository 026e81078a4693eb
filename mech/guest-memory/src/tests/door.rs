//! Devices.

use super::{
    machine::HZ,
    world::{Did, PAGES, World, at, gfn},
};
use crate::{Machine as _, RAM_START};
use addr::{BASE_PAGE, GuestPhysAddr, NodeId};
use alloc::{boxed::Box, rc::Rc, vec, vec::Vec};
use core::cell::Cell;
use frames::IdleWork;
use guest_access::{GuestMemory, MemoryFault};

#[test]
fn bytes_go_across_pages_and_blocks() {
    for large in [false, true] {
        let world = World::new(&[large], 2, 2);
        let ram = world.ram(0);
        let data: Vec<u8> = (0..20_000u32).map(|byte| (byte % 251) as u8).collect();
        let start = GuestPhysAddr::new(RAM_START + (2 << 20) - 9_001);
        ram.write(start, &data).unwrap();
        let mut found = vec![0; data.len()];
        ram.read(start, &mut found).unwrap();
        assert_eq!(found, data);
        assert_eq!(ram.read_u32(GuestPhysAddr::new(start.raw() + 1)), Ok(u32::from_le_bytes([1, 2, 3, 4])));
        world.end();
    }
}

/// The short way and the long way to a value say the same, wherever it lies.
#[test]
fn small_values_are_the_same_on_both_ways() {
    let world = World::new(&[false], 1, 1);
    let ram = world.ram(0);
    for offset in 0..24 {
        let at = GuestPhysAddr::new(RAM_START + BASE_PAGE - 12 + offset);
        let bytes = |len: usize| {
            let mut bytes = [0; 16];
            ram.read(at, &mut bytes[..len]).unwrap();
            u128::from_le_bytes(bytes)
        };
        ram.write_u8(at, 0x5a).unwrap();
        assert_eq!(bytes(1), 0x5a);
        ram.write_u16(at, 0x1234).unwrap();
        assert_eq!((bytes(2), ram.read_u16(at)), (0x1234, Ok(0x1234)));
        ram.write_u32(at, 0x1234_5678).unwrap();
        assert_eq!((bytes(4), ram.read_u32(at)), (0x1234_5678, Ok(0x1234_5678)));
        ram.write_u32_pair(at, [7, 8]).unwrap();
        assert_eq!((bytes(8), ram.read_u64(at)), (0x8_0000_0007, Ok(0x8_0000_0007)));
        ram.write_u64(at, u64::MAX - offset).unwrap();
        ram.write_u64(GuestPhysAddr::new(at.raw() + 8), 3).unwrap();
        assert_eq!(ram.read_u64_pair(at), Ok([u64::MAX - offset, 3]));
        assert_eq!(bytes(16), 3 << 64 | u128::from(u64::MAX - offset));
    }
    world.end();
}

#[test]
fn what_is_no_ram_is_a_fault() {
    let world = World::new(&[false], 1, 1);
    let ram = world.ram(0);
    let end = GuestPhysAddr::new(RAM_START + PAGES * BASE_PAGE);
    let before = GuestPhysAddr::new(RAM_START - 1);
    assert_eq!(ram.read(before, &mut [0; 2]), Err(MemoryFault { addr: before }));
    assert_eq!(ram.write(GuestPhysAddr::new(end.raw() - 2), &[1; 3]), Err(MemoryFault { addr: end }));
    assert_eq!(ram.read_u64(end), Err(MemoryFault { addr: end }));
    assert!(ram.write_u64(GuestPhysAddr::new(u64::MAX - 3), 1).is_err(), "it wraps");
    assert!(ram.contains(at(0, 0), PAGES * BASE_PAGE) && !ram.contains(at(0, 1), PAGES * BASE_PAGE));
    assert!(!ram.contains(before, 1) && !ram.contains(at(0, 0), u64::MAX));
    world.end();
}

/// Whoever looks at a guest from outside sees all that it has, and gives it nothing.
#[test]
fn a_look_gives_the_guest_no_pages() {
    let world = World::new(&[false], 1, 1);
    let ram = world.ram(0);
    let mut found = [7; 64];
    assert_eq!(ram.peek(GuestPhysAddr::new(RAM_START + BASE_PAGE - 32), &mut found), Ok(()));
    assert_eq!((found, ram.pages_by_node()[0]), ([0; 64], 0));
    ram.write(GuestPhysAddr::new(RAM_START + BASE_PAGE - 8), &[1; 8]).unwrap();
    world.map_from_disk(0, 0, 1, 5);
    let mut shown = [0; 64];
    assert_eq!(ram.peek(GuestPhysAddr::new(RAM_START + BASE_PAGE - 32), &mut shown), Ok(()));
    let mut read = [0; 64];
    ram.read(GuestPhysAddr::new(RAM_START + BASE_PAGE - 32), &mut read).unwrap();
    assert_eq!(shown, read);
    assert!(shown[24..32] == [1; 8] && shown[32..] != [0; 32]);
    let end = GuestPhysAddr::new(RAM_START + PAGES * BASE_PAGE);
    assert_eq!(ram.peek(GuestPhysAddr::new(end.raw() - 1), &mut [0; 2]), Err(MemoryFault { addr: end }));
    assert!(ram.peek(GuestPhysAddr::new(u64::MAX), &mut [0; 2]).is_err());
    world.end();
}

/// A disk maps a page of its cache. The guest may hear of that when no vCPU sees the page before it any more.
#[test]
fn a_disk_read_ends_with_its_shootdown() {
    let world = World::new(&[false], 2, 4);
    assert_eq!(world.store(1, 0, 0, 5), Did::Value(5));
    let before = {
        let inner = world.ram(0).inner.lock();
        inner.pmap.lookup(world.machine.memory(), at(0, 0).gfn()).unwrap().state.mfn().unwrap()
    };
    world.map_from_disk(0, 0, 0, 77);
    let state = || world.machine.frames().map().info(before).unwrap().state;
    assert!(!world.ram(0).is_settled() && state() == frames::PageState::Dying, "hart 1 sees it");
    world.check_all();
    world.interrupt(1);
    assert!(world.ram(0).is_settled());
    world.ram(0).free_deferred();
    assert_eq!(state(), frames::PageState::Free);
    assert_eq!((world.load(1, 0, 0), world.load(0, 0, 0)), (Did::Value(77), Did::Value(77)));
    world.interrupt_all();
    world.check_at_rest();
    world.end();
}

/// A device that is the first to touch a block gets one that was zeroed ahead, or else a page: it has no time to zero 2 MiB.
#[test]
fn a_device_zeroes_no_block() {
    let world = World::new(&[true], 1, 2);
    let zeroings = Rc::new(Cell::new(0));
    let seen = zeroings.clone();
    world.machine.set_others(Box::new(move || seen.set(seen.get() + 1)));
    world.device_write(0, 0, at(3, 0), 5);
    // The page, and a table for it.
    assert!(zeroings.get() <= 2, "{} pages", zeroings.get());
    assert!(!world.ram(0).is_large(gfn(0)));
    let (frames, memory) = (world.machine.frames(), world.machine.memory());
    while frames.idle_step(memory, NodeId(0), 512) != IdleWork::Nothing {}
    let before = zeroings.get();
    world.device_write(0, 0, at(600, 0), 6);
    assert_eq!(zeroings.get(), before);
    assert!(world.ram(0).is_large(gfn(600)), "one was ready");
    world.machine.set_others(Box::new(|| ()));
    assert_eq!((world.load(1, 0, 4), world.load(1, 0, 3)), (Did::Value(0), Did::Value(5)));
    assert_eq!((world.load(1, 0, 601), world.load(1, 0, 600)), (Did::Value(0), Did::Value(6)));
    world.check_at_rest();
    world.end();
}

/// Where there are no 2 MiB a device takes a page.
#[test]
fn a_device_takes_a_page_where_there_is_no_block() {
    let world = World::with_memory(&[true], &[2], 1);
    world.device_write(0, 0, at(3, 0), 5);
    world.device_write(0, 0, at(600, 0), 6);
    let ram = world.ram(0);
    assert!(!ram.is_large(gfn(600)) || !ram.is_large(gfn(0)));
    assert_eq!(world.load(0, 0, 600), Did::Value(6));
    world.check_at_rest();
    world.end();
}

/// A hart reads the shared page that the device wants to write: it is called, and the device goes on when it has left.
#[test]
fn a_device_waits_for_readers_of_a_shared_page() {
    let world = World::new(&[false], 2, 4);
    world.map_from_disk(0, 0, 0, 77);
    assert_eq!(world.load(1, 0, 0), Did::Value(77));
    let waiting = Rc::downgrade(&world);
    world.machine.set_on_time(Box::new(move || waiting.upgrade().into_iter().for_each(|world| world.interrupt(1))));
    world.device_write(2, 0, at(0, 0), 5);
    assert_eq!(world.inside(1), None, "it was called");
    assert_eq!((world.load(1, 0, 0), world.load(0, 0, 0)), (Did::Value(5), Did::Value(5)));
    world.end();
}

/// A hart that is dead never leaves: the device gives up.
#[test]
fn a_device_does_not_wait_for_ever() {
    let world = World::new(&[false], 2, 4);
    world.map_from_disk(0, 0, 0, 77);
    assert_eq!(world.load(1, 0, 0), Did::Value(77));
    let begin = world.machine.now();
    assert_eq!(world.ram(0).write_u64(at(0, 0), 5), Err(MemoryFault { addr: at(0, 0) }));
    assert!((2 * HZ..3 * HZ).contains(&(world.machine.now() - begin)));
    assert_eq!(world.load(1, 0, 0), Did::Value(77), "nothing was written");
    world.end();
}

/// A device's page comes from what others give up; it is a fault when they have nothing left.
#[test]
fn a_device_asks_for_memory() {
    let world = World::with_memory(&[false, false], &[1], 2);
    let full = (0..512).find(|page| world.store(0, 0, *page, 1) == Did::OutOfMemory).expect("1 MiB has an end");
    assert!(world.ram(1).write_u64(at(0, 0), 5).is_err(), "nobody gives anything up");
    let (giver, asked) = (Rc::downgrade(&world), Rc::new(Cell::new(0)));
    let has_asked = asked.clone();
    world.machine.set_relief(move || {
        has_asked.set(has_asked.get() + 1);
        let Some(world) = giver.upgrade() else { return false };
        world.leave(0);
        world.give_back(1, 0, has_asked.get() * 2, 2);
        has_asked.get() < 100
    });
    world.device_write(1, 1, at(0, 0), 5);
    assert!((1..4).contains(&asked.get()), "{} times", asked.get());
    assert!(full > 100);
    world.end();
}
