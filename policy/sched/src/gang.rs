//! Which VMs run their vCPUs together.
//!
//! A guest that spins for a lock whose holder is off its hart wastes its turn. So the vCPUs of a VM that synchronise run at
//! the same time (Cellular Disco, section 4.3, after Barton and Bitar's scheduler of IRIX), and no hart decides for another:
//!
//! 1. A hart whose fair choice is a vCPU of such a VM *calls* the VM's turn: it notes the time in the VM's word and wakes the
//!    harts on which other vCPUs of it wait.
//! 2. Each of those looks at its own queue. The turn that was called first goes first, whatever hart called it, so all harts
//!    come to the same choice.
//! 3. A turn lasts [`Scheduling::turn_ticks`](crate::Scheduling::turn_ticks). Then each hart chooses fairly again.
//!
//! A turn moves a vCPU's share in time and never adds to it. Who runs because its turn was called pays for it as always, and
//! may be ahead of its hart's fair choice by [`Scheduling::ahead_ticks`](crate::Scheduling::ahead_ticks) at most. So a VM
//! gains nothing when it pretends to spin. A vCPU that just woke goes before a turn for a moment, as in BVT.
//!
//! Departure from the paper: the place in line is virtual run time, by hart, in place of a priority and a wait.

use crate::Entity;

/// Whether a VM's vCPUs run together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GangMode {
    /// While there are signs that they wait for each other ([`Synchrony`]).
    #[default]
    Auto,
    /// Always.
    Yes,
    /// Never.
    No,
}

impl GangMode {
    /// Whether they do, if the signs are these.
    #[must_use]
    pub const fn holds(self, synchrony: Synchrony, second: u32) -> bool {
        match self {
            Self::Auto => synchrony.is_tight(second),
            Self::Yes => true,
            Self::No => false,
        }
    }
}

/// What a hart asks about the VMs of its vCPUs when it picks one.
pub trait Gangs {
    /// Whether there may be VMs whose vCPUs run together. If not, nothing else is asked.
    fn are_there(&self) -> bool {
        true
    }

    /// The time, in ticks. Asked only where several vCPUs want the hart and one of them is to be chosen.
    fn now(&self) -> u64;

    /// `None` if the vCPUs of its VM need not run together; else when the VM's turn was called last, 0 if it never was.
    fn called_at(&self, entity: Entity) -> Option<u64>;

    /// Whether the other vCPUs of its VM that want to run could do so now: each runs, or its hart is not in the turn of
    /// another VM. Asked at most twice for each pick.
    fn can_gather(&self, entity: Entity) -> bool;
}

/// A hart's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Who runs.
    pub entity: Entity,
    /// The VM's turn begins now: the caller notes the time, and wakes the harts on which others of its vCPUs wait.
    pub calls: bool,
    /// If it runs because of its VM's turn: when that was called. The caller lets other harts see it, for
    /// [`Gangs::can_gather`].
    pub turn_at: Option<u64>,
}

/// Signs that the vCPUs of a VM wait for each other: a wait for a store that lasted (`wrs.nto`), an interrupt or a fence that
/// one of them sent to another that waits for its hart. In one word, so that harts can keep it without a lock.
///
/// Each second halves them. A VM whose vCPUs run together shows few signs, so the memory is long: up to nine seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Synchrony(u64);

impl Synchrony {
    /// Signs that make vCPUs run together.
    const ENOUGH: u32 = 8;
    /// Most that are counted.
    const MOST: u32 = 4_096;

    /// From [`Synchrony::bits`].
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// One word that says all.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// With one more sign, in this second of the machine's time.
    #[must_use]
    pub const fn with_sign(self, second: u32) -> Self {
        let signs = self.signs(second) + 1;
        let signs = if signs > Self::MOST { Self::MOST } else { signs };
        Self((signs as u64) << 32 | second as u64)
    }

    /// Whether there are enough of them.
    #[must_use]
    pub const fn is_tight(self, second: u32) -> bool {
        self.signs(second) >= Self::ENOUGH
    }

    /// Whether more signs in this second change anything.
    #[must_use]
    pub const fn is_full(self, second: u32) -> bool {
        self.signs(second) >= Self::MOST
    }

    const fn signs(self, second: u32) -> u32 {
        let age = second.saturating_sub(self.0 as u32);
        let signs = (self.0 >> 32) as u32;
        if age < 32 { signs >> age } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_make_tight_and_fade() {
        let mut signs = Synchrony::default();
        assert!(!signs.is_tight(0));
        for _ in 0..8 {
            assert!(!signs.is_tight(5));
            signs = signs.with_sign(5);
        }
        assert!(signs.is_tight(5) && !signs.is_tight(6));
        for _ in 0..10_000 {
            signs = signs.with_sign(5);
        }
        assert!(signs.is_tight(14) && !signs.is_tight(15) && !signs.is_tight(u32::MAX));
        assert_eq!(Synchrony::from_bits(signs.bits()), signs);
        // The clock of another hart may be a little behind.
        assert!(signs.is_tight(4));
    }

    #[test]
    fn a_mode_overrules_the_signs() {
        let tight = (0..8).fold(Synchrony::default(), |signs, _| signs.with_sign(0));
        let holds = |signs| [GangMode::Auto, GangMode::Yes, GangMode::No].map(|mode| mode.holds(signs, 0));
        assert_eq!(holds(tight), [true, true, false]);
        assert_eq!(holds(Synchrony::default()), [false, true, false]);
    }
}
