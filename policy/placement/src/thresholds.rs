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
/// aggressive than they were; so are ours (their trigger was 128 misses). Departure: their bound of moves per interval is a
/// [`History`](crate::History) here, so that it holds over intervals, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Misses of one node within an interval that make a page hot.
    pub hot: u32,
    /// Misses of another node that make it shared.
    pub sharing: u32,
    /// Of a 2 MiB block's misses, thousandths that one node must have for the block to move as a whole.
    pub dominant_permille: u32,
    /// Misses on a 2 MiB block, of all nodes together, that make it worth to move as a whole. With fewer, only its hot
    /// pages move.
    pub block_hot: u32,
    /// Tries (moves, replications, attempts that a write ended) of a page that has not been tried lately.
    pub max_tries: u8,
    /// Ticks of the caller's clock after which one try is forgiven, and a VM's [`Budget`](crate::Budget) is full again.
    pub forgive_ticks: u16,
    /// Ticks after which a page that was tried once is tried again without counting; the time doubles with each try.
    pub patience_ticks: u16,
    /// The budget is this part of a VM's pages: one of so many.
    pub retry_part: u32,
    /// Pages that become hot in an interval, of all VMs, below which the counters go on through the next ones.
    pub few: u64,
    /// The same once they go on: where so many become hot at once a guest does something else than before.
    pub many: u64,
    /// Intervals after which they begin anew at the latest.
    pub most_intervals: u32,
}

impl Thresholds {
    /// For counters of misses that begin anew ten times a second. On FLASH a miss to another node costs 600 ns more than a
    /// local one, a move 40 us for the copy and some for the rest: 32 misses pay for it if the next three intervals are like
    /// this one. A block of 512 pages pays with 4096 misses, if the next eight are: it keeps its large leaf.
    ///
    /// A page is tried again after 3 s, then after 6, and so on, sooner only from the budget; a try is forgotten after half a
    /// minute. A try in vain takes some 100 us: a guest that lets a thousand pages be tried so loses some 2 % of a hart's time in
    /// that.
    ///
    /// Where little is hot within a tenth of a second the counters go on for a whole one: who works on tens of MiB per hart misses a dozen
    /// times on each page within an interval, never more often, and loses as much by that as by a few pages that are hot. 32 misses a
    /// second pay for a move in three.
    #[must_use]
    pub const fn for_misses() -> Self {
        Self {
            hot: 32,
            sharing: 8,
            dominant_permille: 900,
            block_hot: 4096,
            max_tries: 6,
            forgive_ticks: 300,
            patience_ticks: 30,
            retry_part: 32,
            few: 64,
            many: 512,
            most_intervals: 10,
        }
    }

    /// Whether the counters go on when an interval ends, the one of number `number` (from 1) since they began anew, in
    /// which `hot` pages have become hot.
    #[must_use]
    pub const fn go_on(&self, number: u32, hot: u64) -> bool {
        match number {
            // A page becomes hot once until they begin anew: where many are they shall soon be able to say so again.
            0 | 1 => hot < self.few,
            // What becomes hot now takes so long for that, and others of its kind shall have as long; unless there is so much of it that it
            // would have been hot in any interval, and what was counted before is of another phase of a guest.
            _ => number < self.most_intervals && hot < self.many,
        }
    }

    /// For samples: each look finds a page used by a node, or not. Three looks that found the page used by a node say as
    /// much as a hot page does; one that found another node there makes it shared.
    #[must_use]
    pub const fn for_samples() -> Self {
        Self {
            hot: 3,
            sharing: 0,
            block_hot: 3,
            max_tries: 3,
            forgive_ticks: 8,
            patience_ticks: 0,
            ..Self::for_misses()
        }
    }
}

impl Default for Thresholds {
    fn default() -> Self {
        Self::for_misses()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_go_on_while_little_is_hot() {
        const T: Thresholds = Thresholds { few: 10, many: 20, most_intervals: 4, ..Thresholds::for_misses() };
        assert!(!T.go_on(1, 10), "pages become hot within an interval");
        assert!(T.go_on(1, 9));
        assert_eq!([2, 3, 4, 5].map(|number| T.go_on(number, 19)), [true, true, false, false]);
        assert!(!T.go_on(2, 20), "another phase has begun");
        assert_eq!([2, 3, 4, 5].map(|number| T.go_on(number, 0)), [true, true, false, false]);
    }
}
