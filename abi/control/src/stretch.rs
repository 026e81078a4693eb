//! How long a hart stays in the monitor at a time, from the guest's exit (or the end of its sleep) to the next entry (or sleep):
//! so long no interrupt is taken.

use serde::{Deserialize, Serialize};

/// Upper bounds of the classes, in microseconds; the last class has none.
pub const STRETCH_LIMITS_US: [u32; 9] = [5, 10, 20, 50, 100, 200, 500, 1_000, 10_000];

/// Classes of stretches.
pub const STRETCH_CLASSES: usize = STRETCH_LIMITS_US.len() + 1;

/// What a hart did in a stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StretchPlace {
    /// Nothing was seen yet.
    #[default]
    None,
    /// An exception of the guest, by its number in `scause`.
    Exception(u8),
    /// An interrupt, by its number in `scause`.
    Interrupt(u8),
    /// The machine-wide duties of the control hart.
    Duties,
    /// Pages that move or are copied.
    Placement,
    /// A vCPU that came to the hart, or left it.
    Move,
    /// Zeroing of free memory.
    Zeroing,
    /// The end of the hart's sleep.
    Wakeup,
    /// Of the control hart's duties: clients, and VMs that begin and end,
    Clients,
    /// requests of disks that go on,
    Disks,
    /// frames to and from the network interface,
    Network,
    /// merging of equal pages,
    Merging,
    /// looks at who uses which pages,
    Looks,
    /// memory that comes back, and blocks that are put together,
    Memory,
    /// and vCPUs that are spread over harts.
    Balance,
}

/// A hart's stretches in the monitor since it came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretches {
    /// How many lasted up to each of [`STRETCH_LIMITS_US`], and longer.
    pub counts: [u64; STRETCH_CLASSES],
    /// The longest, in ticks.
    pub worst_ticks: u64,
    /// What the hart did in it.
    pub worst_place: StretchPlace,
}

impl Stretches {
    /// How many there were.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The least of [`STRETCH_LIMITS_US`] that at least `permille` thousandths of the stretches did not exceed; `None` if that is
    /// none of them, or there was no stretch.
    #[must_use]
    pub fn limit_of(&self, permille: u64) -> Option<u32> {
        let wanted = u128::from(self.total()) * u128::from(permille);
        let mut below = 0_u128;
        for (count, limit) in self.counts.iter().zip(STRETCH_LIMITS_US) {
            below += u128::from(*count) * 1000;
            if wanted != 0 && below >= wanted {
                return Some(limit);
            }
        }
        None
    }
}

impl core::fmt::Display for StretchPlace {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::None => f.write_str("-"),
            Self::Exception(cause) => write!(f, "exception {cause}"),
            Self::Interrupt(cause) => write!(f, "interrupt {cause}"),
            Self::Duties => f.write_str("duties"),
            Self::Placement => f.write_str("placement"),
            Self::Move => f.write_str("vCPU move"),
            Self::Zeroing => f.write_str("zeroing"),
            Self::Wakeup => f.write_str("wake-up"),
            Self::Clients => f.write_str("clients"),
            Self::Disks => f.write_str("disks"),
            Self::Network => f.write_str("network"),
            Self::Merging => f.write_str("merging"),
            Self::Looks => f.write_str("looks"),
            Self::Memory => f.write_str("memory"),
            Self::Balance => f.write_str("balance"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_most_stretches_is_found() {
        let mut stretches = Stretches::default();
        assert_eq!((stretches.total(), stretches.limit_of(999)), (0, None));
        stretches.counts[0] = 998;
        stretches.counts[3] = 1;
        stretches.counts[STRETCH_CLASSES - 1] = 1;
        assert_eq!((stretches.total(), stretches.limit_of(998)), (1000, Some(5)));
        assert_eq!((stretches.limit_of(999), stretches.limit_of(1000)), (Some(50), None));
        stretches.counts[0] = u64::MAX;
        assert_eq!(stretches.limit_of(999), Some(5));
    }
}
