//! The console of a VM: what its UART and the SBI debug console print, kept for scroll-back, and what is typed.

use crate::machine::agenda;
use alloc::{collections::VecDeque, vec::Vec};
use core::sync::atomic::{AtomicBool, Ordering};
use scarce::Grow;

/// Bytes of input that wait for the guest at most; more is refused, and the client hears of it.
const INPUT_MAX: usize = 4096;

/// Whether a client watches a console. Only then is output worth waking the control hart for.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// A VM has printed something.
#[inline]
pub fn changed() {
    if IS_WATCHED.load(Ordering::Relaxed) {
        agenda::call_soon();
    }
}

/// Says whether a client watches a console.
pub fn set_watched(is_watched: bool) {
    IS_WATCHED.store(is_watched, Ordering::Relaxed);
}

/// Output ring and input queue.
#[derive(Debug)]
pub struct Console {
    ring: VecDeque<u8>,
    capacity: usize,
    /// Offset of the ring's first byte in everything ever printed.
    oldest: u64,
    input: VecDeque<u8>,
}

impl Console {
    /// A console that keeps the last `capacity` bytes.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { ring: VecDeque::new(), capacity: capacity.max(1), oldest: 0, input: VecDeque::new() }
    }

    /// Adds output.
    pub fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            // Without memory for more, what is there turns over.
            if self.ring.len() == self.capacity || self.ring.grow(1).is_err() {
                self.oldest += 1;
                if self.ring.pop_front().is_none() {
                    continue;
                }
            }
            self.ring.push_back(*byte);
        }
    }

    /// Offset of the oldest byte kept.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        self.oldest
    }

    /// Offset behind the newest byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.oldest + self.ring.len() as u64
    }

    /// Up to `max` bytes from offset `from` (or the oldest), with the offset that they really begin at.
    #[must_use]
    pub fn read(&self, from: u64, max: usize) -> (u64, Vec<u8>) {
        let first = from.clamp(self.oldest, self.end());
        let skip = (first - self.oldest) as usize;
        (first, self.ring.iter().skip(skip).take(max).copied().collect())
    }

    /// Takes typed bytes; returns how many found room.
    pub fn type_in(&mut self, bytes: &[u8]) -> usize {
        let room = INPUT_MAX - self.input.len().min(INPUT_MAX);
        let taken = bytes.len().min(room);
        self.input.extend(&bytes[..taken]);
        taken
    }

    /// The next typed byte.
    pub fn next_input(&mut self) -> Option<u8> {
        self.input.pop_front()
    }
}
