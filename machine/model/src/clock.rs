//! Deterministic parallel time: a clock per hart, and the rule of who may run.
//!
//! The emulator offers the harts a turn one after the other, in a fixed order. A hart may take it while its clock is less
//! than a window ahead of the slowest running hart, and keeps it up to that point; while a turn lasts, nobody else runs.
//! So clocks of running harts are never further apart than a window (and one block of instructions), and the order of
//! everything depends on clocks alone, not on when the emulator happens to interrupt a hart.
//!
//! The machine's time is that of the slowest running hart: timers are due by it.

use alloc::vec::Vec;

use crate::{Config, ConfigError};

/// How far a hart runs that is the only one, before others are offered a turn.
const ALONE_PS: u64 = 20_000_000;
/// Offers that are refused for the sake of one turn, per hart, before that turn counts as given up: the emulator has
/// stopped the hart, or reset it.
const PATIENCE: u32 = 64;

/// Clocks of all harts and of the machine, in picoseconds.
#[derive(Debug, Clone)]
pub struct Clocks {
    harts: Vec<HartClock>,
    window_ps: u64,
    machine_ps: u64,
    turn: Option<usize>,
    refused: u32,
    /// When a hart last wrote to a device: it may have woken another one.
    stirred_ps: u64,
    is_stirred: bool,
}

#[derive(Debug, Clone, Copy)]
struct HartClock {
    now_ps: u64,
    idle_ps: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not there yet.
    Absent,
    Running,
    /// In WFI.
    Waiting,
}

/// Answer to a hart that is offered a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It may run for this time.
    Run {
        /// How long.
        budget_ps: u64,
    },
    /// Others must run first.
    Yield,
}

impl Clocks {
    /// No hart yet; the machine's time is `start_ps`.
    ///
    /// # Errors
    /// What [`Config::check`] refuses.
    pub fn new(config: &Config, start_ps: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let absent = HartClock { now_ps: start_ps, idle_ps: 0, state: State::Absent };
        let harts = alloc::vec![absent; config.harts];
        let window_ps = config.window_ps;
        Ok(Self { harts, window_ps, machine_ps: start_ps, turn: None, refused: 0, stirred_ps: 0, is_stirred: false })
    }

    /// A hart begins to run, up to ten windows late, as `seed` chooses; with seed 0 at once.
    pub fn start(&mut self, hart: usize, seed: u64) {
        let late = if seed == 0 { 0 } else { mix(seed ^ mix(hart as u64)) % (10 * self.window_ps) };
        self.harts[hart].now_ps = self.machine_ps + late;
        self.harts[hart].state = State::Running;
    }

    /// How far harts may be apart from now on.
    pub fn set_window(&mut self, window_ps: u64) {
        self.window_ps = window_ps;
    }

    /// The clock of `hart`.
    pub fn now(&self, hart: usize) -> u64 {
        self.harts[hart].now_ps
    }

    /// The time that `hart` has waited until the machine's time is `at_ps`, to which it still waits if it does now.
    pub fn idle(&self, hart: usize, at_ps: u64) -> u64 {
        let HartClock { now_ps, idle_ps, state } = self.harts[hart];
        if state == State::Waiting { idle_ps + at_ps.saturating_sub(now_ps) } else { idle_ps }
    }

    /// Whether `hart` waits.
    pub fn is_waiting(&self, hart: usize) -> bool {
        self.harts[hart].state != State::Running
    }

    /// The machine's time.
    pub fn machine(&self) -> u64 {
        self.machine_ps
    }

    /// Moves the machine's time forward; it never goes back.
    pub fn set_machine(&mut self, at_ps: u64) {
        self.machine_ps = self.machine_ps.max(at_ps);
    }

    /// Whose turn it is.
    pub fn turn(&self) -> Option<usize> {
        self.turn
    }

    /// The clock of the slowest running hart: as far as the machine's time may come. `None` if all wait.
    pub fn slowest(&self) -> Option<u64> {
        self.harts.iter().filter(|hart| hart.state == State::Running).map(|hart| hart.now_ps).min()
    }

    /// Whether somebody else is in the middle of its turn, so that `hart` must not run.
    pub fn must_refuse(&mut self, hart: usize) -> bool {
        let Some(turn) = self.turn.filter(|turn| *turn != hart) else { return false };
        self.refused += 1;
        let is_kept = self.harts[turn].state == State::Running && self.refused < PATIENCE * self.harts.len() as u32;
        if !is_kept {
            self.end_turn();
        }
        is_kept
    }

    /// `hart`, which is not refused, has used `spent_ps` since it was last asked. If it waited, it was woken.
    pub fn advance(&mut self, hart: usize, spent_ps: u64) {
        let (machine_ps, stirred_ps) = (self.machine_ps, self.stirred_ps);
        let clock = &mut self.harts[hart];
        if clock.state == State::Waiting {
            let woken_ps = clock.now_ps.max(machine_ps).max(stirred_ps);
            clock.idle_ps += woken_ps - clock.now_ps;
            clock.now_ps = woken_ps;
            clock.state = State::Running;
        }
        clock.now_ps = clock.now_ps.saturating_add(spent_ps);
    }

    /// `hart` has just waited that long without giving up its turn.
    pub fn idle_for(&mut self, hart: usize, idle_ps: u64) {
        self.harts[hart].idle_ps += idle_ps;
    }

    /// Whether `hart` may run on. The next timer is due at `deadline_ps`, if any.
    pub fn step(&mut self, hart: usize, deadline_ps: Option<u64>) -> Step {
        let now_ps = self.harts[hart].now_ps;
        let is_running =
            |(at, clock): (usize, &HartClock)| (at != hart && clock.state == State::Running).then_some(clock.now_ps);
        let others = self.harts.iter().enumerate().filter_map(is_running).min();
        let limit_ps = match others {
            Some(others) => now_ps.min(others) + self.window_ps,
            None => deadline_ps.unwrap_or(u64::MAX).clamp(now_ps + 1, now_ps + ALONE_PS.max(self.window_ps)),
        };
        // A hart that runs alone may have woken another one without anybody's noticing.
        let is_alone = others.is_none() && self.harts.iter().any(|hart| hart.state == State::Waiting);
        let must_look = (core::mem::take(&mut self.is_stirred) || is_alone) && self.turn == Some(hart);
        if now_ps >= limit_ps || must_look {
            self.end_turn();
            return Step::Yield;
        }
        if self.turn != Some(hart) {
            (self.turn, self.refused) = (Some(hart), 0);
        }
        Step::Run { budget_ps: limit_ps - now_ps }
    }

    /// `hart` has used `spent_ps` and begins to wait. Tells whether all wait now.
    pub fn wait(&mut self, hart: usize, spent_ps: u64) -> bool {
        self.harts[hart].now_ps += spent_ps;
        self.harts[hart].state = State::Waiting;
        self.end_turn();
        self.harts.iter().all(|hart| hart.state != State::Running)
    }

    /// `hart`, at `now_ps`, has written to a device. Tells whether its turn should end soon, since it may have woken
    /// somebody.
    pub fn stir(&mut self, now_ps: u64) -> bool {
        self.stirred_ps = self.stirred_ps.max(now_ps);
        self.is_stirred = self.harts.iter().any(|hart| hart.state == State::Waiting);
        self.is_stirred
    }

    /// Nobody is in the middle of its turn any more.
    pub fn end_turn(&mut self) {
        (self.turn, self.refused) = (None, 0);
    }
}

/// The finalizer of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
