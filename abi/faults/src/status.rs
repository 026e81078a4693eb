//! The status page: the hardware's view of what still works.
//!
//! The firmware writes it under a sequence counter that is odd meanwhile; readers try again until they saw one even number
//! before and after.

use crate::{Fault, MAX_NODES, NodeSet, VERSION};

/// First word of the page.
pub const STATUS_MAGIC: u64 = u64::from_le_bytes(*b"MBFAULTS");
/// Words that are in use.
pub const STATUS_WORDS: usize = status_word::HISTORY + HISTORY * RECORD_WORDS;
/// Pages that can be poisoned at a time.
pub const MAX_POISONED: usize = 8;
/// Latest faults that the page tells of.
pub const HISTORY: usize = 32;
/// Words of each of them.
pub const RECORD_WORDS: usize = 8;

/// Which word says what.
pub mod status_word {
    use super::{MAX_NODES, MAX_POISONED};

    /// [`STATUS_MAGIC`](super::STATUS_MAGIC).
    pub const MAGIC: usize = 0;
    /// [`VERSION`](crate::VERSION).
    pub const VERSION: usize = 1;
    /// Odd while the page is being written.
    pub const SEQUENCE: usize = 2;
    /// Faults so far.
    pub const EPOCH: usize = 3;
    /// The latest epoch that all harts have gone over to.
    pub const RECOVERED: usize = 4;
    /// Nodes of the machine.
    pub const NODES: usize = 5;
    /// How many pages are poisoned.
    pub const POISONED_COUNT: usize = 6;
    /// A word per node: the nodes that it reaches, itself included; 0 if it is dead.
    pub const REACH: usize = 8;
    /// The poisoned pages.
    pub const POISONED: usize = REACH + MAX_NODES;
    /// The latest faults: fault number N (from 1) is in record (N - 1) % [`HISTORY`](super::HISTORY).
    pub const HISTORY: usize = POISONED + MAX_POISONED;
}

const _: () = assert!(STATUS_WORDS <= 512, "the status page is one page");

/// A fault that was injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number: the epoch that it began.
    pub epoch: u64,
    /// What failed.
    pub fault: Fault,
    /// When, in ticks.
    pub time: u64,
    /// The hart that did it.
    pub hart: u64,
    /// Instructions that this hart had executed.
    pub instructions: u64,
}

impl Record {
    /// Its words.
    #[must_use]
    pub const fn encode(&self) -> [u64; RECORD_WORDS] {
        let fault = self.fault;
        let (kind, nodes, address) = (fault.kind() as u64, fault.nodes().0, fault.address());
        [self.epoch, kind, nodes, address, self.time, self.hart, self.instructions, 0]
    }

    /// The record of these words; `None` if they are none.
    #[must_use]
    pub fn decode(words: [u64; RECORD_WORDS]) -> Option<Self> {
        let [epoch, kind, nodes, address, time, hart, instructions, _] = words;
        let fault = Fault::decode(kind, nodes, address).ok()?;
        (epoch != 0).then_some(Self { epoch, fault, time, hart, instructions })
    }
}

/// What the page says at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Faults so far.
    pub epoch: u64,
    /// The latest epoch that all harts have gone over to, of which they were told by the recovery interrupt.
    pub recovered: u64,
    /// Nodes of the machine.
    pub nodes: usize,
    /// What each node reaches, itself included; nothing if it is dead.
    pub reach: [NodeSet; MAX_NODES],
    poisoned: [u64; MAX_POISONED],
    poisoned_count: usize,
}

impl Status {
    /// Reads the page with `word`, which gives the word of an index, volatile. `None` where there is no such page, or if it
    /// was being written all the time (some thousand loads): then ask again.
    #[must_use]
    pub fn read(word: impl Fn(usize) -> u64) -> Option<Self> {
        const TRIES: usize = 1000;
        if word(status_word::MAGIC) != STATUS_MAGIC || word(status_word::VERSION) != VERSION {
            return None;
        }
        for _ in 0..TRIES {
            let before = word(status_word::SEQUENCE);
            let status = Self::read_once(&word);
            if before.is_multiple_of(2) && word(status_word::SEQUENCE) == before {
                return Some(status);
            }
            core::hint::spin_loop();
        }
        None
    }

    fn read_once(word: &impl Fn(usize) -> u64) -> Self {
        let at_most = |index, most: usize| usize::try_from(word(index)).unwrap_or(most).min(most);
        Self {
            epoch: word(status_word::EPOCH),
            recovered: word(status_word::RECOVERED),
            nodes: at_most(status_word::NODES, MAX_NODES),
            reach: core::array::from_fn(|node| NodeSet(word(status_word::REACH + node))),
            poisoned: core::array::from_fn(|page| word(status_word::POISONED + page)),
            poisoned_count: at_most(status_word::POISONED_COUNT, MAX_POISONED),
        }
    }

    /// The pages that nobody reaches.
    #[must_use]
    pub fn poisoned(&self) -> &[u64] {
        &self.poisoned[..self.poisoned_count]
    }

    /// The nodes that are not dead, as one sees who sees all.
    #[must_use]
    pub fn live(&self) -> NodeSet {
        let alive = (0..self.nodes).filter(|node| !self.reach[*node].is_empty());
        alive.fold(NodeSet::EMPTY, |live, node| live.or(NodeSet::one(node)))
    }

    /// The latest faults, oldest first, of a page that `word` reads.
    pub fn history(word: impl Fn(usize) -> u64) -> impl Iterator<Item = Record> {
        let epoch = word(status_word::EPOCH);
        let first = epoch.saturating_sub(HISTORY as u64) + 1;
        (first..=epoch).filter_map(move |number| {
            let at = status_word::HISTORY + (number as usize - 1) % HISTORY * RECORD_WORDS;
            Record::decode(core::array::from_fn(|index| word(at + index))).filter(|record| record.epoch == number)
        })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use core::cell::Cell;
    use std::vec::Vec;

    use super::*;

    fn page() -> [u64; 512] {
        let mut words = [0; 512];
        words[status_word::MAGIC] = STATUS_MAGIC;
        words[status_word::VERSION] = VERSION;
        words[status_word::NODES] = 4;
        words[status_word::EPOCH] = 2;
        words[status_word::REACH..][..4].copy_from_slice(&[0b1101, 0, 0b1101, 0b1101]);
        words[status_word::POISONED_COUNT] = 1;
        words[status_word::POISONED] = 0x9000_0000;
        words
    }

    #[test]
    fn a_page_is_read() {
        let words = page();
        let status = Status::read(|index| words[index]).expect("a page");
        assert_eq!((status.live(), status.poisoned()), (NodeSet(0b1101), &[0x9000_0000][..]));
    }

    #[test]
    fn no_page_and_a_page_that_never_rests_are_refused() {
        assert_eq!(Status::read(|_| 0), None);
        let (words, sequence) = (page(), Cell::new(0));
        let restless = |index| {
            sequence.set(sequence.get() + 1);
            if index == status_word::SEQUENCE { sequence.get() } else { words[index] }
        };
        assert_eq!(Status::read(restless), None);
    }

    #[test]
    fn counts_that_lie_do_no_harm() {
        let mut words = page();
        words[status_word::POISONED_COUNT] = u64::MAX;
        words[status_word::NODES] = u64::MAX;
        let status = Status::read(|index| words[index]).expect("a page");
        assert_eq!((status.poisoned().len(), status.nodes), (MAX_POISONED, MAX_NODES));
    }

    #[test]
    fn history_keeps_the_latest() {
        let mut words = page();
        let record = |epoch| Record { epoch, fault: Fault::Page(epoch << 12), time: epoch, hart: 1, instructions: 9 };
        for epoch in 1..=40 {
            let at = status_word::HISTORY + (epoch as usize - 1) % HISTORY * RECORD_WORDS;
            words[at..at + RECORD_WORDS].copy_from_slice(&record(epoch).encode());
        }
        words[status_word::EPOCH] = 40;
        let kept: Vec<_> = Status::history(|index| words[index]).collect();
        assert_eq!((kept.len(), kept[0], kept[31]), (32, record(9), record(40)));
    }
}
