//! Rounds over what went over the wire: see [`merging::wire`].

use super::{Candidate, alive};
use crate::hart::PreemptionPoint;
use crate::io::sent;
use crate::machine::memory::frames;
use crate::vm::Vm;
use crate::vm::memory::{self, Candidates};
use addr::{Gfn, Mfn, VmId};
use alloc::sync::Arc;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use frames::PageState;
use merging::Merging;
use merging::sent::{Gathered, Recent, Search};
use merging::wire::{Receiver, Round, SEARCH_PORTION};

/// Pages that get their fingerprint in one step.
const INDEX: usize = 16;
/// Fingerprints taken between two preemption points.
const FINGERPRINTS: u64 = 4;
/// Ranges and places that a step looks at before a round begins, between two preemption points: a list of 16 KiB.
const PREPARED: usize = 1024;
/// Bytes that have to come to a VM before it is searched.
const LEAST_RECEIVED: u64 = 64 << 10;

/// The rounds.
#[derive(Debug)]
pub(super) struct Wire {
    round: Option<Round>,
    /// Whether it has begun to look at pages.
    is_prepared: bool,
    /// What the last portion of it has found and is not merged yet.
    found: Option<Found>,
    recent: Recent,
    /// Bytes that each VM had received when the last round began.
    received: Vec<(VmId, u64)>,
}

impl Wire {
    pub(super) const fn new() -> Self {
        Self { round: None, is_prepared: false, found: None, recent: Recent::new(), received: Vec::new() }
    }

    /// Whether a round is under way.
    pub(super) const fn is_searching(&self) -> bool {
        self.round.is_some() || self.recent.is_gathering()
    }

    /// When to go on at the earliest.
    pub(super) fn next_due(&self) -> u64 {
        if self.is_searching() { 0 } else { sent::round_at() }
    }

    /// A bounded piece of a round, if one is due. What may be merged.
    pub(super) fn step(&mut self, now: u64, guests: &Merging, point: &mut PreemptionPoint<'_>) -> Option<Candidate> {
        if let Some(candidate) = self.found.as_mut().and_then(Found::next_candidates) {
            return candidate;
        }
        if self.recent.is_gathering() {
            self.gather(guests, point);
            return None;
        }
        match self.round.take() {
            Some(mut round) if !self.is_prepared => {
                // Ends: a step prepares something, or the work has lasted.
                loop {
                    self.is_prepared = round.prepare(PREPARED);
                    if self.is_prepared || !point.may_go_on() {
                        break;
                    }
                }
                self.round = Some(round);
            }
            Some(mut round) => {
                self.found = go_on(&mut round, point);
                if self.found.is_some() {
                    self.round = Some(round);
                }
            }
            None if now >= sent::round_at() => self.begin(guests, point),
            None => {}
        }
        None
    }

    fn begin(&mut self, guests: &Merging, point: &mut PreemptionPoint<'_>) {
        // Whoever sends from here on sees that no round is planned, and plans one.
        sent::no_round();
        let fresh = sent::take();
        let receivers = self.receivers(guests);
        self.recent.begin_round(fresh, receivers);
        self.gather(guests, point);
    }

    /// Gathers what the next round is to search for, as far as that comes.
    fn gather(&mut self, guests: &Merging, point: &mut PreemptionPoint<'_>) {
        // Ends: a step looks at some ranges, or the work has lasted.
        loop {
            match self.recent.gather(PREPARED) {
                Gathered::More if point.may_go_on() => {}
                Gathered::More => return,
                Gathered::Nothing => return,
                Gathered::All(search) => return self.begin_round(search, guests),
            }
        }
    }

    fn begin_round(&mut self, search: Search, guests: &Merging) {
        sent::plan_round(search.next_s);
        let receivers = guests.guests().filter(|guest| search.vms.contains(&guest.vm)).map(|guest| Receiver {
            vm: guest.vm,
            base: guest.base,
            pages: guest.pages,
        });
        self.round = Some(Round::new(search.ranges, receivers.collect()));
        self.is_prepared = false;
    }

    /// VMs to which something came since the last round.
    fn receivers(&mut self, guests: &Merging) -> Vec<VmId> {
        let bytes = |vm: VmId| alive(vm).map(|life| (vm, life.platform().traffic().net_received_bytes));
        let now: Vec<_> = guests.guests().filter_map(|guest| bytes(guest.vm)).collect();
        let before = core::mem::replace(&mut self.received, now.clone());
        let grown = |(vm, bytes): &(VmId, u64)| {
            let old = before.iter().find(|(known, _)| known == vm).map_or(0, |(_, old)| *old);
            bytes.wrapping_sub(old) >= LEAST_RECEIVED
        };
        now.into_iter().filter(grown).map(|(vm, _)| vm).collect()
    }

    /// A VM's memory is about to go.
    pub(super) fn forget(&mut self, vm: VmId) {
        self.received.retain(|(known, _)| *known != vm);
        self.recent.forget(vm);
    }
}

/// Pages of `receiver` that may be equal to what was sent.
#[derive(Debug)]
struct Found {
    receiver: VmId,
    /// What was sent, and the receiver's page.
    pages: ArrayVec<(Mfn, Gfn), { SEARCH_PORTION as usize }>,
}

impl Found {
    /// Up to a portion of them, of one guest, to be merged; `None` if nothing was left.
    fn next_candidates(&mut self) -> Option<Option<Candidate>> {
        let (first, _) = *self.pages.last()?;
        let from = who_has(first).map(|(life, _)| life);
        let mut candidates = Candidates::new();
        while !candidates.is_full()
            && let Some((page, copy)) = self.pages.last().copied()
        {
            match who_has(page) {
                Some((life, original)) if from.as_ref().is_some_and(|from| Arc::ptr_eq(from, &life)) => {
                    candidates.push((original, copy));
                }
                // Another guest's, for the next step; or nobody's any more.
                Some(_) if from.is_some() => break,
                _ => {}
            }
            self.pages.pop();
        }
        let lives = from.zip(alive(self.receiver));
        Some(lives.map(|(from, to)| (from, to, candidates)))
    }
}

/// A guest that has the machine page, and its page. The guest that had it when it was sent may have given it back: it may be
/// another's now, which takes part only if it has memory in common with others at all.
fn who_has(page: Mfn) -> Option<(Arc<Vm>, Gfn)> {
    let info = frames().map().info(page)?;
    let owner = info.owner.filter(|_| matches!(info.state, PageState::Private | PageState::Shared))?;
    let life = alive(owner.vm).filter(|life| life.memory().may_share())?;
    Some((life, owner.gfn))
}

/// A portion of a round: what was found; `None` when it has ended.
fn go_on(round: &mut Round, point: &mut PreemptionPoint<'_>) -> Option<Found> {
    for _ in 0..INDEX {
        let Some(page) = round.next_to_index() else { return search(round, point) };
        // What nobody has any more is not looked at, but for the disk cache's: others may have copies of that.
        let is_cached = || frames().map().info(page).is_some_and(|info| info.state == PageState::Shared);
        if who_has(page).is_some() || is_cached() {
            round.indexed(page, memory::fingerprint(page));
        }
        point.pause();
    }
    Some(Found { receiver: VmId(0), pages: ArrayVec::new() })
}

fn search(round: &mut Round, point: &mut PreemptionPoint<'_>) -> Option<Found> {
    let (receiver, first, pages) = round.next_to_search()?;
    let mut found = Found { receiver, pages: ArrayVec::new() };
    if let Some(life) = alive(receiver) {
        let mut see = |page, own, fingerprint| match round.find(fingerprint) {
            Some(original) if original == own => {}
            // A portion has no more pages.
            Some(original) if is_mapped(original) => drop(found.pages.try_push((original, page))),
            // The guest that sent it has moved it: whoever still has it is as good.
            Some(_) => round.indexed(own, fingerprint),
            None => {}
        };
        for at in (0..pages).step_by(FINGERPRINTS as usize) {
            let first = Gfn::new(first.raw() + at);
            life.memory().fingerprints(first, FINGERPRINTS.min(pages - at), &mut see);
            point.pause();
        }
    }
    Some(found)
}

/// Whether a guest has the page, alone or with others.
fn is_mapped(page: Mfn) -> bool {
    let info = frames().map().info(page);
    info.is_some_and(|info| info.owner.is_some() && matches!(info.state, PageState::Private | PageState::Shared))
}
