//! Reading big-endian cells one field at a time.

/// A cursor over a property's 32-bit cells.
#[derive(Clone, Copy)]
pub(crate) struct Cells<'a> {
    rest: &'a [u8],
}

impl<'a> Cells<'a> {
    /// Over a whole property value; the caller checked that it is a multiple of four bytes, a remainder is ignored.
    pub(crate) const fn new(value: &'a [u8]) -> Self {
        Self { rest: value }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.len() < 4
    }

    /// The next cell.
    pub(crate) fn cell(&mut self) -> Option<u32> {
        let (head, rest) = self.rest.split_first_chunk::<4>()?;
        self.rest = rest;
        Some(u32::from_be_bytes(*head))
    }

    /// The next number of `cells` cells (0, 1 or 2; zero cells read as 0).
    pub(crate) fn number(&mut self, cells: u32) -> Option<u64> {
        match cells {
            0 => Some(0),
            1 => self.cell().map(u64::from),
            2 => {
                let high = self.cell()?;
                Some(u64::from(high) << 32 | u64::from(self.cell()?))
            }
            _ => None,
        }
    }

    /// Steps over `cells` cells.
    pub(crate) fn skip(&mut self, cells: u32) -> Option<()> {
        let bytes = usize::try_from(cells).ok()?.checked_mul(4)?;
        self.rest = self.rest.get(bytes..)?;
        Some(())
    }
}
