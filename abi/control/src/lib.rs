//! What the host and the monitor say to each other: the control protocol, the boot configuration and the
//! descriptions of virtual machines.
//!
//! The protocol runs over any reliable byte stream: the machine's control port (a virtio console) between the
//! monitor and the supervisor, and a Unix socket between the supervisor and its clients. Both speak the same
//! messages, so a client cannot tell whom it talks to.
//!
//! # Key types
//! - [`encode`] and [`Decoder`]: frames on a byte stream. The decoder finds the next frame after garbage.
//! - [`Exchange`]: both directions of a server's stream, bounded.
//! - [`ClientMessage`] with a [`Request`]; [`ServerMessage`] with a [`Reply`], a [`ControlError`] or [`StreamData`].
//! - [`VmSpec`]: a virtual machine as it is to be. [`BootConfig`]: everything that the monitor is told at boot.
//! - [`ExitCause`] and [`ExitCounts`]: why vCPUs left guest mode, with stable indices.
//! - [`Event`] and [`EventKind`]: the trace of what the monitor did and why.
//!
//! # Conversation
//! A client sends [`Request::Hello`] first. Every request carries an id that the client chose, and gets exactly one
//! answer with that id: a reply or an error. Answers may come in another order than the requests. Five requests
//! open a *stream* named by their own id: [`Request::ConsoleAttach`], [`Request::PortOpen`],
//! [`Request::EventsFollow`], [`Request::PutModule`] and [`Request::DebugOpen`]. Stream data carries the id of its stream, begins after the
//! positive answer, and ends with [`StreamData::End`] or with the answer to [`Request::Close`].
//!
//! # What it refuses
//! Frames over [`MAX_PAYLOAD`] bytes, names that are not [`Name`]s (already while decoding), and descriptions that
//! [`VmSpec::validate`] or [`BootConfig::validate`] reject. Both sides call these: the monitor treats all that
//! arrives as hostile. Nothing here panics on any input.
//!
//! # Changing it
//! The encoding is postcard: enum variants are numbered by position and structs have no field names. A new variant
//! goes at the end of its enum; any other change raises [`PROTOCOL_VERSION`] (or [`BOOT_CONFIG_VERSION`]).
//!
//! No `unsafe`, no locks, `no_std` with `alloc`. Tested by unit tests, golden bytes and property tests on the host.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod archive;
mod boot;
mod cell;
mod check;
mod debug;
mod error;
mod event;
mod exchange;
mod exit;
mod frame;
mod latency;
mod machine;
mod message;
mod name;
mod problem;
mod setting;
mod spec;
mod stats;
mod stretch;
mod vm;
mod volume;

pub use archive::{ArchiveFile, TRAILER};
pub use boot::{
    BOOT_CONFIG_NAME, BOOT_CONFIG_VERSION, BootConfig, BootConfigError, LogLevel, MAX_SUBNETS, MAX_VMS, MonitorOptions,
    PlacementBy, SubnetSpec,
};
pub use cell::{CellInfo, CellLoad, CellSpec, CellState, MAX_CELLS};
pub use debug::{
    DebugAction, DebugStop, MAX_BREAKPOINTS, MAX_PEEK, MAX_STACK, Sample, SupervisorRegisters, VcpuRegisters,
};
pub use error::ControlError;
pub use event::{
    CellLoss, Event, EventKind, Followed, MigrationReason, PlacementAction, PlacementReason, SharingRefusal, VmLabel,
    WaitSign,
};
pub use exchange::{Exchange, NoRoom};
pub use exit::{ExitCause, ExitCounts, ExitRecord, ExitTrace, counted};
pub use frame::{Decoder, EncodeError, FrameError, HEADER_LEN, MAGIC, MAX_DATA, MAX_PAYLOAD, encode};
pub use latency::{LATENCY_CLASSES, LATENCY_LIMITS_US, Latencies};
pub use machine::{
    DeviceInfo, DeviceKind, DiskInfo, FirmwareInfo, HartInfo, InterruptArchitecture, MachineInfo, ModuleInfo,
    MonitorInfo, NodeInfo,
};
pub use message::{
    Body, ClientMessage, ConsoleRange, EventBatch, Memory, PROTOCOL_VERSION, PanicBy, Reply, Request, ServerHello,
    ServerMessage, StreamData, StreamEnd,
};
pub use name::{Label, LabelError, MAX_LABEL, MAX_NAME, Name, NameError};
pub use problem::{SpecError, SpecProblem};
pub use setting::{MAX_SETTINGS, Setting};
pub use spec::{
    BadMac, Boot, DEFAULT_MTU, DEFAULT_WEIGHT, DiskMode, DiskSpec, GUEST_AGENT_PORT, Gang, Interrupts, MAX_CMDLINE,
    MAX_DISK_NAME, MAX_MEMORY_MIB, MAX_NODES, MAX_PORTS, MAX_SEGMENTS, MAX_VCPUS, MAX_WEIGHT, MIN_MEMORY_MIB, MIN_MTU,
    MacAddress, NetSpec, OnCrash, OnFailure, OverlaySpec, Pages, Placement, RAM_START, Segment, TREE_ROOM,
    VIRTIO_SLOTS, VmSpec,
};
pub use stats::{
    DiskStats, HartStats, MachineStats, MonitorMemory, MonitorMemoryKind, NodeStats, PAGE_MAP_PART, PageKind,
    PlacementStats, SampleStats, ShareStats, VcpuState, VcpuStats, VmStats,
};
pub use stretch::{STRETCH_CLASSES, STRETCH_LIMITS_US, StretchPlace, Stretches};
pub use vm::{DiskUse, StopReason, VmMemory, VmState, VmSummary};
pub use volume::{StoreInfo, VolumeInfo};

/// Text that is a constant in the monitor and an owned string at the client.
pub type Text = alloc::borrow::Cow<'static, str>;
