//! Random numbers: a pool that takes in whatever entropy a machine has, and streams from it that tell nothing of one
//! another.
//!
//! # Key type
//! [`Pool`] is a ChaCha20 generator whose key is replaced after every use ("fast key erasure"): who reads the monitor's
//! memory learns nothing of what was given before. [`Pool::mix`] makes the key depend on more; mixing in something that
//! an attacker knows or chooses does no harm. [`Pool::fork`] makes a pool for one guest.
//!
//! # What it promises
//! Unpredictable bytes from the moment on when 32 unpredictable ones have been mixed in, not before: it does not count
//! entropy and does not wait. Two pools that were given the same are the same.
//!
//! # Locking
//! None: plain values.
#![no_std]
#![forbid(unsafe_code)]

use rand_chacha::{
    ChaCha20Rng,
    rand_core::{Rng as _, SeedableRng as _},
};

const KEY_BYTES: usize = 32;
/// One byte of each block says how long it is, so that no two inputs are the same sequence of blocks.
const INPUT_BYTES: usize = KEY_BYTES - 1;

/// A source of random bytes. See the crate's documentation.
pub struct Pool {
    key: [u8; KEY_BYTES],
}

impl Pool {
    /// A pool that knows nothing: everybody can predict it until something is mixed in.
    #[must_use]
    pub const fn new() -> Self {
        Self { key: [0; KEY_BYTES] }
    }

    /// Makes everything that comes later depend on `input`, too.
    pub fn mix(&mut self, input: &[u8]) {
        for part in input.chunks(INPUT_BYTES) {
            self.use_key(|_| {});
            let (length, content) = self.key.split_at_mut(1);
            length[0] ^= part.len() as u8;
            content.iter_mut().zip(part).for_each(|(key, byte)| *key ^= byte);
        }
        // The end is a block of its own: what follows is not the same input, only longer.
        self.use_key(|_| {});
    }

    /// Fills `target`.
    pub fn fill(&mut self, target: &mut [u8]) {
        self.use_key(|stream| stream.fill_bytes(target));
    }

    /// Another pool, of which this one's later bytes tell nothing.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        let mut key = [0; KEY_BYTES];
        self.fill(&mut key);
        Self { key }
    }

    /// Replaces the key by the first bytes of its stream; the rest of the stream is for `work`.
    fn use_key(&mut self, work: impl FnOnce(&mut ChaCha20Rng)) {
        let mut stream = ChaCha20Rng::from_seed(self.key);
        stream.fill_bytes(&mut self.key);
        work(&mut stream);
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

/// Its state is a secret.
impl core::fmt::Debug for Pool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
