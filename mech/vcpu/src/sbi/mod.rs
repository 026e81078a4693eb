//! SBI calls as typed requests.

mod answer;
mod decode;
mod harts;

pub use answer::{Answer, Error, encode};
pub use decode::decode;
pub use harts::HartMask;

use crate::{fwft::Feature, sse};
use addr::{GuestPhysAddr, VcpuIndex};

/// The version of the specification: 3.0.
pub const VERSION: u64 = 3 << 24;
/// Bytes that one console call moves at most: bounded work for each exit. The guest asks again for the rest.
pub const CONSOLE_CHUNK: u64 = 256;
/// Bytes of the record of steal time.
pub const STEAL_RECORD: u64 = 64;

/// What the decoder must know of the guest.
pub trait Guest {
    /// How many vCPUs it has: numbers 0 to this, less one.
    fn vcpus(&self) -> u16;

    /// Whether all these bytes are RAM.
    fn is_ram(&self, at: GuestPhysAddr, bytes: u64) -> bool;

    /// Whether double traps come to the monitor.
    fn has_double_trap(&self) -> bool;
}

/// A call: registers `a7`, `a6`, and `a0` to `a4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// `a7`.
    pub extension: u64,
    /// `a6`.
    pub function: u64,
    /// `a0` to `a4`.
    pub arguments: [u64; 5],
}

/// Where a vCPU begins or goes on: in S-mode, without translation or interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its program counter, an address in RAM.
    pub pc: u64,
    /// For register `a1`.
    pub opaque: u64,
}

/// A fence on other harts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteFence {
    /// `fence.i`.
    Instructions,
    /// `sfence.vma`.
    Translations,
    /// `sfence.vma` for one address space.
    TranslationsOfSpace,
}

/// How a machine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// It is switched off.
    PowerOff,
    /// It is switched off because something failed.
    Failure,
    /// It starts again.
    Restart,
}

/// A number of the machine (BASE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the registers' names")]
pub enum MachineId {
    Mvendorid,
    Marchid,
    Mimpid,
}

/// Counters that a call names: bit n of `mask` is counter `base + n`. The counters check it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "said above")]
pub struct CounterSet {
    pub base: u64,
    pub mask: u64,
}

/// A call of the performance counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "arguments by the specification's names")]
pub enum Counters {
    /// The number of counters.
    Number,
    /// What one counter is.
    Info(u64),
    /// Let one of them count `event`.
    Configure { set: CounterSet, flags: u64, event: u64 },
    /// Let them count.
    Start { set: CounterSet, flags: u64, value: u64 },
    /// Let them stand.
    Stop { set: CounterSet, flags: u64 },
    /// The value of a firmware counter.
    Read(u64),
    /// The upper half of it, where registers have 32 bits.
    ReadHigh(u64),
}

/// What a guest asks for. Every vCPU in it exists, and every address lies in RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Nothing but this value, which needs no more.
    Known(u64),
    /// A number of the machine.
    MachineId(MachineId),
    /// A software interrupt for these vCPUs.
    SendIpi(HartMask),
    /// A fence on these vCPUs, done when the call returns.
    Fence(RemoteFence, HartMask),
    /// Start a vCPU.
    StartHart(VcpuIndex, Entry),
    /// Stop the calling vCPU.
    StopHart,
    /// The state of a vCPU.
    HartStatus(VcpuIndex),
    /// Suspend the calling vCPU until an interrupt comes. Then it goes on behind the call, or at an entry.
    SuspendHart(Option<Entry>),
    /// Suspend the machine, of which the calling vCPU is the only one that runs.
    SuspendSystem(Entry),
    /// End the machine.
    Reset(Reset),
    /// Print so many bytes, at most [`CONSOLE_CHUNK`].
    ConsoleWrite(GuestPhysAddr, usize),
    /// Print a byte.
    ConsoleWriteByte(u8),
    /// Count.
    Counters(Counters),
    /// Keep the steal time there, or nowhere.
    StealRecord(Option<GuestPhysAddr>),
    /// The value of a feature.
    GetFeature(Feature),
    /// Give a feature a value; the feature itself checks both.
    SetFeature {
        /// The feature.
        feature: Feature,
        /// Its new value.
        value: u64,
        /// Bit 0: lock it.
        flags: u64,
    },
    /// Something about events.
    Event(sse::Call),
}
