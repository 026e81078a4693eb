//! Deterministic parallel time: a clock per hart, and the rule of who runs next.
//!
//! The hart with the smallest clock runs, until it is one window ahead of the next event of any other. So two harts are
//! never further apart than a window, and the order depends on the clocks and the seed alone.

use alloc::vec::Vec;

use crate::{Config, ConfigError};

/// Clocks of all harts, in picoseconds from the start.
#[derive(Debug, Clone)]
pub struct Clocks {
    harts: Vec<HartClock>,
    window_ps: u64,
}

#[derive(Debug, Clone, Copy)]
struct HartClock {
    now_ps: u64,
    idle_ps: u64,
    /// Who goes first among equal clocks.
    rank: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// In WFI; the time at which its timer ends that, if one is set.
    Waiting(Option<u64>),
}

/// Leave to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Who runs.
    pub hart: usize,
    /// Its clock must not pass this by more than one instruction.
    pub until_ps: u64,
}

impl Clocks {
    /// All harts running. Each starts at a moment of the first window that `seed` chooses; with seed 0 all start at 0.
    ///
    /// # Errors
    /// What [`Config::check`] refuses.
    pub fn new(config: &Config, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let harts = (0..config.harts as u64).map(|hart| HartClock::new(hart, seed, config.window_ps)).collect();
        Ok(Self { harts, window_ps: config.window_ps })
    }

    /// The clock of `hart`.
    pub fn now(&self, hart: usize) -> u64 {
        self.harts[hart].now_ps
    }

    /// The time that `hart` has waited.
    pub fn idle(&self, hart: usize) -> u64 {
        self.harts[hart].idle_ps
    }

    /// `hart` has used `spent_ps`.
    pub fn advance(&mut self, hart: usize, spent_ps: u64) {
        let clock = &mut self.harts[hart];
        clock.now_ps = clock.now_ps.saturating_add(spent_ps);
    }

    /// `hart` waits for an interrupt, and at most until its timer.
    pub fn wait(&mut self, hart: usize, timer_ps: Option<u64>) {
        self.harts[hart].state = State::Waiting(timer_ps);
    }

    /// An interrupt sent at `at_ps` reaches `hart`. One that is running is not moved.
    pub fn wake(&mut self, hart: usize, at_ps: u64) {
        let clock = &mut self.harts[hart];
        if let State::Waiting(timer) = clock.state {
            // Its own timer may have been due before the interrupt came.
            clock.resume(timer.map_or(at_ps, |timer| timer.min(at_ps)));
        }
    }

    /// Who runs next; wakes a hart whose timer comes first. `None` when all wait and no timer is set.
    pub fn next_turn(&mut self) -> Option<Turn> {
        let (hart, _) = self.earliest(None)?;
        if let State::Waiting(Some(timer)) = self.harts[hart].state {
            self.harts[hart].resume(timer);
        }
        let others = self.earliest(Some(hart)).map_or(self.harts[hart].now_ps, |(_, at)| at);
        Some(Turn { hart, until_ps: others.saturating_add(self.window_ps) })
    }

    fn earliest(&self, but: Option<usize>) -> Option<(usize, u64)> {
        let harts = self.harts.iter().enumerate().filter(|(hart, _)| Some(*hart) != but);
        let events = harts.filter_map(|(hart, clock)| Some((clock.next_event()?, clock.rank, hart)));
        events.min().map(|(at, _, hart)| (hart, at))
    }
}

impl HartClock {
    fn new(hart: u64, seed: u64, window_ps: u64) -> Self {
        let (now_ps, rank) = match seed {
            0 => (0, hart),
            seed => (mix(seed ^ mix(hart)) % window_ps, mix(seed.wrapping_add(hart))),
        };
        Self { now_ps, idle_ps: 0, rank, state: State::Running }
    }

    fn next_event(&self) -> Option<u64> {
        match self.state {
            State::Running => Some(self.now_ps),
            State::Waiting(timer) => timer.map(|timer| timer.max(self.now_ps)),
        }
    }

    fn resume(&mut self, at_ps: u64) {
        let now_ps = self.now_ps.max(at_ps);
        self.idle_ps += now_ps - self.now_ps;
        self.now_ps = now_ps;
        self.state = State::Running;
    }
}

/// The finalizer of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
