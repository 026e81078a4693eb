//! The power goes at every operation of a life, in every way there is.

use std::collections::BTreeMap;
use std::format;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::{Model, Step, step};
use crate::layout::Geometry;
use crate::tests::world::*;

/// A life without crashes: the same one every time.
fn life(steps: usize) -> Vec<Step> {
    let calm = step().prop_filter("it goes on", |step| !matches!(step, Step::Crash { .. }));
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    prop::collection::vec(calm, steps).new_tree(&mut runner).expect("steps are easy to find").current()
}

/// Lives with these steps in this store; how often the power has gone. Between the steps the log is filled until a new one is near, so that
/// each part of the life sees one begin.
fn live_and_cut(world: World, steps: &[Step]) -> (usize, World) {
    /// Steps between two logs.
    const PART: usize = 40;
    let mut model = Model::on(world);
    model.world.store.sync();
    model.world.drain();
    model.settle();
    let mut cuts = 0;
    for part in steps.chunks(PART) {
        let before = model.fill_log();
        model.cuts = Some(cuts);
        part.iter().for_each(|step| model.run(step.clone()));
        // Whatever the part was: the log comes to its end.
        while model.world.store.metrics().checkpoints == before {
            model.write_and_flush();
        }
        cuts = model.cuts.take().unwrap_or_default();
    }
    (cuts, model.world)
}

impl Model {
    /// The power goes now, in every way there is, and this life goes on as if it had not.
    ///
    /// Of the sectors at risk, in the order in which they were written, there is after the crash: each beginning of them, so that every
    /// write is torn at every sector; each one alone, and all but each one, so that all are reordered with each other; and
    /// every other one.
    pub(super) fn cut_here(&mut self) {
        /// Sectors of which each is looked at; of more, as many of the latest.
        const LATEST: usize = 8;
        let Some(cuts) = self.cuts else { return };
        let count = self.world.disks.at_risk();
        let latest = count.saturating_sub(LATEST)..count;
        let beginnings = latest.clone().map(|end| (0..count).map(|at| at < end).collect());
        let alone = latest.clone().map(|one| (0..count).map(|at| at == one).collect());
        let without = latest.map(|one| (0..count).map(|at| at != one).collect());
        let others = [true, false].map(|is_odd| (0..count).map(|at| (at % 2 == 1) == is_odd).collect());
        let mut ways: Vec<Vec<bool>> = vec![vec![true; count], vec![false; count]];
        ways.extend(beginnings.chain(alone).chain(without).chain(others));
        ways.sort_unstable();
        ways.dedup();
        for (number, way) in ways.iter().enumerate() {
            let mut sectors = way.iter();
            let disk = self.world.disks.twin().crash(&mut || *sectors.next().expect("as many as are at risk"));
            self.check_cut(&mut World::on(disk, (1 << 30) + (cuts + number) as u64));
        }
        self.cuts = Some(cuts + ways.len());
    }

    /// What is found after a crash is what may be there.
    fn check_cut(&self, world: &mut World) {
        let found: Vec<_> = world.store.layers().collect();
        let asked: BTreeMap<_, _> = self.asked.values().map(|(name, cut)| (name, cut)).collect();
        for layer in &found {
            let is_known = self.volumes.contains_key(&layer.name)
                || self.snapshots.contains_key(&layer.name)
                || self.removed.contains(&layer.name)
                || asked.contains_key(&layer.name);
            assert!(is_known, "{layer:?}");
        }
        for (name, volume) in &self.volumes {
            let id = world.volume(name, None);
            for (sector, value) in world.read(id, 0, BASE_SECTORS).iter().enumerate() {
                let may = &volume.histories[sector][volume.floors[sector]..];
                assert!(
                    may.iter().flatten().any(|may| may == value),
                    "sector {sector} of {name}: {value}, not {may:?}"
                );
            }
        }
        for (number, layer) in found.iter().enumerate().filter(|(_, layer)| layer.is_snapshot) {
            let id = world.volume(&format!("look-{number}"), Some(&layer.name));
            let seen = world.read(id, 0, BASE_SECTORS);
            let may: Vec<Vec<u64>> = match (self.snapshots.get(&layer.name), asked.get(&layer.name)) {
                (Some((contents, _)), _) => contents.clone(),
                // Asked for and not answered: all that was durable then, and nothing that came later.
                (None, Some(Some((volume, lengths)))) if self.volumes.contains_key(volume) => {
                    let volume = &self.volumes[volume];
                    let sectors = volume.histories.iter().zip(&volume.floors).zip(lengths);
                    sectors.map(|((history, floor), len)| history[*floor.min(&(len - 1))..*len].concat()).collect()
                }
                _ => continue,
            };
            for (sector, (value, may)) in seen.iter().zip(&may).enumerate() {
                assert!(may.contains(value), "sector {sector} of snapshot {}: {value}, not {may:?}", layer.name);
            }
        }
        for (name, (_, is_durable)) in &self.snapshots {
            assert!(!is_durable || found.iter().any(|layer| layer.name == *name), "snapshot {name} is gone");
        }
    }

    /// One sector, made durable: a block of the log.
    fn write_and_flush(&mut self) {
        self.run(Step::Request { volume: 0, kind: 0, sector: self.next % BASE_SECTORS, sectors: 1, cut: 10 });
        self.run(Step::Flush { volume: 0 });
        self.run(Step::End { wishes: vec![0; 16] });
    }

    /// Leaves some blocks of the log free; the number of logs begun so far.
    fn fill_log(&mut self) -> u64 {
        const FREE: u64 = 12;
        let end = Geometry::of(STORE_BLOCKS).log_blocks - FREE;
        while self.world.store.log.next < end {
            self.write_and_flush();
        }
        self.world.store.metrics().checkpoints
    }
}

/// The power goes at every operation of a store's life, in every way there is: over several logs, and once more in the partition of another
/// store, whose superblocks are gone and whose log and data are still there.
#[test]
fn the_power_goes_at_every_operation() {
    const LEAST: usize = 10_000;
    let steps = life(STEPS);
    let (first, world) = live_and_cut(World::new(), &steps);
    let mut disk = world.disks.crash(&mut || true);
    disk[..2 * storage::BLOCK as usize].fill(0);
    let (second, _) = live_and_cut(World::on(disk, 77), &steps[..STEPS / 3]);
    std::println!("the power went {first} times in one store, {second} times in another one's partition");
    assert!(first + second >= LEAST, "{first} and {second}");
}

/// Steps of the life that is cut.
const STEPS: usize = 160;
