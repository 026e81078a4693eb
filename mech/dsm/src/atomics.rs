//! AMOs, LR and SC.

use dsm_wire::{Page, Store};

use crate::harts::{Outcome, map};
use crate::log::bits;
use crate::machine::{Dsm, Refused};
use crate::pages::Pages;

/// What an AMO does with the old value and its operand. A comparison is of the width of the access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `amoswap`.
    Swap,
    /// `amoadd`.
    Add,
    /// `amoand`.
    And,
    /// `amoor`.
    Or,
    /// `amoxor`.
    Xor,
    /// `amomin`.
    Min,
    /// `amomax`.
    Max,
    /// `amominu`.
    MinUnsigned,
    /// `amomaxu`.
    MaxUnsigned,
    /// `amocas`: the operand is stored if the old value is this.
    CompareAndSwap(u64),
}

/// An AMO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Atomic {
    /// What it does.
    pub operation: Operation,
    /// Where, with the operand as value at its place in the word. The mask is that of an aligned access of 1, 2, 4 or 8 bytes.
    pub to: Store,
    /// `.aq`.
    pub acquire: bool,
}

/// An access that writes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Store(Store),
    Atomic(Atomic),
    /// An SC that succeeds.
    Conditional(Store, bool),
}

impl Kind {
    pub const fn place(&self) -> (Page, u16) {
        match self {
            Self::Store(store) | Self::Conditional(store, _) | Self::Atomic(Atomic { to: store, .. }) => {
                (store.page, store.word)
            }
        }
    }

    pub const fn is_atomic(&self) -> bool {
        !matches!(self, Self::Store(_))
    }

    pub const fn is_acquire(&self) -> bool {
        match self {
            Self::Store(_) => false,
            Self::Conditional(_, acquire) | Self::Atomic(Atomic { acquire, .. }) => *acquire,
        }
    }

    /// The store that it makes of the old word, and its result.
    pub fn perform(&self, old: u64) -> (Store, u64) {
        match self {
            Self::Store(store) | Self::Conditional(store, _) => (*store, 0),
            Self::Atomic(atomic) => atomic.perform(old),
        }
    }
}

impl Atomic {
    /// The store that it makes of the old word, and the old value of its bytes.
    #[must_use]
    pub fn perform(&self, word: u64) -> (Store, u64) {
        let shift = self.to.mask.trailing_zeros() * 8;
        let width = self.to.mask.count_ones() * 8;
        let of = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
        let (old, operand) = (word >> shift & of, (self.to.value & bits(self.to.mask)) >> shift);
        let signed = |value: u64| ((value << (64 - width)) as i64) >> (64 - width);
        let new = match self.operation {
            Operation::Swap => operand,
            Operation::Add => old.wrapping_add(operand),
            Operation::And => old & operand,
            Operation::Or => old | operand,
            Operation::Xor => old ^ operand,
            Operation::Min if signed(old) <= signed(operand) => old,
            Operation::Max if signed(old) >= signed(operand) => old,
            Operation::Min | Operation::Max => operand,
            Operation::MinUnsigned => old.min(operand),
            Operation::MaxUnsigned => old.max(operand),
            Operation::CompareAndSwap(expected) if old != expected & of => old,
            Operation::CompareAndSwap(_) => operand,
        };
        (Store { value: (new & of) << shift, ..self.to }, old)
    }
}

impl Dsm {
    /// `hart` executes an AMO. Done: with the old value, not extended.
    ///
    /// # Errors
    /// [`Refused`], if a message that waited is refused.
    pub fn atomic(&mut self, hart: u8, atomic: Atomic, pages: &mut dyn Pages) -> Result<Outcome<u64>, Refused> {
        self.write(hart, atomic.to.page, Kind::Atomic(atomic), pages)
    }

    /// `hart` executes an LR. Done: with the whole word.
    ///
    /// # Errors
    /// [`Refused`], if a message that waited is refused.
    pub fn load_reserved(
        &mut self,
        hart: u8,
        page: Page,
        word: u16,
        acquire: bool,
        pages: &mut dyn Pages,
    ) -> Result<Outcome<u64>, Refused> {
        if let Some(outcome) = self.finished(hart) {
            return Ok(outcome);
        }
        if self.for_reserved(hart, page, pages)?.is_none() {
            self.settle(pages)?;
            return Ok(Outcome::Wait);
        }
        let value = pages.read(page, word);
        self.keep_reservation(hart, page, word);
        let outcome = if acquire { self.wait_for_places(hart, value) } else { Outcome::Done(value) };
        self.settle(pages)?;
        match outcome {
            Outcome::Wait => Ok(self.finished(hart).unwrap_or(Outcome::Wait)),
            done => Ok(done),
        }
    }

    /// `hart` executes an SC. Done: whether it stored. It does if nobody has stored to the word since the hart's LR, on any machine.
    ///
    /// # Errors
    /// [`Refused`], if a message that waited is refused.
    pub fn store_conditional(
        &mut self,
        hart: u8,
        store: Store,
        acquire: bool,
        pages: &mut dyn Pages,
    ) -> Result<Outcome<bool>, Refused> {
        if let Some(outcome) = self.finished(hart) {
            return Ok(map(outcome, |_| true));
        }
        let holds = self.has_reservation(hart, store.page, store.word);
        if !holds || !self.may_write_reserved(store.page) {
            self.end_reservation(hart, store.page, store.word);
            self.leave(hart, pages)?;
            return Ok(Outcome::Done(false));
        }
        self.end_reservation(hart, store.page, store.word);
        let outcome = self.write_now(hart, Kind::Conditional(store, acquire), pages)?;
        self.leave(hart, pages)?;
        match outcome {
            Outcome::Wait => Ok(map(self.finished(hart).unwrap_or(Outcome::Wait), |_| true)),
            Outcome::Done(_) => Ok(Outcome::Done(true)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn perform(operation: Operation, mask: u8, operand: u64, word: u64) -> (u64, u64) {
        let to = Store { page: Page(0), word: 0, mask, value: operand };
        let (store, old) = Atomic { operation, to, acquire: false }.perform(word);
        (word & !bits(mask) | store.value & bits(mask), old)
    }

    #[test]
    fn operations_have_the_width_of_the_access() {
        let word = 0xffff_fffe_0000_0001;
        assert_eq!(perform(Operation::Add, 0xf0, 3 << 32, word), (0x0000_0001_0000_0001, 0xffff_fffe));
        assert_eq!(perform(Operation::Max, 0xf0, 1 << 32, word), (0x0000_0001_0000_0001, 0xffff_fffe));
        assert_eq!(perform(Operation::MaxUnsigned, 0xf0, 1 << 32, word), (word, 0xffff_fffe));
        assert_eq!(perform(Operation::Swap, 0x0f, 7, word), (0xffff_fffe_0000_0007, 1));
        assert_eq!(perform(Operation::CompareAndSwap(1), 0x0f, 9, word).0, 0xffff_fffe_0000_0009);
        assert_eq!(perform(Operation::CompareAndSwap(2), 0x0f, 9, word).0, word);
        assert_eq!(perform(Operation::Min, 0xff, 5, u64::MAX), (u64::MAX, u64::MAX));
    }
}
