//! What came of it.

use super::vm::{Vcpu, Vm};
use crate::TICKS_PER_MS;

/// One turn of one vCPU on one hart, in ticks of the machine's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The hart.
    pub hart: u16,
    /// The VM, by its position.
    pub vm: u16,
    /// The vCPU, by its index in the VM.
    pub vcpu: u16,
    /// Its begin.
    pub from: u64,
    /// Its end.
    pub to: u64,
}

/// Figures of a play.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Outcome {
    /// Harts of the machine.
    pub harts: usize,
    /// How long it was played, in microseconds.
    pub us: u64,
    /// Hart time idle while a vCPU waited, in millionths.
    pub wasted_ppm: u64,
    /// Moves of vCPUs between harts.
    pub moves: u64,
    /// Picks of harts: how often the policy was asked.
    pub picks: u64,
    /// The VMs.
    pub vms: Vec<VmOutcome>,
}

/// Figures of a VM.
#[derive(Clone, Debug, serde::Serialize)]
pub struct VmOutcome {
    /// Its name.
    pub name: String,
    /// Its weight.
    pub weight: u32,
    /// Rounds that its vCPUs finished, in all.
    pub rounds: u64,
    /// Hart time that it had, in microseconds.
    pub ran_us: u64,
    /// What it spun of that.
    pub spun_us: u64,
    /// Time that its vCPUs waited for a hart.
    pub waited_us: u64,
    /// Turns in which its vCPUs ran together.
    pub turns: u64,
    /// 99 of 100 wake-ups were on a hart within this time, in microseconds; `None` if none woke up.
    pub wake_p99_us: Option<u64>,
    /// When its program ended, in microseconds, if it did.
    pub ended_us: Option<u64>,
}

pub const fn us(ticks: u64) -> u64 {
    ticks * 1_000 / TICKS_PER_MS
}

impl VmOutcome {
    pub(super) fn new(vm: &Vm, vcpus: &[Vcpu]) -> Self {
        let mine = vcpus.get(vm.vcpus.clone()).unwrap_or_default();
        let sum = |of: fn(&Vcpu) -> u64| mine.iter().map(of).sum::<u64>();
        let mut latencies: Vec<u64> = mine.iter().flat_map(|vcpu| &vcpu.latencies).copied().collect();
        latencies.sort_unstable();
        let p99 = latencies.get((latencies.len() * 99).div_ceil(100).saturating_sub(1));
        Self {
            name: vm.name.clone(),
            weight: vm.weight,
            rounds: sum(|vcpu| vcpu.rounds),
            ran_us: us(sum(|vcpu| vcpu.ran_ticks)),
            spun_us: us(sum(|vcpu| vcpu.spun_ticks)),
            waited_us: us(sum(|vcpu| vcpu.waited_ticks)),
            turns: vm.turns,
            wake_p99_us: p99.map(|ticks| us(*ticks)),
            ended_us: vm.ended_at.map(us),
        }
    }
}
