//! A set of harts.

use addr::CpuIndex;

/// A set of harts by dense index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CpuSet(u64);

impl CpuSet {
    /// How many harts a set can name: indices 0 to 63.
    pub const CAPACITY: usize = 64;
    /// No hart.
    pub const EMPTY: Self = Self(0);

    /// The set with bit `i` for hart `i`.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Bit `i` is hart `i`.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The set with `cpu` added; an index that no set can name leaves it as it is.
    #[must_use]
    pub const fn with(self, cpu: CpuIndex) -> Self {
        if cpu.index() < Self::CAPACITY { Self(self.0 | 1 << cpu.0) } else { self }
    }

    /// The set with `cpu` removed.
    #[must_use]
    pub const fn without(self, cpu: CpuIndex) -> Self {
        if cpu.index() < Self::CAPACITY { Self(self.0 & !(1 << cpu.0)) } else { self }
    }

    /// Whether `cpu` is in it.
    #[must_use]
    pub const fn contains(self, cpu: CpuIndex) -> bool {
        cpu.index() < Self::CAPACITY && self.0 >> cpu.0 & 1 != 0
    }

    /// Whether nobody is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many are in it.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// The members in ascending order.
    pub fn iter(self) -> impl Iterator<Item = CpuIndex> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let lowest = rest.trailing_zeros();
            rest &= rest.checked_sub(1)?;
            Some(CpuIndex(lowest as u16))
        })
    }
}

impl core::fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_set().entries(self.iter().map(|cpu| cpu.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn members_come_back_in_order() {
        let set = CpuSet::EMPTY.with(CpuIndex(63)).with(CpuIndex(1)).with(CpuIndex(3)).without(CpuIndex(1));
        assert_eq!(set.iter().map(|c| c.0).collect::<Vec<_>>(), [3, 63]);
        assert_eq!(set.len(), 2);
        assert!(CpuSet::EMPTY.iter().next().is_none());
    }

    #[test]
    fn indices_out_of_range_are_nobody() {
        assert!(CpuSet::EMPTY.with(CpuIndex(64)).is_empty());
        assert!(!CpuSet::from_bits(u64::MAX).contains(CpuIndex(64)));
    }
}
