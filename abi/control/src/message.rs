//! Requests, replies and streams.

use addr::{CpuIndex, VcpuIndex};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::cell::CellInfo;
use crate::debug::{DebugAction, DebugStop, Sample, VcpuRegisters};
use crate::error::ControlError;
use crate::event::{Event, Followed};
use crate::exit::ExitTrace;
use crate::frame::{self, Decoder, EncodeError, FrameError};
use crate::machine::MachineInfo;
use crate::name::{Label, Name};
use crate::setting::Setting;
use crate::spec::VmSpec;
use crate::stats::{MachineStats, VmStats};
use crate::vm::VmSummary;
use crate::volume::StoreInfo;

/// Version of the protocol.
pub const PROTOCOL_VERSION: u32 = 15;

/// What a client sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientMessage {
    /// The client's number for this request; not in use by an open stream or an unanswered request of its own.
    pub id: u32,
    /// What it wants.
    pub request: Request,
}

impl ClientMessage {
    /// The next one of a stream: [`Decoder::next_message`]. What a server needs of that is compiled with this crate.
    pub fn take(stream: &mut Decoder) -> Option<Result<Self, FrameError>> {
        stream.next_message()
    }
}

/// What a server sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerMessage {
    /// The id of the request that this answers, or that opened the stream.
    pub id: u32,
    /// The answer or the data.
    pub body: Body,
}

impl ServerMessage {
    /// As one frame: [`frame::encode`]. What a server needs of that is compiled with this crate.
    ///
    /// # Errors
    /// As there.
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        frame::encode(self)
    }
}

/// An answer, or data of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// The request was done.
    Reply(Reply),
    /// The request was refused.
    Error(ControlError),
    /// Data of a stream.
    Stream(StreamData),
    /// The cell that served until now is lost, and another one serves from here on: nothing that was asked before will be answered, no
    /// stream goes on, and the client has to begin with [`Request::Hello`] again. It stands for itself, with the id 0.
    Successor {
        /// The cell that is lost.
        lost: Name,
    },
}

/// What a client wants.
///
/// Every request may be refused with [`ControlError::BadMessage`], [`ControlError::Busy`] or
/// [`ControlError::ShuttingDown`]; those that name a VM with [`ControlError::UnknownVm`]. Further errors are named
/// at each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Begins a session: closes all streams that this connection had. Answer: [`Reply::Hello`]. Errors:
    /// [`ControlError::VersionMismatch`].
    Hello {
        /// The client's [`PROTOCOL_VERSION`].
        version: u32,
    },
    /// Asks what the machine is. Answer: [`Reply::Machine`].
    MachineInfo,
    /// Asks for all VMs. Answer: [`Reply::Vms`].
    ListVms,
    /// Makes a VM, stopped (whatever `autostart` says). Answer: [`Reply::Done`]. Errors: [`ControlError::VmExists`],
    /// [`ControlError::InvalidSpec`], the `NoSuch...` ones, [`ControlError::DiskBusy`],
    /// [`ControlError::OutOfMemory`], [`ControlError::Unsupported`].
    CreateVm(VmSpec),
    /// Starts a stopped VM from its boot image; answered when that is in its memory and the vCPUs have harts. Answer:
    /// [`Reply::Done`]. Errors: [`ControlError::BadState`], also if it was stopped before; [`ControlError::OutOfMemory`];
    /// [`ControlError::ShuttingDown`].
    StartVm {
        /// The VM.
        vm: Name,
    },
    /// Stops the vCPUs of a running VM where they are; answered when none runs any more. Answer: [`Reply::Done`].
    /// Errors: [`ControlError::BadState`].
    PauseVm {
        /// The VM.
        vm: Name,
    },
    /// Lets a paused VM go on. Answer: [`Reply::Done`]. Errors: [`ControlError::BadState`].
    ResumeVm {
        /// The VM.
        vm: Name,
    },
    /// Takes the power from a running or paused VM; answered when its memory is back. Answer: [`Reply::Done`].
    /// Errors: [`ControlError::BadState`].
    KillVm {
        /// The VM.
        vm: Name,
    },
    /// Resets a running or paused VM: it boots again. Answer: [`Reply::Done`]. Errors: [`ControlError::BadState`].
    ResetVm {
        /// The VM.
        vm: Name,
    },
    /// Forgets a stopped VM and the modified blocks of its disks. Answer: [`Reply::Done`]. Errors:
    /// [`ControlError::BadState`].
    DestroyVm {
        /// The VM.
        vm: Name,
    },
    /// Asks for the counters of harts, nodes and the monitor. Answer: [`Reply::MachineStats`].
    MachineStats,
    /// Asks for the counters of one VM (one each, so that every answer fits a frame). Answer: [`Reply::VmStats`].
    VmStats {
        /// The VM.
        vm: Name,
    },
    /// Asks for kept events from this number on. Answer: [`Reply::Events`], as many as fit.
    Events {
        /// The first number wanted; 0 = the oldest kept.
        from: u64,
    },
    /// Opens a stream of events: those kept from this number on, then new ones as they happen. Answer:
    /// [`Reply::Opened`], then [`StreamData::Events`].
    EventsFollow {
        /// The first number wanted; 0 = the oldest kept; `u64::MAX` = only new ones.
        from: u64,
        /// Which of them.
        which: Followed,
    },
    /// Opens a stream of a VM's console output and input. Several clients may. It stays open over stops and starts
    /// of the VM. Answer: [`Reply::Console`], then [`StreamData::Console`].
    ConsoleAttach {
        /// The VM.
        vm: Name,
        /// The first output byte wanted, counted from the VM's creation; 0 = all that is kept; `u64::MAX` = only
        /// new output.
        from: u64,
    },
    /// Opens a named port of a VM. One client at a time. Answer: [`Reply::Opened`], then [`StreamData::Port`].
    /// Errors: [`ControlError::NoSuchPort`], [`ControlError::PortBusy`].
    PortOpen {
        /// The VM.
        vm: Name,
        /// The port.
        port: Label,
    },
    /// Sends bytes into a console or port stream. Answer: [`Reply::Accepted`] with the number of bytes taken, which
    /// is less than given when the guest does not read. Errors: [`ControlError::UnknownStream`],
    /// [`ControlError::WrongStream`].
    Input {
        /// The id of the request that opened the stream.
        stream: u32,
        /// The bytes, at most [`crate::MAX_DATA`].
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Closes a stream of any kind; an unfinished upload is dropped. No data follows the answer. Answer:
    /// [`Reply::Done`]. Errors: [`ControlError::UnknownStream`].
    Close {
        /// The id of the request that opened the stream.
        stream: u32,
    },
    /// Begins the upload of a module. Answer: [`Reply::Opened`]; send [`Request::ModuleChunk`]s then. Errors:
    /// [`ControlError::ModuleExists`], [`ControlError::TooLarge`]: the module alone, or with all others.
    PutModule {
        /// Its name.
        name: Label,
        /// Its size in bytes, at least 1.
        total_len: u64,
    },
    /// The next bytes of a module. The one that completes it also ends its stream. Answer: [`Reply::Done`]. Errors:
    /// [`ControlError::UnknownStream`], [`ControlError::WrongStream`], [`ControlError::WrongOffset`]; and, the upload being as
    /// before, [`ControlError::TooLarge`] and [`ControlError::OutOfMemory`].
    ModuleChunk {
        /// The id of the [`Request::PutModule`].
        upload: u32,
        /// Where the bytes belong; the sum of those sent before.
        offset: u64,
        /// The bytes, 1 to [`crate::MAX_DATA`].
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Forgets a module; VMs that have booted from it go on, but cannot start again. Answer: [`Reply::Done`].
    /// Errors: [`ControlError::NoSuchModule`].
    DropModule {
        /// Its name.
        name: Label,
    },
    /// Kills all VMs, flushes the disks and powers the machine off. Answer: [`Reply::Done`], just before.
    Shutdown,
    /// Asks for the latest exits of one vCPU; those of a stopped VM are the last that it made. Answer:
    /// [`Reply::ExitTrace`]. Errors: [`ControlError::NoSuchVcpu`].
    ExitTrace {
        /// The VM.
        vm: Name,
        /// The vCPU.
        vcpu: VcpuIndex,
    },
    /// Freezes what a VM's disk with an overlay shows now, between two of its writes; the VM goes on. Answered when it is
    /// durable. Answer: [`Reply::Done`]. Errors: [`ControlError::NoSuchDisk`], [`ControlError::NoOverlay`],
    /// [`ControlError::VolumeRefused`].
    Snapshot {
        /// The VM, running or not.
        vm: Name,
        /// The disk's name in the VM.
        disk: Name,
        /// The snapshot's name, unique in its store.
        name: Name,
    },
    /// Asks what all stores hold. Answer: [`Reply::Stores`].
    Stores,
    /// Removes a volume that no VM uses, or a snapshot that nothing continues. Answered when that is durable. Answer:
    /// [`Reply::Done`]. Errors: [`ControlError::VolumeRefused`].
    RemoveVolume {
        /// The store, as [`StoreInfo::name`] says it; may be left out if only one has the name.
        store: Option<String>,
        /// The volume's name, or the snapshot's.
        name: String,
    },
    /// Asks what is behind the pages of a VM's RAM, [`crate::PAGE_MAP_PART`] of them or up to the end. Answer:
    /// [`Reply::PageMap`], without pages beyond the end of RAM and of a VM that is stopped.
    PageMap {
        /// The VM.
        vm: Name,
        /// The first page, counted from the beginning of its RAM.
        first: u64,
    },
    /// Makes the monitor panic on a hart, to see what comes then. Answer: [`Reply::Done`], just before. Errors:
    /// [`ControlError::Unsupported`] if the machine file does not allow it
    /// ([`crate::MonitorOptions::allow_panic`]), or there is no such hart.
    Panic {
        /// The hart.
        hart: CpuIndex,
        /// How.
        how: PanicBy,
    },
    /// Asks for the machine's cells and how they are. Answer: [`Reply::Cells`].
    Cells,
    /// From now on `first` who ask for memory are served, and then `count` refused, though there is some, to see what comes then. A count
    /// of 0 ends it. Answer: [`Reply::Asked`]. Errors: [`ControlError::Unsupported`] if the machine file does not allow it
    /// ([`crate::MonitorOptions::allow_panic`]).
    RefuseMemory {
        /// What.
        memory: Memory,
        /// How many are served before.
        first: u64,
        /// How many are refused.
        count: u64,
    },
    /// Changes a VM, running or not, at once and for its later lives: all settings or, if one is refused, none. Answer:
    /// [`Reply::Done`]. Errors: [`ControlError::InvalidSpec`].
    SetVm {
        /// The VM.
        vm: Name,
        /// What, at most [`crate::MAX_SETTINGS`].
        settings: Vec<Setting>,
    },
    /// Opens a stream that tells when a VM comes to a breakpoint, and lets this client look at its inside ([`Request::Debug`]). One client
    /// at a time. It lives no longer than the VM's present life; when it is closed, the breakpoints go, and a VM that stopped at one goes
    /// on. Answer: [`Reply::Opened`], then [`StreamData::Debug`]. Errors: [`ControlError::BadState`], [`ControlError::Busy`].
    DebugOpen {
        /// The VM.
        vm: Name,
    },
    /// Does something with the VM of such a stream. Answer and errors: see [`DebugAction`]; [`ControlError::UnknownStream`],
    /// [`ControlError::WrongStream`].
    Debug {
        /// The id of the [`Request::DebugOpen`].
        stream: u32,
        /// What.
        action: DebugAction,
    },
    /// Asks the vCPUs of a VM that run now where they are. They tell when they leave the guest next, which they are called to. Answer, at
    /// once: [`Reply::Samples`], what they told since the last one. Errors: [`ControlError::BadState`].
    Sample {
        /// The VM.
        vm: Name,
    },
}

/// Memory that may be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Memory {
    /// The monitor's heap, to those who have an answer for no.
    Heap,
    /// Pages, to everybody.
    Pages,
}

/// How a monitor is made to panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PanicBy {
    /// By a statement.
    Statement,
    /// By a stack that overflows, which is a trap.
    Overflow,
}

/// Answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// The session has begun.
    Hello(ServerHello),
    /// What the machine is.
    Machine(alloc::boxed::Box<MachineInfo>),
    /// All VMs, by name.
    Vms(Vec<VmSummary>),
    /// Counters of the machine.
    MachineStats(MachineStats),
    /// Counters of a VM.
    VmStats(alloc::boxed::Box<VmStats>),
    /// Kept events.
    Events(EventBatch),
    /// The stream is open; its data follows.
    Opened,
    /// The console stream is open; its data follows.
    Console(ConsoleRange),
    /// So many bytes were taken.
    Accepted {
        /// How many, from the beginning of those given.
        bytes: u32,
    },
    /// The latest exits of a vCPU.
    ExitTrace(ExitTrace),
    /// What all stores hold.
    Stores(Vec<StoreInfo>),
    /// What is behind pages: the number of a [`crate::PageKind`] for each.
    PageMap {
        /// Page by page.
        #[serde(with = "serde_bytes")]
        kinds: Vec<u8>,
    },
    /// The machine's cells, by number; of a cell that is not the first, itself alone.
    Cells(Vec<CellInfo>),
    /// Memory is refused from now on, or no longer.
    Asked {
        /// How many have asked for it since the last [`Request::RefuseMemory`] of a count other than 0.
        times: u64,
    },
    /// Registers of a vCPU.
    Registers(alloc::boxed::Box<VcpuRegisters>),
    /// Memory of a guest.
    Memory {
        /// The bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Where vCPUs were.
    Samples(Vec<Sample>),
}

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerHello {
    /// Its [`PROTOCOL_VERSION`].
    pub version: u32,
    /// The machine's name.
    pub machine: Name,
    /// The monitor's version and commit.
    pub monitor: String,
}

/// Some events, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventBatch {
    /// Events that were asked for but are no longer kept.
    pub lost: u64,
    /// The events.
    pub events: Vec<Event>,
    /// The number to ask for next.
    pub next: u64,
}

/// Which console output there is. Offsets count bytes since the VM's creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsoleRange {
    /// The oldest byte kept.
    pub oldest: u64,
    /// The first byte that the stream will carry.
    pub first: u64,
    /// One past the newest byte.
    pub end: u64,
}

/// Data of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamData {
    /// Console output.
    Console {
        /// Offset of the first byte. Larger than expected if a slow reader has lost some.
        offset: u64,
        /// The bytes, at most [`crate::MAX_DATA`].
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Output of a named port. Nothing is ever lost: the guest waits.
    Port {
        /// The bytes, at most [`crate::MAX_DATA`].
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// The guest has opened or closed its end of the port. Sent once after the stream opens, then at each change.
    PortState {
        /// Whether a guest process has it open.
        guest_open: bool,
    },
    /// Events.
    Events(EventBatch),
    /// The stream is over.
    End(StreamEnd),
    /// The VM has come to a breakpoint.
    Debug(DebugStop),
}

/// Why a stream is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamEnd {
    /// The VM was destroyed, or stopped where the stream lives no longer than that (ports).
    VmGone,
    /// The reader was too slow, and what it must not lose was piling up.
    TooSlow {
        /// Bytes that were waiting.
        waiting: u64,
    },
    /// The machine is going down, or is gone.
    ShuttingDown,
    /// The cell at the other end is lost.
    CellLost {
        /// The cell.
        cell: Name,
    },
}

impl Request {
    /// The VM that it is about, if it is about one.
    #[must_use]
    pub const fn vm(&self) -> Option<&Name> {
        match self {
            Self::CreateVm(spec) => Some(&spec.name),
            Self::StartVm { vm }
            | Self::PauseVm { vm }
            | Self::ResumeVm { vm }
            | Self::KillVm { vm }
            | Self::ResetVm { vm }
            | Self::DestroyVm { vm }
            | Self::SetVm { vm, .. }
            | Self::VmStats { vm }
            | Self::ConsoleAttach { vm, .. }
            | Self::PortOpen { vm, .. }
            | Self::ExitTrace { vm, .. }
            | Self::Snapshot { vm, .. }
            | Self::PageMap { vm, .. }
            | Self::DebugOpen { vm }
            | Self::Sample { vm } => Some(vm),
            _ => None,
        }
    }

    /// Whether a positive answer opens a stream named by the request's id.
    #[must_use]
    pub const fn opens_stream(&self) -> bool {
        matches!(
            self,
            Self::EventsFollow { .. }
                | Self::ConsoleAttach { .. }
                | Self::PortOpen { .. }
                | Self::PutModule { .. }
                | Self::DebugOpen { .. }
        )
    }

    /// The stream that the request is about.
    #[must_use]
    pub const fn stream(&self) -> Option<u32> {
        match self {
            Self::Input { stream, .. }
            | Self::Close { stream }
            | Self::ModuleChunk { upload: stream, .. }
            | Self::Debug { stream, .. } => Some(*stream),
            _ => None,
        }
    }

    /// The same request about another stream: for whoever passes requests on under its own ids.
    #[must_use]
    pub fn with_stream(mut self, id: u32) -> Self {
        if let Self::Input { stream, .. }
        | Self::Close { stream }
        | Self::ModuleChunk { upload: stream, .. }
        | Self::Debug { stream, .. } = &mut self
        {
            *stream = id;
        }
        self
    }
}
