//! Memory that threads share: words that begin as zero and are touched first by who uses them.
//!
//! Words are atomic only because threads share them. Every access is relaxed, a plain load or store; barriers order them.

use alloc::boxed::Box;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// So many words of 32 bits.
pub fn words(count: usize) -> Box<[AtomicU32]> {
    bytemuck::zeroed_slice_box(count)
}

/// Numbers that threads share.
pub struct Numbers(Box<[AtomicU64]>);

impl Numbers {
    /// So many zeros.
    pub fn zeros(count: usize) -> Self {
        Self(bytemuck::zeroed_slice_box(count))
    }

    /// A number.
    pub fn get(&self, at: usize) -> f64 {
        f64::from_bits(self.0[at].load(Ordering::Relaxed))
    }

    /// Writes a number.
    pub fn set(&self, at: usize, number: f64) {
        self.0[at].store(number.to_bits(), Ordering::Relaxed);
    }

    /// Adds to a number of which no other thread writes meanwhile.
    pub fn add(&self, at: usize, number: f64) {
        self.set(at, self.get(at) + number);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Their sum, from first to last.
    pub fn sum(&self) -> f64 {
        (0..self.len()).fold(0.0, |sum, at| sum + self.get(at))
    }

    /// A digest of all bits.
    pub fn digest(&self) -> u64 {
        let mut digest = crate::digest::Digest::default();
        (0..self.len()).for_each(|at| digest.add(self.get(at).to_bits()));
        digest.value()
    }
}

/// The part of `count` things that thread `thread` of `threads` works on.
pub fn part(count: usize, thread: usize, threads: usize) -> Range<usize> {
    count * thread / threads..count * (thread + 1) / threads
}
