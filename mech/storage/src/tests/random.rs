//! Random requests, completion orders, failures and cancellations against plain arrays of sectors.

use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::world::*;
use crate::gpt::Partition;
use crate::*;

const SECTORS: u64 = 1_203;
/// Partitions whose edges share blocks with each other: one is written for good, one is shared.
const OWN: (u64, u64) = (11, 500);
const COMMON: (u64, u64) = (511, 690);
/// Bytes of guest memory for each request.
const BUFFER: u64 = 64 << 10;

#[derive(Clone, Debug)]
enum Step {
    Submit { mount: usize, kind: Kind, sector: u64, sectors: u64, cut: u64 },
    Complete { which: prop::sample::Index, may_succeed: bool },
    Cancel { mount: usize },
    Reclaim { pages: u64 },
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        5 => Just(Kind::Read), 5 => Just(Kind::Write), 1 => Just(Kind::WriteZeroes), 1 => Just(Kind::Discard),
        1 => Just(Kind::Flush),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..4_usize, kind(), 0..690_u64, 1..120_u64, prop_oneof![Just(512_u64), Just(4_096), 1..9_000_u64])
            .prop_map(|(mount, kind, sector, sectors, cut)| Step::Submit { mount, kind, sector, sectors, cut }),
        8 => (any::<prop::sample::Index>(), prop::bool::weighted(0.93))
            .prop_map(|(which, may_succeed)| Step::Complete { which, may_succeed }),
        1 => (0..4_usize).prop_map(|mount| Step::Cancel { mount }),
        1 => (1..100_u64).prop_map(|pages| Step::Reclaim { pages }),
    ]
}

/// What one virtual disk should hold.
struct Expected {
    /// Fill byte of each sector: `None` unknown, `Some(None)` as on the fresh disk.
    sectors: Vec<Option<Option<u8>>>,
    /// Counts everything that may have changed a sector.
    versions: Vec<u64>,
    first: u64,
}

/// A request under way.
struct Flight {
    mount: usize,
    kind: Kind,
    sector: u64,
    sectors: u64,
    at: u64,
    value: u8,
    versions: Vec<u64>,
}

impl Expected {
    fn new((first, sectors): (u64, u64)) -> Self {
        Self { sectors: vec![Some(None); sectors as usize], versions: vec![0; sectors as usize], first }
    }

    fn range(&mut self, flight: &Flight) -> impl Iterator<Item = (u64, &mut Option<Option<u8>>, &mut u64)> {
        let skip = flight.sector as usize;
        let sectors = self.sectors.iter_mut().zip(&mut self.versions).skip(skip).take(flight.sectors as usize);
        (flight.sector..).zip(sectors).map(|(sector, (value, version))| (sector, value, version))
    }

    /// `others` are under way. Which of two overlapping writes comes last is open.
    fn begin<'a>(&mut self, flight: &mut Flight, others: impl Iterator<Item = &'a Flight> + Clone) {
        if flight.kind != Kind::Read && flight.kind != Kind::Flush {
            for (_, value, version) in self.range(flight) {
                (*value, *version) = (None, *version + 1);
            }
        }
        let is_contended = |sector: u64| {
            let mut writes = others.clone().filter(|other| other.kind != Kind::Read && other.mount == flight.mount);
            flight.kind != Kind::Read
                && writes.any(|other| (other.sector..other.sector + other.sectors).contains(&sector))
        };
        let versions =
            self.range(flight).map(|(sector, _, version)| if is_contended(sector) { u64::MAX } else { *version });
        flight.versions = versions.collect();
    }

    fn end(&mut self, flight: &Flight, status: Status, ram: &[u8]) {
        let first = self.first;
        let versions = flight.versions.clone();
        for (index, (sector, value, version)) in self.range(flight).enumerate() {
            if *version != versions[index] || status != Status::Ok {
                continue;
            }
            match flight.kind {
                Kind::Read => {
                    let Some(want) = *value else { continue };
                    let got = &ram[index * 512..(index + 1) * 512];
                    match want {
                        Some(fill) => assert_eq!(got, [fill; 512], "sector {sector}"),
                        None => assert_eq!(got, fresh(first + sector, 1), "sector {sector}"),
                    }
                }
                Kind::Write => (*value, *version) = (Some(Some(flight.value)), *version + 1),
                Kind::WriteZeroes => (*value, *version) = (Some(Some(0)), *version + 1),
                Kind::Discard | Kind::Flush => {}
            }
        }
    }
}

struct Bench<'a> {
    world: World<'a>,
    mounts: Vec<MountId>,
    expected: Vec<Expected>,
    flights: BTreeMap<u64, Flight>,
    next_tag: u64,
}

impl<'a> Bench<'a> {
    fn new(pages: &'a Pages, cache_pages: u64) -> Self {
        let part = |label: &str, (first_sector, sectors)| Partition { label: label.into(), first_sector, sectors };
        let mut world = World::new(pages, SECTORS, vec![part("own", OWN), part("common", COMMON)], cache_pages);
        let private = Mode::CopyOnWrite { limit_pages: u64::MAX };
        let mounts: Vec<_> =
            [("own", Mode::Persistent), ("common", private), ("common", private), ("common", Mode::ReadOnly)]
                .map(|(label, mode)| {
                    world.disk.mount(&MountSpec { holder: label, partition: Some(label), mode }).unwrap()
                })
                .into();
        let expected = [OWN, COMMON, COMMON, COMMON].map(Expected::new).into();
        Self { world, mounts, expected, flights: BTreeMap::new(), next_tag: 0 }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Submit { mount, kind, sector, sectors, cut } => self.submit(mount, kind, sector, sectors, cut),
            Step::Complete { which, may_succeed } => {
                let count = self.world.io.started.len();
                if count > 0 {
                    self.world.complete(which.index(count), may_succeed);
                }
            }
            Step::Cancel { mount } => {
                self.world.disk.cancel(self.mounts[mount]);
                self.world.go_on();
                self.collect();
                // A cancelled write may still reach the disk until the end of the run.
                let dropped: Vec<_> = self.flights.extract_if(.., |_, flight| flight.mount == mount).collect();
                for (_, flight) in dropped.iter().filter(|(_, flight)| flight.kind != Kind::Read) {
                    self.expected[mount].range(flight).for_each(|(_, value, version)| {
                        (*value, *version) = (None, u64::MAX / 2);
                    });
                }
            }
            Step::Reclaim { pages } => {
                // What guests map goes from the cache, too, when all caches together hold too much.
                match pages % 2 {
                    0 => self.world.disk.reclaim(pages, self.world.pages),
                    _ => self.world.disk.trim(pages, self.world.pages),
                };
            }
        }
        self.collect();
    }

    fn submit(&mut self, mount: usize, kind: Kind, sector: u64, sectors: u64, cut: u64) {
        let tag = self.next_tag;
        self.next_tag += 1;
        let at = tag % 64 * BUFFER;
        if self.flights.values().any(|flight| flight.at == at) {
            return;
        }
        let value = (tag % 200) as u8 + 1;
        let mut flight = Flight { mount, kind, sector, sectors, at, value, versions: vec![] };
        if kind == Kind::Write {
            self.world.fill(at, sectors * SECTOR, value);
        }
        if sector + sectors <= self.world.disk.sectors(self.mounts[mount]) && !(mount == 3 && kind != Kind::Read) {
            self.expected[mount].begin(&mut flight, self.flights.values());
        }
        self.flights.insert(tag, flight);
        let _ = self.world.submit(self.mounts[mount], tag, kind, sector, sectors, at, cut);
    }

    fn collect(&mut self) {
        for (tag, status) in core::mem::take(&mut self.world.done) {
            let Some(flight) = self.flights.remove(&tag) else { panic!("request {tag} ended twice") };
            let ram = self.world.ram(flight.at, flight.sectors * SECTOR);
            if !flight.versions.is_empty() {
                self.expected[flight.mount].end(&flight, status, &ram);
            } else {
                assert!(status == Status::IoError || flight.kind == Kind::Flush);
            }
        }
    }

    fn finish(mut self) {
        self.world.drain();
        self.collect();
        assert!(self.flights.is_empty(), "everything has ended");
        for mount in 0..4 {
            let sectors = self.expected[mount].sectors.len() as u64;
            for sector in (0..sectors).step_by(100) {
                self.submit(mount, Kind::Read, sector, (sectors - sector).min(100), 4_096);
                self.world.drain();
                self.collect();
            }
        }
        let mounts = self.mounts;
        self.world.end(&mounts);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn every_vm_sees_what_it_should(steps in prop::collection::vec(step(), 1..120), cache_pages in 1..300_u64,
                                    slots in 1..64_usize) {
        let pages = Pages::new(100_000);
        let mut bench = Bench::new(&pages, cache_pages);
        bench.world.io.slots = slots;
        for step in steps {
            bench.step(step);
        }
        bench.finish();
    }

    #[test]
    fn scarce_memory_harms_nobody_else(steps in prop::collection::vec(step(), 1..120), limit in 1..200_usize) {
        let pages = Pages::new(limit);
        let mut bench = Bench::new(&pages, 100);
        for step in steps {
            bench.step(step);
        }
        *pages.limit.borrow_mut() = 100_000;
        bench.finish();
    }
}
