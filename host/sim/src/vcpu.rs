//! Synthetic vCPUs.

use addr::CpuIndex;
use sched::Entity;
use sched::balance::{MoveHistory, ServiceHistory};

/// What a vCPU does, for ever. Lengths in ticks.
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

/// A vCPU and its accounts.
#[derive(Debug)]
pub(crate) struct Vcpu {
    pub entity: Entity,
    pub weight: u32,
    pub program: Program,
    pub hart: CpuIndex,
    pub state: State,
    pub ran_ticks: u64,
    pub waited_ticks: u64,
    /// Longest time from a wake-up to the first instruction.
    pub worst_wake_ticks: u64,
    pub history: ServiceHistory,
    pub moves: MoveHistory,
}

/// Where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Can run; `left_ticks` until it sleeps.
    Runnable { left_ticks: u64, since: u64, is_fresh: bool },
    /// Sleeps until then.
    Asleep { until: u64 },
}

impl Vcpu {
    pub fn new(entity: Entity, weight: u32, program: Program, hart: CpuIndex) -> Self {
        Self {
            entity,
            weight,
            program,
            hart,
            state: State::Runnable { left_ticks: round(program), since: 0, is_fresh: false },
            ran_ticks: 0,
            waited_ticks: 0,
            worst_wake_ticks: 0,
            history: ServiceHistory::default(),
            moves: MoveHistory::default(),
        }
    }

    /// Wakes up if it is time to.
    pub fn wake_if_due(&mut self, now: u64) -> bool {
        let State::Asleep { until } = self.state else { return false };
        if until > now {
            return false;
        }
        self.state = State::Runnable { left_ticks: round(self.program), since: now, is_fresh: true };
        true
    }

    /// Ticks that it can run before it sleeps.
    pub fn wants(&self) -> u64 {
        match self.state {
            State::Runnable { left_ticks, .. } => left_ticks,
            State::Asleep { .. } => 0,
        }
    }

    /// It ran from `start` for `ticks`. Returns whether it sleeps now.
    pub fn ran(&mut self, start: u64, ticks: u64) -> bool {
        let State::Runnable { left_ticks, since, is_fresh } = self.state else { return true };
        let waited = start.saturating_sub(since);
        if is_fresh {
            self.worst_wake_ticks = self.worst_wake_ticks.max(waited);
        }
        self.waited_ticks += waited;
        self.ran_ticks += ticks;
        let end = start + ticks;
        match self.program {
            Program::Periodic { sleep_ticks, .. } if ticks >= left_ticks => {
                self.state = State::Asleep { until: end + sleep_ticks };
                true
            }
            _ => {
                self.state = State::Runnable { left_ticks: left_ticks - ticks, since: end, is_fresh: false };
                false
            }
        }
    }
}

const fn round(program: Program) -> u64 {
    match program {
        Program::Compute => u64::MAX,
        Program::Periodic { run_ticks, .. } => run_ticks,
    }
}
