//! What can be wrong in a description.

use alloc::format;
use alloc::string::String;

use addr::NodeId;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::name::Name;

/// Where a description is wrong, and how.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{field}: {problem}")]
pub struct SpecError {
    /// Path to the field, as `vms[2].disks[0].name`.
    pub field: String,
    /// What is wrong.
    pub problem: SpecProblem,
}

/// How a description is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum SpecProblem {
    /// A number outside its range.
    #[error("{value} is not in {min} to {max}")]
    OutOfRange {
        /// The number given.
        value: u64,
        /// The least possible.
        min: u64,
        /// The greatest possible.
        max: u64,
    },
    /// A number that must be a multiple.
    #[error("{value} is not a multiple of {of}")]
    NotMultiple {
        /// The number given.
        value: u64,
        /// The unit.
        of: u64,
    },
    /// A text that is too long.
    #[error("{len} bytes are too long, at most {max} fit")]
    TooLong {
        /// Its length in bytes.
        len: u64,
        /// The most possible.
        max: u64,
    },
    /// A list that is too long.
    #[error("{count} are too many, at most {max} are possible")]
    TooMany {
        /// Its length.
        count: u64,
        /// The most possible.
        max: u64,
    },
    /// A text with a control character.
    #[error("it must not contain control characters")]
    ControlCharacter,
    /// A text that must not be empty.
    #[error("it must not be empty")]
    Empty,
    /// A name given twice.
    #[error("{name:?} is used twice")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A subnet that is not described.
    #[error("there is no subnet {name:?}")]
    UnknownSubnet {
        /// Its name.
        name: Name,
    },
    /// A disk that one VM writes persistently and another uses too.
    #[error("disk {disk:?} cannot be shared with {other:?}: one of them mounts it persistent")]
    DiskShared {
        /// The machine's disk.
        disk: Name,
        /// The VM that has it already.
        other: Name,
    },
    /// An Ethernet address of a group.
    #[error("a multicast address cannot belong to one interface")]
    MulticastMac,
    /// A second subnet with a gateway.
    #[error("subnet {first:?} has the gateway already")]
    SecondGateway {
        /// The subnet that has it.
        first: Name,
    },
    /// More devices than virtio slots.
    #[error("{needed} virtio slots are needed (disks, nets, rng, balloon, ports), there are {max}")]
    VirtioSlots {
        /// Slots needed.
        needed: u64,
        /// Slots that there are.
        max: u64,
    },
    /// A layout version that this side does not know.
    #[error("version {found} is not {wanted}")]
    Version {
        /// The version given.
        found: u64,
        /// The version known here.
        wanted: u64,
    },
    /// An overlay of a disk that has no use for it.
    #[error("an overlay is for a disk with mode copy-on-write")]
    NeedsCopyOnWrite,
    /// An overlay in the data that it lies over.
    #[error("the overlay cannot be on the disk or partition that it lies over")]
    OverlayOnItself,
    /// A disk that takes its data from where an overlay is kept.
    #[error("disk {disk:?} keeps overlays, so {other:?} cannot take its data from there, or the other way round")]
    OverlayShown {
        /// The overlay's disk.
        disk: Name,
        /// The other VM.
        other: Name,
    },
    /// A program that goes where the guest has no memory for it.
    #[error("{address:#x} to {end:#x} is not in the memory for programs, {first:#x} to {last:#x}")]
    OutsideMemory {
        /// Its first byte.
        address: u64,
        /// The byte behind it.
        end: u64,
        /// Where memory begins.
        first: u64,
        /// Where it ends for programs: the device tree is behind it.
        last: u64,
    },
    /// Pieces of a program that want the same memory.
    #[error("the pieces at {address:#x} and {other:#x} overlap")]
    SegmentsOverlap {
        /// Where one begins.
        address: u64,
        /// Where the other begins.
        other: u64,
    },
    /// A piece of a program that brings more bytes than it has room for.
    #[error("the piece at {address:#x} brings {file_bytes} bytes of the file and has room for {memory_bytes}")]
    SegmentTooSmall {
        /// Where it begins.
        address: u64,
        /// Bytes from the file.
        file_bytes: u64,
        /// Bytes of memory.
        memory_bytes: u64,
    },
    /// A program that is entered where it is not.
    #[error("the entry {entry:#x} is in no piece of the program")]
    EntryOutside {
        /// The entry.
        entry: u64,
    },
    /// A cell with a node that the machine has not.
    #[error("the machine has no node {node}")]
    UnknownNode {
        /// The node.
        node: NodeId,
    },
    /// A node in two cells, or twice in one.
    #[error("node {node} is named twice")]
    NodeTwice {
        /// The node.
        node: NodeId,
    },
    /// A node in no cell.
    #[error("node {node} is in no cell")]
    NodeInNoCell {
        /// The node.
        node: NodeId,
    },
    /// The machine boots on node 0, so the first cell must have it.
    #[error("the first cell must have node 0, where the machine boots")]
    FirstCellLacksNode0,
    /// A VM in a cell that is not described.
    #[error("there is no cell {cell}")]
    UnknownCell {
        /// The position given.
        cell: u8,
    },
    /// A disk that only VMs of the first cell can have.
    #[error("only a VM of the first cell can write a disk for good: the others do not drive it")]
    NotInFirstCell,
    /// A program that is entered at an odd address: harts would ignore the last bit.
    #[error("a program cannot be entered at {entry:#x}: instructions begin at multiples of 2")]
    OddEntry {
        /// The entry.
        entry: u64,
    },
    /// A limit of modified blocks for a disk that has none.
    #[error("a limit of modified blocks is for a disk with mode copy-on-write")]
    LimitNeedsCopyOnWrite,
}

impl SpecError {
    pub(crate) fn new(field: impl Into<String>, problem: SpecProblem) -> Self {
        Self { field: field.into(), problem }
    }

    /// The same error seen from outside: `prefix.field`.
    #[must_use]
    pub fn inside(mut self, prefix: &str) -> Self {
        self.field = format!("{prefix}.{}", self.field);
        self
    }
}
