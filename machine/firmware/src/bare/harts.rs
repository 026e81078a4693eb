//! What the firmware knows of each hart.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};

use containment::{Hardware, MAX_HARTS};
use spin::Once;

static HARDWARE: Once<Hardware> = Once::new();

/// The machine.
///
/// # Panics
/// Before the boot hart has called [`publish`].
pub fn hardware() -> &'static Hardware {
    HARDWARE.get().expect("no hart passes the gate before the machine is known")
}

/// Publishes the machine.
pub fn publish(hardware: Hardware) {
    HARDWARE.call_once(|| hardware);
}

/// The node of a hart that exists.
pub fn node_of(hart: usize) -> usize {
    hardware().harts.get(hart).and_then(Option::as_ref).map_or(0, |place| place.node)
}

/// What was done to a hart, once and for ever.
pub mod fate {
    /// It works.
    pub const ALIVE: u8 = 0;
    /// It has no power.
    pub const OFF: u8 = 1;
    /// It hangs: nobody can tell from outside, but it does nothing any more.
    pub const HUNG: u8 = 2;
}

/// A hart. Others set requests and ring its doorbell; it serves them.
pub struct Hart {
    /// SBI state (HSM).
    pub state: AtomicU64,
    /// Where to start: address and opaque value, valid in state "start pending".
    pub start: [AtomicU64; 2],
    /// Somebody sent a supervisor software interrupt.
    pub software: AtomicBool,
    /// The program above wants its timer interrupt then, where the hart has no Sstc.
    pub deadline: AtomicU64,
    /// See [`fate`].
    pub fate: AtomicU8,
    /// It looks at the mailbox, or counts instructions for a request there.
    pub watches: AtomicBool,
    /// The state of the machine's parts that it has gone over to.
    pub generation: AtomicU64,
    /// When it looks next.
    pub next_look: AtomicU64,
}

static HARTS: [Hart; MAX_HARTS] = [const {
    Hart {
        state: AtomicU64::new(super::sbi::hsm::STOPPED),
        start: [AtomicU64::new(0), AtomicU64::new(0)],
        software: AtomicBool::new(false),
        deadline: AtomicU64::new(u64::MAX),
        fate: AtomicU8::new(fate::ALIVE),
        watches: AtomicBool::new(false),
        generation: AtomicU64::new(0),
        next_look: AtomicU64::new(u64::MAX),
    }
}; MAX_HARTS];

/// A hart by its id, below 64.
pub fn hart(id: usize) -> &'static Hart {
    &HARTS[id]
}
