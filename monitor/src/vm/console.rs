//! The console of a VM: what its UART and the SBI debug console print, kept for scroll-back, and what is typed.

use crate::machine::agenda;
use ::platform::Scrollback;
use alloc::collections::VecDeque;
use core::sync::atomic::{AtomicBool, Ordering};

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

/// What was printed and the input queue.
#[derive(Debug)]
pub struct Console {
    output: Scrollback,
    input: VecDeque<u8>,
}

impl Console {
    /// A console that keeps the last `capacity` bytes.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self { output: Scrollback::new(capacity), input: VecDeque::new() }
    }

    /// What was printed.
    #[must_use]
    pub const fn output(&self) -> &Scrollback {
        &self.output
    }

    /// Adds output.
    pub fn push(&mut self, bytes: &[u8]) {
        self.output.push(bytes);
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
