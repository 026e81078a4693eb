//! Messages that wait for the owner of a vCPU.

use super::{MAX_IDS, WORDS};
use core::sync::atomic::{AtomicU64, Ordering};

/// Pending bits that any hart may set without a lock.
#[derive(Debug, Default)]
pub struct PostedMsis {
    words: [AtomicU64; WORDS],
}

impl PostedMsis {
    /// No messages.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: [const { AtomicU64::new(0) }; WORDS] }
    }

    /// Posts a message. True if it was not yet waiting: then the owner has to be told. An identity above [`MAX_IDS`], or
    /// 0, is ignored.
    pub fn post(&self, eiid: u16) -> bool {
        if eiid == 0 || eiid > MAX_IDS {
            return false;
        }
        let bit = 1 << (eiid % 64);
        // Release: what the sender wrote before (a used ring) is seen by who takes the message; pairs with `take`.
        self.words[usize::from(eiid / 64)].fetch_or(bit, Ordering::Release) & bit == 0
    }

    /// Does anything wait?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // Relaxed: only a hint; `take` decides.
        self.words.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Takes all messages, as pending bits.
    #[must_use]
    pub fn take(&self) -> [u64; WORDS] {
        // Acquire: pairs with `post`. The load spares an atomic exchange where nothing waits.
        core::array::from_fn(|word| match self.words[word].load(Ordering::Relaxed) {
            0 => 0,
            _ => self.words[word].swap(0, Ordering::Acquire),
        })
    }
}
