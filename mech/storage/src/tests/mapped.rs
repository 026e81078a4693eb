//! Reads without copies: pages that stand for guest pages.

use std::vec;

use super::world::*;
use crate::*;

const SECTORS: u64 = 8_003;
const PAGE: u64 = 4_096;

fn mapped(world: &World<'_>) -> (u64, u64, u64) {
    let metrics = world.disk.metrics();
    (metrics.mapped_bytes / PAGE, metrics.unaligned_bytes, metrics.refused_bytes)
}

#[test]
fn all_readers_of_a_block_have_one_page() {
    let pages = Pages::new(10_000);
    let mut world = World::new(&pages, SECTORS, vec![], 1_000);
    let (a, b) = (world.private("a"), world.private("b"));
    // One request with many segments, one with few, at the same blocks.
    assert_eq!(world.submit(a, 1, Kind::Read, 80, 64, 0, PAGE), Outcome::Pending);
    assert_eq!(world.submit(b, 2, Kind::Read, 80, 64, 1 << 20, 5 * PAGE), Outcome::Pending);
    assert_eq!(world.io.reads, 1);
    world.drain();
    assert_eq!(world.done, [(1, Status::Ok), (2, Status::Ok)]);
    assert_eq!((mapped(&world), world.guest.mapped()), ((16, 0, 0), 16));
    let live = world.pages.live();
    assert_eq!((world.ram(0, 64 * 512), world.ram(1 << 20, 64 * 512)), (fresh(80, 64), fresh(80, 64)));
    // A write of one guest is nobody else's.
    world.fill(PAGE + 7, 1, 0xaa);
    assert_eq!((world.guest.mapped(), world.pages.live()), (15, live));
    assert_eq!(world.ram(1 << 20, 64 * 512), fresh(80, 64));
    assert_eq!(world.run(a, Kind::Read, 80, 64, 1 << 21), Status::Ok);
    assert_eq!(world.ram(1 << 21, 64 * 512), fresh(80, 64));
    world.end(&[a, b]);
}

#[test]
fn what_is_not_a_whole_page_is_copied() {
    let pages = Pages::new(10_000);
    let mut world = World::new(&pages, SECTORS, vec![], 1_000);
    let a = world.private("a");
    assert_eq!(world.run(a, Kind::Read, 0, 800, 1 << 20), Status::Ok);
    let before = mapped(&world).0;
    // A part of a block, a buffer that is not aligned, pages cut in the middle, and the disk's short last block.
    for (sector, sectors, at, cut) in
        [(1, 7, 0, PAGE), (0, 16, 512, 1 << 30), (8, 8, 0, 2_048), (SECTORS - 3, 3, 0, PAGE)]
    {
        let _ = world.submit(a, 1, Kind::Read, sector, sectors, at, cut);
        world.drain();
        assert_eq!(world.ram(at, sectors * 512), fresh(sector, sectors));
    }
    assert_eq!(mapped(&world), (before, (7 + 16 + 8 + 3) * 512, 0));
    // Misaligned at first, then pages.
    let _ = world.submit(a, 2, Kind::Read, 4, 20, 2_048, 1 << 30);
    assert_eq!(world.ram(2_048, 20 * 512), fresh(4, 20));
    assert_eq!(mapped(&world).0, before + 2);
    world.guest.refuses = true;
    assert_eq!(world.run(a, Kind::Read, 8, 16, 0), Status::Ok);
    assert_eq!((mapped(&world).2, world.ram(0, 16 * 512)), (2 * PAGE, fresh(8, 16)));
    world.end(&[a]);
}

#[test]
fn who_has_read_a_block_keeps_it_when_the_disk_changes() {
    let pages = Pages::new(10_000);
    let mut world = World::new(&pages, SECTORS, vec![], 1_000);
    let a = world.persistent("a");
    assert_eq!(world.run(a, Kind::Read, 0, 32, 0), Status::Ok);
    assert_eq!(world.guest.mapped(), 4);
    world.fill(1 << 20, 1 << 16, 0xab);
    // A part of a block, a whole one, and zeroes.
    assert_eq!(world.run(a, Kind::Write, 3, 2, 1 << 20), Status::Ok);
    assert_eq!(world.run(a, Kind::Write, 8, 8, 1 << 20), Status::Ok);
    assert_eq!(world.run(a, Kind::WriteZeroes, 17, 9, 1 << 20), Status::Ok);
    assert_eq!((world.ram(0, 32 * 512), world.guest.mapped()), (fresh(0, 32), 4));
    let reads = world.io.reads;
    assert_eq!(world.run(a, Kind::Read, 0, 32, 1 << 21), Status::Ok);
    assert_eq!((world.ram(1 << 21, 32 * 512), world.io.reads), (world.io.data[..32 * 512].to_vec(), reads));
    assert_eq!(&world.io.data[3 * 512..5 * 512], [0xab; 1_024]);
    world.end(&[a]);
}

#[test]
fn a_changed_block_is_forgotten_when_there_is_no_page_for_the_change() {
    let pages = Pages::new(100);
    let mut world = World::new(&pages, SECTORS, vec![], 50);
    let a = world.persistent("a");
    assert_eq!(world.run(a, Kind::Read, 0, 8, 0), Status::Ok);
    world.fill(1 << 20, 1 << 16, 0xab);
    let _ = world.submit(a, 1, Kind::Write, 3, 2, 1 << 20, 512);
    *pages.limit.borrow_mut() = 0;
    world.drain();
    assert_eq!((world.done.last(), world.ram(0, PAGE)), (Some(&(1, Status::Ok)), fresh(0, 8)));
    *pages.limit.borrow_mut() = 100;
    assert_eq!(world.run(a, Kind::Read, 0, 8, 1 << 21), Status::Ok);
    assert_eq!(world.ram(1 << 21, PAGE), world.io.data[..4_096]);
    world.end(&[a]);
}

#[test]
fn modified_blocks_are_mapped_too_and_change_under_nobody() {
    let pages = Pages::new(10_000);
    let mut world = World::new(&pages, SECTORS, vec![], 1_000);
    let a = world.private("a");
    world.fill(0, 4 * PAGE, 1);
    assert_eq!(world.run(a, Kind::Write, 0, 32, 0), Status::Ok);
    assert_eq!(world.run(a, Kind::Read, 0, 32, 1 << 20), Status::Ok);
    assert_eq!((mapped(&world).0, world.guest.mapped()), (4, 4));
    world.fill(0, 4 * PAGE, 2);
    assert_eq!(world.run(a, Kind::Write, 4, 8, 0), Status::Ok);
    assert_eq!(world.run(a, Kind::WriteZeroes, 17, 2, 0), Status::Ok);
    assert_eq!(world.run(a, Kind::Discard, 24, 8, 0), Status::Ok);
    assert_eq!(world.ram(1 << 20, 4 * PAGE), [1; 16_384]);
    assert_eq!(world.run(a, Kind::Read, 0, 32, 1 << 21), Status::Ok);
    let want = [[1; 2_048].as_slice(), &[2; 4_096], &[1; 2_560], &[0; 1_024], &[1; 2_560], &fresh(24, 8)].concat();
    assert_eq!(world.ram(1 << 21, 4 * PAGE), want);
    assert_eq!(world.disk.private_pages(a), 3);
    world.end(&[a]);
}

#[test]
fn the_cache_keeps_its_bound_and_gives_back_what_nobody_maps() {
    let pages = Pages::new(10_000);
    let mut world = World::new(&pages, SECTORS, vec![], 64);
    let a = world.private("a");
    for block in 0..500 {
        assert_eq!(world.run(a, Kind::Read, block * 8, 8, block * PAGE), Status::Ok);
        assert!(world.disk.metrics().cached_pages <= 64);
    }
    // Pages that are the guest's alone are no longer the cache's.
    assert_eq!(world.guest.mapped(), 500);
    assert_eq!(world.ram(0, 500 * PAGE), fresh(0, 4_000));
    let (cached, live) = (world.disk.metrics().cached_pages, world.pages.live() as u64);
    let unmapped = live - 500;
    assert_eq!(world.disk.reclaim(1_000, world.pages), unmapped);
    assert_eq!(world.disk.metrics().cached_pages, cached - unmapped);
    // What the guest lets go of, memory gets back.
    world.fill(0, 500 * PAGE, 0);
    let left = world.disk.metrics().cached_pages;
    assert_eq!((world.disk.reclaim(1_000, world.pages), world.pages.live()), (left, 0));
    world.end(&[a]);
}
