//! A chain of page numbers, and how far it has been dealt with.

use addr::{BASE_PAGE, GuestPhysAddr};
use device::GuestMemory;

use super::{BalloonBackend, BalloonMetrics, RELEASE_COST, spec};
use crate::error::RingError;
use crate::model::Budget;
use crate::queue::Chain;

/// Most page numbers read from one chain; what follows them is acknowledged and stays the guest's. Linux sends 256 at a time, but a
/// chain may name 4 GiB of them.
pub(super) const MAX_NUMBERS: usize = 256;
/// Numbers read at once.
const WINDOW: usize = 64;

/// Pages that the guest gives away by their numbers. Each may lie apart from the others, and be a release of its own: so a chain takes
/// as many calls as its releases ask for.
pub(super) struct Inflation {
    pub(super) chain: Chain,
    pub(super) is_under_way: bool,
    /// Numbers that have been read, and which of them comes next.
    window: [u8; WINDOW * spec::PFN_BYTES],
    next: usize,
    count: usize,
    /// Numbers that may still be read.
    left: usize,
    /// Neighbouring pages that have been collected, and those that are being released.
    run: Run,
    leaving: Run,
}

impl Inflation {
    pub(super) fn new() -> Self {
        Self {
            chain: Chain::new(),
            is_under_way: false,
            window: [0; WINDOW * spec::PFN_BYTES],
            next: 0,
            count: 0,
            left: 0,
            run: Run::default(),
            leaving: Run::default(),
        }
    }

    /// The chain has just been loaded.
    pub(super) fn begin(&mut self) {
        self.is_under_way = true;
        (self.next, self.count, self.left) = (0, 0, MAX_NUMBERS);
        (self.run, self.leaving) = (Run::default(), Run::default());
    }

    /// Releases some of the pages; `true` when none are left of the chain.
    pub(super) fn step<B: BalloonBackend>(
        &mut self,
        memory: &dyn GuestMemory,
        backend: &mut B,
        metrics: &mut BalloonMetrics,
        budget: &mut Budget,
    ) -> Result<bool, RingError> {
        // Ends: each round takes some of the budget, or is the last.
        loop {
            let cost = if self.leaving.len != 0 {
                self.release(backend, metrics)
            } else if let Some(page) = self.next_page(memory)? {
                if !memory.contains(GuestPhysAddr::new(page), BASE_PAGE) {
                    metrics.pages_refused += 1;
                } else if let Some(finished) = self.run.extend(page) {
                    self.leaving = finished;
                }
                1
            } else {
                self.leaving = core::mem::take(&mut self.run);
                if self.leaving.len == 0 {
                    self.is_under_way = false;
                    return Ok(true);
                }
                0
            };
            if budget.spend(cost) {
                return Ok(false);
            }
        }
    }

    /// Releases a part of what is leaving; returns what that costs.
    fn release<B: BalloonBackend>(&mut self, backend: &mut B, metrics: &mut BalloonMetrics) -> u64 {
        let Run { start, len } = self.leaving;
        let released = backend.release(GuestPhysAddr::new(start), len);
        // What the host takes nothing of stays the guest's.
        let done = if released.bytes == 0 { len } else { released.bytes.min(len) };
        self.leaving = Run { start: start + done, len: len - done };
        metrics.bytes_inflated += released.bytes;
        RELEASE_COST + released.pages
    }

    /// The address of the next page that the guest names.
    fn next_page(&mut self, memory: &dyn GuestMemory) -> Result<Option<u64>, RingError> {
        if self.next == self.count {
            let most = self.left.min(WINDOW);
            let bytes =
                self.chain.read_some(memory, self.window.get_mut(..most * spec::PFN_BYTES).unwrap_or(&mut []))?;
            // Less than a number at the end is none.
            (self.next, self.count) = (0, bytes / spec::PFN_BYTES);
            self.left -= most;
        }
        let (numbers, _) = self.window.as_chunks::<{ spec::PFN_BYTES }>();
        let Some(number) = numbers.get(..self.count).and_then(|numbers| numbers.get(self.next)) else {
            return Ok(None);
        };
        self.next += 1;
        Ok(Some(u64::from(u32::from_le_bytes(*number)) << spec::PFN_SHIFT))
    }
}

/// Neighbouring pages, collected so that they are released at once.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    start: u64,
    len: u64,
}

impl Run {
    /// Adds the page at `page`, below or above; when it does not touch the run it starts a new one and the old one is
    /// returned. Linux fills its list in either direction.
    fn extend(&mut self, page: u64) -> Option<Self> {
        if self.len != 0 && page == self.start.wrapping_add(self.len) {
            self.len += BASE_PAGE;
            return None;
        }
        if self.len != 0 && page.wrapping_add(BASE_PAGE) == self.start {
            self.start = page;
            self.len += BASE_PAGE;
            return None;
        }
        let old = core::mem::replace(self, Self { start: page, len: BASE_PAGE });
        (old.len != 0).then_some(old)
    }
}
