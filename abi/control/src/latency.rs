//! How long vCPUs wait for harts.

use serde::{Deserialize, Serialize};

/// Upper bounds of the classes, in microseconds; the last class has none.
pub const LATENCY_LIMITS_US: [u32; 11] = [10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000];

/// Classes of waits.
pub const LATENCY_CLASSES: usize = LATENCY_LIMITS_US.len() + 1;

/// Waits of a VM's vCPUs, since it started last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies {
    /// How many lasted up to each of [`LATENCY_LIMITS_US`], and longer.
    pub counts: [u64; LATENCY_CLASSES],
}

impl Latencies {
    /// The class of a wait of so many microseconds.
    #[must_use]
    pub fn class_of(us: u64) -> usize {
        LATENCY_LIMITS_US.partition_point(|limit| us > u64::from(*limit))
    }

    /// How many there were.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// With those of `other`.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self { counts: core::array::from_fn(|class| self.counts[class].saturating_add(other.counts[class])) }
    }

    /// The least of [`LATENCY_LIMITS_US`] that at least `permille` thousandths did not exceed; `None` if that is none of them, or
    /// there was no wait.
    #[must_use]
    pub fn limit_of(&self, permille: u64) -> Option<u32> {
        let wanted = u128::from(self.total()) * u128::from(permille);
        let mut below = 0_u128;
        for (count, limit) in self.counts.iter().zip(LATENCY_LIMITS_US) {
            below += u128::from(*count) * 1000;
            if wanted != 0 && below >= wanted {
                return Some(limit);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wait_has_a_class_and_most_have_a_limit() {
        assert_eq!([0, 10, 11, 50_000, 50_001, u64::MAX].map(Latencies::class_of), [0, 0, 1, 10, 11, 11]);
        let mut waits = Latencies::default();
        assert_eq!((waits.total(), waits.limit_of(990)), (0, None));
        waits.counts[2] = 99;
        waits.counts[11] = 1;
        assert_eq!((waits.total(), waits.limit_of(990), waits.limit_of(991)), (100, Some(50), None));
        assert_eq!(waits.and(&waits).counts[2], 198);
    }
}
