//! VMs, their vCPUs, and what these do.

use std::collections::VecDeque;

use addr::CpuIndex;
use sched::Entity;
use sched::balance::{MoveHistory, ServiceHistory};
use sched::gang::{GangMode, Synchrony};

use super::scene::Step;

/// What vCPUs of a VM share.
#[derive(Debug)]
pub struct Vm {
    pub name: String,
    pub weight: u32,
    pub mode: GangMode,
    pub signs: Synchrony,
    /// When its turn was called last; 0 if never.
    pub called_at: u64,
    pub rounds: Option<u32>,
    /// Positions of its vCPUs among all, one after the other.
    pub vcpus: std::ops::Range<usize>,
    /// vCPUs that wait at the barrier.
    pub arrived: usize,
    pub lock: Option<usize>,
    pub lock_waiters: VecDeque<usize>,
    /// vCPUs that have not ended.
    pub left: usize,
    pub ended_at: Option<u64>,
    pub turns: u64,
}

/// A vCPU.
#[derive(Debug)]
pub struct Vcpu {
    pub entity: Entity,
    pub weight: u32,
    pub program: Vec<Step>,
    pub hart: CpuIndex,
    pub state: State,
    pub step: usize,
    pub work: Work,
    pub rounds: u64,
    pub ran_ticks: u64,
    /// Of the turn under way, what was before the counters began.
    pub uncounted_ticks: u64,
    pub spun_ticks: u64,
    pub waited_ticks: u64,
    /// Ticks that moves have cost it and that it has not paid yet.
    pub owed_ticks: u64,
    /// Wake-up latencies, in ticks.
    pub latencies: Vec<u64>,
    pub history: ServiceHistory,
    pub moves: MoveHistory,
    pub chance: u64,
}

/// Whether it can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It wants to, since then.
    Runnable { since: u64, is_fresh: bool },
    /// It runs, since then.
    Running { since: u64 },
    /// It sleeps.
    Asleep,
}

/// What it does when it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Its step begins.
    Begins,
    /// Computes for so many ticks more.
    Computes { left: u64 },
    /// Spins until somebody lets it go on; it may tell the monitor so.
    Spins { tells: bool },
    /// Its program has ended, or it sleeps.
    Nothing,
}

impl Vcpu {
    pub fn new(entity: Entity, weight: u32, program: Vec<Step>, hart: CpuIndex, now: u64) -> Self {
        Self {
            entity,
            weight,
            program,
            hart,
            state: State::Runnable { since: now, is_fresh: false },
            step: 0,
            work: Work::Begins,
            rounds: 0,
            ran_ticks: 0,
            uncounted_ticks: 0,
            spun_ticks: 0,
            waited_ticks: 0,
            owed_ticks: 0,
            latencies: Vec::new(),
            history: Default::default(),
            moves: Default::default(),
            chance: 0x9e37_79b9_7f4a_7c15 ^ u64::from(entity.label()),
        }
    }

    /// The step that it is at.
    pub fn present_step(&self) -> Step {
        self.program[self.step]
    }

    /// Hart time that it has had since the counters began.
    pub fn has_run(&self, now: u64) -> u64 {
        let present = match self.state {
            State::Running { since } => now - since - self.uncounted_ticks,
            _ => 0,
        };
        self.ran_ticks + present
    }

    /// A number in 1..=`most`, by chance; always the same ones.
    pub const fn chance_up_to(&mut self, most: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        1 + self.chance % if most == 0 { 1 } else { most }
    }

    /// Its step is over; the next one begins when it runs. Returns whether a round is.
    pub fn next_step(&mut self) -> bool {
        self.work = Work::Begins;
        self.step += 1;
        if self.step < self.program.len() {
            return false;
        }
        self.step = 0;
        self.rounds += 1;
        true
    }
}
