//! The numbers.

/// What may be done at all: a VM's choice, so that systems with and without it can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// Pages may move.
    pub migrate: bool,
    /// Pages may be replicated.
    pub replicate: bool,
}

impl Switches {
    /// Both.
    pub const BOTH: Self = Self { migrate: true, replicate: true };
    /// Pages stay where they were first touched.
    pub const NEITHER: Self = Self { migrate: false, replicate: false };
}

/// When a page is worth the work.
///
/// The scheme is that of Verghese, Devine, Gupta and Rosenblum ("Operating System Support for Improving Data Locality on
/// CC-NUMA Compute Servers", 1996), which Disco names as its policy: a trigger, a sharing threshold of a quarter of it,
/// counters that begin anew after an interval. Disco gives no numbers, but says that its cheaper moves let it be more
/// aggressive. Departure: their migrate threshold of one move per interval is a [`History`](crate::History) here, so that the bound holds over
/// intervals too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Misses of one node within an interval that make a page hot.
    pub hot: u32,
    /// Misses of another node that make it shared.
    pub sharing: u32,
    /// Of a 2 MiB block's misses, thousandths that one node must have for the block to move as a whole.
    pub dominant_permille: u32,
    /// Least misses on a block, of all nodes together, that say anything about it.
    pub block_hot: u32,
    /// Tries (moves, replications, attempts that a write ended) of a page that has not been tried lately.
    pub max_tries: u8,
    /// Ticks of the caller's clock after which one try is forgiven.
    pub forgive_ticks: u16,
}

impl Thresholds {
    /// For counters of misses. A miss to another node costs some 600 ns more than a local one (FLASH), a move about 40 us
    /// for the copy and 10 us for the rest: 128 misses in an interval pay for it if the next interval is like this one.
    #[must_use]
    pub const fn for_misses() -> Self {
        Self { hot: 128, sharing: 32, dominant_permille: 900, block_hot: 256, max_tries: 4, forgive_ticks: 20 }
    }

    /// For samples: each look finds a page used by a node, or not. Three looks that found the page used by a node say as
    /// much as a hot page does; one that found another node there makes it shared.
    #[must_use]
    pub const fn for_samples() -> Self {
        Self { hot: 3, sharing: 0, block_hot: 3, max_tries: 3, ..Self::for_misses() }
    }
}

impl Default for Thresholds {
    fn default() -> Self {
        Self::for_misses()
    }
}
