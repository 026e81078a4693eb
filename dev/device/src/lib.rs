//! The one trait through which a device model meets the monitor.
//!
//! A device model is a state machine: the guest's register accesses and the world's events go in, register
//! values, guest-memory accesses and interrupt-line changes come out through [`Env`]. It knows neither the
//! monitor nor the machine, owns no lock and never blocks, so the same model runs in the monitor, in host unit
//! tests and under a fuzzer.
//!
//! Everything that a guest writes into a register or a ring is hostile. A model answers nonsense as hardware
//! would (ignore, read as zero, set an error bit) or, when it can no longer go on, by a [`GuestFault`], which
//! stops that guest alone with a reason.
//!
//! # Locking
//! The monitor holds the device's own lock during each call. [`Env`] methods never call back into a device.
#![no_std]
#![forbid(unsafe_code)]

pub use guest_access::{GuestMemory, MemoryFault, PageMap};

use core::fmt;

/// Width of one register access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Width {
    /// 8 bits.
    Byte,
    /// 16 bits.
    Half,
    /// 32 bits.
    Word,
    /// 64 bits.
    Double,
}

impl Width {
    /// The width of `1 << log2` bytes; the low two bits count.
    #[must_use]
    pub const fn from_log2(log2: u8) -> Self {
        match log2 & 3 {
            0 => Self::Byte,
            1 => Self::Half,
            2 => Self::Word,
            _ => Self::Double,
        }
    }

    /// Size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Byte => 1,
            Self::Half => 2,
            Self::Word => 4,
            Self::Double => 8,
        }
    }

    /// `value` cut to this width (zero-extended).
    #[must_use]
    pub const fn truncate(self, value: u64) -> u64 {
        match self {
            Self::Byte => value & 0xff,
            Self::Half => value & 0xffff,
            Self::Word => value & 0xffff_ffff,
            Self::Double => value,
        }
    }
}

/// A wired interrupt line of the virtual machine: the source number at its PLIC or APLIC (1..).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IrqLine(pub u16);

/// What a device model may reach of the world while it handles a call.
pub trait Env {
    /// The guest's physical memory.
    fn memory(&self) -> &dyn GuestMemory;

    /// Drives a level-triggered wired line.
    fn set_irq(&self, line: IrqLine, asserted: bool);

    /// Sends one edge on an edge-triggered wired line.
    fn pulse_irq(&self, line: IrqLine);

    /// The guest's `time` counter now, in ticks of the machine's timebase.
    fn now_ticks(&self) -> u64;
}

/// Why a guest has to be stopped: its driver has put the device into a state with no way on.
///
/// `device` and `reason` are static so that reporting costs nothing; `value` is the offending number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestFault {
    /// The model that refuses, for example `"virtio-blk"`.
    pub device: &'static str,
    /// What is wrong, in words for the owner of the guest.
    pub reason: &'static str,
    /// The offending value (address, index, length).
    pub value: u64,
}

impl fmt::Display for GuestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({:#x})", self.device, self.reason, self.value)
    }
}

/// A memory-mapped device model.
pub trait Device: Send {
    /// Short name for events and statistics.
    fn name(&self) -> &'static str;

    /// The guest reads `width` bytes at `offset` from the device's base. The result is zero-extended.
    ///
    /// # Errors
    /// Only for what hardware could not answer either; unknown registers read as zero.
    fn read(&mut self, offset: u64, width: Width, env: &dyn Env) -> Result<u64, GuestFault>;

    /// The guest writes the low `width` bytes of `value` at `offset`.
    ///
    /// # Errors
    /// As for [`Device::read`]; unknown registers ignore writes.
    fn write(&mut self, offset: u64, width: Width, value: u64, env: &dyn Env) -> Result<(), GuestFault>;

    /// Back to the power-on state (the VM is being reset). In-flight work is forgotten.
    fn reset(&mut self);
}
