//! Sharing: the cache and copy-on-write.

use std::vec;
use std::vec::Vec;

use addr::GuestPhysAddr;

use super::world::*;
use crate::gpt::Partition;
use crate::overlay::{Overlay, SectorMask};
use crate::*;

const SECTORS: u64 = 8_003;

#[test]
fn two_vms_read_a_block_once() {
    let pages = Pages::new(10_000);
    let mut world = World::new(&pages, SECTORS, vec![], 1_000);
    let (a, b) = (world.private("a"), world.private("b"));
    assert_eq!(world.submit(a, 1, Kind::Read, 100, 8, 0, 512), Outcome::Pending);
    assert_eq!(world.submit(b, 2, Kind::Read, 100, 8, 8_192, 4_096), Outcome::Pending);
    assert_eq!(world.io.reads, 1);
    world.drain();
    assert_eq!(world.done, [(1, Status::Ok), (2, Status::Ok)]);
    assert_eq!(world.ram(0, 4_096), fresh(100, 8));
    assert_eq!(world.ram(8_192, 4_096), fresh(100, 8));
    assert_eq!(world.submit(b, 3, Kind::Read, 96, 8, 0, 4_096), Outcome::Done(Status::Ok));
    assert!(world.disk.metrics().joins >= 1);
    world.end(&[a, b]);
}

#[test]
fn writes_stay_private_sector_by_sector() {
    let pages = Pages::new(10_000);
    let mut world = World::new(&pages, SECTORS, vec![], 1_000);
    let (a, b) = (world.private("a"), world.private("b"));
    world.fill(0, 512, 0xaa);
    // No read is needed to write a part of a block.
    assert_eq!(world.submit(a, 1, Kind::Write, 803, 1, 0, 100), Outcome::Done(Status::Ok));
    assert_eq!(world.io.reads, 0);
    assert_eq!(world.run(a, Kind::Read, 800, 8, 4_096), Status::Ok);
    let mut want = fresh(800, 8);
    want[3 * 512..4 * 512].fill(0xaa);
    assert_eq!(world.ram(4_096, 4_096), want);
    assert_eq!(world.run(b, Kind::Read, 800, 8, 4_096), Status::Ok);
    assert_eq!(world.ram(4_096, 4_096), fresh(800, 8));
    assert_eq!((world.disk.private_pages(a), world.disk.private_pages(b)), (1, 0));
    world.end(&[a, b]);
}

#[test]
fn zeroes_take_no_pages_and_discarding_gives_them_back() {
    let pages = Pages::new(10_000);
    let mut world = World::new(&pages, SECTORS, vec![], 1_000);
    let a = world.private("a");
    world.fill(0, 4_096 * 512, 0x55);
    assert_eq!(world.run(a, Kind::Write, 0, 4_096, 0), Status::Ok);
    assert_eq!(world.disk.private_pages(a), 512);
    assert_eq!(world.run(a, Kind::WriteZeroes, 1, 4_000, 0), Status::Ok);
    assert_eq!(world.disk.private_pages(a), 13);
    assert_eq!(world.run(a, Kind::Read, 0, 4_096, 1 << 21), Status::Ok);
    let mut want = vec![0x55; 4_096 * 512];
    want[512..4_001 * 512].fill(0);
    assert_eq!(world.ram(1 << 21, 4_096 * 512), want);
    // A write into the zeroes keeps them around it.
    assert_eq!(world.run(a, Kind::Write, 1_001, 1, 0), Status::Ok);
    assert_eq!(world.run(a, Kind::Read, 1_000, 8, 0), Status::Ok);
    let mut want = vec![0; 4_096];
    want[512..1_024].fill(0x55);
    assert_eq!(world.ram(0, 4_096), want);
    assert_eq!(world.run(a, Kind::Discard, 0, SECTORS, 0), Status::Ok);
    assert_eq!(world.disk.private_pages(a), 0);
    world.end(&[a]);
}

/// A disk at its limit refuses what needs a new block, and nothing else; what is discarded may be written elsewhere.
#[test]
fn a_limit_holds_for_its_disk_alone() {
    let pages = Pages::new(10_000);
    let mut world = World::new(&pages, SECTORS, vec![], 1_000);
    let spec = MountSpec { holder: "a", partition: None, mode: Mode::CopyOnWrite { limit_pages: 4 } };
    let (a, b) = (world.disk.mount(&spec).unwrap(), world.private("b"));
    world.fill(0, 4_096, 0x55);
    for block in 0..4 {
        assert_eq!(world.run(a, Kind::Write, block * 8, 8, 0), Status::Ok);
    }
    assert!(world.disk.is_at_limit(a) && !world.disk.is_at_limit(b));
    assert_eq!(world.run(a, Kind::Write, 4 * 8, 8, 0), Status::NoSpace);
    assert_eq!(world.run(a, Kind::WriteZeroes, 4 * 8, 8, 0), Status::NoSpace);
    assert_eq!(world.run(a, Kind::Write, 0, 8, 0), Status::Ok);
    assert_eq!(world.run(b, Kind::Write, 4 * 8, 8, 0), Status::Ok);
    assert_eq!(world.run(a, Kind::Discard, 8, 8, 0), Status::Ok);
    assert_eq!((world.disk.charged_pages(a), world.disk.is_at_limit(a)), (3, false));
    assert_eq!(world.run(a, Kind::Write, 4 * 8, 8, 0), Status::Ok);
    assert_eq!(world.run(a, Kind::Read, 8, 8, 4_096), Status::Ok);
    assert_eq!(world.ram(4_096, 4_096), fresh(8, 8));
    world.end(&[a, b]);
}

/// Blocks that lie far apart take more memory to find them than blocks in a row: that counts, too.
#[test]
fn what_finds_blocks_counts_towards_the_limit() {
    const APART: u64 = (64 << 20) / 4_096;
    const LIMIT: u64 = 64;
    let pages = Pages::new(10_000);
    let mut overlay = Overlay::new(LIMIT);
    let refused = (0..1_000).find(|step| overlay.zero(step * APART, SectorMask::MAX, &pages).is_err());
    // 2.5 KiB for each.
    assert!(refused.is_some_and(|count| (80..110).contains(&count)), "{refused:?}");
    assert_eq!((overlay.pages(), overlay.charge(), overlay.is_full()), (0, LIMIT, true));
    while overlay.dismantle(&pages) {}
    assert_eq!(overlay.charge(), 0);
}

#[test]
fn sequential_misses_are_few_and_large() {
    let pages = Pages::new(10_000);
    let mut world = World::new(&pages, SECTORS, vec![], 2_000);
    let a = world.private("a");
    for block in 0..1_000 {
        assert_eq!(world.run(a, Kind::Read, block * 8, 8, 0), Status::Ok);
        assert_eq!(world.ram(0, 4_096), fresh(block * 8, 8));
    }
    assert!(world.io.reads <= 1_000 / 32 + 4, "{}", world.io.reads);
    let before = world.io.reads;
    assert_eq!(world.run(a, Kind::Read, 7_996, 7, 0), Status::Ok);
    assert_eq!(world.ram(0, 7 * 512), fresh(7_996, 7));
    assert!(world.io.reads <= before + 2);
    world.end(&[a]);
}

#[test]
fn a_large_read_is_served_by_operations_at_once() {
    let pages = Pages::new(10_000);
    let mut world = World::new(&pages, SECTORS, vec![], 2_000);
    let a = world.private("a");
    assert_eq!(world.submit(a, 1, Kind::Read, 3, 1_500, 0, 65_536), Outcome::Pending);
    assert_eq!(world.io.started.len(), 6);
    world.drain();
    assert_eq!(world.ram(0, 1_500 * 512), fresh(3, 1_500));
    world.end(&[a]);
}

#[test]
fn a_request_longer_than_a_turn_comes_back() {
    let pages = Pages::new(10_000);
    let mut world = World::new(&pages, SECTORS, vec![], 2_000);
    let a = world.private("a");
    assert_eq!(world.run(a, Kind::Read, 0, 8_000, 0), Status::Ok);
    assert_eq!(world.submit(a, 1, Kind::Read, 0, 8_000, 0, 1 << 20), Outcome::Pending);
    assert!(world.io.started.is_empty());
    world.go_on();
    assert_eq!(world.done.last(), Some(&(1, Status::Ok)));
    assert_eq!(world.ram(0, 8_000 * 512), fresh(0, 8_000));
    world.end(&[a]);
}

/// Long requests go on in small steps, and the disks that have some take turns: a short one comes soon, whatever others want.
#[test]
fn ready_requests_take_turns_and_small_steps() {
    let pages = Pages::new(10_000);
    let mut world = World::new(&pages, SECTORS, vec![], 2_000);
    let (greedy, modest) = (world.private("greedy"), world.private("modest"));
    assert_eq!(world.run(greedy, Kind::Read, 0, 8_000, 0), Status::Ok);
    // All of it is in the cache: only the bound of a call stops them.
    for tag in 1..=20 {
        assert_eq!(world.submit(greedy, tag, Kind::Read, 0, 8_000, 0, 1 << 20), Outcome::Pending);
    }
    assert_eq!(world.submit(modest, 99, Kind::Read, 0, 8 * (BLOCKS_PER_CALL + 1), 0, 1 << 20), Outcome::Pending);
    let moved = |world: &World<'_>| world.disk.metrics().mapped_bytes;
    let mut turns = Vec::new();
    // Ends with the last request.
    while let Some(ready) = world.disk.next_ready() {
        let before = moved(&world);
        turns.push(ready.tag);
        let mut ctx = Context { pages: world.pages, io: &mut world.io, node: addr::NodeId(0), budget: 5 };
        if let Outcome::Done(status) = world.disk.resume(ready, &world.guest, &mut ctx) {
            world.done.push((ready.tag, status));
        }
        assert!(moved(&world) - before <= 5 * BLOCK, "{} bytes in one call", moved(&world) - before);
    }
    assert_eq!(turns[..3].iter().filter(|tag| **tag == 99).count(), 1, "{:?}", &turns[..3]);
    assert_eq!(turns.iter().position(|tag| *tag == 2), Some(2), "requests of a disk take turns as well");
    assert_eq!(world.done.len(), 22);
    assert!(world.done.iter().all(|(_, status)| *status == Status::Ok));
    // A VM goes on with its own only.
    assert_eq!(world.submit(greedy, 1, Kind::Read, 0, 8_000, 0, 1 << 20), Outcome::Pending);
    assert!(world.disk.has_ready_of(greedy) && !world.disk.has_ready_of(modest));
    assert_eq!(world.disk.next_ready_of(modest), None);
    let ready = world.disk.next_ready_of(greedy).expect("it can go on");
    assert_eq!((ready.tag, world.disk.has_ready(), world.disk.next_ready()), (1, false, None));
    world.disk.cancel(greedy);
    world.end(&[greedy, modest]);
}

#[test]
fn the_cache_keeps_its_bound_and_what_is_used() {
    let pages = Pages::new(10_000);
    let mut world = World::new(&pages, SECTORS, vec![], 64);
    let a = world.private("a");
    for block in 0..900 {
        assert_eq!(world.run(a, Kind::Read, block * 8, 8, 0), Status::Ok);
        assert_eq!(world.run(a, Kind::Read, 8, 8, 0), Status::Ok);
        assert!(world.disk.metrics().cached_pages <= 64);
    }
    assert!(world.cached().iter().all(|pages| *pages > 0), "{:?}", world.cached());
    // Block 1 was used all the time.
    let reads = world.io.reads;
    assert_eq!(world.submit(a, 1, Kind::Read, 8, 8, 0, 4_096), Outcome::Done(Status::Ok));
    assert!(reads <= 900 / 32 + 40, "{reads}");
    world.end(&[a]);
}

#[test]
fn errors_reach_only_who_needs_the_block() {
    let pages = Pages::new(10_000);
    let mut world = World::new(&pages, SECTORS, vec![], 1_000);
    let (a, b) = (world.private("a"), world.private("b"));
    world.io.bad = vec![40];
    // The window of the first read covers the bad sector.
    let _ = world.submit(a, 1, Kind::Read, 0, 8, 0, 4_096);
    let _ = world.submit(b, 2, Kind::Read, 0, 8, 4_096, 4_096);
    let _ = world.submit(b, 3, Kind::Read, 40, 8, 8_192, 4_096);
    world.drain();
    world.done.sort_by_key(|(tag, _)| *tag);
    assert_eq!(world.done, [(1, Status::Ok), (2, Status::Ok), (3, Status::IoError)]);
    assert_eq!(world.ram(0, 4_096), fresh(0, 8));
    world.end(&[a, b]);
}

#[test]
fn no_page_is_the_writers_problem_alone() {
    let pages = Pages::new(200);
    let mut world = World::new(&pages, SECTORS, vec![], 100);
    let (a, b) = (world.private("a"), world.private("b"));
    world.guest.refuses = true;
    assert_eq!(world.run(b, Kind::Read, 0, 800, 0), Status::Ok);
    // The cache gives way to modified blocks.
    assert_eq!(world.run(a, Kind::Write, 0, 190 * 8, 0), Status::Ok);
    assert_eq!(world.run(a, Kind::Write, 2_000, 200 * 8, 0), Status::NoSpace);
    assert_eq!(world.disk.metrics().no_space, 1);
    assert_eq!(world.run(a, Kind::Discard, 2_000, 1_600, 0), Status::Ok);
    assert_eq!(world.run(b, Kind::Read, 4_000, 8, 0), Status::Ok);
    assert_eq!(world.ram(0, 4_096), fresh(4_000, 8));
    world.end(&[a, b]);
}

#[test]
fn an_overlay_keeps_its_own_bound() {
    let pages = Pages::new(1_000);
    let mut world = World::new(&pages, SECTORS, vec![], 100);
    let mode = Mode::CopyOnWrite { limit_pages: 10 };
    let a = world.disk.mount(&MountSpec { holder: "a", partition: None, mode }).unwrap();
    assert_eq!(world.run(a, Kind::Write, 0, 10 * 8, 0), Status::Ok);
    assert_eq!(world.run(a, Kind::Write, 0, 10 * 8, 0), Status::Ok);
    assert_eq!(world.run(a, Kind::Write, 80, 1, 0), Status::NoSpace);
    world.end(&[a]);
}

#[test]
fn nonsense_is_an_error_of_its_guest() {
    let pages = Pages::new(1_000);
    let mut world = World::new(&pages, SECTORS, vec![], 100);
    let a = world.private("a");
    let read_only = MountSpec { holder: "r", partition: None, mode: Mode::ReadOnly };
    let r = world.disk.mount(&read_only).unwrap();
    for (mount, kind, sector, sectors) in [
        (a, Kind::Read, SECTORS, 1),
        (a, Kind::Read, u64::MAX, 2),
        (a, Kind::Write, SECTORS - 1, 2),
        (r, Kind::Write, 0, 1),
        (r, Kind::WriteZeroes, 0, 1),
        (r, Kind::Discard, 0, 1),
        (MountId::from_raw(77), Kind::Read, 0, 1),
    ] {
        assert_eq!(world.submit(mount, 1, kind, sector, sectors, 0, 4_096), Outcome::Done(Status::IoError));
    }
    let short = vec![(GuestPhysAddr::new(RAM), 100)];
    let outside = vec![(GuestPhysAddr::new(0x1000), 4_096)];
    let wrapping = vec![(GuestPhysAddr::new(u64::MAX - 3), 4_096)];
    let empty = vec![(GuestPhysAddr::new(RAM), 0); 3];
    for segments in [short, outside, wrapping, empty] {
        assert_eq!(world.submit_with(a, 1, Kind::Write, 0, 8, &segments), Outcome::Done(Status::IoError));
        let _ = world.submit_with(a, 2, Kind::Read, 0, 8, &segments);
        world.drain();
        assert_eq!(world.done.last(), Some(&(2, Status::IoError)));
    }
    // The failed writes left nothing of a page's past to be seen.
    assert_eq!(world.run(a, Kind::Read, 0, 8, 0), Status::Ok);
    assert!(!world.ram(0, 4_096).contains(&POISON));
    world.disk.on_io_complete(IoToken(12_345), true, &pages);
    assert_eq!(world.disk.metrics().io_strays, 1);
    world.end(&[a, r]);
}

#[test]
fn cancelled_requests_never_come_back() {
    let pages = Pages::new(1_000);
    let mut world = World::new(&pages, SECTORS, vec![], 100);
    let (a, b) = (world.private("a"), world.private("b"));
    assert_eq!(world.submit(a, 1, Kind::Read, 0, 8, 0, 4_096), Outcome::Pending);
    assert_eq!(world.submit(b, 2, Kind::Read, 0, 8, 0, 4_096), Outcome::Pending);
    world.disk.cancel(a);
    world.drain();
    assert_eq!(world.done, [(2, Status::Ok)]);
    world.end(&[a, b]);
}

#[test]
fn a_full_driver_makes_requests_wait_and_a_broken_one_fails_them() {
    let pages = Pages::new(1_000);
    let mut world = World::new(&pages, SECTORS, vec![], 400);
    let a = world.private("a");
    world.io.slots = 1;
    for tag in 0..10 {
        assert_eq!(world.submit(a, tag, Kind::Read, tag * 700, 8, tag * 4_096, 4_096), Outcome::Pending);
    }
    world.drain();
    assert_eq!(world.done.len(), 10);
    assert!(world.done.iter().all(|(_, status)| *status == Status::Ok));
    for tag in 0..10 {
        assert_eq!(world.ram(tag * 4_096, 4_096), fresh(tag * 700, 8));
    }
    world.io.is_broken = true;
    assert_eq!(world.submit(a, 99, Kind::Read, 7_000, 8, 0, 4_096), Outcome::Done(Status::IoError));
    world.end(&[a]);
}

/// A guest that needs pages for what it reads, or has written, gets them from the cache; who gets none has an error.
#[test]
fn the_cache_makes_room_for_guests() {
    let pages = Pages::new(1_000);
    let mut world = World::new(&pages, SECTORS, vec![], 400);
    let (a, b) = (world.private("a"), world.private("b"));
    assert_eq!(world.run(a, Kind::Read, 0, 1_600, 0), Status::Ok);
    world.fill(0, 2 << 20, 0);
    let cached = world.pages.live();
    *pages.limit.borrow_mut() = cached;
    world.guest.refuses = true;
    world.guest.taken = Some(std::cell::RefCell::default());
    // Each block of the request is cut in the middle of a page, so pages are taken while it is under way.
    assert_eq!(world.run(b, Kind::Read, 0, 400, 512), Status::Ok);
    assert_eq!(world.ram(512, 400 * 512), fresh(0, 400));
    assert_eq!(world.run(b, Kind::Write, 800, 400, 1 << 20), Status::Ok);
    assert!(world.disk.metrics().reclaimed >= 51, "{:?}", world.disk.metrics());
    // Nobody has any.
    *pages.limit.borrow_mut() = 0;
    assert_eq!(world.run(b, Kind::Read, 0, 8_000, 2 << 20), Status::NoSpace);
    assert_eq!(world.ram(512, 400 * 512), fresh(0, 400));
    world.guest.give_back();
    world.end(&[a, b]);
}

/// A request whose memory is gone, or was never there, costs nobody what is cached.
#[test]
fn bad_memory_takes_nothing_from_the_cache() {
    let pages = Pages::new(1_000);
    let mut world = World::new(&pages, SECTORS, vec![], 400);
    let (a, b) = (world.private("a"), world.private("b"));
    assert_eq!(world.run(a, Kind::Read, 0, 800, 0), Status::Ok);
    world.fill(0, 1 << 20, 0);
    let cached = world.pages.live();
    for kind in [Kind::Read, Kind::Write] {
        assert_eq!(world.run(b, kind, 0, 8, 64 << 30), Status::IoError);
    }
    assert_eq!(world.disk.metrics().reclaimed, 0);
    assert!(world.pages.live() >= cached);
    world.end(&[a, b]);
}

#[test]
fn partitions_bound_their_vms() {
    let pages = Pages::new(1_000);
    let part = |label: &str, first_sector, sectors| Partition { label: label.into(), first_sector, sectors };
    let partitions: Vec<_> =
        [part("root", 35, 1_001), part("twin", 2_000, 8), part("twin", 3_000, 8), part("beyond", 8_000, 100)].into();
    let mut world = World::new(&pages, SECTORS, partitions, 400);
    let spec = |partition| MountSpec { holder: "a", partition: Some(partition), mode: Mode::ReadOnly };
    let a = world.disk.mount(&spec("root")).unwrap();
    assert_eq!((world.disk.sectors(a), world.disk.is_read_only(a)), (1_001, true));
    assert_eq!(world.run(a, Kind::Read, 0, 1_001, 0), Status::Ok);
    assert_eq!(world.ram(0, 1_001 * 512), fresh(35, 1_001));
    assert_eq!(world.run(a, Kind::Read, 1_001, 1, 0), Status::IoError);
    assert!(matches!(world.disk.mount(&spec("twin")), Err(MountError::AmbiguousPartition { count: 2, .. })));
    assert!(matches!(world.disk.mount(&spec("beyond")), Err(MountError::NoPartition { .. })));
    world.end(&[a]);
}
