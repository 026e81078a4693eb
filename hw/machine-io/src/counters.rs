//! Miss counters: a device that counts, for every page of RAM and every node, the cache misses of that node's harts, and
//! queues the pages that other nodes than their own miss on often. FLASH's node controller MAGIC had them; here the
//! machine model shows them as shared memory behind PCI, in the layout of the crate `model-file`.
//!
//! The device is believed no more than any other: its header is checked once, and whatever it says later is checked
//! when it is read. Numbers of 64 bits are read in two halves, so that they are never torn.

use core::fmt;

use addr::{BASE_PAGE, MachineAddr};
use intc::{MmioRegion, Registers};
use model_file::{HEADER_BYTES, Header, HotPage, LayoutError, MAX_NODES, Node, Request, at};

use crate::discover::Place;

/// Looks at a number that changes between its halves, at most: each look takes far less time than a carry needs.
const LOOKS: usize = 4;

/// The miss counters of the machine.
#[derive(Debug)]
pub struct MissCounters<R: Registers = MmioRegion> {
    memory: R,
    header: Header,
    place: Place,
    /// Pages that are counted, for how many nodes, and where their counters begin.
    pages: u64,
    node_count: usize,
    first_counter: usize,
    /// Where the queue ends.
    queue_end: usize,
    /// Running index of the next queue entry to take.
    next: u64,
}

/// A page that a node misses on often although it is another node's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissedPage {
    /// The page.
    pub page: MachineAddr,
    /// The node that misses: its place in [`MissCounters::nodes`].
    pub by: usize,
}

/// Why a device's shared memory holds no miss counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountersError {
    /// It is smaller than a header.
    TooSmall {
        /// Its bytes.
        bytes: usize,
    },
    /// Its header is wrong.
    Layout(LayoutError),
}

impl fmt::Display for CountersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall { bytes } => write!(f, "shared memory of {bytes} bytes has no room for miss counters"),
            Self::Layout(why) => write!(f, "no miss counters: {why}"),
        }
    }
}

impl core::error::Error for CountersError {}

impl<R: Registers> MissCounters<R> {
    /// Takes a device's shared memory into use. What is queued already is left out: it tells of the time before.
    ///
    /// # Errors
    /// The memory holds something else, or another version.
    pub fn new(memory: R, place: Place) -> Result<Self, CountersError> {
        if memory.bytes() < HEADER_BYTES.max(2 * BASE_PAGE as usize) {
            return Err(CountersError::TooSmall { bytes: memory.bytes() });
        }
        let mut start = [0; HEADER_BYTES];
        for (word, bytes) in start.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *bytes = memory.read(word * 4).to_le_bytes();
        }
        // A decoded header fits the memory, so that every offset that it gives lies inside.
        let header = Header::decode(&start, memory.bytes() as u64).map_err(CountersError::Layout)?;
        let first_counter = header.misses_at(0, 0).and_then(|at| usize::try_from(at).ok());
        let first_counter = first_counter.ok_or(CountersError::TooSmall { bytes: memory.bytes() })?;
        let (pages, node_count) = (header.pages(), header.nodes().len());
        let queue_end = header.queue_at(header.queue() - 1) as usize + HotPage::BYTES;
        let mut counters = Self { memory, header, place, pages, node_count, first_counter, queue_end, next: 0 };
        counters.next = counters.word(at::PRODUCER);
        counters.store(at::CONSUMER, counters.next);
        Ok(counters)
    }

    /// Where the device sits.
    #[must_use]
    pub const fn place(&self) -> Place {
        self.place
    }

    /// Number of pages that are counted.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.pages
    }

    /// The nodes as the device numbers them, by address of their memory.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        self.header.nodes()
    }

    /// Whether it counts now.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.word(at::IS_ON) == 1
    }

    /// Adds the misses of each node on the `pages` pages from `first` on to `sums`, which says by node of the device; `false`
    /// with nothing added if they are not all counted.
    #[inline(always)]
    pub fn add_misses(&self, first: MachineAddr, pages: u64, sums: &mut [u32; MAX_NODES]) -> bool {
        let page = first.raw().wrapping_sub(self.header.ram_base()) / BASE_PAGE;
        if page >= self.pages || pages > self.pages - page {
            return false;
        }
        // Those of a page lie side by side, and so do pages; the header has been checked, so all are inside.
        let row = self.node_count * 4;
        let mut at = self.first_counter + page as usize * row;
        for sum in sums.iter_mut().take(self.node_count) {
            // Of one page, which is asked for most often, a read costs less than a column of one.
            let misses = match pages {
                1 => self.memory.read(at),
                _ => u32::try_from(self.memory.sum(at, row, pages as usize)).unwrap_or(u32::MAX),
            };
            *sum = sum.saturating_add(misses);
            at += 4;
        }
        true
    }

    /// Takes the next hot pages from the queue, as many as `to` has room for; returns how many. Entries that were overwritten
    /// before anybody took them are passed over, as are those that name nothing.
    pub fn take_hot(&mut self, to: &mut [MissedPage]) -> usize {
        let produced = self.word(at::PRODUCER);
        if produced == self.next {
            return 0;
        }
        if produced.wrapping_sub(self.next) > self.header.queue() {
            // Too late for some, or the index is nonsense: what the queue holds now is all that can be had.
            self.next = produced.wrapping_sub(self.header.queue().min(produced));
        }
        let mut taken = 0;
        let mut at = self.header.queue_at(self.next) as usize;
        while self.next != produced
            && let Some(free) = to.get_mut(taken)
        {
            if let Some(page) = self.entry(at) {
                *free = page;
                taken += 1;
            }
            self.next = self.next.wrapping_add(1);
            at += HotPage::BYTES;
            if at == self.queue_end {
                at = self.header.queue_at(0) as usize;
            }
        }
        self.store(at::CONSUMER, self.next);
        taken
    }

    /// Leaves out what is queued now.
    pub fn forget_hot(&mut self) {
        self.next = self.word(at::PRODUCER);
        self.store(at::CONSUMER, self.next);
    }

    /// Pages become hot at so many remote misses of one node from now on; 0: none does.
    pub fn set_threshold(&mut self, misses: u32) {
        self.store(at::HOT_THRESHOLD, misses.into());
    }

    /// Asks that all pages' counters begin at 0 again, so that each can become hot once more. It is done soon, not now.
    pub fn reset(&mut self) {
        self.store(at::REQUEST, Request::ResetPages as u64);
    }

    /// The entry at this offset. Of the node's number the low half will do: there are eight at most.
    #[inline]
    fn entry(&self, at: usize) -> Option<MissedPage> {
        // Written before the index that leads here, and not again before it is passed: each half is read once.
        let page = u64::from(self.memory.read(at + 4)) << 32 | u64::from(self.memory.read(at));
        let by = self.memory.read(at + 8) as usize;
        if page >= self.pages || by >= self.node_count {
            return None;
        }
        Some(MissedPage { page: MachineAddr::new(self.header.ram_base() + page * BASE_PAGE), by })
    }

    fn word(&self, offset: u64) -> u64 {
        let at = offset as usize;
        let mut high = self.memory.read(at + 4);
        for _ in 0..LOOKS {
            let low = self.memory.read(at);
            let again = self.memory.read(at + 4);
            if again == high {
                return u64::from(high) << 32 | u64::from(low);
            }
            high = again;
        }
        // A device that changes all the time on purpose; whatever is read is checked anyway.
        u64::from(high) << 32 | u64::from(self.memory.read(at))
    }

    fn store(&self, offset: u64, value: u64) {
        let at = offset as usize;
        self.memory.write(at + 4, (value >> 32) as u32);
        self.memory.write(at, value as u32);
    }
}

#[cfg(test)]
mod tests;
