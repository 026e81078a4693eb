//! Rounds over what went over the wire: see [`merging::wire`].

use super::{HAS_COMPANY, alive, wake_at};
use crate::vm::memory::{self, Candidates};
use addr::{Gfn, VmId};
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::sync::atomic::{AtomicU64, Ordering};
use merging::Merging;
use merging::wire::{Range, Receiver, Round, SEARCH_PORTION, Sent};
use rv::csr;
use spin::Mutex;

/// Pages that get their fingerprint in one step.
const INDEX: usize = 64;
/// Bytes that have to come to a VM before it is searched.
const LEAST_RECEIVED: u64 = 64 << 10;

/// What was sent since the last round. Taken for moments only, by whoever sends.
static SENT: Mutex<Sent> = Mutex::new(Sent::new());
/// When the next round begins.
static ROUND_AT: AtomicU64 = AtomicU64::new(u64::MAX);

/// A VM sends pages of its memory, whole or in parts. One that is alone on its machine sends them to nobody who has them; a
/// hint that comes at the wrong moment is lost.
pub fn sent(vm: VmId, first: Gfn, pages: u64) {
    if !HAS_COMPANY.load(Ordering::Relaxed) {
        return;
    }
    let Some(mut sent) = SENT.try_lock() else { return };
    sent.push(Range::new(vm, first, pages));
    drop(sent);
    if ROUND_AT.load(Ordering::Relaxed) == u64::MAX {
        let at = csr::time::read() + between_rounds();
        ROUND_AT.store(at, Ordering::Relaxed);
        wake_at(at);
    }
}

/// A second: what was sent is in its receiver's memory by then, and two rounds have passed within five.
fn between_rounds() -> u64 {
    crate::machine::capabilities().timebase_hz
}

/// The rounds.
#[derive(Debug)]
pub(super) struct Wire {
    round: Option<Round>,
    /// What the last portion of it has found and is not merged yet.
    found: Option<Found>,
    /// What the last round has searched for: once more in the next one, for what its receiver had not stored yet.
    last: Vec<Range>,
    /// Bytes that each VM had received when the last round began.
    received: Vec<(VmId, u64)>,
    /// Who is searched in this round and the next.
    recent: Vec<VmId>,
}

impl Wire {
    pub(super) const fn new() -> Self {
        Self { round: None, found: None, last: Vec::new(), received: Vec::new(), recent: Vec::new() }
    }

    /// Is a round under way?
    pub(super) const fn is_searching(&self) -> bool {
        self.round.is_some()
    }

    /// When to go on at the earliest.
    pub(super) fn next_due(&self) -> u64 {
        if self.round.is_some() { 0 } else { ROUND_AT.load(Ordering::Relaxed) }
    }

    /// A bounded piece of a round, if one is due. Pages merged.
    pub(super) fn step(&mut self, now: u64, guests: &Merging) -> u64 {
        if let Some(merged) = self.found.as_mut().and_then(Found::merge_some) {
            return merged;
        }
        match self.round.take() {
            Some(mut round) => {
                self.found = go_on(&mut round);
                if self.found.is_some() {
                    self.round = Some(round);
                }
                0
            }
            None if now >= ROUND_AT.load(Ordering::Relaxed) => {
                self.begin(now, guests);
                0
            }
            None => 0,
        }
    }

    fn begin(&mut self, now: u64, guests: &Merging) {
        // Whoever sends from here on sees that no round is planned, and plans one.
        ROUND_AT.store(u64::MAX, Ordering::SeqCst);
        let fresh = SENT.lock().take();
        if !fresh.is_empty() {
            ROUND_AT.fetch_min(now + between_rounds(), Ordering::SeqCst);
        }
        let new = self.receivers(guests);
        let is_receiver = |vm: VmId| new.contains(&vm) || self.recent.contains(&vm);
        let receivers: Vec<_> = guests
            .guests()
            .filter(|guest| is_receiver(guest.vm))
            .map(|guest| Receiver { vm: guest.vm, base: guest.base, pages: guest.pages })
            .collect();
        self.recent = new;
        let mut ranges = core::mem::replace(&mut self.last, fresh.clone());
        ranges.extend(fresh);
        self.round = (!ranges.is_empty() && !receivers.is_empty()).then(|| Round::new(ranges, receivers));
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
    }
}

/// Pages of `receiver` that may be equal to others' that were sent.
#[derive(Debug)]
struct Found {
    receiver: VmId,
    /// The sender, its page, and the receiver's.
    pages: ArrayVec<(VmId, Gfn, Gfn), { SEARCH_PORTION as usize }>,
}

impl Found {
    /// Merges up to a portion of them, of one sender; returns how many, `None` if nothing was left.
    fn merge_some(&mut self) -> Option<u64> {
        let (sender, ..) = *self.pages.last()?;
        let mut candidates = Candidates::new();
        while !candidates.is_full()
            && let Some((_, original, page)) = self.pages.last().copied().filter(|(from, ..)| *from == sender)
        {
            self.pages.pop();
            candidates.push((original, page));
        }
        let lives = alive(sender).zip(alive(self.receiver));
        Some(lives.map_or(0, |(from, to)| memory::merge(from.memory(), to.memory(), &candidates)))
    }
}

/// A portion of a round: what was found; `None` when it has ended.
fn go_on(round: &mut Round) -> Option<Found> {
    for _ in 0..INDEX {
        let Some((vm, page)) = round.next_to_index() else { return search(round) };
        if let Some(life) = alive(vm) {
            round.indexed(vm, page, life.memory().fingerprint(page));
        }
    }
    Some(Found { receiver: VmId(0), pages: ArrayVec::new() })
}

fn search(round: &mut Round) -> Option<Found> {
    let (receiver, first, pages) = round.next_to_search()?;
    let mut found = Found { receiver, pages: ArrayVec::new() };
    if let Some(life) = alive(receiver) {
        life.memory().fingerprints(first, pages, |page, fingerprint| {
            if let Some((sender, original)) = round.find(receiver, fingerprint) {
                // A portion has no more pages.
                let _ = found.pages.try_push((sender, original, page));
            }
        });
    }
    Some(found)
}
