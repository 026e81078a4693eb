//! Why a request was refused.

use alloc::string::String;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Text;
use crate::name::{Label, Name};
use crate::problem::SpecError;
use crate::vm::VmState;

/// Why a request was refused. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum ControlError {
    /// The two sides speak different versions.
    #[error("this client speaks protocol version {client}, the machine speaks {server}")]
    VersionMismatch {
        /// The client's version.
        client: u32,
        /// The server's version.
        server: u32,
    },
    /// A message that cannot be understood.
    #[error("the message cannot be understood")]
    BadMessage,
    /// There is no such VM.
    #[error("there is no VM {name:?}")]
    UnknownVm {
        /// The name asked for.
        name: Name,
    },
    /// A VM of this name exists already.
    #[error("there is a VM {name:?} already")]
    VmExists {
        /// The name.
        name: Name,
    },
    /// The VM is not in a state where this is possible.
    #[error("VM {vm:?} is {state}, not {wanted}")]
    BadState {
        /// The VM.
        vm: Name,
        /// Its state.
        state: VmState,
        /// The state needed.
        wanted: VmState,
    },
    /// There is no such module.
    #[error("there is no module {name:?}")]
    NoSuchModule {
        /// The name asked for.
        name: Label,
    },
    /// A module of this name exists already.
    #[error("there is a module {name:?} already")]
    ModuleExists {
        /// The name.
        name: Label,
    },
    /// The machine has no such disk.
    #[error("the machine has no disk {name:?}")]
    NoSuchDisk {
        /// The name asked for.
        name: Name,
    },
    /// The disk has no such partition.
    #[error("disk {disk:?} has no partition labelled {label:?}")]
    NoSuchPartition {
        /// The disk.
        disk: Name,
        /// The label asked for.
        label: String,
    },
    /// Another VM has the disk, and one of the two would write it persistently.
    #[error("disk {disk:?} is in use by VM {holder:?}, and a persistent disk cannot be shared")]
    DiskBusy {
        /// The disk.
        disk: Name,
        /// The VM that has it.
        holder: Name,
    },
    /// There is no such subnet.
    #[error("there is no subnet {name:?}")]
    NoSuchSubnet {
        /// The name asked for.
        name: Name,
    },
    /// The VM has no such port.
    #[error("VM {vm:?} has no port {port:?}")]
    NoSuchPort {
        /// The VM.
        vm: Name,
        /// The port asked for.
        port: Label,
    },
    /// Someone else has the port open.
    #[error("port {port:?} of VM {vm:?} is in use")]
    PortBusy {
        /// The VM.
        vm: Name,
        /// The port.
        port: Label,
    },
    /// There is no such stream.
    #[error("there is no open stream {stream}")]
    UnknownStream {
        /// The id given.
        stream: u32,
    },
    /// The stream does not take data, or not of this kind.
    #[error("stream {stream} does not take this")]
    WrongStream {
        /// The id given.
        stream: u32,
    },
    /// A module chunk that is not the next one, or goes over the announced length.
    #[error("the chunk begins at {offset}, expected was {expected}")]
    WrongOffset {
        /// Where the chunk begins.
        offset: u64,
        /// Where it should have begun.
        expected: u64,
    },
    /// The machine has not enough memory.
    #[error("{needed} bytes of memory are needed, {free} are free")]
    OutOfMemory {
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// The description is wrong.
    #[error("the description is wrong: {0}")]
    InvalidSpec(SpecError),
    /// Something is larger than the monitor takes.
    #[error("{what}: {value} is more than {max}")]
    TooLarge {
        /// What.
        what: Text,
        /// Its size.
        value: u64,
        /// The most possible.
        max: u64,
    },
    /// This machine cannot do that.
    #[error("not possible on this machine: {what}")]
    Unsupported {
        /// What.
        what: Text,
    },
    /// The server is occupied or its queues are full; the same request may succeed later.
    #[error("busy: {what}")]
    Busy {
        /// With what.
        what: Text,
    },
    /// The machine is going down, or is gone.
    #[error("the machine is shutting down")]
    ShuttingDown,
    /// The VM has no such vCPU.
    #[error("VM {vm:?} has no vCPU {vcpu}: they are numbered from 0 to {last}")]
    NoSuchVcpu {
        /// The VM.
        vm: Name,
        /// The vCPU asked for.
        vcpu: u16,
        /// The last there is.
        last: u16,
    },
    /// The disk has no overlay, so there is nothing to make a snapshot of.
    #[error("disk {disk:?} of VM {vm:?} has no overlay; give it one with `overlay = ...`")]
    NoOverlay {
        /// The VM.
        vm: Name,
        /// The disk's name in the VM.
        disk: Name,
    },
    /// A store, or a volume or snapshot in it, cannot be had.
    #[error("store {store:?}: {reason}")]
    VolumeRefused {
        /// The store.
        store: String,
        /// Why.
        reason: String,
    },
    /// The cell that it is about is lost, and with it what was in it.
    #[error("cell {cell:?} is lost")]
    CellLost {
        /// The cell.
        cell: Name,
    },
    /// The machine has promised too much of its memory to others.
    #[error("{wanted_mib} MiB are to be kept for it, and {left_mib} of {capacity_mib} MiB are promised to nobody")]
    Promised {
        /// MiB that it wants kept.
        wanted_mib: u64,
        /// MiB that are promised to nobody.
        left_mib: u64,
        /// MiB that VMs can have at all.
        capacity_mib: u64,
    },
    /// The guest has no RAM there.
    #[error("the guest has no RAM at {address:#x}")]
    NoMemoryThere {
        /// The first guest-physical address without.
        address: u64,
    },
}

impl From<SpecError> for ControlError {
    fn from(error: SpecError) -> Self {
        Self::InvalidSpec(error)
    }
}
