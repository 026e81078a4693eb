//! One hart's run queue.

mod together;

use alloc::vec::Vec;
use arrayvec::ArrayVec;

use crate::{Entity, MAX_WEIGHT, Scheduling};

/// The runnable vCPUs of one hart, the running one among them.
///
/// Each has a *virtual run time*: ticks that it ran, divided by its weight. Whoever has the least runs next, for one
/// slice. The queue's *floor* is the least virtual run time, and never goes back: who wakes up joins near it.
///
/// Invariants: an entity is queued at most once; `current` is a valid index; no queued virtual run time is below
/// `floor` by more than a wake-up credit.
#[derive(Debug)]
pub struct RunQueue {
    rules: Scheduling,
    scaled: Scaled,
    queued: Vec<Queued>,
    /// Where they stood, of those that sleep.
    asleep: ArrayVec<Sleeper, SLEEPERS>,
    floor: u64,
    /// Index of the vCPU that runs, or ran last and is still runnable.
    current: Option<usize>,
    /// The slice at the present length of the queue.
    slice_ticks: u64,
    /// Ticks of its slice that are used up.
    used_ticks: u64,
    /// How long the present slice is where that does not follow from the queue's length.
    granted_ticks: Option<u64>,
    /// When the turn of a VM was called that `current` follows.
    turn_at: Option<u64>,
    /// Somebody woke up who may interrupt `current`.
    is_preempted: bool,
    /// Somebody called a turn.
    is_called: bool,
    /// The latest time this queue was told of, plus what was charged since.
    clock: u64,
}

/// Those of the rules that wake-ups ask for, times [`MAX_WEIGHT`]: what is left to do there is one division.
#[derive(Debug)]
struct Scaled {
    wake_credit: u64,
    period: u64,
    preempt: u64,
}

/// Sleeping vCPUs whose virtual run time is remembered; the one asleep the longest is forgotten first.
const SLEEPERS: usize = 64;
/// Charges are cut to this: years would overflow virtual time, and no slice is so long.
const MAX_CHARGE_TICKS: u64 = 1 << 40;
/// Virtual time begins here, so that a wake-up credit does not reach below zero.
const EPOCH: u64 = 1 << 48;
/// Virtual time is moved back to its beginning when it gets here.
const REBASE_AT: u64 = 1 << 62;

#[derive(Clone, Copy, Debug)]
struct Queued {
    entity: Entity,
    weight: u32,
    vruntime: u64,
    /// The queue's clock when it was queued or ran last.
    since: u64,
    /// Ticks for which it goes before all turns: it woke up, and was behind.
    woken_ticks: u64,
}

impl Queued {
    /// Least virtual run time first; among equals who waits longest, then who came first.
    #[inline]
    fn goes_before(&self, other: &Self) -> bool {
        self.vruntime < other.vruntime || self.vruntime == other.vruntime && self.since < other.since
    }
}

#[derive(Clone, Copy, Debug)]
struct Sleeper {
    entity: Entity,
    vruntime: u64,
}

/// How far a vCPU is ahead of (positive) or behind its fair share, in virtual time; what it takes along to the queue
/// of another hart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag(i64);

/// A queued vCPU that does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The vCPU.
    pub entity: Entity,
    /// Its weight.
    pub weight: u32,
    /// Ticks since it ran last, or was queued.
    pub waited_ticks: u64,
}

impl RunQueue {
    /// vCPUs for which there is room from the start.
    pub const INITIAL_CAPACITY: usize = 64;

    /// An empty queue.
    #[must_use]
    pub fn new(rules: Scheduling) -> Self {
        let scale = |ticks: u64| ticks.saturating_mul(u64::from(MAX_WEIGHT));
        Self {
            rules,
            scaled: Scaled {
                wake_credit: scale(rules.wake_credit_ticks),
                period: scale(rules.period_ticks),
                preempt: scale(rules.preempt_ticks),
            },
            queued: Vec::with_capacity(Self::INITIAL_CAPACITY),
            asleep: ArrayVec::new(),
            floor: EPOCH,
            current: None,
            slice_ticks: rules.slice_for(0),
            used_ticks: 0,
            granted_ticks: None,
            turn_at: None,
            is_preempted: false,
            is_called: false,
            clock: 0,
        }
    }

    /// vCPUs in the queue, the running one included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queued.len()
    }

    /// Whether nobody is runnable. The running vCPU counts as runnable.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// Sum of the weights of all queued vCPUs: the hart's load.
    #[must_use]
    pub fn weight(&self) -> u32 {
        self.queued.iter().map(|queued| queued.weight).fold(0, u32::saturating_add)
    }

    /// The vCPU that was picked last, while it is queued.
    #[must_use]
    pub fn current(&self) -> Option<Entity> {
        Some(self.queued.get(self.current?)?.entity)
    }

    /// The queued vCPUs except the current one, in no order.
    pub fn waiting(&self) -> impl Iterator<Item = Waiting> {
        let current = self.current;
        let others = self.queued.iter().enumerate().filter(move |(at, _)| Some(*at) != current);
        others.map(|(_, queued)| self.view(queued))
    }

    /// A vCPU became runnable (woken, started, or new here). Returns whether the running one should make way for it;
    /// the next [`RunQueue::pick_next`] then does so. Queueing it twice changes its weight only.
    pub fn enqueue(&mut self, entity: Entity, weight: u32, now: u64) -> bool {
        self.advance_floor();
        match self.take_sleeper(entity) {
            // Who slept is not queued.
            Some(vruntime) => self.insert(entity, weight, vruntime, now),
            None => self.insert_once(entity, weight, self.floor, now),
        }
    }

    /// Like [`RunQueue::enqueue`] for a vCPU that comes from another hart's queue with its `lag`.
    pub fn enqueue_moved(&mut self, entity: Entity, weight: u32, lag: Lag, now: u64) -> bool {
        self.advance_floor();
        self.insert_once(entity, weight, self.floor.saturating_add_signed(lag.0), now)
    }

    /// A vCPU is no longer runnable. It keeps its place in virtual time for when it wakes up.
    #[inline]
    pub fn dequeue(&mut self, entity: Entity) {
        let Some(queued) = self.take_queued(entity) else { return };
        if self.queued.is_empty() {
            // Nobody is left to carry the floor.
            self.floor = self.floor.max(queued.vruntime);
        }
        if self.asleep.is_full() {
            self.asleep.remove(0);
        }
        self.asleep.push(Sleeper { entity, vruntime: queued.vruntime });
    }

    /// A vCPU leaves for another hart, or for good. Nothing of it stays; returns what it is owed, if it was known.
    pub fn remove(&mut self, entity: Entity) -> Option<Lag> {
        self.advance_floor();
        let vruntime = match self.take_queued(entity) {
            Some(queued) => queued.vruntime,
            None => self.take_sleeper(entity)?,
        };
        Some(Lag(vruntime.wrapping_sub(self.floor).cast_signed()))
    }

    /// The vCPU to run now: the current one until its slice ends or somebody with more right wakes up, then the one
    /// that is furthest behind. It stays queued. `None` only if nobody is runnable.
    #[inline]
    pub fn pick_next(&mut self) -> Option<Entity> {
        if let Some(running) = self.unfinished() {
            return Some(running.entity);
        }
        let mut next: Option<(usize, &Queued)> = None;
        for (at, queued) in self.queued.iter().enumerate() {
            if next.is_none_or(|(_, best)| queued.goes_before(best)) {
                next = Some((at, queued));
            }
        }
        let next = next.map(|(at, _)| at);
        self.is_preempted = false;
        self.used_ticks = 0;
        (self.granted_ticks, self.turn_at) = (None, None);
        self.current = next;
        Some(self.queued.get(next?)?.entity)
    }

    /// The current vCPU, while its slice goes on and nobody with more right has woken up.
    #[inline]
    fn unfinished(&self) -> Option<&Queued> {
        let running = self.queued.get(self.current?)?;
        (!self.is_preempted && self.used_ticks < self.present_slice()).then_some(running)
    }

    /// Ticks of the slice of the current vCPU.
    #[inline]
    fn present_slice(&self) -> u64 {
        self.granted_ticks.unwrap_or(self.slice_ticks)
    }

    /// Ticks that `entity` may run from now on if it is or becomes the current one. Never 0.
    #[must_use]
    pub fn slice_ticks(&self, entity: Entity) -> u64 {
        let left = match self.current() == Some(entity) {
            true => self.present_slice().saturating_sub(self.used_ticks),
            false => self.slice_ticks,
        };
        left.max(1)
    }

    /// When the slice of `entity`, which runs from `now` on, ends.
    #[must_use]
    pub fn slice_end(&self, entity: Entity, now: u64) -> u64 {
        now.saturating_add(self.slice_ticks(entity))
    }

    /// `entity` ran for `ran_ticks`.
    #[inline]
    pub fn charge(&mut self, entity: Entity, ran_ticks: u64) {
        let ran_ticks = ran_ticks.min(MAX_CHARGE_TICKS);
        self.clock = self.clock.saturating_add(ran_ticks);
        let Some(at) = self.position(entity) else { return };
        if self.current == Some(at) {
            self.used_ticks = self.used_ticks.saturating_add(ran_ticks);
        }
        let Some(queued) = self.queued.get_mut(at) else { return };
        // At most 2^40 ticks times a weight below 2^14.
        queued.vruntime += ran_ticks * u64::from(MAX_WEIGHT) / u64::from(queued.weight);
        queued.since = self.clock;
        queued.woken_ticks = queued.woken_ticks.saturating_sub(ran_ticks);
        if queued.vruntime > REBASE_AT {
            self.rebase();
        }
    }

    /// Whether the current vCPU should make way for `woken`: it is ahead of it by more than the preemption margin.
    #[must_use]
    pub fn should_preempt(&self, woken: Entity) -> bool {
        self.position(woken).and_then(|at| self.queued.get(at)).is_some_and(|woken| self.is_far_behind(woken))
    }

    fn is_far_behind(&self, woken: &Queued) -> bool {
        let Some(current) = self.current.and_then(|at| self.queued.get(at)) else { return false };
        // By the waking one's weight: a heavy one is sooner far enough behind.
        let margin = self.scaled.preempt / u64::from(woken.weight);
        woken.vruntime.saturating_add(margin) < current.vruntime
    }

    fn insert_once(&mut self, entity: Entity, weight: u32, vruntime: u64, now: u64) -> bool {
        if let Some(queued) = self.position(entity).and_then(|at| self.queued.get_mut(at)) {
            queued.weight = weight.clamp(1, MAX_WEIGHT);
            return false;
        }
        self.insert(entity, weight, vruntime, now)
    }

    #[inline]
    fn insert(&mut self, entity: Entity, weight: u32, vruntime: u64, now: u64) -> bool {
        let weight = weight.clamp(1, MAX_WEIGHT);
        self.clock = self.clock.max(now);
        let credit = self.scaled.wake_credit / u64::from(weight);
        // The upper bound forgives a turn that was long for no fault of the vCPU.
        let debt = self.scaled.period / u64::from(weight);
        let vruntime = vruntime.clamp(self.floor.saturating_sub(credit), self.floor.saturating_add(debt));
        let mut woken = Queued { entity, weight, vruntime, since: self.clock, woken_ticks: 0 };
        let preempts = self.is_far_behind(&woken);
        if preempts {
            woken.woken_ticks = self.rules.min_slice_ticks;
        }
        self.queued.push(woken);
        self.slice_ticks = self.rules.slice_for(self.queued.len());
        self.is_preempted |= preempts;
        preempts
    }

    #[inline(always)]
    fn take_queued(&mut self, entity: Entity) -> Option<Queued> {
        let at = self.position(entity)?;
        let last = self.queued.len() - 1;
        let queued = self.queued.swap_remove(at);
        self.slice_ticks = self.rules.slice_for(last);
        if self.current == Some(at) {
            self.current = None;
        } else if self.current == Some(last) {
            self.current = Some(at);
        }
        Some(queued)
    }

    fn take_sleeper(&mut self, entity: Entity) -> Option<u64> {
        let at = self.asleep.iter().rposition(|sleeper| sleeper.entity == entity)?;
        // The latest to sleep is often the first to wake, and moves nobody.
        let sleeper = if at + 1 == self.asleep.len() { self.asleep.pop()? } else { self.asleep.remove(at) };
        Some(sleeper.vruntime)
    }

    #[inline(always)]
    fn position(&self, entity: Entity) -> Option<usize> {
        match self.current {
            Some(at) if self.queued.get(at).is_some_and(|queued| queued.entity == entity) => Some(at),
            _ => self.queued.iter().position(|queued| queued.entity == entity),
        }
    }

    fn view(&self, queued: &Queued) -> Waiting {
        let waited_ticks = self.clock.saturating_sub(queued.since);
        Waiting { entity: queued.entity, weight: queued.weight, waited_ticks }
    }

    fn advance_floor(&mut self) {
        if let Some(least) = self.queued.iter().map(|queued| queued.vruntime).min() {
            self.floor = self.floor.max(least);
        }
    }

    /// Moves virtual time back to its beginning; only differences mean anything.
    #[cold]
    fn rebase(&mut self) {
        self.advance_floor();
        let elapsed = self.floor - EPOCH;
        let queued = self.queued.iter_mut().map(|queued| &mut queued.vruntime);
        let asleep = self.asleep.iter_mut().map(|sleeper| &mut sleeper.vruntime);
        for vruntime in queued.chain(asleep) {
            *vruntime = vruntime.saturating_sub(elapsed);
        }
        self.floor = EPOCH;
    }
}
