//! Pages that are not to be had, one after the other: whoever asks gets an error, and nothing else is wrong.

use std::vec;
use std::vec::Vec;

use super::world::*;
use crate::*;

const SECTORS: u64 = 512;
/// Where the guest has what it writes, and where reads go to.
const WRITES: u64 = 0;
const READS: u64 = 1 << 20;

/// Requests that need pages in every way: whole blocks and parts, cold and cached, in the place of what guests map.
const STEPS: [(Kind, u64, u64); 16] = [
    (Kind::Read, 0, 64),
    (Kind::Write, 8, 8),
    (Kind::Write, 19, 3),
    (Kind::Read, 0, 64),
    (Kind::Write, 8, 8),
    (Kind::Write, 10, 2),
    (Kind::WriteZeroes, 16, 20),
    (Kind::WriteZeroes, 41, 2),
    (Kind::Read, 3, 200),
    (Kind::Write, 100, 150),
    (Kind::WriteZeroes, 96, 100),
    (Kind::Discard, 8, 8),
    (Kind::Write, 0, 300),
    (Kind::Read, 290, 100),
    (Kind::Write, 297, 5),
    (Kind::Flush, 0, 0),
];

/// What the guest knows of each sector; nothing, where a request for it has failed or its content was given up.
type Known = Vec<Option<u8>>;

fn do_step(
    world: &mut World<'_>,
    mount: MountId,
    known: &mut Known,
    (kind, sector, sectors): (Kind, u64, u64),
    mark: u8,
) {
    let range = sector as usize..(sector + sectors) as usize;
    world.fill(WRITES, sectors * SECTOR, mark);
    let at = if kind == Kind::Read { READS } else { WRITES };
    let status = world.run(mount, kind, sector, sectors, at);
    match (kind, status) {
        (Kind::Read, Status::Ok) => check(world, &known[range], sector),
        (Kind::Write, Status::Ok) => known[range].fill(Some(mark)),
        (Kind::WriteZeroes, Status::Ok) => known[range].fill(Some(0)),
        (Kind::Write | Kind::WriteZeroes | Kind::Discard, _) => known[range].fill(None),
        (Kind::Read | Kind::Flush, _) => {}
    }
}

/// What was read of these sectors is what is known of them; [`FRESH`] stands for the disk's own.
fn check(world: &World<'_>, known: &[Option<u8>], sector: u64) {
    for ((sector, at), known) in (sector..).zip((READS..).step_by(SECTOR as usize)).zip(known) {
        let found = world.ram(at, SECTOR);
        match known {
            Some(FRESH) => assert_eq!(found, fresh(sector, 1), "sector {sector}"),
            Some(mark) => assert_eq!(found, vec![*mark; SECTOR as usize], "sector {sector}"),
            None => {}
        }
    }
}

const FRESH: u8 = 0xff;

/// Runs all steps while these pages are refused; how many were asked for, and how many requests failed.
fn run(mode: Mode, refused: core::ops::Range<usize>) -> (usize, u64) {
    let pages = Pages::new(10_000);
    let mut world = World::new(&pages, SECTORS, vec![], 40);
    let mount = world.disk.mount(&MountSpec { holder: "a", partition: None, mode }).unwrap();
    let mut known = vec![Some(FRESH); SECTORS as usize];
    *pages.refused.borrow_mut() = refused;
    for (step, mark) in STEPS.into_iter().zip(1..) {
        do_step(&mut world, mount, &mut known, step, mark);
    }
    let (asked, failed) = (pages.asked.get(), world.disk.metrics().failed_requests);
    pages.refused.replace(0..0);
    scarce::testing::given(|| assert_eq!(world.run(mount, Kind::Read, 0, SECTORS, READS), Status::Ok));
    check(&world, &known, 0);
    world.end(&[mount]);
    (asked, failed)
}

#[test]
fn any_page_may_be_missing() {
    for mode in [Mode::CopyOnWrite { limit_pages: u64::MAX }, Mode::Persistent] {
        let (asked, failed) = run(mode, 0..0);
        assert!(asked > 60 && failed == 0, "{asked} pages");
        // One alone is found elsewhere; of many in a row some are not.
        let many = |first: usize| if first.is_multiple_of(4) { 60 } else { 1 };
        let failed: u64 = (0..asked).map(|first| run(mode, first..first + many(first)).1).sum();
        assert!(failed > 0, "no request has noticed");
    }
}

/// The same for memory of the heap: a request that would have to wait, and finds no room for its list.
#[test]
fn any_list_may_be_refused() {
    for mode in [Mode::CopyOnWrite { limit_pages: u64::MAX }, Mode::Persistent] {
        let mut failed = 0;
        let sites = scarce::testing::each_refusal(|| failed += run(mode, 0..0).1);
        assert!(failed > 0 && !sites.is_empty(), "no request has noticed");
    }
    // What is written before anything was read has no place in the cache yet.
    scarce::testing::each_refusal(|| {
        let pages = Pages::new(10_000);
        let mut world = World::new(&pages, SECTORS, vec![], 40);
        let mount = world.persistent("a");
        let mut known = vec![Some(FRESH); SECTORS as usize];
        do_step(&mut world, mount, &mut known, (Kind::Write, 8, 8), 7);
        scarce::testing::given(|| do_step(&mut world, mount, &mut known, (Kind::Read, 0, 64), 0));
        world.end(&[mount]);
    });
}
