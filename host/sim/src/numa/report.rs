//! How it went.

/// Figures of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementReport {
    /// Nodes of the machine.
    pub nodes: usize,
    /// Pages of all guests.
    pub pages: u64,
    /// Misses that were local, in thousandths: in the first tenth of a second, on the whole, and in the last second.
    pub first_permille: u64,
    /// See `first_permille`.
    pub all_permille: u64,
    /// See `first_permille`.
    pub last_permille: u64,
    /// Pages that moved, one by one or with their block.
    pub moved: u64,
    /// Copies that were made.
    pub copied: u64,
    /// Copies that a write ended.
    pub ended: u64,
    /// Blocks that were split.
    pub split: u64,
    /// Pages for which a job could do nothing.
    pub refused: u64,
    /// Jobs that harts got.
    pub jobs: u64,
    /// Most pages that one job had.
    pub most_pages: usize,
    /// How often the page that was moved or copied anew most often was.
    pub most_moves: u32,
}

/// Misses, and how many of them were local.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    pub local: u64,
    pub all: u64,
}

impl Share {
    pub const fn add(&mut self, misses: u32, is_local: bool) {
        self.all += misses as u64;
        self.local += if is_local { misses as u64 } else { 0 };
    }

    pub fn permille(self) -> u64 {
        (self.local * 1000).checked_div(self.all).unwrap_or(1000)
    }
}
