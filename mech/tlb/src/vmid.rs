//! VMIDs of one hart.

use addr::Vmid;

/// A period between two full flushes of a hart's G-stage translations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Era(u64);

/// The VMIDs that one hart hands out.
///
/// Numbers are handed out in order and never reused within an *era*. When they run out the hart flushes everything
/// once and a new era begins, in which nobody's old number counts. (What it flushes are G-stage translations. VS-stage ones can be flushed
/// for one number at a time only, so those go when the number is handed out again.) So a switch between guests costs no flush, and a
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

    /// A number that nobody has in this era, and what is in the TLB under it from before.
    pub(crate) fn assign(&mut self) -> (Vmid, Former) {
        let begins_era = self.next >= self.count;
        if begins_era {
            self.era = Era(self.era.0 + 1);
            self.next = 0;
        }
        let vmid = Vmid(self.next as u16);
        self.next += 1;
        let former = match self.era {
            _ if begins_era => Former::Everything,
            Era(1) => Former::Nothing,
            _ => Former::VsStage,
        };
        (vmid, former)
    }
}

/// What a hart's TLB may hold under a number that is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Former {
    /// Nothing: the number was never in use.
    Nothing,
    /// VS-stage translations of an earlier era. The fence that began this era has taken the G-stage ones of all numbers.
    VsStage,
    /// Both stages', and under all other numbers, too.
    Everything,
}
