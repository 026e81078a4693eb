//! The vCPUs that a call names by a mask.

use super::Error;
use addr::VcpuIndex;

/// vCPUs of one guest. All of them exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HartMask {
    first: u16,
    /// Bit n stands for vCPU `first + n`. More than 64 vCPUs are only ever named as all.
    bits: u64,
    /// All vCPUs from `first` to this one, whatever the bits say; 0 if the bits count.
    end: u16,
}

/// As the base of a mask: all harts.
const ALL: u64 = u64::MAX;

impl HartMask {
    /// The vCPUs of a guest with `vcpus` of them that `mask`, with bit 0 for hart `base`, names.
    ///
    /// # Errors
    /// `InvalidParam` if one of them does not exist: then none is meant.
    #[inline]
    pub const fn decode(mask: u64, base: u64, vcpus: u16) -> Result<Self, Error> {
        if base == ALL {
            return Ok(Self { first: 0, bits: 0, end: vcpus });
        }
        if mask == 0 {
            return Ok(Self { first: 0, bits: 0, end: 0 });
        }
        match base.checked_add(63 - mask.leading_zeros() as u64) {
            Some(last) if last < vcpus as u64 => Ok(Self { first: base as u16, bits: mask, end: 0 }),
            _ => Err(Error::InvalidParam),
        }
    }
}

impl Iterator for HartMask {
    type Item = VcpuIndex;

    #[inline]
    fn next(&mut self) -> Option<VcpuIndex> {
        if self.first < self.end {
            self.first += 1;
            return Some(VcpuIndex(self.first - 1));
        }
        let bit = self.bits.trailing_zeros();
        self.bits &= self.bits.wrapping_sub(1);
        // Without bits there are 64 zeros.
        (bit < u64::BITS).then(|| VcpuIndex(self.first + bit as u16))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn named(mask: u64, base: u64, vcpus: u16) -> Result<Vec<u16>, Error> {
        HartMask::decode(mask, base, vcpus).map(|harts| harts.map(|hart| hart.0).collect())
    }

    #[test]
    fn bits_count_from_the_base() {
        assert_eq!(named(0b1011, 0, 4), Ok([0, 1, 3].into()));
        assert_eq!(named(0b101, 1, 4), Ok([1, 3].into()));
        assert_eq!(named(1 << 63, 0, 64), Ok([63].into()));
    }

    #[test]
    fn nobody_and_everybody() {
        assert_eq!(named(0, 0, 3), Ok([].into()));
        assert_eq!(named(0, 1_000, 3), Ok([].into()), "no bit, nobody missing");
        assert_eq!(named(0, u64::MAX, 3), Ok([0, 1, 2].into()));
        assert_eq!(named(0b1000, u64::MAX, 3), Ok([0, 1, 2].into()), "the mask is not looked at");
    }

    #[test]
    fn one_that_does_not_exist_spoils_all() {
        for (mask, base) in [(0b1001, 0), (1, 3), (1, u64::MAX - 1), (1 << 63, u64::MAX - 1), (1 << 63, 0), (3, 2)] {
            assert_eq!(named(mask, base, 3), Err(Error::InvalidParam), "{mask:#x} from {base:#x}");
        }
    }
}
