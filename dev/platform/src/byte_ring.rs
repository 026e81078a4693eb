//! A bounded queue of bytes.

use alloc::boxed::Box;
use alloc::vec;

/// A ring of bytes whose capacity is fixed when it is made.
///
/// Invariant: `start < capacity` and `len <= capacity`; a capacity of 0 is made 1.
#[derive(Debug)]
pub(crate) struct ByteRing {
    bytes: Box<[u8]>,
    start: usize,
    len: usize,
}

impl ByteRing {
    pub(crate) fn new(capacity: usize) -> Self {
        // Bounded: a constant of each device.
        Self { bytes: vec![0; capacity.max(1)].into_boxed_slice(), start: 0, len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn room(&self) -> usize {
        self.bytes.len() - self.len
    }

    pub(crate) const fn clear(&mut self) {
        self.start = 0;
        self.len = 0;
    }

    /// Appends a byte; false when the ring is full.
    #[inline]
    pub(crate) fn push(&mut self, byte: u8) -> bool {
        if self.len == self.bytes.len() {
            return false;
        }
        // `start + len < 2 * capacity`, so one subtraction wraps it: cheaper than a division on every byte.
        let mut at = self.start + self.len;
        if at >= self.bytes.len() {
            at -= self.bytes.len();
        }
        self.bytes[at] = byte;
        self.len += 1;
        true
    }

    /// Appends as many bytes as fit; how many those were.
    pub(crate) fn extend(&mut self, data: &[u8]) -> usize {
        let count = data.len().min(self.room());
        for &byte in &data[..count] {
            self.push(byte);
        }
        count
    }

    /// The oldest byte.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u8> {
        if self.len == 0 {
            return None;
        }
        let byte = self.bytes[self.start];
        self.start += 1;
        if self.start == self.bytes.len() {
            self.start = 0;
        }
        self.len -= 1;
        Some(byte)
    }

    /// Moves the oldest bytes into `buf`; how many those were.
    pub(crate) fn drain(&mut self, buf: &mut [u8]) -> usize {
        let count = buf.len().min(self.len);
        let (head, tail) = self.bytes.split_at(self.start);
        let first = count.min(tail.len());
        buf[..first].copy_from_slice(&tail[..first]);
        buf[first..count].copy_from_slice(&head[..count - first]);
        self.start = (self.start + count) % self.bytes.len();
        self.len -= count;
        count
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::{collections::VecDeque, vec::Vec};

    proptest! {
        #[test]
        fn behaves_as_a_bounded_queue(capacity in 1_usize..20, steps in prop::collection::vec((0_u8..4, 0_usize..30), 0..200)) {
            let (mut ring, mut model) = (ByteRing::new(capacity), VecDeque::new());
            for (index, (step, count)) in steps.into_iter().enumerate() {
                match step {
                    0 => {
                        let fits = model.len() < capacity;
                        prop_assert_eq!(ring.push(index as u8), fits);
                        if fits { model.push_back(index as u8); }
                    }
                    1 => prop_assert_eq!(ring.pop(), model.pop_front()),
                    2 => {
                        let data: Vec<u8> = (0..count as u8).collect();
                        let taken = ring.extend(&data);
                        prop_assert_eq!(taken, count.min(capacity - model.len()));
                        model.extend(&data[..taken]);
                    }
                    _ => {
                        let mut buf = std::vec![0; count];
                        let taken = ring.drain(&mut buf);
                        let expected: Vec<u8> = model.drain(..count.min(model.len())).collect();
                        prop_assert_eq!(&buf[..taken], &expected[..]);
                    }
                }
                prop_assert_eq!(ring.len(), model.len());
                prop_assert_eq!(ring.room(), capacity - model.len());
            }
        }
    }
}
