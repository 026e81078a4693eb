//! The Internet checksum (RFC 1071).

use super::{OffloadError, PartialChecksum};

/// A ones' complement sum in progress. Kept in little-endian order, which only swaps the bytes of the result
/// (RFC 1071, "Byte Order Independence") and spares a swap per word.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds bytes; only the last piece added may have an odd length.
    #[must_use]
    pub fn add_bytes(self, data: &[u8]) -> Self {
        let (words, rest) = data.as_chunks::<4>();
        let mut sum = self.0;
        // Cannot overflow: 2^32 words would be needed.
        for word in words {
            sum += u64::from(u32::from_le_bytes(*word));
        }
        let mut last = [0; 4];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        Self(sum + u64::from(u32::from_le_bytes(last)))
    }

    /// Adds one 16-bit number.
    #[must_use]
    pub const fn add_u16(self, value: u16) -> Self {
        Self(self.0 + value.swap_bytes() as u64)
    }

    /// The checksum as it is written into a header: complemented, never 0 (0 means "none" in UDP, and 0xffff is the
    /// same number).
    #[must_use]
    pub const fn finish(self) -> [u8; 2] {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let folded = !(sum as u16);
        if folded == 0 { [0xff, 0xff] } else { folded.to_le_bytes() }
    }
}

/// Completes a partial checksum in place.
///
/// # Errors
/// [`OffloadError::Truncated`] when the field does not lie in the frame.
pub fn complete_checksum(frame: &mut [u8], partial: PartialChecksum) -> Result<(), OffloadError> {
    let covered = frame.get_mut(usize::from(partial.start)..).ok_or(OffloadError::Truncated)?;
    let sum = Sum::default().add_bytes(covered).finish();
    let at = usize::from(partial.offset);
    let field = covered.get_mut(at..at + 2).ok_or(OffloadError::Truncated)?;
    field.copy_from_slice(&sum);
    Ok(())
}
