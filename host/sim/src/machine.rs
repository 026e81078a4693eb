//! A machine of vCPUs that compute or sleep, without a file: for questions of which there are many.

use addr::CpuIndex;
use sched::balance::Caution;
use sched::gang::GangMode;

use crate::TICKS_PER_MS;
use crate::play::{MachineScene, NewVm, Play, Step};
use crate::report::Report;

/// What a vCPU does, for ever. Lengths in ticks; those below a microsecond are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Computes.
    Compute,
    /// Computes for `run_ticks`, then waits for its timer for `sleep_ticks`.
    Periodic {
        /// Work of a round.
        run_ticks: u64,
        /// Sleep of a round.
        sleep_ticks: u64,
    },
}

impl Program {
    fn steps(self) -> Vec<Step> {
        let us = |ticks: u64| (ticks * 1_000 / TICKS_PER_MS).clamp(1, u32::MAX.into()) as u32;
        match self {
            Self::Compute => vec![Step::ComputeUs(1_000_000_000)],
            Self::Periodic { run_ticks, sleep_ticks } => {
                vec![Step::ComputeUs(us(run_ticks)), Step::SleepUs(us(sleep_ticks))]
            }
        }
    }
}

/// Nodes of harts that run vCPUs. Moves cost nothing here.
#[derive(Debug)]
pub struct Machine {
    play: Play,
}

impl Machine {
    /// `nodes` nodes of `harts_per_node` harts.
    #[must_use]
    pub fn new(nodes: u8, harts_per_node: u16) -> Self {
        Self::with_nodes(&vec![harts_per_node; usize::from(nodes)])
    }

    /// A node for each of `harts_of_nodes`, with so many harts. At most 256 nodes count.
    #[must_use]
    pub fn with_nodes(harts_of_nodes: &[u16]) -> Self {
        let costs = MachineScene { move_us: 0, move_between_nodes_us: 0, ..MachineScene::new(1, 1) };
        Self { play: Play::on(harts_of_nodes, &costs) }
    }

    /// Balances with this caution in place of the usual one.
    #[must_use]
    pub fn with_caution(self, caution: Caution) -> Self {
        Self { play: self.play.with_caution(caution) }
    }

    /// Starts a VM where the policy wants it.
    pub fn start_vm(&mut self, weight: u32, programs: &[Program]) {
        self.start(weight, programs, None);
    }

    /// Starts a VM on these harts.
    pub fn start_vm_on(&mut self, weight: u32, programs: &[Program], places: &[CpuIndex]) {
        self.start(weight, programs, Some(places.to_vec()));
    }

    fn start(&mut self, weight: u32, programs: &[Program], places: Option<Vec<CpuIndex>>) {
        let vm = NewVm { name: String::new(), weight, mode: GangMode::Auto, rounds: None, places };
        self.play.start_vm(vm, programs.iter().map(|program| program.steps()).collect());
    }

    /// Lets `ms` milliseconds pass.
    pub fn run(&mut self, ms: u64) {
        self.play.go_on_for(ms);
    }

    /// Forgets what was counted so far, for a report of the steady state.
    pub fn reset_counters(&mut self) {
        self.play.reset_counters();
    }

    /// How it went since the counters began.
    #[must_use]
    pub fn report(&self) -> Report {
        self.play.report()
    }
}
