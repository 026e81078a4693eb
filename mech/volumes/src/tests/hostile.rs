//! Stores that nobody here wrote: logs with the right checksums that say anything, and guests that scatter what they write.

use core::cell::Cell;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use addr::{GuestPhysAddr, MachineAddr, Mfn};
use proptest::prelude::*;
use storage::{BLOCK, BadGuestMemory, GuestCopy, Kind, Outcome, Request, SECTORS_PER_BLOCK, Status};

use super::world::*;
use crate::layout::{Geometry, Superblock};
use crate::record::{Packer, Record, Stamp};
use crate::store::Freed;
use crate::*;

const INDEX_LIMIT: u64 = 256 << 10;
const GEOMETRY: Geometry = Geometry::of(STORE_BLOCKS);

/// A partition with a store whose log says `records`.
fn written(epoch: u64, records: &[Record]) -> Vec<u8> {
    let mut disk = vec![0; (STORE_BLOCKS * BLOCK) as usize];
    let superblock = Superblock { geometry: GEOMETRY, epoch, nonce: 3, half: 1 };
    let at = (superblock.block() * BLOCK) as usize;
    disk[at..at + BLOCK as usize].copy_from_slice(&superblock.encode());
    let mut packer = Packer::new(Stamp { epoch, nonce: 3 }, 0);
    records.iter().for_each(|record| packer.push(record));
    let log = packer.finish();
    let (at, room) = ((GEOMETRY.log(1) * BLOCK) as usize, (GEOMETRY.log_blocks * BLOCK) as usize);
    let len = log.len().min(room);
    disk[at..at + len].copy_from_slice(&log[..len]);
    disk
}

fn layer(id: u32, parent: Option<u32>, is_snapshot: bool, name: &str) -> Record {
    Record::Layer { id, parent, is_snapshot, name: name.into(), base: base() }
}

/// A layer over a disk of the greatest size.
fn over_much(id: u32) -> Record {
    let base = Base { sectors: storage::MAX_SECTORS, ..base() };
    Record::Layer { id, parent: None, is_snapshot: false, name: std::format!("v{id}"), base }
}

fn map(layer: u32, block: u64, count: u32, target: u64) -> Record {
    Record::Map { layer, block, count, target, mask: 0xff }
}

fn refusal(records: &[Record]) -> String {
    open_within(&written(4, records), 9, INDEX_LIMIT).map(drop).expect_err("it is refused").to_string()
}

#[test]
fn what_no_store_says_is_refused_by_name() {
    let data = GEOMETRY.first_data();
    let most = GEOMETRY.max_entries() as u32;
    let a = || layer(1, None, false, "a");
    let s = || layer(1, None, true, "s");
    let other_base = Base { sectors: BASE_SECTORS - 8, ..base() };
    let on_other = Record::Layer { id: 2, parent: Some(1), is_snapshot: false, name: "b".into(), base: other_base };
    let too_large = Base { sectors: storage::MAX_SECTORS + 1, ..base() };
    let too_large = Record::Layer { id: 1, parent: None, is_snapshot: false, name: "b".into(), base: too_large };
    let cases = [
        (vec![over_much(1), map(1, 0, most + 1, 0)], std::format!("entries {}", most + 1)),
        (vec![over_much(1), over_much(2), map(1, 0, most, 0), map(2, 0, 1, 0)], std::format!("entries {}", most + 1)),
        (vec![over_much(1), map(1, 0, u32::MAX, 0)], std::format!("number of blocks {}", u32::MAX)),
        (vec![layer(u32::MAX, None, false, "a")], std::format!("layer {}", u32::MAX)),
        (vec![layer(0, None, false, "a")], "layer 0".into()),
        (vec![a(), Record::Freeze { layer: 1, next: u32::MAX, name: "s".into() }], std::format!("layer {}", u32::MAX)),
        (vec![a(), Record::Freeze { layer: 1, next: 1, name: "s".into() }], "layer 1".into()),
        (vec![s(), Record::Freeze { layer: 1, next: 2, name: "t".into() }], "frozen layer 1".into()),
        (vec![a(), layer(2, Some(1), false, "b")], "layer 2".into()),
        (vec![s(), on_other], "layer 2".into()),
        (vec![a(), layer(2, None, false, "a")], "description of layer 2".into()),
        (
            vec![s(), layer(2, None, false, "b"), Record::Freeze { layer: 2, next: 3, name: "s".into() }],
            "layer 2".into(),
        ),
        (vec![layer(1, None, false, "")], "description of layer 1".into()),
        (vec![layer(1, None, false, &"n".repeat(MAX_NAME + 1))], "description of layer 1".into()),
        (vec![too_large], "description of layer 1".into()),
        (vec![Record::Drop { layer: 1 }], "dropped layer 1".into()),
        (vec![s(), layer(2, Some(1), false, "b"), Record::Drop { layer: 1 }], "dropped layer 1".into()),
        (vec![map(1, 0, 1, data)], "mapped layer 1".into()),
        (vec![a(), map(1, 41, 1, data)], "mapped block 41".into()),
        (vec![a(), map(1, u64::MAX, 2, data)], std::format!("mapped block {}", u64::MAX)),
        (vec![a(), map(1, 0, 1, data - 1)], std::format!("data block {}", data - 1)),
        (vec![a(), map(1, 0, 2, STORE_BLOCKS - 1)], std::format!("data block {}", STORE_BLOCKS - 1)),
        (vec![a(), map(1, 0, 1, data), map(1, 1, 1, data)], std::format!("doubly used data block {data}")),
        (vec![a(), Record::Map { layer: 1, block: 0, count: 1, target: data, mask: 0 }], "mask 0".into()),
    ];
    for (records, want) in cases {
        let refusal = refusal(&records);
        assert!(refusal.ends_with(&want), "{refusal:?} does not end with {want:?}");
    }
    let many: Vec<_> = (1..=MAX_LAYERS as u32 + 1).map(|id| layer(id, None, false, &std::format!("v{id}"))).collect();
    assert!(refusal(&many).ends_with("layer 257"));
    let old = open_within(&written(u64::MAX, &[a()]), 9, INDEX_LIMIT).map(drop).expect_err("no epoch after it");
    assert!(old.to_string().ends_with(&std::format!("epoch {}", u64::MAX)), "{old}");
}

/// A log that says the same again and again takes bounded time; one whose blocks lie far apart, bounded memory.
#[test]
fn a_log_is_read_in_bounded_time_and_memory() {
    let most = GEOMETRY.max_entries() as u32;
    let again: Vec<_> = core::iter::once(over_much(1)).chain((0..8).map(|_| map(1, 0, most, 0))).collect();
    assert_eq!(open_within(&written(4, &again), 9, INDEX_LIMIT).map(drop), Ok(()));
    let again: Vec<_> = again.into_iter().chain([map(1, 0, 1, 0)]).collect();
    assert!(refusal(&again).ends_with(&std::format!("number of blocks {}", 8 * u64::from(most) + 1)));

    let apart = |count: u64| -> Vec<_> {
        let maps = (0..count).map(|step| map(1, step << 14, 1, 0));
        core::iter::once(over_much(1)).chain(maps).collect()
    };
    assert!(open_within(&written(4, &apart(50)), 9, INDEX_LIMIT).is_ok());
    let too_large = refusal(&apart(150));
    assert!(too_large.contains("give the machine more memory"), "{too_large}");
    // One block, at the end of a disk that makes the table of all others long.
    assert_eq!(refusal(&[over_much(1), map(1, (1 << 31) - 1, 1, 0)]), too_large);
    let tiny = open_within(&vec![0; (STORE_BLOCKS * BLOCK) as usize], 1, 4_000).map(drop);
    assert_eq!(tiny, Err(OpenError::IndexTooLarge { limit: 4_000 }));
}

fn any_record() -> impl Strategy<Value = Record> {
    let data = GEOMETRY.first_data();
    let id = || prop_oneof![8 => 1..5_u32, 1 => any::<u32>()];
    let name = || prop_oneof!["[a-c]", "[a-c]", "[ab]{0,3}"];
    let sectors = prop_oneof![4 => Just(BASE_SECTORS), 1 => Just(storage::MAX_SECTORS), 1 => any::<u64>()];
    let block = prop_oneof![8 => 0..41_u64, 2 => 0..1_u64 << 31, 1 => any::<u64>()];
    let target = prop_oneof![2 => Just(0), 8 => data..STORE_BLOCKS, 1 => any::<u64>()];
    let count = prop_oneof![8 => 0..5_u32, 2 => 0..2_000_u32, 1 => any::<u32>()];
    let layer = (id(), prop_oneof![3 => Just(None), 1 => id().prop_map(Some)], any::<bool>(), name(), sectors)
        .prop_map(|(id, parent, is_snapshot, name, sectors)| Record::Layer {
            id,
            parent,
            is_snapshot,
            name,
            base: Base { sectors, ..base() },
        });
    prop_oneof![
        2 => layer,
        1 => (id(), id(), name()).prop_map(|(layer, next, name)| Record::Freeze { layer, next, name }),
        1 => id().prop_map(|layer| Record::Drop { layer }),
        6 => (id(), block, count, target, prop_oneof![3 => Just(255), 1 => any::<u8>()])
            .prop_map(|(layer, block, count, target, mask)| Record::Map { layer, block, count, target, mask }),
    ]
}

/// Records that a store may have written, so that more of what follows is believed.
fn sound_start() -> Vec<Record> {
    let data = GEOMETRY.first_data();
    vec![
        layer(1, None, false, "a"),
        map(1, 0, 9, data),
        Record::Freeze { layer: 1, next: 2, name: "s".into() },
        map(2, 3, 2, data + 20),
        map(2, 30, 11, 0),
    ]
}

/// Uses every volume of a store for what a guest does.
fn use_all(world: &mut World) {
    let layers: Vec<_> = world.store.layers().collect();
    for (number, layer) in (1..).zip(layers) {
        if layer.is_snapshot {
            let Ok(volume) = world.store.mount("clone", &layer.base, Some(&layer.name), "clone") else { continue };
            world.store.unmount(volume);
            continue;
        }
        let volume = world.store.mount(&layer.name, &layer.base, None, "vm").expect("it is there, and nobody's");
        let sectors = layer.base.sectors.min(BASE_SECTORS);
        if sectors >= 8 {
            world.run(volume, Kind::Read, 0, sectors);
            let status = world.write(volume, sectors - 8, 5, number);
            assert!(matches!(status, Status::Ok | Status::NoSpace), "{status:?}");
            if status == Status::Ok {
                assert_eq!(world.read(volume, sectors - 8, 5), [number; 5]);
            }
            world.run(volume, Kind::Discard, 0, sectors);
        }
        assert_eq!(world.flush(volume), Status::Ok);
        world.store.unmount(volume);
        let _ = world.store.snapshot(&layer.name, &std::format!("of-{number}"), number);
    }
    world.store.sync();
    world.drain();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever a log says: it is refused, or what it makes works, within its memory, and is found again.
    #[test]
    fn any_log_is_refused_or_makes_a_store_that_works(
        is_sound in any::<bool>(),
        records in prop::collection::vec(any_record(), 1..12),
    ) {
        let start = if is_sound { sound_start() } else { vec![] };
        let records: Vec<_> = start.into_iter().chain(records).collect();
        let disk = written(4, &records);
        if let Ok(store) = open_within(&disk, 9, INDEX_LIMIT) {
            prop_assert!(store.layers.index_bytes() <= INDEX_LIMIT);
            let mut world = World { store, disks: Disks::new(disk), done: vec![], answers: vec![] };
            use_all(&mut world);
            prop_assert!(world.store.layers.index_bytes() <= INDEX_LIMIT);
            let names: Vec<_> = world.store.layers().collect();
            let disk = world.disks.crash(&mut || false);
            let again = open_within(&disk, 10, INDEX_LIMIT);
            prop_assert_eq!(again.map(|store| store.layers().collect::<Vec<_>>()), Ok(names));
        }
    }
}

/// Of several stores that share a budget each may grow by what the others leave: less than it has stops growth, and takes nothing away.
#[test]
fn an_index_keeps_what_it_has_when_its_bound_comes_down() {
    let mut world = World::new();
    world.store = open_within(&world.disks.durable, 1, INDEX_LIMIT).unwrap();
    let a = world.store.mount("a", &Base { sectors: 1 << 30, ..base() }, None, "a").unwrap();
    let place = |step: u64| step * (64 << 20) / 512;
    let empty = world.store.index_bytes();
    assert_eq!(world.write(a, place(0), 8, 1), Status::Ok);
    let taken = world.store.index_bytes();
    assert!((empty + 1..INDEX_LIMIT).contains(&taken), "{empty} bytes, then {taken}");
    for bound in [0, empty, taken] {
        world.store.set_index_limit(bound);
        assert_eq!((world.write(a, place(1), 8, 2), world.write(a, place(0), 8, 3)), (Status::NoSpace, Status::Ok));
        assert_eq!(world.store.index_bytes(), taken);
    }
    world.store.set_index_limit(INDEX_LIMIT);
    assert_eq!(world.write(a, place(1), 8, 2), Status::Ok);
    assert!((taken + 1..=INDEX_LIMIT).contains(&world.store.index_bytes()));
}

/// A guest whose writes lie far apart finds the store full when the index has its memory; what it has stays, others write on.
#[test]
fn scattered_writes_meet_the_bound_of_the_index() {
    let mut world = World::new();
    world.store = open_within(&world.disks.durable, 1, INDEX_LIMIT).unwrap();
    let large = Base { sectors: 1 << 30, ..base() };
    let a = world.store.mount("a", &large, None, "a").unwrap();
    let b = world.volume("b", None);
    assert_eq!(world.write(b, 0, 8, 3), Status::Ok);
    let place = |step: u64| step * (64 << 20) / 512;
    world.store.freeze_index(true);
    assert_eq!((world.write(a, place(0), 8, 1), world.write(b, 8, 8, 3)), (Status::NoSpace, Status::Ok));
    assert_eq!(world.store.metrics().index_full, 0);
    world.store.freeze_index(false);
    let ended = (0..200).find(|step| world.write(a, place(*step), 8, 100 + step) != Status::Ok).expect("memory ends");
    assert!((60..120).contains(&ended), "{ended} blocks in {INDEX_LIMIT} bytes");
    assert_eq!((world.store.metrics().full, world.store.metrics().index_full), (0, 1));
    assert_eq!(world.run(a, Kind::WriteZeroes, place(ended), 8), Status::NoSpace);
    assert!(world.store.layers.index_bytes() <= INDEX_LIMIT);
    // Where something is already there is room.
    assert_eq!((world.write(a, place(3), 16, 7), world.write(b, 8, 8, 4)), (Status::Ok, Status::Ok));
    assert_eq!(world.flush(a), Status::Ok);
    let disk = world.disks.crash(&mut || false);
    assert!(open_within(&disk, 2, INDEX_LIMIT).is_ok());
    assert!(matches!(open_within(&disk, 2, INDEX_LIMIT - 4_200), Err(OpenError::IndexTooLarge { .. })));
    let mut world = World::on(disk, 3);
    let a = world.store.mount("a", &large, None, "a").unwrap();
    assert_eq!(world.read(a, place(5), 8), [105; 8]);
    assert_eq!(world.read(a, place(3), 16), [7; 16]);
    // What a removed volume had in memory can be had again.
    world.store.unmount(a);
    let before = world.store.layers.index_bytes();
    world.store.remove("a", 1).unwrap();
    world.drain();
    assert!(world.store.layers.index_bytes() < before / 10);
}

/// Discarding every other block of much at once: the log's backlog stays bounded, and all of it is done.
#[test]
fn a_guest_cannot_make_the_log_fall_far_behind() {
    const BLOCKS: u64 = 60_000;
    let mut world = World::on(vec![0; (BLOCKS * BLOCK) as usize], 1);
    let large = Base { sectors: BLOCKS * SECTORS_PER_BLOCK, ..base() };
    let a = world.store.mount("a", &large, None, "a").unwrap();
    world.disks.is_instant = true;
    for block in (0..45_000).step_by(2) {
        world.submit(a, 1, Kind::Write, block * 8 + 3, 1, 0, 512);
    }
    world.submit(a, 2, Kind::Flush, 0, 0, 0, 512);
    world.submit(a, 1, Kind::Write, 1, 1, 0, 512);
    assert!(world.done.iter().all(|(_, status)| *status == Status::Ok));
    world.done.clear();
    world.disks.is_instant = false;
    // The disk makes nothing durable meanwhile: the log waits, and so does the guest.
    world.submit(a, 2, Kind::Flush, 0, 0, 0, 512);
    world.submit(a, 3, Kind::Discard, 0, 45_000 * 8, 0, 512);
    world.submit(a, 4, Kind::Write, 45_000 * 8, 4_096, 0, 512);
    assert!(world.store.pending.len() <= 10_000, "{} changes wait", world.store.pending.len());
    let mut most = 0;
    while world.disks.under_way() > 0 {
        world.end_one(0);
        most = most.max(world.store.pending.len());
    }
    assert!(most <= 10_000, "{most} changes waited");
    world.done.sort_unstable_by_key(|(tag, _)| *tag);
    assert_eq!(world.done, [(2, Status::Ok), (3, Status::Ok), (4, Status::Ok)]);
    assert_eq!(world.read(a, 8_003, 2), [0, 0]);
    assert_eq!((world.flush(a), world.store.promised), (Status::Ok, 0));
}

/// Discarding in one piece what lies scattered in the store: one change for the log, but as many runs of freed blocks as there are
/// blocks. They stay bounded, and all of it is done.
#[test]
fn a_guest_cannot_free_more_than_is_remembered() {
    const BLOCKS: u64 = 20_011;
    // Blocks in the order in which they are written, so that they get data blocks in that order.
    let descending: Vec<u64> = (0..BLOCKS).rev().collect();
    let strided: Vec<u64> = (0..BLOCKS).map(|step| step * 7_919 % BLOCKS).collect();
    for order in [descending, strided] {
        let mut world = World::on(vec![0; (30_000 * BLOCK) as usize], 1);
        let large = Base { sectors: BLOCKS * SECTORS_PER_BLOCK, ..base() };
        let a = world.store.mount("a", &large, None, "a").unwrap();
        let free = world.store.space().1;
        world.disks.is_instant = true;
        order.iter().for_each(|block| world.submit(a, 1, Kind::Write, block * 8, 8, 0, 4_096));
        world.submit(a, 2, Kind::Flush, 0, 0, 0, 512);
        assert!(world.done.iter().all(|(_, status)| *status == Status::Ok));
        world.done.clear();
        world.disks.is_instant = false;
        // The disk makes nothing durable meanwhile.
        world.submit(a, 2, Kind::Flush, 0, 0, 0, 512);
        world.submit(a, 3, Kind::Discard, 0, BLOCKS * 8, 0, 512);
        let mut most = world.store.freed.len();
        while world.disks.under_way() > 0 {
            world.end_one(0);
            most = most.max(world.store.freed.len());
        }
        assert!(most <= 6_144, "{most} runs waited");
        world.done.sort_unstable_by_key(|(tag, _)| *tag);
        assert_eq!(world.done, [(2, Status::Ok), (3, Status::Ok)]);
        assert_eq!(world.read(a, 8_003, 2), [0, 0]);
        assert_eq!((world.flush(a), world.store.freed_runs, world.store.space().1), (Status::Ok, 0, free));
    }
}

/// A guest whose memory is all there, and that counts what is written to it.
#[derive(Default)]
struct Counting {
    writes: Cell<u64>,
    bytes: Cell<u64>,
}

impl GuestCopy for Counting {
    fn copy_from_machine(&self, _: GuestPhysAddr, _: MachineAddr, _: u64) -> Result<(), BadGuestMemory> {
        unreachable!("the fake disks copy themselves")
    }

    fn copy_to_machine(&self, _: MachineAddr, _: GuestPhysAddr, _: u64) -> Result<(), BadGuestMemory> {
        unreachable!("the fake disks copy themselves")
    }

    fn write(&self, _: GuestPhysAddr, data: &[u8]) -> Result<(), BadGuestMemory> {
        self.writes.set(self.writes.get() + 1);
        self.bytes.set(self.bytes.get() + data.len() as u64);
        Ok(())
    }

    fn map(&self, _: GuestPhysAddr, _: Mfn) -> bool {
        false
    }
}

/// However long a request is, one call does little of it: less where each block has to be looked for in many layers.
#[test]
fn a_long_request_is_done_in_small_steps() {
    const BLOCKS: u64 = 4_096;
    let mut world = World::on(vec![0; (30_000 * BLOCK) as usize], 1);
    let large = Base { sectors: BLOCKS * SECTORS_PER_BLOCK, ..base() };
    let a = world.store.mount("a", &large, None, "a").unwrap();
    assert_eq!(world.run(a, Kind::WriteZeroes, 0, large.sectors), Status::Ok);
    for (snapshots, most_blocks) in [(0, 64), (MAX_LAYERS as u64 - 1, 9)] {
        (0..snapshots).for_each(|number| world.store.snapshot("a", &std::format!("s{number}"), number).unwrap());
        world.drain();
        let guest = Counting::default();
        let segments = [(GuestPhysAddr::new(0), (BLOCKS * BLOCK) as u32)];
        let request = Request { kind: Kind::Read, sector: 0, sectors: large.sectors, segments: &segments };
        let mut outcome = world.store.submit(a, 1, &request, &guest, &mut world.disks);
        let mut done = 0;
        loop {
            let blocks = guest.bytes.take() / BLOCK;
            assert!((1..=most_blocks).contains(&blocks), "{blocks} blocks in one call, {snapshots} snapshots");
            assert_eq!(guest.writes.take(), blocks, "page by page");
            done += blocks;
            if outcome != Outcome::Pending {
                break;
            }
            let ready = world.store.next_ready().expect("it goes on by itself");
            outcome = world.store.resume(ready, &guest, &mut world.disks, &mut { u64::MAX });
        }
        assert_eq!((outcome, done), (Outcome::Done(Status::Ok), BLOCKS));
    }
}

/// The same for what changes the index: one call makes few changes, one settling few entries.
#[test]
fn a_long_change_is_made_in_small_steps() {
    const BLOCKS: u64 = 20_000;
    let mut world = World::on(vec![0; (30_000 * BLOCK) as usize], 1);
    let large = Base { sectors: BLOCKS * SECTORS_PER_BLOCK, ..base() };
    let a = world.store.mount("a", &large, None, "a").unwrap();
    world.disks.ram.borrow_mut().resize((BLOCKS * BLOCK) as usize, 5);
    world.disks.is_instant = true;
    let guest = Counting::default();
    let segments = [(GuestPhysAddr::new(0), (BLOCKS * BLOCK) as u32)];
    for kind in [Kind::WriteZeroes, Kind::Write, Kind::Discard] {
        let request = Request { kind, sector: 0, sectors: large.sectors, segments: &segments };
        let used = |world: &World| (world.store.layers.entries(), world.store.space().1, named(&world.store));
        let mut before = used(&world);
        let mut outcome = world.store.submit(a, 1, &request, &guest, &mut world.disks);
        loop {
            let now = used(&world);
            let changes = [(before.0, now.0), (before.1, now.1)].map(|(one, other)| one.abs_diff(other));
            assert!(changes.iter().all(|change| *change <= 1_024), "{kind:?}: {changes:?} in one call");
            assert!(now.2 <= before.2 + 1_024, "{kind:?}: {} then {} blocks for the log in one call", before.2, now.2);
            if outcome != Outcome::Pending {
                break;
            }
            world.store.pump(&mut world.disks);
            while world.store.clean_up() {}
            before = used(&world);
            let ready = world.store.next_ready().expect("it goes on by itself");
            outcome = world.store.resume(ready, &guest, &mut world.disks, &mut { u64::MAX });
        }
        assert_eq!(outcome, Outcome::Done(Status::Ok));
        assert_eq!(world.flush(a), Status::Ok);
    }
}

/// Blocks of which changes for the log say something.
fn named(store: &Store) -> u64 {
    store.pending.iter().map(Record::named).sum()
}

/// A run of freed blocks may be as long as a disk. It becomes free in steps.
#[test]
fn a_long_run_becomes_free_in_small_steps() {
    const BLOCKS: u64 = 1 << 20;
    let mut store = Store::open(BLOCKS, 1, u64::MAX, &mut |_, buf| {
        buf.fill(0);
        true
    })
    .unwrap();
    let (first, count) = store.space.take(u64::MAX / 2).expect("all is free");
    store.dying.push(vec![Freed::Run(first, count)]);
    store.freed_runs = 1;
    loop {
        let before = store.space().1;
        let has_more = store.clean_up();
        assert!(store.space().1 - before <= 1 << 16, "{} blocks in one call", store.space().1 - before);
        if !has_more {
            break;
        }
    }
    assert_eq!((store.space().1, store.freed_runs), (count, 0));
}
