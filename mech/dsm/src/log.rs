//! Stores that have no place in the order yet.
//!
//! All machines apply stores in the one order that the orderer gives. Only the storing machine may be ahead ([`Visibility::Early`]): its page
//! then shows its own stores, and what others see lies *beneath*. A store of somebody else's that gets its place first goes beneath, byte
//! by byte, because ours will come after it.

use alloc::collections::{BTreeMap, VecDeque};

use dsm_wire::{Page, Store};

use crate::config::Visibility;
use crate::pages::Pages;

/// Stores of a machine that wait for their place, at most. A hart that has another one waits.
pub const LOG: usize = 256;

/// The bytes of a word that stores cover which have no place yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Beneath {
    /// What everybody else sees.
    value: u64,
    /// How many stores cover each byte.
    covers: [u16; 8],
}

impl Beneath {
    fn mask(&self) -> u8 {
        (0..8).filter(|byte| self.covers[*byte] > 0).fold(0, |mask, byte| mask | 1 << byte)
    }
}

/// This machine's stores in its own order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Log {
    visibility: Visibility,
    waiting: VecDeque<Store>,
    /// The first so many of them have been sent.
    sent: usize,
    beneath: BTreeMap<(Page, u16), Beneath>,
}

/// All bits of the bytes in `mask`.
pub const fn bits(mask: u8) -> u64 {
    let mut bits = 0;
    let mut byte = 0;
    while byte < 8 {
        if mask >> byte & 1 == 1 {
            bits |= 0xff << (8 * byte);
        }
        byte += 1;
    }
    bits
}

impl Log {
    pub const fn new(visibility: Visibility) -> Self {
        Self { visibility, waiting: VecDeque::new(), sent: 0, beneath: BTreeMap::new() }
    }

    pub fn is_full(&self) -> bool {
        self.waiting.len() >= LOG
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn has(&self, page: Page) -> bool {
        self.waiting.iter().any(|store| store.page == page)
    }

    /// Whether some that were sent have no place yet.
    pub const fn is_under_way(&self) -> bool {
        self.sent > 0
    }

    /// How many have not been sent.
    pub fn unsent(&self) -> usize {
        self.waiting.len() - self.sent
    }

    /// Takes a store; the log is not full.
    pub fn push(&mut self, store: Store, pages: &mut dyn Pages) {
        if self.visibility == Visibility::Early {
            let under = pages.read(store.page, store.word);
            let beneath = self.beneath.entry((store.page, store.word)).or_default();
            let fresh = bits(store.mask & !beneath.mask());
            beneath.value = beneath.value & !fresh | under & fresh;
            for byte in 0..8 {
                beneath.covers[byte] += u16::from(store.mask >> byte & 1);
            }
            pages.write(store.page, store.word, store.mask, store.value);
        }
        self.waiting.push_back(store);
    }

    /// The next `most` that have not been sent; they count as sent.
    pub fn send(&mut self, most: usize) -> impl ExactSizeIterator<Item = Store> + '_ {
        let first = self.sent;
        self.sent = self.waiting.len().min(first + most);
        self.waiting.range(first..self.sent).copied()
    }

    /// The oldest has its place. Returns it; nothing if none was sent.
    pub fn placed(&mut self, pages: &mut dyn Pages) -> Option<Store> {
        self.sent = self.sent.checked_sub(1)?;
        let store = self.waiting.pop_front()?;
        match self.visibility {
            Visibility::Ordered => pages.write(store.page, store.word, store.mask, store.value),
            Visibility::Early => self.uncover(&store),
        }
        Some(store)
    }

    fn uncover(&mut self, store: &Store) {
        let key = (store.page, store.word);
        let Some(beneath) = self.beneath.get_mut(&key) else { return };
        let of = bits(store.mask);
        beneath.value = beneath.value & !of | store.value & of;
        for byte in 0..8 {
            beneath.covers[byte] = beneath.covers[byte].saturating_sub(u16::from(store.mask >> byte & 1));
        }
        if beneath.mask() == 0 {
            self.beneath.remove(&key);
        }
    }

    /// Applies a store of another machine's that has its place. Returns the bytes that are not seen, because ours come later.
    pub fn apply(&mut self, store: &Store, pages: &mut dyn Pages) -> u8 {
        let mut hidden = 0;
        if let Some(beneath) = self.beneath.get_mut(&(store.page, store.word)) {
            hidden = store.mask & beneath.mask();
            let of = bits(hidden);
            beneath.value = beneath.value & !of | store.value & of;
        }
        if store.mask & !hidden != 0 {
            pages.write(store.page, store.word, store.mask & !hidden, store.value);
        }
        hidden
    }

    /// The word as it will be when all stores of this machine have their places and nobody else stores.
    pub fn latest(&self, page: Page, word: u16, pages: &dyn Pages) -> u64 {
        let now = pages.read(page, word);
        if self.visibility == Visibility::Early {
            return now;
        }
        let of_word = self.waiting.iter().filter(|store| store.page == page && store.word == word);
        of_word.fold(now, |value, store| value & !bits(store.mask) | store.value & bits(store.mask))
    }

    /// Puts what others see into the bytes of `page`.
    pub fn restore(&self, page: Page, bytes: &mut [u8]) {
        for ((_, word), beneath) in self.beneath.range((page, 0)..=(page, u16::MAX)) {
            for (at, byte) in beneath.value.to_le_bytes().into_iter().enumerate() {
                if let Some(place) = bytes.get_mut(usize::from(*word) * 8 + at)
                    && beneath.covers[at] > 0
                {
                    *place = byte;
                }
            }
        }
    }
}
