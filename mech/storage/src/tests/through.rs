//! Persistent disks.

use std::string::ToString;
use std::vec;

use super::world::*;
use crate::gpt::Partition;
use crate::*;

const SECTORS: u64 = 4_096;

#[test]
fn writes_reach_the_disk_and_the_cache() {
    let pages = Pages::new(1_000);
    let mut world = World::new(&pages, SECTORS, vec![], 200);
    let a = world.persistent("a");
    assert_eq!(world.run(a, Kind::Read, 0, 16, 0), Status::Ok);
    world.fill(0, 6 * 512, 0xab);
    assert_eq!(world.submit(a, 1, Kind::Write, 5, 6, 0, 700), Outcome::Pending);
    // The guest may change its buffer only after the end; what it does before concerns nobody else.
    world.fill(0, 6 * 512, 0xcd);
    world.drain();
    assert!(world.io.data[5 * 512..11 * 512].iter().all(|byte| *byte == 0xab));
    let reads = world.io.reads;
    assert_eq!(world.run(a, Kind::Read, 0, 16, 0), Status::Ok);
    assert_eq!(world.ram(0, 16 * 512), world.io.data[..16 * 512]);
    // Whole blocks that were written are cached without a read.
    assert_eq!(world.run(a, Kind::Write, 1_024, 256, 0), Status::Ok);
    assert_eq!(world.run(a, Kind::Read, 1_024, 256, 1 << 20), Status::Ok);
    assert_eq!(world.io.reads, reads);
    assert_eq!(world.ram(0, 256 * 512), world.ram(1 << 20, 256 * 512));
    world.end(&[a]);
}

#[test]
fn overlapping_operations_wait_for_each_other() {
    let pages = Pages::new(1_000);
    let mut world = World::new(&pages, SECTORS, vec![], 200);
    let a = world.persistent("a");
    world.fill(0, 4_096, 1);
    world.fill(4_096, 4_096, 2);
    assert_eq!(world.submit(a, 1, Kind::Write, 0, 8, 0, 4_096), Outcome::Pending);
    assert_eq!(world.submit(a, 2, Kind::Write, 4, 4, 4_096, 4_096), Outcome::Pending);
    assert_eq!(world.submit(a, 3, Kind::Read, 0, 8, 8_192, 4_096), Outcome::Pending);
    assert_eq!(world.io.started.len(), 1);
    world.drain();
    assert_eq!(world.done.len(), 3);
    assert_eq!(world.run(a, Kind::Read, 0, 8, 8_192), Status::Ok);
    assert_eq!(world.ram(8_192, 4_096), world.io.data[..4_096]);
    assert_eq!(world.io.data[..4_096], [[1; 2_048], [2; 2_048]].concat());
    world.end(&[a]);
}

#[test]
fn zeroes_and_flushes_go_to_the_disk() {
    let pages = Pages::new(1_000);
    let mut world = World::new(&pages, SECTORS, vec![], 200);
    let a = world.persistent("a");
    assert_eq!(world.run(a, Kind::Read, 0, 64, 0), Status::Ok);
    assert_eq!(world.run(a, Kind::WriteZeroes, 3, 1_000, 0), Status::Ok);
    assert!(world.io.data[3 * 512..1_003 * 512].iter().all(|byte| *byte == 0));
    assert_eq!(world.run(a, Kind::Read, 0, 64, 0), Status::Ok);
    assert_eq!(world.ram(0, 64 * 512), world.io.data[..64 * 512]);
    assert_eq!(world.submit(a, 1, Kind::Flush, 0, 0, 0, 1), Outcome::Pending);
    assert_eq!(world.io.started[0].kind, Kind::Flush);
    world.drain();
    assert_eq!(world.done.last(), Some(&(1, Status::Ok)));
    let metrics = world.disk.metrics();
    assert_eq!((metrics.io_flushes, metrics.io_sectors_written), (1, 1_000));
    world.end(&[a]);
}

#[test]
fn a_failed_write_is_reported_and_forgotten() {
    let pages = Pages::new(1_000);
    let mut world = World::new(&pages, SECTORS, vec![], 200);
    let a = world.persistent("a");
    assert_eq!(world.run(a, Kind::Read, 0, 64, 0), Status::Ok);
    world.io.bad = vec![20];
    world.fill(0, 64 * 512, 9);
    assert_eq!(world.run(a, Kind::Write, 0, 64, 0), Status::IoError);
    world.io.bad.clear();
    assert_eq!(world.run(a, Kind::Read, 0, 64, 0), Status::Ok);
    assert_eq!(world.ram(0, 64 * 512), world.io.data[..64 * 512]);
    assert_eq!(world.run(a, Kind::Flush, 0, 0, 0), Status::Ok);
    world.end(&[a]);
}

#[test]
fn a_long_write_is_one_request() {
    let pages = Pages::new(3_000);
    let mut world = World::new(&pages, SECTORS, vec![], 200);
    let a = world.persistent("a");
    world.io.slots = 3;
    world.fill(0, 4_000 * 512, 7);
    assert_eq!(world.submit(a, 1, Kind::Write, 3, 4_000, 0, 10_000), Outcome::Pending);
    assert_eq!(world.io.started.len(), 2, "as many as one call may start");
    world.go_on();
    assert_eq!(world.io.started.len(), 3, "as many as the disk takes");
    world.drain();
    assert_eq!(world.done, [(1, Status::Ok)]);
    assert!(world.io.data[3 * 512..4_003 * 512].iter().all(|byte| *byte == 7));
    world.end(&[a]);
}

#[test]
fn a_vm_that_goes_leaves_its_writes_to_end() {
    let pages = Pages::new(3_000);
    let mut world = World::new(&pages, SECTORS, vec![], 200);
    let a = world.persistent("a");
    world.fill(0, 4_096, 7);
    let _ = world.submit(a, 1, Kind::Write, 0, 8, 0, 4_096);
    world.disk.unmount(a);
    let b = world.persistent("b");
    let _ = world.submit(b, 2, Kind::Read, 0, 8, 8_192, 4_096);
    world.drain();
    assert_eq!(world.done, [(2, Status::Ok)]);
    assert_eq!(world.ram(8_192, 4_096), [7; 4_096]);
    world.end(&[b]);
}

#[test]
fn who_writes_for_good_is_alone() {
    let pages = Pages::new(100);
    let part = |label: &str, first_sector, sectors| Partition { label: label.into(), first_sector, sectors };
    let partitions = vec![part("x", 8, 100), part("y", 108, 100)];
    let mut world = World::new(&pages, SECTORS, partitions, 50);
    let spec = |holder, partition, mode| MountSpec { holder, partition, mode };
    let private = Mode::CopyOnWrite { limit_pages: 5 };
    let a = world.disk.mount(&spec("a", Some("x"), Mode::Persistent)).unwrap();
    for mode in [private, Mode::ReadOnly, Mode::Persistent] {
        for partition in [Some("x"), None] {
            let refused = world.disk.mount(&spec("b", partition, mode)).unwrap_err();
            assert_eq!(refused, MountError::InUse { holder: "a".into(), is_persistent: true });
            assert_eq!(refused.to_string(), "VM \"a\" has it persistently");
        }
    }
    let b = world.disk.mount(&spec("b", Some("y"), private)).unwrap();
    let c = world.disk.mount(&spec("c", Some("y"), Mode::ReadOnly)).unwrap();
    let refused = world.disk.mount(&spec("d", Some("y"), Mode::Persistent)).unwrap_err();
    assert_eq!(refused, MountError::InUse { holder: "b".into(), is_persistent: false });
    assert_eq!(world.disk.persistent_holder(), Some("a"));
    world.disk.unmount(a);
    assert_eq!(world.disk.persistent_holder(), None);
    let d = world.disk.mount(&spec("d", Some("x"), private)).unwrap();
    world.end(&[b, c, d]);
    let mut locked = SharedDisk::new("ro", 100, true, vec![], 5);
    assert_eq!(locked.mount(&spec("a", None, Mode::Persistent)), Err(MountError::ReadOnlyDisk));
}
