//! The model's side of the shared file: misses per page and node, the queue of hot pages, counters, clocks.
//!
//! Readers may write the words that are theirs at any moment, so everything is atomic and nothing read is believed.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release};

use model_file::{Header, HotPage, MODES, ModeCounters, PAGE_BYTES, Request, at};

use crate::{Config, ConfigError};

/// The file, mapped for as long as the process lives.
#[derive(Debug, Clone, Copy)]
pub struct Shared {
    header: Header,
    /// Everything before the page counters.
    words: &'static [AtomicU64],
    misses: &'static [AtomicU32],
}

impl Shared {
    /// Bytes of the file's two parts: words, then page counters.
    pub fn parts(header: &Header) -> (u64, u64) {
        let start = header.misses_at(0, 0).unwrap_or(0);
        (start, header.pages() * header.nodes().len() as u64 * 4)
    }

    /// Takes a file of zeroes whose parts are as long as [`Shared::parts`] says, and writes the header.
    pub fn new(
        config: &Config,
        words: &'static [AtomicU64],
        misses: &'static [AtomicU32],
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let header = config.header().map_err(ConfigError::NoFile)?;
        let (want, counters) = Self::parts(&header);
        if words.len() as u64 * 8 != want || misses.len() as u64 * 4 != counters {
            let found = words.len() as u64 * 8 + misses.len() as u64 * 4;
            let want = want + counters;
            return Err(ConfigError::NoFile(model_file::LayoutError::Short { found, want }));
        }
        let shared = Self { header, words, misses };
        let bytes = header.encode();
        for (word, bytes) in words.iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*bytes), Relaxed);
        }
        shared.set(at::HOT_THRESHOLD, config.hot_misses.into());
        for hart in 0..config.harts {
            shared.set(header.clock_at(hart as u64).unwrap_or(0) + 16, config.node_of(hart) as u64);
        }
        Ok(shared)
    }

    /// A file in plain memory, for a model that nobody reads while it runs.
    ///
    /// # Errors
    /// What [`Config::check`] refuses.
    pub fn private(config: &Config) -> Result<Self, ConfigError> {
        config.check()?;
        let (words, misses) = Self::parts(&config.header().map_err(ConfigError::NoFile)?);
        let words: Vec<AtomicU64> = (0..words / 8).map(|_| AtomicU64::new(0)).collect();
        let misses: Vec<AtomicU32> = (0..misses / 4).map(|_| AtomicU32::new(0)).collect();
        Self::new(config, Box::leak(words.into()), Box::leak(misses.into()))
    }

    /// What the file looks like.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The word at an offset of the file.
    pub fn get(&self, at: u64) -> u64 {
        self.words.get(at as usize / 8).map_or(0, |word| word.load(Relaxed))
    }

    /// Sets the word at an offset of the file.
    pub fn set(&self, at: u64, value: u64) {
        if let Some(word) = self.words.get(at as usize / 8) {
            word.store(value, Relaxed);
        }
    }

    /// Takes what a reader asks for.
    pub fn take_request(&self) -> Option<Request> {
        let word = self.words.get(at::REQUEST as usize / 8)?;
        // One read in the common case: a swap would take the line away from a reader that polls its neighbours.
        if word.load(Relaxed) == 0 { None } else { Request::from_word(word.swap(0, Relaxed)) }
    }

    /// Tells a hart's clock and its counters.
    pub fn publish(&self, hart: usize, now_ps: u64, is_idle: bool, counters: &[ModeCounters; MODES]) {
        let Some(clock) = self.header.clock_at(hart as u64) else { return };
        self.set(clock, now_ps);
        self.set(clock + 8, is_idle.into());
        for (mode, counters) in counters.iter().enumerate() {
            let Some(start) = self.header.counters_at(hart as u64, mode) else { return };
            let words = counters.words().into_iter().enumerate();
            words.for_each(|(at, word)| self.set(start + at as u64 * 8, word));
        }
    }

    /// Misses of `node` on the page of number `page`.
    pub fn misses(&self, page: u64, node: usize) -> u32 {
        self.misses.get(page as usize * self.header.nodes().len() + node).map_or(0, |count| count.load(Relaxed))
    }

    /// Zeroes the page counters.
    pub fn reset_pages(&self) {
        self.misses.iter().for_each(|count| count.store(0, Relaxed));
    }

    /// Counts a miss of `node` at `offset` in RAM. A page is reported when its count reaches the threshold.
    pub(crate) fn count_miss(&self, offset: u64, node: usize, home: usize) {
        let page = offset / PAGE_BYTES;
        let Some(counter) = self.misses.get(page as usize * self.header.nodes().len() + node) else { return };
        // No read-modify-write: the model is the only one that counts, and a reset that comes between may be lost.
        let count = counter.load(Relaxed).saturating_add(1);
        counter.store(count, Relaxed);
        if node != home && u64::from(count) == self.get(at::HOT_THRESHOLD) {
            self.report(HotPage { page, node: node as u64 });
        }
    }

    fn report(&self, page: HotPage) {
        let producer = self.get(at::PRODUCER);
        if producer.wrapping_sub(self.get(at::CONSUMER)) >= self.header.queue() {
            self.set(at::DROPPED, self.get(at::DROPPED) + 1);
            return;
        }
        let entry = self.header.queue_at(producer);
        self.set(entry, page.page);
        self.set(entry + 8, page.node);
        if let Some(word) = self.words.get(at::PRODUCER as usize / 8) {
            // Pairs with the reader's acquire of the index: it sees the entry.
            word.store(producer.wrapping_add(1), Release);
        }
    }
}
