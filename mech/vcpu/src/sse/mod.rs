//! Supervisor software events (SBI specification, "Supervisor Software Events Extension"): interrupts of a guest's kernel
//! that its interrupt enable does not hold back.
//!
//! A *local* event is one of each vCPU ([`LocalEvents`]); its owner alone touches it. The *global* event is one of the VM, and goes to
//! the vCPU that the guest prefers.
//!
//! Where the specification's text and its readers differ, this follows the readers: attribute `first + i` lies at word `i` of the
//! shared memory, whose size is that of the attributes asked for.

mod event;
mod frame;
mod local;

pub use event::{ATTRIBUTES, Attribute, Event, State};
pub use frame::{Interrupted, Supervisor};
pub use local::LocalEvents;

use crate::sbi::Error;
use addr::{GuestPhysAddr, VcpuIndex};

/// An event that guests have here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventId {
    /// A trap while the kernel could not take one (Ssdbltrp).
    DoubleTrap,
    /// Injected by the guest, for one hart.
    LocalSoftware,
    /// Injected by the guest, for one hart of its choice.
    GlobalSoftware,
}

const DOUBLE_TRAP: u32 = 0x0000_0001;
const LOCAL_SOFTWARE: u32 = 0xffff_0000;
const GLOBAL_SOFTWARE: u32 = 0xffff_8000;
/// Events of the specification that need what no guest has here: memory errors that are reported (RAS), counters that interrupt.
const UNAVAILABLE: [u32; 5] = [0x0000_0000, 0x0000_8000, 0x0001_0000, 0x0010_0000, 0x0010_8000];

impl EventId {
    /// The event with this number.
    ///
    /// # Errors
    /// `NotSupported` for events that guests do not have here, `InvalidParam` for numbers that are no event's.
    pub const fn decode(number: u32, has_double_trap: bool) -> Result<Self, Error> {
        match number {
            LOCAL_SOFTWARE => Ok(Self::LocalSoftware),
            GLOBAL_SOFTWARE => Ok(Self::GlobalSoftware),
            DOUBLE_TRAP if has_double_trap => Ok(Self::DoubleTrap),
            DOUBLE_TRAP => Err(Error::NotSupported),
            _ => {
                let mut at = 0;
                while at < UNAVAILABLE.len() {
                    if UNAVAILABLE[at] == number {
                        return Err(Error::NotSupported);
                    }
                    at += 1;
                }
                Err(Error::InvalidParam)
            }
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::DoubleTrap => DOUBLE_TRAP,
            Self::LocalSoftware => LOCAL_SOFTWARE,
            Self::GlobalSoftware => GLOBAL_SOFTWARE,
        }
    }

    /// Whether a guest can inject it.
    #[must_use]
    pub const fn is_injectable(self) -> bool {
        !matches!(self, Self::DoubleTrap)
    }
}

/// Some attributes of an event, and memory of the guest for their values. Both have been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The event.
    pub event: EventId,
    /// The first attribute.
    pub first: usize,
    /// How many, at least one.
    pub count: usize,
    /// Where their values are, 8 bytes each.
    pub at: GuestPhysAddr,
}

/// A call of the extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Tell the values of attributes.
    Read(Range),
    /// Change attributes.
    Write(Range),
    /// From now on there is a handler.
    Register {
        /// The event.
        event: EventId,
        /// The handler, as the hart addresses it: virtual where translation is on.
        entry: u64,
        /// For `a7` of the handler.
        argument: u64,
    },
    /// There is none any more.
    Unregister(EventId),
    /// Deliver it.
    Enable(EventId),
    /// Do not.
    Disable(EventId),
    /// The handler has done its work.
    Complete,
    /// It has happened; to this vCPU if it is local.
    Inject(EventId, VcpuIndex),
    /// Deliver events to the calling vCPU.
    Unmask,
    /// Do not.
    Mask,
}
