//! The mailbox: requests of the host.
//!
//! The host writes a slot's request, then its state; the firmware polls the states. From [`SlotState::Ready`] on the slot
//! is the firmware's, until it is done or refused: then the host may use it again. Nothing that the host writes is
//! trusted.

use crate::{REQUEST_WORDS, Request, VERSION};

/// First word of the page: without it there is no mailbox, and no request.
pub const MAILBOX_MAGIC: u64 = u64::from_le_bytes(*b"MBFAULTM");
/// Words of the page.
pub const MAILBOX_WORDS: usize = 512;
/// Requests at a time.
pub const SLOTS: usize = 31;
/// Words of a slot.
pub const SLOT_WORDS: usize = 16;
/// The first slot's first word.
const FIRST_SLOT: usize = 8;

/// Ticks between two looks at the mailbox unless it says otherwise: 1 ms on the emulated machine.
pub const DEFAULT_POLL_TICKS: u64 = 10_000;
/// The least that it may say.
pub const MIN_POLL_TICKS: u64 = 100;
/// The most.
pub const MAX_POLL_TICKS: u64 = 10_000_000;

/// Words of the page, and words of a slot counted from its own first.
pub mod word {
    /// [`MAILBOX_MAGIC`](super::MAILBOX_MAGIC).
    pub const MAGIC: usize = 0;
    /// [`VERSION`](crate::VERSION).
    pub const VERSION: usize = 1;
    /// Ticks between two looks; 0 for the usual.
    pub const POLL_TICKS: usize = 2;
    /// Of a slot: its state.
    pub const STATE: usize = 0;
    /// Of a slot: the request's words begin.
    pub const REQUEST: usize = 1;
    /// Of a slot: 0, or why it was refused.
    pub const REFUSAL: usize = 8;
    /// Of a slot: the epoch that the fault began.
    pub const EPOCH: usize = 9;
    /// Of a slot: the time at which it was injected.
    pub const TIME: usize = 10;
}

/// Who has a slot, and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum SlotState {
    /// Nobody's: the host may write a request.
    Empty = 0,
    /// The host has written a request.
    Ready = 1,
    /// The firmware waits for the trigger.
    Armed = 2,
    /// The fault was injected.
    Done = 3,
    /// It was refused.
    Refused = 4,
}

impl SlotState {
    /// The state of this word; what nobody writes is empty.
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        match word {
            1 => Self::Ready,
            2 => Self::Armed,
            3 => Self::Done,
            4 => Self::Refused,
            _ => Self::Empty,
        }
    }

    /// Whether the host may write a request here: there is none yet, or the firmware has answered the last one.
    #[must_use]
    pub const fn is_free(self) -> bool {
        matches!(self, Self::Empty | Self::Done | Self::Refused)
    }
}

/// The first word of slot `index`, which is below [`SLOTS`].
#[must_use]
pub const fn slot_at(index: usize) -> usize {
    FIRST_SLOT + index * SLOT_WORDS
}

/// The words of a slot with a request, from its state on; the state is to be written last.
#[must_use]
pub fn slot_words(request: Request) -> [u64; 1 + REQUEST_WORDS] {
    let mut words = [SlotState::Ready as u64; 1 + REQUEST_WORDS];
    words[word::REQUEST..].copy_from_slice(&request.encode());
    words
}

/// A mailbox without requests.
#[must_use]
pub fn empty_mailbox(poll_ticks: u64) -> [u64; MAILBOX_WORDS] {
    let mut words = [0; MAILBOX_WORDS];
    words[word::MAGIC] = MAILBOX_MAGIC;
    words[word::VERSION] = VERSION;
    words[word::POLL_TICKS] = poll_ticks;
    words
}

/// How often the firmware looks, from what the mailbox says: always within bounds.
#[must_use]
pub fn poll_ticks(said: u64) -> u64 {
    if said == 0 { DEFAULT_POLL_TICKS } else { said.clamp(MIN_POLL_TICKS, MAX_POLL_TICKS) }
}

const _: () = assert!(slot_at(SLOTS) <= MAILBOX_WORDS, "the slots fit into the page");
const _: () = assert!(word::REQUEST + REQUEST_WORDS <= word::REFUSAL, "the request and its answer do not overlap");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, NodeSet, Trigger};

    #[test]
    fn slots_are_written_and_read() {
        let request = Request { fault: Fault::NodePower(NodeSet::one(2)), trigger: Trigger::At { ticks: 77 } };
        let words = slot_words(request);
        assert_eq!(SlotState::from_word(words[word::STATE]), SlotState::Ready);
        let inner = words[word::REQUEST..].try_into().expect("six words");
        assert_eq!(Request::decode(inner), Ok(request));
    }

    #[test]
    fn polling_is_bounded() {
        assert_eq!(
            [0, 1, 5_000, u64::MAX].map(poll_ticks),
            [DEFAULT_POLL_TICKS, MIN_POLL_TICKS, 5_000, MAX_POLL_TICKS]
        );
    }
}
