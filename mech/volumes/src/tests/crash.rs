//! Random lives with crashes at every point, against a model of what each volume must or may show.

mod cuts;

use std::collections::BTreeMap;
use std::format;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use storage::{Kind, SECTOR, Status};

use super::world::*;
use crate::*;

#[derive(Clone, Debug)]
enum Step {
    Request {
        volume: usize,
        kind: u8,
        sector: u64,
        sectors: u64,
        cut: u64,
    },
    Flush {
        volume: usize,
    },
    /// Some operations end.
    End {
        wishes: Vec<usize>,
    },
    Snapshot {
        volume: usize,
    },
    Clone {
        snapshot: usize,
    },
    Remove {
        layer: usize,
    },
    /// The VM goes, and comes again.
    Reset {
        volume: usize,
    },
    Crash {
        seed: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let request = (0..4_usize, 0..8_u8, 0..BASE_SECTORS, prop_oneof![1..12_u64, 1..90_u64], 1..40_u64).prop_map(
        |(volume, kind, sector, sectors, cut)| {
            let sectors = sectors.min(BASE_SECTORS - sector);
            Step::Request { volume, kind, sector, sectors, cut: cut * 100 }
        },
    );
    prop_oneof![
        12 => request,
        3 => (0..4_usize).prop_map(|volume| Step::Flush { volume }),
        10 => prop::collection::vec(0..16_usize, 1..12).prop_map(|wishes| Step::End { wishes }),
        1 => (0..4_usize).prop_map(|volume| Step::Snapshot { volume }),
        1 => (0..4_usize).prop_map(|snapshot| Step::Clone { snapshot }),
        1 => (0..8_usize).prop_map(|layer| Step::Remove { layer }),
        1 => (0..4_usize).prop_map(|volume| Step::Reset { volume }),
        1 => any::<u64>().prop_map(|seed| Step::Crash { seed }),
    ]
}

/// What a sector may show after each write to it, oldest first; several values where a write may have failed half-way.
type History = Vec<Vec<u64>>;

#[derive(Clone)]
struct Volume {
    id: Option<VolumeId>,
    /// Of each sector.
    histories: Vec<History>,
    /// The first of each that may be seen after a crash.
    floors: Vec<usize>,
}

/// A request under way.
struct Pending {
    volume: String,
    kind: Kind,
    sector: u64,
    sectors: u64,
    at: u64,
    value: u64,
    /// Lengths of histories when it was submitted: a flush covers what had ended then.
    covers: Vec<usize>,
}

/// The volume of a snapshot, and the lengths of its histories when that was asked for.
type Cut = (String, Vec<usize>);

struct Model {
    world: World,
    /// Where the power has gone, and the life has gone on: counted, if it is to go there.
    cuts: Option<usize>,
    volumes: BTreeMap<String, Volume>,
    /// Contents; not durable ones may be gone after a crash.
    snapshots: BTreeMap<String, (Vec<Vec<u64>>, bool)>,
    pending: BTreeMap<u64, Pending>,
    /// Snapshots and removals that were not answered: token, name, and for a snapshot the histories' lengths.
    asked: BTreeMap<u64, (String, Option<Cut>)>,
    removed: Vec<String>,
    next: u64,
}

impl Model {
    fn new() -> Self {
        Self::on(World::new())
    }

    fn on(world: World) -> Self {
        let (volumes, snapshots) = (BTreeMap::new(), BTreeMap::new());
        let (pending, asked) = (BTreeMap::new(), BTreeMap::new());
        let mut model = Self { world, cuts: None, volumes, snapshots, pending, asked, removed: vec![], next: 1 };
        for name in ["a", "b"] {
            let contents = (0..BASE_SECTORS).map(|sector| vec![base_value(sector)]).collect();
            model.add(name.to_string(), contents, None);
        }
        model
    }

    fn add(&mut self, name: String, contents: Vec<Vec<u64>>, from: Option<&str>) {
        let id = Some(self.world.volume(&name, from));
        let histories = contents.into_iter().map(|values| vec![values]).collect();
        self.volumes.insert(name, Volume { id, histories, floors: vec![0; BASE_SECTORS as usize] });
    }

    fn pick(&self, index: usize) -> Option<String> {
        self.volumes.keys().nth(index % self.volumes.len().max(1)).cloned()
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Request { volume, kind, sector, sectors, cut } => self.request(volume, kind, sector, sectors, cut),
            Step::Flush { volume } => self.flush(volume),
            Step::End { wishes } => {
                for wish in wishes {
                    if self.world.disks.under_way() > 0 {
                        self.world.end_one(wish);
                        self.settle();
                        self.cut_here();
                    }
                }
            }
            Step::Snapshot { volume } => self.snapshot(volume),
            Step::Clone { snapshot } => self.clone_of(snapshot),
            Step::Remove { layer } => self.remove(layer),
            Step::Reset { volume } => self.reset(volume),
            Step::Crash { seed } => self.crash(seed),
        }
        self.settle();
        self.cut_here();
    }

    fn tag(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn request(&mut self, volume: usize, kind: u8, sector: u64, sectors: u64, cut: u64) {
        let Some(name) = self.pick(volume) else { return };
        let kind = [
            Kind::Write,
            Kind::Write,
            Kind::Write,
            Kind::Read,
            Kind::Read,
            Kind::Write,
            Kind::WriteZeroes,
            Kind::Discard,
        ][usize::from(kind)];
        // What a disk does with overlapping requests under way is nobody's promise.
        let overlaps = |other: &Pending| {
            other.volume == name && other.sector < sector + sectors && sector < other.sector + other.sectors
        };
        if self.pending.values().any(overlaps) || self.pending.len() >= 40 {
            return;
        }
        let tag = self.tag();
        let at = tag % 40 * 90 * SECTOR;
        let free =
            (0..40).map(|slot| slot * 90 * SECTOR).find(|at| !self.pending.values().any(|other| other.at == *at));
        let at = free.unwrap_or(at);
        let bytes: Vec<_> = (0..sectors).flat_map(|_| filled(tag)).collect();
        if kind == Kind::Write {
            self.world.disks.ram.borrow_mut()[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
        }
        let value = if kind == Kind::Write { tag } else { 0 };
        let found = self.volumes.get_mut(&name).unwrap();
        let id = found.id.unwrap();
        if kind != Kind::Read {
            for history in &mut found.histories[sector as usize..(sector + sectors) as usize] {
                // A crash may show it from now on; until its end is known, both.
                let mut values = history.last().unwrap().clone();
                values.push(value);
                history.push(values);
            }
        }
        let covers = Vec::new();
        self.pending.insert(tag, Pending { volume: name, kind, sector, sectors, at, value, covers });
        self.world.submit(id, tag, kind, sector, sectors, at, cut);
    }

    fn flush(&mut self, volume: usize) {
        let Some(name) = self.pick(volume) else { return };
        let found = &self.volumes[&name];
        let mut covers: Vec<_> = found.histories.iter().map(|history| history.len() - 1).collect();
        for other in self.pending.values().filter(|other| other.volume == name && other.kind != Kind::Read) {
            for cover in &mut covers[other.sector as usize..(other.sector + other.sectors) as usize] {
                *cover -= 1;
            }
        }
        let (id, tag) = (found.id.unwrap(), self.tag());
        let pending =
            Pending { volume: name, kind: Kind::Flush, sector: 0, sectors: 0, at: u64::MAX, value: 0, covers };
        self.pending.insert(tag, pending);
        self.world.submit(id, tag, Kind::Flush, 0, 0, 0, 1);
    }

    /// Takes note of what has ended.
    fn settle(&mut self) {
        self.world.go_on();
        for (tag, status) in core::mem::take(&mut self.world.done) {
            let ended = self.pending.remove(&tag).expect("it was under way");
            let volume = self.volumes.get_mut(&ended.volume).unwrap();
            let range = ended.sector as usize..(ended.sector + ended.sectors) as usize;
            match (ended.kind, status) {
                (Kind::Flush, Status::Ok) => {
                    for (floor, cover) in volume.floors.iter_mut().zip(ended.covers) {
                        *floor = cover.max(*floor);
                    }
                }
                (Kind::Read, Status::Ok) => {
                    let ram = self.world.disks.ram.borrow();
                    let bytes = &ram[ended.at as usize..][..(ended.sectors * SECTOR) as usize];
                    for (sector, bytes) in range.zip(bytes.chunks(SECTOR as usize)) {
                        let (value, may) = (value_of(bytes), volume.histories[sector].last().unwrap());
                        assert!(may.contains(&value), "sector {sector} of {}: {value}, not {may:?}", ended.volume);
                    }
                }
                (Kind::Write | Kind::WriteZeroes, Status::Ok) => {
                    for history in &mut volume.histories[range] {
                        *history.last_mut().unwrap() = vec![ended.value];
                    }
                }
                // Discarded sectors show what they did, or zero; a failed write may have been done in part.
                (Kind::Discard, Status::Ok) | (Kind::Write | Kind::WriteZeroes, Status::NoSpace) => {}
                (kind, status) => panic!("{kind:?} ended with {status:?}"),
            }
        }
        for answer in core::mem::take(&mut self.world.answers) {
            let (name, snapshot) = self.asked.remove(&answer.token).expect("it was asked for");
            if let Some((volume, lengths)) = snapshot
                && answer.status == Status::Ok
            {
                let volume = self.volumes.get_mut(&volume).unwrap();
                let contents = volume.histories.iter().zip(&lengths).map(|(history, len)| history[len - 1].clone());
                self.snapshots.insert(name.clone(), (contents.collect(), true));
                for (floor, len) in volume.floors.iter_mut().zip(lengths) {
                    *floor = (len - 1).max(*floor);
                }
            }
            self.removed.retain(|removed| *removed != name);
        }
    }

    fn snapshot(&mut self, volume: usize) {
        let Some(name) = self.pick(volume) else { return };
        let token = self.tag();
        let snapshot = format!("s{token}");
        // Writes that were submitted are part of it, later ones are not.
        let lengths = self.volumes[&name].histories.iter().map(Vec::len).collect();
        if self.asked.values().any(|(_, other)| other.as_ref().is_some_and(|(other, _)| *other == name)) {
            return;
        }
        self.world.store.snapshot(&name, &snapshot, token).unwrap();
        self.asked.insert(token, (snapshot, Some((name, lengths))));
    }

    fn clone_of(&mut self, snapshot: usize) {
        let durable: Vec<_> = self.snapshots.iter().filter(|(_, (_, is_durable))| *is_durable).collect();
        let Some((name, (contents, _))) = durable.get(snapshot % durable.len().max(1)) else { return };
        if self.volumes.len() >= 4 {
            return;
        }
        let (name, contents) = (name.to_string(), contents.clone());
        let clone = format!("c{}", self.tag());
        self.add(clone, contents, Some(&name));
        // It must be there after a crash for the model's sake.
        self.world.store.sync();
        self.world.drain();
    }

    fn remove(&mut self, layer: usize) {
        let names: Vec<_> = self.volumes.keys().chain(self.snapshots.keys()).cloned().collect();
        let Some(name) = names.get(layer % names.len().max(1)).cloned() else { return };
        if self.volumes.contains_key(&name) {
            if self.volumes.len() < 2 || self.pending.values().any(|other| other.volume == name) {
                return;
            }
            if self.asked.values().any(|(_, other)| other.as_ref().is_some_and(|(other, _)| *other == name)) {
                return;
            }
            let id = self.volumes[&name].id.unwrap();
            self.world.store.unmount(id);
        }
        let token = self.tag();
        match self.world.store.remove(&name, token) {
            Ok(()) => {
                self.volumes.remove(&name);
                self.snapshots.remove(&name);
                self.asked.insert(token, (name.clone(), None));
                self.removed.push(name);
            }
            Err(VolumeError::HasChild { .. }) => {
                if let Some(volume) = self.volumes.get_mut(&name) {
                    volume.id = Some(self.world.store.mount(&name, &base(), None, "again").unwrap());
                }
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// What was under way may or may not have happened, until it is read.
    fn reset(&mut self, volume: usize) {
        let Some(name) = self.pick(volume) else { return };
        if self.asked.values().any(|(_, other)| other.as_ref().is_some_and(|(other, _)| *other == name)) {
            return;
        }
        let id = self.volumes[&name].id.unwrap();
        self.pending.retain(|_, pending| pending.volume != name);
        self.world.store.unmount(id);
        let again = self.world.store.mount(&name, &base(), None, "again").unwrap();
        self.volumes.get_mut(&name).unwrap().id = Some(again);
        // So that what is cancelled does not overlap what comes.
        self.world.drain();
        self.settle();
    }

    fn crash(&mut self, seed: u64) {
        let mut state = seed | 1;
        let mut keeps = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Some crashes keep almost all, some almost nothing.
            state % 8 < seed % 9
        };
        let nonce = self.tag();
        let fresh = World::on(vec![0; (STORE_BLOCKS * storage::BLOCK) as usize], nonce);
        let old = core::mem::replace(&mut self.world, fresh);
        self.world = World::on(old.disks.crash(&mut keeps), nonce);
        self.pending.clear();
        let found: Vec<_> = self.world.store.layers().collect();
        for (name, snapshot) in core::mem::take(&mut self.asked).into_values() {
            let Some((volume, lengths)) = snapshot else { continue };
            if found.iter().any(|layer| layer.is_snapshot && layer.name == name) {
                // All that was durable, and nothing that came later.
                let volume = &self.volumes[&volume];
                let may = volume.histories.iter().zip(&volume.floors).zip(lengths);
                let may = may.map(|((history, floor), len)| history[*floor.min(&(len - 1))..len].concat());
                self.snapshots.insert(name, (may.collect(), true));
            }
        }
        let known = |name: &String| {
            self.volumes.contains_key(name) || self.snapshots.contains_key(name) || self.removed.contains(name)
        };
        assert!(found.iter().all(|layer| known(&layer.name)), "{found:?}");
        self.removed.clear();
        let names: Vec<_> = self.volumes.keys().cloned().collect();
        for name in names {
            self.check_volume(name);
        }
        self.check_snapshots();
        // Removals that were not durable are forgotten by the model, too: done again.
        let stray: Vec<_> = found
            .into_iter()
            .map(|layer| layer.name)
            .filter(|name| !self.volumes.contains_key(name) && !self.snapshots.contains_key(name))
            .collect();
        for name in stray {
            let token = self.tag();
            if self.world.store.remove(&name, token).is_ok() {
                self.asked.insert(token, (name.clone(), None));
            }
            self.removed.push(name);
        }
    }

    fn check_volume(&mut self, name: String) {
        let id = self.world.volume(&name, None);
        let seen = self.world.read(id, 0, BASE_SECTORS);
        let volume = self.volumes.get_mut(&name).unwrap();
        for (sector, value) in seen.iter().enumerate() {
            let may = &volume.histories[sector][volume.floors[sector]..];
            assert!(may.iter().flatten().any(|may| may == value), "sector {sector} of {name}: {value}, not {may:?}");
        }
        *volume = Volume {
            id: Some(id),
            histories: seen.iter().map(|value| vec![vec![*value]]).collect(),
            floors: vec![0; BASE_SECTORS as usize],
        };
    }

    /// Looks at each snapshot through a clone that is not kept.
    fn check_snapshots(&mut self) {
        let names: Vec<_> = self.snapshots.keys().cloned().collect();
        for name in names {
            let clone = format!("look-{}", self.tag());
            let id = self.world.volume(&clone, Some(&name));
            let seen = self.world.read(id, 0, BASE_SECTORS);
            self.world.store.unmount(id);
            let token = self.tag();
            self.world.store.remove(&clone, token).unwrap();
            self.world.drain();
            self.world.answers.clear();
            let (contents, _) = self.snapshots.get_mut(&name).unwrap();
            for (sector, (value, may)) in seen.iter().zip(contents.iter()).enumerate() {
                assert!(may.contains(value), "sector {sector} of snapshot {name}: {value}, not {may:?}");
            }
            *contents = seen.into_iter().map(|value| vec![value]).collect();
        }
    }

    /// When all have gone, so has everything.
    fn end(mut self) {
        self.world.drain();
        self.settle();
        self.crash(0);
        self.world.drain();
        self.settle();
        for volume in self.volumes.values() {
            self.world.store.unmount(volume.id.unwrap());
        }
        // Children first.
        loop {
            let names: Vec<_> = self.world.store.layers().map(|layer| layer.name).collect();
            let removed = names.iter().filter(|name| self.world.store.remove(name, 0).is_ok()).count();
            self.world.drain();
            self.world.answers.clear();
            if removed == 0 {
                break;
            }
        }
        assert_eq!((self.world.store.layers().count(), self.world.store.space().1), (0, self.world.store.space().0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_was_flushed_is_there_whenever_the_power_goes(steps in prop::collection::vec(step(), 1..120)) {
        let mut model = Model::new();
        // The first volumes must be there after a crash for the model's sake.
        model.world.store.sync();
        model.world.drain();
        for step in steps {
            model.run(step);
        }
        model.end();
    }
}
