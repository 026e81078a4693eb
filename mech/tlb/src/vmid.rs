//! VMIDs of one hart.

use addr::Vmid;

/// A period between two full flushes of a hart's G-stage translations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Era(u64);

/// The VMIDs that one hart hands out.
///
/// Numbers are handed out in order and never reused within an *era*. When they run out the hart flushes everything
/// once and a new era begins, in which nobody's old number counts. So a switch between guests costs no flush, and a
/// hart without VMIDs (`hgatp.VMID` hardwired to zero) is the same code with one number per era.
#[derive(Debug)]
pub struct HartVmids {
    /// VMIDs that the hart implements: `1 << VMIDLEN`.
    count: u32,
    next: u32,
    era: Era,
}

impl HartVmids {
    /// For a hart that implements `vmidlen` VMID bits (0 to 14). The first entry of any guest flushes everything:
    /// nothing is assumed about what the TLB holds at boot.
    #[must_use]
    pub const fn new(vmidlen: u8) -> Self {
        let bits = if vmidlen > 14 { 14 } else { vmidlen };
        let count = 1 << bits;
        // "All numbers used up" in era 0, which no context has: the first `assign` opens era 1.
        Self { count, next: count, era: Era(0) }
    }

    /// How many VMIDs there are.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Full flushes so far (each opened an era).
    #[must_use]
    pub const fn flushes(&self) -> u64 {
        self.era.0
    }

    pub(crate) const fn era(&self) -> Era {
        self.era
    }

    /// A number that this hart's TLB holds no entry of; with `true`, that holds only after a full flush.
    pub(crate) fn assign(&mut self) -> (Vmid, bool) {
        let must_flush = self.next >= self.count;
        if must_flush {
            self.era = Era(self.era.0 + 1);
            self.next = 0;
        }
        let vmid = Vmid(self.next as u16);
        self.next += 1;
        (vmid, must_flush)
    }
}
