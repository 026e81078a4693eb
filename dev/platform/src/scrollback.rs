//! What a guest has printed lately.

use alloc::{collections::VecDeque, vec::Vec};
use scarce::Grow;

/// Bytes of a chunk.
const CHUNK: usize = 4096;

/// The last bytes of a console, in chunks: adding some moves none of those that are there, however many these are.
#[derive(Debug)]
pub struct Scrollback {
    /// Each has room for [`CHUNK`] bytes, and all but the last are full.
    chunks: VecDeque<Vec<u8>>,
    most_chunks: usize,
    /// Offset of the first byte in everything ever printed.
    oldest: u64,
}

impl Scrollback {
    /// Keeps the last `capacity` bytes, and some before them, as far as there is memory.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self { chunks: VecDeque::new(), most_chunks: capacity.div_ceil(CHUNK) + 1, oldest: 0 }
    }

    /// Adds output.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some(chunk) = self.last_with_room() else {
                // There is no memory for a single chunk.
                self.oldest += rest.len() as u64;
                return;
            };
            let (part, after) = rest.split_at(rest.len().min(CHUNK - chunk.len()));
            // Bounded: room for a chunk was asked for when it was made.
            chunk.extend_from_slice(part);
            rest = after;
        }
    }

    /// The chunk that gets the next byte. Where there may be no more of them the oldest one is used again.
    fn last_with_room(&mut self) -> Option<&mut Vec<u8>> {
        if self.chunks.back().is_none_or(|last| last.len() == CHUNK) {
            let chunk = self.new_chunk().or_else(|| self.take_oldest())?;
            // As many as there were, or room was asked for.
            self.chunks.push_back(chunk);
        }
        self.chunks.back_mut()
    }

    fn new_chunk(&mut self) -> Option<Vec<u8>> {
        if self.chunks.len() >= self.most_chunks {
            return None;
        }
        self.chunks.grow(1).ok()?;
        scarce::room(CHUNK).ok()
    }

    fn take_oldest(&mut self) -> Option<Vec<u8>> {
        let mut chunk = self.chunks.pop_front()?;
        self.oldest += chunk.len() as u64;
        chunk.clear();
        Some(chunk)
    }

    /// Offset of the oldest byte kept.
    #[must_use]
    pub const fn oldest(&self) -> u64 {
        self.oldest
    }

    /// Offset behind the newest byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        let last = self.chunks.back().map_or(0, Vec::len);
        self.oldest + (self.chunks.len().saturating_sub(1) * CHUNK + last) as u64
    }

    /// Up to `max` bytes from offset `from` (or the oldest), with the offset that they really begin at.
    #[must_use]
    pub fn read(&self, from: u64, max: usize) -> (u64, Vec<u8>) {
        let first = from.clamp(self.oldest, self.end());
        let skip = (first - self.oldest) as usize;
        let chunks = self.chunks.iter().skip(skip / CHUNK);
        (first, chunks.flatten().skip(skip % CHUNK).take(max).copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn addresses(scrollback: &Scrollback) -> Vec<*const u8> {
        scrollback.chunks.iter().map(|chunk| chunk.as_ptr()).collect()
    }

    #[test]
    fn what_is_there_stays_where_it_is() {
        let mut scrollback = Scrollback::new(1 << 20);
        let mut before = Vec::new();
        for _ in 0..1_000 {
            scrollback.push(&[7; 1_500]);
            let after = addresses(&scrollback);
            let chunk = before.len().saturating_sub(1);
            // A call adds at most one chunk to 1,500 bytes, or uses one again, and copies no other.
            assert!(after.len() <= before.len() + 1 && after.len() <= 257);
            if after.len() > before.len() || scrollback.oldest() == 0 {
                assert_eq!(after[..chunk], before[..chunk]);
            }
            assert!(scrollback.chunks.iter().all(|chunk| chunk.capacity() == CHUNK));
            before = after;
        }
        assert_eq!(scrollback.end(), 1_500_000);
        assert!(scrollback.end() - scrollback.oldest() >= 1 << 20);
    }

    proptest! {
        #[test]
        fn the_last_bytes_are_kept(
            capacity in 1_usize..3 * CHUNK,
            pushes in proptest::collection::vec(0_usize..5_000, 0..40),
            from in any::<u16>(),
            max in 0_usize..20_000,
        ) {
            let (mut scrollback, mut all) = (Scrollback::new(capacity), Vec::new());
            for (number, len) in (0_u8..).zip(pushes) {
                let bytes: Vec<u8> = (0..len).map(|at| number.wrapping_mul(31) ^ at as u8).collect();
                scrollback.push(&bytes);
                all.extend_from_slice(&bytes);
            }
            let kept = all.len() - scrollback.oldest() as usize;
            prop_assert_eq!(scrollback.end(), all.len() as u64);
            prop_assert!(kept >= capacity.min(all.len()) && kept <= capacity + 2 * CHUNK);
            let (first, bytes) = scrollback.read(u64::from(from), max);
            prop_assert_eq!(first, u64::from(from).clamp(scrollback.oldest(), scrollback.end()));
            let expected = &all[first as usize..];
            prop_assert_eq!(&bytes[..], &expected[..expected.len().min(max)]);
        }
    }
}
