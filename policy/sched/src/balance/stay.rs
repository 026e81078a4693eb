//! How long a vCPU stays where it was moved to.
//!
//! A move costs the vCPU its caches, and between nodes its near memory as well. Facts of one moment are a poor reason to
//! pay that again and again: a hart that is idle now may wake up at once. So a vCPU that has moved stays for a while, and
//! longer each time, as long as its moves come soon after each other.
//!
//! | move | the stay before it |
//! | --- | --- |
//! | to even loads | [`Caution::stay_ticks`] |
//! | of a vCPU that waits, to a hart that has nothing to do | a sixteenth of that |
//! | home, to a hart that has nothing to do | a quarter; a twentieth if the vCPU was calm before it left |
//! | by turns | [`Caution::stay_ticks`], not longer each time: turns are taken for ever |
//!
//! Between nodes each of these is twice as long. Taking turns, a vCPU goes back where it came from only after twice its stay.

use addr::CpuIndex;

use super::{Caution, Reason, Snapshot, VcpuFacts};

/// Moves after each other that lengthen the stay, each to twice of what it was.
const MOST_RESTLESS: u8 = 3;
/// Stays after which a vCPU is calm: the next move counts as the first.
const CALM_STAYS: u64 = 8;
/// The moves of a vCPU. The caller keeps one for each vCPU, and notes each move in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveHistory {
    last: Option<Noted>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Noted {
    at: u64,
    left: CpuIndex,
    restless: u8,
}

/// What a vCPU's history tells of its last move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastMove {
    /// Ticks since then.
    pub ago_ticks: u64,
    /// The hart that it left.
    pub left: CpuIndex,
    /// Moves after each other without a calm stay between them, without the first, and without turns. At most 3.
    pub restless: u8,
}

impl MoveHistory {
    /// The vCPU leaves hart `left` at `now` because of `reason`.
    pub fn note(&mut self, left: CpuIndex, reason: Reason, caution: &Caution, now: u64) {
        let calm_ticks = caution.stay_ticks.saturating_mul(CALM_STAYS);
        let restless = match self.last {
            Some(last) if reason == Reason::Rotate => last.restless,
            Some(last) if now.saturating_sub(last.at) < calm_ticks => MOST_RESTLESS.min(last.restless + 1),
            _ => 0,
        };
        self.last = Some(Noted { at: now, left, restless });
    }

    /// The last move, if there was one, seen from `now`.
    #[must_use]
    pub fn last(&self, now: u64) -> Option<LastMove> {
        let Noted { at, left, restless } = self.last?;
        Some(LastMove { ago_ticks: now.saturating_sub(at), left, restless })
    }
}

/// Whether `vcpu` has been where it is for long enough to leave for hart `to`, which `is_idle` or not.
pub fn may_leave(
    snapshot: &Snapshot<'_>,
    caution: &Caution,
    vcpu: &VcpuFacts,
    to: CpuIndex,
    is_idle: bool,
    reason: Reason,
) -> bool {
    let Some(last) = vcpu.last_move else { return true };
    let node = |hart: CpuIndex| snapshot.harts.get(hart.index()).map(|hart| hart.node);
    let is_local = node(vcpu.hart) == node(to);
    let stay = if is_local { caution.stay_ticks } else { caution.stay_ticks.saturating_mul(2) };
    let needed = match reason {
        Reason::Rotate if last.left == to => stay.saturating_mul(2),
        Reason::Rotate => stay,
        Reason::Home if last.restless == 0 => stay / 20,
        Reason::Home => (stay / 4) << last.restless,
        Reason::IdlePull | Reason::Together | Reason::Even if is_idle => (stay / 16) << last.restless,
        Reason::IdlePull | Reason::Together | Reason::Even => stay << last.restless,
    };
    last.ago_ticks >= needed
}
