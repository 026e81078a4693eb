//! Why vCPUs left guest mode.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

macro_rules! exit_causes {
    ($($(#[$doc:meta])* $variant:ident = $index:literal, $label:literal;)*) => {
        /// Why a vCPU left guest mode. The numbers are stable: counters are arrays indexed by them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum ExitCause {
            $($(#[$doc])* $variant = $index,)*
        }

        impl ExitCause {
            /// All causes, in the order of their indices.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// A short name for tables and JSON: lower case with hyphens.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$variant => $label,)*
                }
            }
        }
    };
}

exit_causes! {
    /// An environment call: SBI from the guest's kernel.
    SbiCall = 0, "sbi-call";
    /// The monitor's own timer on this hart: end of a time slice, or another vCPU's timer.
    TimerInterrupt = 1, "timer";
    /// The monitor's own inter-processor interrupt: another hart wants something.
    Ipi = 2, "ipi";
    /// An interrupt of one of the machine's devices.
    ExternalInterrupt = 3, "external";
    /// A guest interrupt file of a descheduled vCPU became pending (SGEI).
    GuestExternal = 4, "guest-external";
    /// The guest fetched an instruction from a page that is not mapped yet.
    InstructionGuestPageFault = 5, "fetch-fault";
    /// The guest loaded from a page of its memory that is not mapped yet.
    LoadGuestPageFault = 6, "load-fault";
    /// The guest stored to a page of its memory that is not mapped, or not writable yet.
    StoreGuestPageFault = 7, "store-fault";
    /// A load from a device model's register.
    MmioLoad = 8, "mmio-load";
    /// A store to a device model's register.
    MmioStore = 9, "mmio-store";
    /// The guest waits for an interrupt while the hart is wanted by another vCPU.
    Wfi = 10, "wfi";
    /// A virtual-instruction trap other than WFI: CSRs that the monitor emulates.
    VirtualInstruction = 11, "virtual-insn";
    /// An illegal instruction that the monitor had to look at.
    IllegalInstruction = 12, "illegal-insn";
    /// First use of floating point or vectors since the vCPU came to this hart.
    FpLazy = 13, "fp-lazy";
    /// An access fault: memory or a device that the machine does not have, or has lost.
    AccessFault = 14, "access-fault";
    /// Everything else.
    Other = 15, "other";
}

impl ExitCause {
    /// Number of causes.
    pub const COUNT: usize = Self::ALL.len();

    /// The cause's place in counter arrays.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// One counter per [`ExitCause`]; they wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitCounts(pub [u64; ExitCause::COUNT]);

impl ExitCounts {
    /// All zero.
    #[must_use]
    pub const fn new() -> Self {
        Self([0; ExitCause::COUNT])
    }

    /// Counts one exit.
    #[inline]
    pub const fn count(&mut self, cause: ExitCause) {
        let slot = &mut self.0[cause.index()];
        *slot = slot.wrapping_add(1);
    }

    /// Exits for `cause`.
    #[must_use]
    pub const fn get(&self, cause: ExitCause) -> u64 {
        self.0[cause.index()]
    }

    /// All exits.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// Adds another set, for example the vCPUs of a VM.
    pub fn add(&mut self, other: &Self) {
        for (slot, more) in self.0.iter_mut().zip(other.0) {
            *slot = slot.wrapping_add(more);
        }
    }

    /// What has been counted since `earlier`, cause by cause as [`counted`] says.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = *self;
        for (slot, before) in difference.0.iter_mut().zip(earlier.0) {
            *slot = counted(*slot, before);
        }
        difference
    }

    /// Every cause with its count.
    pub fn iter(&self) -> impl Iterator<Item = (ExitCause, u64)> + '_ {
        ExitCause::ALL.iter().copied().zip(self.0)
    }
}

/// What a counter has counted since it stood at `earlier`. One that has fallen far began anew, as a VM's do when it starts
/// again, and has counted all that it shows. One that has fallen a little was looked at while it changed: nothing is told then.
#[must_use]
pub const fn counted(now: u64, earlier: u64) -> u64 {
    if now >= earlier {
        now - earlier
    } else if now > earlier / 2 {
        0
    } else {
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_dense_and_in_order() {
        for (place, cause) in ExitCause::ALL.iter().enumerate() {
            assert_eq!(cause.index(), place);
        }
        assert_eq!(ExitCause::COUNT, 16);
    }

    #[test]
    fn counters_that_went_back_give_no_giant_numbers() {
        assert_eq!(counted(7, 5), 2);
        assert_eq!(counted(3, 1000), 3, "it began anew");
        assert_eq!(counted(999, 1000), 0, "it was looked at while it changed");
        assert_eq!(counted(0, u64::MAX), 0);
        let (mut before, mut now) = (ExitCounts::new(), ExitCounts::new());
        before.0[ExitCause::Wfi.index()] = 500;
        now.0[ExitCause::Wfi.index()] = 4;
        now.0[ExitCause::SbiCall.index()] = 2;
        assert_eq!(now.since(&before).total(), 6);
    }

    #[test]
    fn counts_add_and_subtract() {
        let mut one = ExitCounts::new();
        one.count(ExitCause::Wfi);
        let before = one;
        one.count(ExitCause::Wfi);
        one.count(ExitCause::SbiCall);
        assert_eq!(one.since(&before).total(), 2);
        assert_eq!(one.get(ExitCause::Wfi), 2);
        one.add(&before);
        assert_eq!(one.get(ExitCause::Wfi), 3);
    }
}

/// The latest exits of a vCPU, as its trace ring holds them. Environment calls that the short exit finishes are not in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitTrace {
    /// Exits that the ring has seen and no longer holds.
    pub lost: u64,
    /// Those it holds, oldest first.
    pub exits: Vec<ExitRecord>,
}

/// One exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// When, in ticks of the machine's clock.
    pub ticks: u64,
    /// `scause` of the trap (Privileged Architecture, "Supervisor Cause Register").
    pub scause: u64,
    /// The guest's program counter.
    pub pc: u64,
    /// `stval` of the trap: an address or an instruction, by the cause.
    pub stval: u64,
}
