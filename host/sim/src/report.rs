//! How it went.

use std::collections::BTreeMap;

use addr::CpuIndex;
use sched::Entity;
use sched::balance::Reason;

use crate::TICKS_PER_MS;
use crate::play::{Play, Step, Vcpu};

/// One move of one vCPU, in ticks of the machine's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trip {
    pub at: u64,
    pub entity: Entity,
    pub from: CpuIndex,
    pub to: CpuIndex,
    pub reason: Reason,
}

/// Figures of one run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Harts of the machine.
    pub harts: usize,
    /// vCPUs that compute without pause.
    pub computing: usize,
    /// Share of a hart that the worst-served computing vCPU got, in thousandths of what the average one got.
    pub worst_permille: u64,
    /// The same of the best-served one.
    pub best_permille: u64,
    /// Jain's fairness index of the computing vCPUs' service, in thousandths: 1,000 if all are served alike.
    pub jain_permille: u64,
    /// Hart time used, in thousandths.
    pub busy_permille: u64,
    /// Hart time idle while somebody waited somewhere, in thousandths.
    pub wasted_permille: u64,
    /// Longest time from a wake-up to running, in microseconds.
    pub worst_wake_us: u64,
    /// Moves by reason.
    pub moves: BTreeMap<Reason, u64>,
    /// Moves of a vCPU to the hart that it had left less than a second before.
    pub returns: u64,
    /// Most moves of one vCPU within any second.
    pub most_moves_in_a_second: usize,
}

impl Report {
    pub(crate) fn new(play: &Play) -> Self {
        let ticks = play.now - play.since;
        let hart_ticks = (ticks * play.facts.len() as u64).max(1);
        let ran = |vcpu: &Vcpu| vcpu.has_run(play.now);
        // By weight: with equal service per weight, all are served alike.
        let per_weight = |vcpu: &Vcpu| ran(vcpu) as f64 / f64::from(vcpu.weight);
        let computes = |vcpu: &&Vcpu| vcpu.program.iter().all(|step| matches!(step, Step::ComputeUs(_)));
        let computing: Vec<f64> = play.vcpus.iter().filter(computes).map(per_weight).collect();
        let count = computing.len().max(1) as f64;
        let sum: f64 = computing.iter().sum();
        let squares: f64 = computing.iter().map(|service| service * service).sum();
        let mean = (sum / count).max(f64::MIN_POSITIVE);
        let permille = |part: f64| (part * 1_000.0).round() as u64;
        let worst_wake = play.vcpus.iter().flat_map(|vcpu| &vcpu.latencies).max();
        let trips = &play.trips;
        Self {
            harts: play.facts.len(),
            computing: computing.len(),
            worst_permille: permille(computing.iter().copied().fold(f64::INFINITY, f64::min) / mean),
            best_permille: permille(computing.iter().copied().fold(0.0, f64::max) / mean),
            jain_permille: permille(sum * sum / (count * squares).max(f64::MIN_POSITIVE)),
            busy_permille: play.vcpus.iter().map(ran).sum::<u64>() * 1_000 / hart_ticks,
            wasted_permille: play.wasted_ticks * 1_000 / hart_ticks,
            worst_wake_us: worst_wake.copied().unwrap_or(0) * 1_000 / TICKS_PER_MS,
            moves: by_reason(trips),
            returns: returns(trips),
            most_moves_in_a_second: trips.iter().map(|trip| in_a_second(trips, trip).count()).max().unwrap_or(0),
        }
    }

    /// All moves.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.moves.values().sum()
    }
}

fn by_reason(trips: &[Trip]) -> BTreeMap<Reason, u64> {
    let mut moves = BTreeMap::new();
    trips.iter().for_each(|trip| *moves.entry(trip.reason).or_default() += 1);
    moves
}

/// The trips of the same vCPU in the second that `first` begins, itself included. `trips` are in the order of time.
fn in_a_second<'a>(trips: &'a [Trip], first: &'a Trip) -> impl Iterator<Item = &'a Trip> {
    let begin = trips.partition_point(|trip| trip.at < first.at);
    let second = trips[begin..].iter().take_while(|trip| trip.at < first.at + 1_000 * TICKS_PER_MS);
    second.filter(|trip| trip.entity == first.entity)
}

fn returns(trips: &[Trip]) -> u64 {
    let is_undone = |trip: &&Trip| in_a_second(trips, trip).any(|later| later.to == trip.from);
    trips.iter().filter(is_undone).count() as u64
}
