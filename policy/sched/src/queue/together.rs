//! The choice where VMs may run their vCPUs together.

use super::{Queued, RunQueue};
use crate::gang::{Gangs, Pick};
use crate::{Entity, MAX_WEIGHT};

/// Who goes first: the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It has just woken up, and is behind.
    Woken { vruntime: u64 },
    /// Its VM's turn has been called; the earliest goes first, on every hart.
    Called { at: u64, vm: u16, vruntime: u64 },
    /// By what it is owed.
    Fair { vruntime: u64, since: u64 },
}

impl RunQueue {
    /// Somebody has called a turn: the next [`RunQueue::pick_together`] looks at all of them.
    pub const fn heed_calls(&mut self) {
        self.is_called = true;
    }

    /// `entity` waits for another vCPU of its VM. It is charged the rest of its slice, so that the next pick is another one; but
    /// not in its VM's turn, where the other runs elsewhere.
    pub fn give_up(&mut self, entity: Entity) {
        let is_sibling = |queued: &Queued| queued.entity.vm == entity.vm && queued.entity != entity;
        if self.turn_at.is_none() || self.queued.iter().any(is_sibling) {
            self.charge(entity, self.slice_ticks(entity));
        }
    }

    /// Like [`RunQueue::pick_next`], where `gangs` may want vCPUs of a VM to run together. `None` only if nobody is runnable.
    #[inline]
    pub fn pick_together(&mut self, gangs: &impl Gangs) -> Option<Pick> {
        if self.queued.len() > 1 && gangs.are_there() {
            return self.pick_of_many(gangs);
        }
        self.is_called = false;
        Some(Pick { entity: self.pick_next()?, calls: false, turn_at: None })
    }

    fn pick_of_many(&mut self, gangs: &impl Gangs) -> Option<Pick> {
        let running = self.unfinished().map(|running| running.entity);
        if let Some(entity) = running.filter(|_| !self.is_called) {
            return Some(Pick { entity, calls: false, turn_at: self.turn_at });
        }
        self.is_called = false;
        let now = gangs.now();
        let least = self.queued.iter().map(|queued| queued.vruntime).min()?;
        let (at, rank) = self.first(now, least, gangs, None)?;
        // Whoever called wanted something else, or calls for one that is too far ahead.
        if let Some(entity) = running.filter(|_| !matches!(rank, Rank::Called { .. })) {
            return Some(Pick { entity, calls: false, turn_at: self.turn_at });
        }
        let (at, rank) = self.unless_alone(now, least, gangs, at, rank);
        self.grant(now, at, rank, gangs)
    }

    /// The first in rank, without the one at `except`.
    fn first(&self, now: u64, least: u64, gangs: &impl Gangs, except: Option<usize>) -> Option<(usize, Rank)> {
        let others = self.queued.iter().enumerate().filter(|(at, _)| Some(*at) != except);
        others.map(|(at, queued)| (at, self.rank(queued, now, least, gangs))).min_by_key(|(_, rank)| *rank)
    }

    fn rank(&self, queued: &Queued, now: u64, least: u64, gangs: &impl Gangs) -> Rank {
        if queued.woken_ticks > 0 {
            return Rank::Woken { vruntime: queued.vruntime };
        }
        let is_near = queued.vruntime <= least.saturating_add(scaled(self.rules.ahead_ticks, queued.weight));
        match gangs.called_at(queued.entity) {
            Some(at) if is_near && self.is_in_force(at, now) => {
                Rank::Called { at, vm: queued.entity.vm.0, vruntime: queued.vruntime }
            }
            _ => Rank::Fair { vruntime: queued.vruntime, since: queued.since },
        }
    }

    /// A vCPU that would spin for others which cannot come lets the next one go first, as long as that one is not ahead of
    /// it by more than patience allows.
    fn unless_alone(&self, now: u64, least: u64, gangs: &impl Gangs, at: usize, rank: Rank) -> (usize, Rank) {
        let Rank::Fair { vruntime, .. } = rank else { return (at, rank) };
        let Some(chosen) = self.queued.get(at) else { return (at, rank) };
        let can_run = |entity| gangs.called_at(entity).is_none() || gangs.can_gather(entity);
        if can_run(chosen.entity) {
            return (at, rank);
        }
        let limit = vruntime.saturating_add(scaled(self.rules.ahead_ticks, chosen.weight));
        let next = self.first(now, least, gangs, Some(at)).filter(|(_, rank)| match rank {
            Rank::Fair { vruntime, .. } => *vruntime <= limit,
            _ => true,
        });
        let next = next.filter(|(other, _)| self.queued.get(*other).is_some_and(|other| can_run(other.entity)));
        next.unwrap_or((at, rank))
    }

    /// It runs: for how long, and whether its VM's turn begins with it.
    fn grant(&mut self, now: u64, at: usize, rank: Rank, gangs: &impl Gangs) -> Option<Pick> {
        let chosen = self.queued.get(at)?;
        let entity = chosen.entity;
        let called_at = gangs.called_at(entity);
        let is_called = called_at.is_some_and(|at| self.is_in_force(at, now));
        let calls = matches!(rank, Rank::Fair { .. }) && called_at.is_some() && !is_called;
        let (granted_ticks, turn_at) = match rank {
            Rank::Woken { .. } => (Some(chosen.woken_ticks), None),
            Rank::Called { at, .. } => (Some(self.rules.turn_ticks - now.saturating_sub(at)), Some(at)),
            Rank::Fair { .. } if calls => (Some(self.rules.turn_ticks), Some(now)),
            Rank::Fair { .. } => (None, None),
        };
        self.used_ticks = 0;
        (self.granted_ticks, self.turn_at) = (granted_ticks, turn_at);
        self.is_preempted = false;
        self.current = Some(at);
        Some(Pick { entity, calls, turn_at })
    }

    /// Whether the turn that was called at `at` goes on.
    fn is_in_force(&self, at: u64, now: u64) -> bool {
        at != 0 && now.saturating_sub(at) < self.rules.turn_ticks
    }
}

/// Ticks as virtual time of a vCPU of this weight.
fn scaled(ticks: u64, weight: u32) -> u64 {
    ticks.saturating_mul(u64::from(MAX_WEIGHT)) / u64::from(weight)
}
