//! One thing at a time.

use std::vec;
use std::vec::Vec;

use storage::{BLOCK, Kind, Status};

use super::world::*;
use crate::*;

fn pristine(sector: u64, sectors: u64) -> Vec<u64> {
    (sector..sector + sectors).map(base_value).collect()
}

#[test]
fn what_was_flushed_is_found_again_and_the_rest_is_the_disk_below() {
    let mut world = World::new();
    let a = world.volume("a", None);
    assert_eq!(world.read(a, 0, BASE_SECTORS), pristine(0, BASE_SECTORS));
    // Parts of blocks, whole ones, both across blocks.
    for (number, (sector, sectors)) in [(3, 2), (8, 8), (30, 40), (5, 1), (320, 3)].into_iter().enumerate() {
        assert_eq!(world.write(a, sector, sectors, number as u64 + 1), Status::Ok);
    }
    let mut want = pristine(0, BASE_SECTORS);
    for (at, len, value) in [(3, 2, 1), (8, 8, 2), (30, 40, 3), (5, 1, 4), (320, 3, 5)] {
        want[at..at + len].fill(value);
    }
    assert_eq!(world.read(a, 0, BASE_SECTORS), want);
    assert_eq!(world.flush(a), Status::Ok);
    assert_eq!(world.write(a, 100, 8, 9), Status::Ok);
    let mut world = world.reopen(2);
    let a = world.volume("a", None);
    assert_eq!(world.read(a, 0, BASE_SECTORS), want);
    assert_eq!(world.store.space().0 - world.store.space().1, 9);
}

#[test]
fn whole_blocks_are_read_where_they_lie() {
    let mut world = World::new();
    let a = world.volume("a", None);
    assert_eq!(world.write(a, 0, 128, 7), Status::Ok);
    let before = world.disks.base_reads;
    assert_eq!(world.read(a, 0, 128), vec![7; 128]);
    assert_eq!(world.disks.base_reads, before);
}

#[test]
fn zeroes_need_no_room_and_discarding_gives_it_back() {
    let mut world = World::new();
    let a = world.volume("a", None);
    let free = world.store.space().1;
    assert_eq!(world.run(a, Kind::WriteZeroes, 4, 60), Status::Ok);
    let mut want = pristine(0, 80);
    want[4..64].fill(0);
    assert_eq!(world.read(a, 0, 80), want);
    assert_eq!(world.store.space().1, free);
    // A small write into zeroes, and zeroes into what was written.
    assert_eq!(world.write(a, 18, 1, 5), Status::Ok);
    assert_eq!(world.run(a, Kind::WriteZeroes, 17, 1), Status::Ok);
    want[18] = 5;
    assert_eq!(world.read(a, 0, 80), want);
    assert_eq!(world.store.space().1, free - 1);
    assert_eq!(world.flush(a), Status::Ok);
    assert_eq!(world.run(a, Kind::Discard, 0, BASE_SECTORS), Status::Ok);
    want[18] = 0;
    assert_eq!(world.read(a, 16, 8), want[16..24]);
    // Not before the log has it.
    assert_eq!(world.store.space().1, free - 1);
    assert_eq!(world.flush(a), Status::Ok);
    assert_eq!(world.store.space().1, free);
}

#[test]
fn snapshots_stay_and_clones_go_their_own_way() {
    let mut world = World::new();
    let a = world.volume("a", None);
    assert_eq!(world.write(a, 0, 16, 1), Status::Ok);
    world.store.snapshot("a", "before", 77).unwrap();
    world.drain();
    assert_eq!(world.answers, [Answer { token: 77, status: Status::Ok }]);
    assert_eq!(world.write(a, 4, 8, 2), Status::Ok);
    let b = world.volume("b", Some("before"));
    assert_eq!(world.read(b, 0, 20), [vec![1; 16], pristine(16, 4)].concat());
    assert_eq!(world.write(b, 0, 4, 3), Status::Ok);
    let want_a = [vec![1; 4], vec![2; 8], vec![1; 4]].concat();
    let want_b = [vec![3; 4], vec![1; 12]].concat();
    assert_eq!((world.read(a, 0, 16), world.read(b, 0, 16)), (want_a.clone(), want_b.clone()));
    assert_eq!(world.flush(b), Status::Ok);
    let mut world = world.reopen(2);
    let (a, b) = (world.volume("a", None), world.volume("b", Some("before")));
    assert_eq!((world.read(a, 0, 16), world.read(b, 0, 16)), (want_a, want_b));

    let refused = world.store.remove("before", 1).unwrap_err();
    assert!(matches!(refused, VolumeError::HasChild { .. }), "{refused}");
    let refused = world.store.remove("b", 1).unwrap_err();
    assert_eq!(refused, VolumeError::InUse { holder: "b".into() });
    world.store.unmount(b);
    world.store.unmount(a);
    let free = world.store.space().1;
    for (token, name) in ["a", "b", "before"].into_iter().enumerate() {
        world.store.remove(name, token as u64).unwrap();
    }
    world.drain();
    assert_eq!((world.answers.len(), world.store.layers().count()), (3, 0));
    assert_eq!(world.store.space().1, free + 2 + 2 + 1);
    let world = world.reopen(3);
    assert_eq!((world.store.layers().count(), world.store.space().1), (0, world.store.space().0));
}

#[test]
fn a_snapshot_waits_for_writes_and_later_ones_wait_for_it() {
    let mut world = World::new();
    let a = world.volume("a", None);
    world.disks.ram.borrow_mut().fill(1);
    world.submit(a, 1, Kind::Write, 0, 8, 0, 4_096);
    world.store.snapshot("a", "s", 5).unwrap();
    assert_eq!(world.store.snapshot("a", "s", 6), Err(VolumeError::SnapshotExists { name: "s".into() }));
    world.disks.ram.borrow_mut().fill(2);
    world.submit(a, 2, Kind::Write, 0, 8, 0, 4_096);
    assert_eq!(world.disks.under_way(), 1);
    world.drain();
    assert_eq!(world.done, [(1, Status::Ok), (2, Status::Ok)]);
    let ones = u64::from_le_bytes([1; 8]);
    let s = world.volume("s-clone", Some("s"));
    assert_eq!((world.read(a, 0, 8), world.read(s, 0, 8)), (vec![2 * ones; 8], vec![ones; 8]));
}

#[test]
fn a_full_store_fails_the_write_that_needs_room_and_nothing_else() {
    let mut world = World::new();
    let blocks = world.store.space().0;
    let large = Base { sectors: (blocks + 50) * 8, ..base() };
    let a = world.store.mount("a", &large, None, "a").unwrap();
    let b = world.volume("b", None);
    assert_eq!(world.write(b, 0, 8, 4), Status::Ok);
    for block in 0..blocks - 1 {
        assert_eq!(world.write(a, block * 8, 8, block + 10), Status::Ok);
    }
    assert_eq!(world.write(a, (blocks + 10) * 8, 8, 1), Status::NoSpace);
    assert_eq!((world.store.space().1, world.store.metrics().full), (0, 1));
    // What is there can be written over, read, made durable.
    assert_eq!(world.write(a, 0, 8, 5), Status::Ok);
    assert_eq!(world.write(b, 0, 8, 6), Status::Ok);
    assert_eq!(world.flush(b), Status::Ok);
    let mut world = world.reopen(2);
    let a = world.store.mount("a", &large, None, "a").unwrap();
    let b = world.volume("b", None);
    assert_eq!((world.read(a, 0, 9)[..].to_vec(), world.read(b, 0, 8)), ([vec![5; 8], vec![11]].concat(), vec![6; 8]));
    // Room comes back.
    assert_eq!(world.run(a, Kind::Discard, 0, 800), Status::Ok);
    assert_eq!(world.flush(a), Status::Ok);
    assert_eq!(world.write(b, 8, 8, 7), Status::Ok);
}

#[test]
fn a_bad_data_block_fails_its_write_and_a_bad_log_all_later_ones() {
    let mut world = World::new();
    let (a, b) = (world.volume("a", None), world.volume("b", None));
    assert_eq!(world.write(b, 0, 8, 1), Status::Ok);
    assert_eq!(world.flush(b), Status::Ok);
    let sectors = STORE_BLOCKS * 8;
    let first = world.store.geometry.first_data();
    world.disks.bad = (first * 8..sectors).collect();
    assert_eq!(world.write(a, 0, 8, 2), Status::IoError);
    assert_eq!((world.read(a, 0, 8), world.read(b, 0, 8)), (pristine(0, 8), vec![1; 8]));
    world.disks.bad.clear();
    assert_eq!(world.write(a, 0, 8, 2), Status::Ok);
    assert_eq!(world.flush(a), Status::Ok);

    assert_eq!(world.write(a, 8, 8, 3), Status::Ok);
    world.disks.bad = (0..sectors).collect();
    assert_eq!(world.flush(a), Status::IoError);
    world.disks.bad.clear();
    assert!(world.store.is_broken());
    assert_eq!((world.write(a, 8, 8, 4), world.flush(b)), (Status::IoError, Status::IoError));
    assert_eq!(world.store.snapshot("b", "s", 1), Err(VolumeError::Broken));
    assert_eq!(world.store.remove("b", 1).unwrap_err(), VolumeError::InUse { holder: "b".into() });
    assert_eq!((world.read(a, 0, 8), world.read(b, 0, 8)), (vec![2; 8], vec![1; 8]));
    let mut world = world.reopen(3);
    let a = world.volume("a", None);
    assert_eq!(world.read(a, 0, 16), [vec![2; 8], pristine(8, 8)].concat());
}

#[test]
fn cancelled_requests_end_without_a_word() {
    let mut world = World::new();
    let a = world.volume("a", None);
    world.submit(a, 1, Kind::Write, 0, 8, 0, 4_096);
    world.submit(a, 2, Kind::Read, 8, 8, 8_192, 4_096);
    world.submit(a, 3, Kind::Write, 0, 8, 0, 4_096);
    world.submit(a, 4, Kind::Flush, 0, 0, 0, 1);
    world.store.unmount(a);
    world.go_on();
    assert_eq!(world.store.snapshot("a", "s", 1), Err(VolumeError::Busy));
    let a = world.volume("a", None);
    world.drain();
    assert_eq!(world.done, []);
    assert!(world.store.is_quiet() || world.flush(a) == Status::Ok);
    assert_eq!(world.write(a, 0, 8, 9), Status::Ok);
    assert_eq!(world.read(a, 0, 8), vec![9; 8]);
}

#[test]
fn volumes_are_refused_where_they_do_not_fit() {
    let mut world = World::new();
    let a = world.volume("a", None);
    assert_eq!(world.store.mount("a", &base(), None, "x"), Err(VolumeError::InUse { holder: "a".into() }));
    world.store.unmount(a);
    let shrunk = Base { sectors: BASE_SECTORS - 1, ..base() };
    let refused = world.store.mount("a", &shrunk, None, "a").unwrap_err();
    insta(
        &refused,
        "it was made over partition \"root\" of disk \"debian\" with 323 sectors, not over partition \"root\" of disk \"debian\" with 322",
    );
    assert!(matches!(world.store.mount("b", &base(), Some("s"), "b"), Err(VolumeError::NoSuchSnapshot { .. })));
    assert!(matches!(world.store.mount("", &base(), None, "b"), Err(VolumeError::BadName { .. })));
    assert!(matches!(world.store.mount(&"n".repeat(81), &base(), None, "b"), Err(VolumeError::BadName { .. })));
    assert!(matches!(world.store.snapshot("b", "s", 0), Err(VolumeError::NoSuchVolume { .. })));
    world.store.snapshot("a", "s", 0).unwrap();
    world.drain();
    let b = world.volume("b", None);
    world.store.unmount(b);
    assert!(matches!(world.store.mount("b", &base(), Some("s"), "b"), Err(VolumeError::NotACloneOf { .. })));
    for number in world.store.layers().count()..MAX_LAYERS {
        let id = world.volume(&std::format!("v{number}"), None);
        world.store.unmount(id);
    }
    assert_eq!(world.store.mount("more", &base(), None, "m"), Err(VolumeError::TooMany { most: MAX_LAYERS }));
    assert_eq!(world.store.depends_on("debian", None), Some("s"));
    assert_eq!(world.store.depends_on("debian", Some("swap")), None);
    // So many descriptions fit a log.
    world.store.sync();
    world.drain();
    assert_eq!(world.reopen(9).store.layers().count(), MAX_LAYERS);
}

fn insta(error: &VolumeError, want: &str) {
    assert_eq!(std::format!("{error}"), want);
}

#[test]
fn partitions_that_hold_no_store_are_refused() {
    let block = BLOCK as usize;
    let open = |bytes: &[u8]| super::world::open(bytes, 5).map(drop);
    assert_eq!(open(&vec![0; 20 * block]), Err(OpenError::TooSmall { blocks: 20, least: MIN_BLOCKS }));
    let mut other = vec![0; 500 * block];
    other[1_080] = 0x53;
    assert_eq!(open(&other), Err(OpenError::NotAStore));
    let mut world = World::on(vec![0; 500 * block], 1);
    let a = world.volume("a", None);
    assert_eq!((world.write(a, 0, 8, 3), world.flush(a)), (Status::Ok, Status::Ok));
    let durable = world.disks.crash(&mut || true);
    assert!(Store::is_in(&mut |at, buf| {
        buf.copy_from_slice(&durable[at as usize * block..][..buf.len()]);
        true
    }));
    assert_eq!(open(&durable[..450 * block]), Err(OpenError::Shrunk { recorded: 500, blocks: 450 }));
    assert_eq!(open(&[durable.clone(), vec![0; 9 * block]].concat()), Ok(()));
    let unreadable = Store::open(500, 1, u64::MAX, &mut |at, buf| {
        buf.copy_from_slice(&durable[at as usize * block..][..buf.len()]);
        at < 2
    });
    assert_eq!(unreadable.map(drop), Err(OpenError::Unreadable { block: 2 }));
}

/// Any damage to superblocks or logs: the store is opened as it was at some time, or refused; never a panic.
#[test]
fn damage_is_seen() {
    let mut world = World::new();
    let a = world.volume("a", None);
    for round in 0..5 {
        assert_eq!(world.write(a, round * 24, 12, round + 1), Status::Ok);
        assert_eq!(world.flush(a), Status::Ok);
    }
    let durable = world.disks.crash(&mut || true);
    // Superblocks, and what was written of both logs.
    let second = 2 + (store_first_data(&durable) - 2) / 2;
    let blocks = [0, 1].into_iter().chain(2..9).chain(second..second + 7);
    for at in blocks.flat_map(|block| (0..BLOCK).step_by(97).map(move |step| (block * BLOCK + step) as usize)) {
        let mut damaged = durable.clone();
        damaged[at] ^= 0x20;
        let Ok(store) = open(&damaged, 8) else { continue };
        let mut world = World { store, disks: Disks::new(damaged), done: vec![], answers: vec![] };
        if world.store.layers().next().is_none() {
            continue;
        }
        let a = world.volume("a", None);
        let seen = world.read(a, 0, 120);
        for (round, part) in seen.chunks(24).enumerate() {
            let first = base_value(round as u64 * 24);
            assert!(part[0] == first || part[..12] == vec![round as u64 + 1; 12], "{at}: {part:?}");
        }
    }
}

fn store_first_data(durable: &[u8]) -> u64 {
    super::world::open(durable, 1).unwrap().geometry.first_data()
}
