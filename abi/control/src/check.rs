//! What a description must fulfil. Both sides call these: the host to explain, the monitor to defend itself.
//!
//! Only what can be told from the description alone is checked here. That modules, disks and memory exist is for
//! whoever has them: the host's configuration check, and the monitor when it creates the VM.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use addr::NodeId;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::boot::{BOOT_CONFIG_VERSION, BootConfig, MAX_SUBNETS, MAX_VMS, MonitorOptions};
use crate::name::Name;
use crate::spec::{
    Boot, DiskMode, DiskSpec, MAX_CMDLINE, MAX_DISK_NAME, MAX_MEMORY_MIB, MAX_NODES, MAX_PORTS, MAX_SEGMENTS,
    MAX_VCPUS, MAX_WEIGHT, MIN_MEMORY_MIB, MIN_MTU, NetSpec, RAM_START, Segment, TREE_ROOM, VIRTIO_SLOTS, VmSpec,
};

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
    /// What only VMs of the first cell can have.
    #[error(
        "only a VM of the first cell can have this: the others drive no disk and no network, and talk to no client"
    )]
    NotInFirstCell,
    /// A program that is entered at an odd address: harts would ignore the last bit.
    #[error("a program cannot be entered at {entry:#x}: instructions begin at multiples of 2")]
    OddEntry {
        /// The entry.
        entry: u64,
    },
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

impl VmSpec {
    /// Checks what can be told from the description alone.
    ///
    /// # Errors
    /// The first problem found, with the path of its field.
    pub fn validate(&self) -> Result<(), SpecError> {
        in_range("vcpus", self.vcpus.into(), 1, MAX_VCPUS.into())?;
        in_range("nodes", self.nodes.into(), 1, MAX_NODES.min(self.vcpus).into())?;
        in_range("memory_mib", self.memory_mib.into(), MIN_MEMORY_MIB.into(), MAX_MEMORY_MIB.into())?;
        if !self.memory_mib.is_multiple_of(2) {
            let problem = SpecProblem::NotMultiple { value: self.memory_mib.into(), of: 2 };
            return Err(SpecError::new("memory_mib", problem));
        }
        in_range("weight", self.weight.into(), 1, MAX_WEIGHT.into())?;
        self.boot.validate(self.memory_bytes()).map_err(|error| error.inside("boot"))?;
        at_most("ports", self.ports.len(), MAX_PORTS)?;
        unique("ports", self.ports.iter().map(|port| port.as_str()))?;
        let needed = self.virtio_slots();
        if needed > VIRTIO_SLOTS {
            let problem = SpecProblem::VirtioSlots { needed: as_u64(needed), max: as_u64(VIRTIO_SLOTS) };
            return Err(SpecError::new("disks", problem));
        }
        for (index, disk) in self.disks.iter().enumerate() {
            disk.validate().map_err(|error| error.inside(&format!("disks[{index}]")))?;
        }
        unique("disks", self.disks.iter().map(|disk| disk.name.as_str()))?;
        self.validate_cell()?;
        for (index, net) in self.nets.iter().enumerate() {
            net.validate().map_err(|error| error.inside(&format!("nets[{index}]")))?;
        }
        self.refuse_shared_disk(self)
    }

    /// Refuses a source that this VM and `other` use, one of them writing persistently. (A VM may also clash with
    /// itself.)
    fn refuse_shared_disk(&self, other: &Self) -> Result<(), SpecError> {
        for (index, mine) in self.disks.iter().enumerate() {
            for (place, theirs) in other.disks.iter().enumerate() {
                let is_same = core::ptr::eq(self, other) && index == place;
                if !is_same && let Some(overlay) = mine.kept_on(theirs).or_else(|| theirs.kept_on(mine)) {
                    let problem = SpecProblem::OverlayShown { disk: overlay.clone(), other: other.name.clone() };
                    return Err(SpecError::new(format!("disks[{index}].source"), problem));
                }
                if !is_same && mine.clashes_with(theirs) {
                    let problem = SpecProblem::DiskShared { disk: mine.source.clone(), other: other.name.clone() };
                    return Err(SpecError::new(format!("disks[{index}].source"), problem));
                }
            }
        }
        Ok(())
    }
}

impl Boot {
    fn validate(&self, memory_bytes: u64) -> Result<(), SpecError> {
        match self {
            Self::Kernel { cmdline, .. } => text("cmdline", cmdline, MAX_CMDLINE),
            Self::Firmware { .. } => Ok(()),
            Self::Program { entry, segments, cmdline, .. } => {
                text("cmdline", cmdline, MAX_CMDLINE)?;
                validate_segments(*entry, segments, memory_bytes)
            }
        }
    }
}

/// What an entry is a multiple of: IALIGN of harts with compressed instructions, which all have. Pieces may lie anywhere, as they
/// are copied.
const ENTRY_ALIGNMENT: u64 = 2;

/// Each piece lies in the guest's memory, none on another, and the entry in one of them, where an instruction can begin.
fn validate_segments(entry: u64, segments: &[Segment], memory_bytes: u64) -> Result<(), SpecError> {
    at_most("segments", segments.len(), MAX_SEGMENTS)?;
    if segments.is_empty() {
        return Err(SpecError::new("segments", SpecProblem::Empty));
    }
    for (index, segment) in segments.iter().enumerate() {
        let earlier = segments.get(..index).unwrap_or_default();
        validate_segment(segment, earlier, memory_bytes)
            .map_err(|problem| SpecError::new(format!("segments[{index}]"), problem))?;
    }
    if !entry.is_multiple_of(ENTRY_ALIGNMENT) {
        return Err(SpecError::new("entry", SpecProblem::OddEntry { entry }));
    }
    let is_inside = |segment: &Segment| entry >= segment.address && segment.end().is_some_and(|end| entry < end);
    if segments.iter().any(is_inside) {
        return Ok(());
    }
    Err(SpecError::new("entry", SpecProblem::EntryOutside { entry }))
}

fn validate_segment(segment: &Segment, earlier: &[Segment], memory_bytes: u64) -> Result<(), SpecProblem> {
    let Segment { address, file_bytes, memory_bytes: room, .. } = *segment;
    let last = RAM_START.saturating_add(memory_bytes).saturating_sub(TREE_ROOM);
    let end = segment.end().filter(|end| address >= RAM_START && *end <= last);
    if end.is_none() {
        let end = address.saturating_add(room);
        return Err(SpecProblem::OutsideMemory { address, end, first: RAM_START, last });
    }
    if room == 0 {
        return Err(SpecProblem::Empty);
    }
    if file_bytes > room {
        return Err(SpecProblem::SegmentTooSmall { address, file_bytes, memory_bytes: room });
    }
    match earlier.iter().find(|other| segment.overlaps(other)) {
        Some(other) => Err(SpecProblem::SegmentsOverlap { address, other: other.address }),
        None => Ok(()),
    }
}

impl DiskSpec {
    /// Whether the two name the same data and one of them would write it.
    #[must_use]
    pub fn clashes_with(&self, other: &Self) -> bool {
        let overlaps = is_overlap((&self.source, &self.partition), (&other.source, &other.partition));
        let is_written = self.mode == DiskMode::Persistent || other.mode == DiskMode::Persistent;
        (overlaps && is_written) || self.kept_on(other).is_some() || other.kept_on(self).is_some()
    }

    /// The disk of its overlay, if `other` takes its data from there.
    fn kept_on(&self, other: &Self) -> Option<&Name> {
        let overlay = self.overlay.as_ref()?;
        let is_there = is_overlap((&overlay.disk, &overlay.partition), (&other.source, &other.partition));
        is_there.then_some(&overlay.disk)
    }

    fn validate(&self) -> Result<(), SpecError> {
        for (field, name) in [("name", &self.name), ("source", &self.source)] {
            let len = name.as_str().len();
            if len > MAX_DISK_NAME {
                let problem = SpecProblem::TooLong { len: as_u64(len), max: as_u64(MAX_DISK_NAME) };
                return Err(SpecError::new(field, problem));
            }
        }
        partition("partition", self.partition.as_deref())?;
        let Some(overlay) = &self.overlay else { return Ok(()) };
        if self.mode != DiskMode::CopyOnWrite {
            return Err(SpecError::new("overlay", SpecProblem::NeedsCopyOnWrite));
        }
        let len = overlay.disk.as_str().len();
        if len > MAX_DISK_NAME {
            let problem = SpecProblem::TooLong { len: as_u64(len), max: as_u64(MAX_DISK_NAME) };
            return Err(SpecError::new("overlay", problem));
        }
        if overlay.disk == self.source && (overlay.partition.is_none() || overlay.partition == self.partition) {
            return Err(SpecError::new("overlay", SpecProblem::OverlayOnItself));
        }
        partition("overlay_partition", overlay.partition.as_deref())
    }
}

/// Do two disks or partitions have sectors in common?
fn is_overlap(one: (&Name, &Option<String>), other: (&Name, &Option<String>)) -> bool {
    one.0 == other.0 && (one.1.is_none() || other.1.is_none() || one.1 == other.1)
}

fn partition(field: &str, label: Option<&str>) -> Result<(), SpecError> {
    match label {
        None => Ok(()),
        Some("") => Err(SpecError::new(field, SpecProblem::Empty)),
        // A GPT partition name has 36 UTF-16 units; no UTF-8 form of such a name is longer than three times that.
        Some(label) => text(field, label, 3 * 36),
    }
}

impl NetSpec {
    fn validate(&self) -> Result<(), SpecError> {
        in_range("mtu", self.mtu.into(), MIN_MTU.into(), u16::MAX.into())?;
        if self.mac.is_some_and(crate::MacAddress::is_multicast) {
            return Err(SpecError::new("mac", SpecProblem::MulticastMac));
        }
        Ok(())
    }
}

impl BootConfig {
    /// Checks what can be told from the description alone, each VM included.
    ///
    /// # Errors
    /// The first problem found, with the path of its field.
    pub fn validate(&self) -> Result<(), SpecError> {
        if self.version != BOOT_CONFIG_VERSION {
            let problem = SpecProblem::Version { found: self.version.into(), wanted: BOOT_CONFIG_VERSION.into() };
            return Err(SpecError::new("version", problem));
        }
        self.options.validate().map_err(|error| error.inside("options"))?;
        self.validate_subnets()?;
        self.validate_cells()?;
        at_most("vms", self.vms.len(), MAX_VMS)?;
        unique("vms", self.vms.iter().map(|vm| vm.name.as_str()))?;
        for (index, vm) in self.vms.iter().enumerate() {
            self.validate_vm(index, vm).map_err(|error| error.inside(&format!("vms[{index}]")))?;
        }
        self.validate_macs()
    }

    fn validate_subnets(&self) -> Result<(), SpecError> {
        at_most("subnets", self.subnets.len(), MAX_SUBNETS)?;
        unique("subnets", self.subnets.iter().map(|subnet| subnet.name.as_str()))?;
        let mut gateways = self.subnets.iter().enumerate().filter(|(_, subnet)| subnet.gateway);
        let first = gateways.next();
        if let (Some((_, first)), Some((second, _))) = (first, gateways.next()) {
            let problem = SpecProblem::SecondGateway { first: first.name.clone() };
            return Err(SpecError::new(format!("subnets[{second}].gateway"), problem));
        }
        Ok(())
    }

    fn validate_vm(&self, index: usize, vm: &VmSpec) -> Result<(), SpecError> {
        vm.validate()?;
        self.validate_cell_of(vm)?;
        for (place, net) in vm.nets.iter().enumerate() {
            if !self.subnets.iter().any(|subnet| subnet.name == net.subnet) {
                let problem = SpecProblem::UnknownSubnet { name: net.subnet.clone() };
                return Err(SpecError::new(format!("nets[{place}].subnet"), problem));
            }
        }
        let earlier = self.vms.get(..index).unwrap_or_default();
        earlier.iter().try_for_each(|other| vm.refuse_shared_disk(other))
    }

    fn validate_macs(&self) -> Result<(), SpecError> {
        let macs: Vec<String> = self
            .vms
            .iter()
            .flat_map(|vm| vm.nets.iter().filter_map(|net| net.mac))
            .map(|mac| mac.to_string())
            .collect();
        unique("vms.nets.mac", macs.iter().map(String::as_str))
    }
}

impl MonitorOptions {
    fn validate(&self) -> Result<(), SpecError> {
        in_range("time_slice_us", self.time_slice_us.into(), 100, 1_000_000)?;
        in_range("disk_cache_mib", self.disk_cache_mib.into(), 0, MAX_MEMORY_MIB.into())?;
        in_range("console_kib", self.console_kib.into(), 4, 1024)
    }
}

fn in_range(field: &str, value: u64, min: u64, max: u64) -> Result<(), SpecError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(SpecError::new(field, SpecProblem::OutOfRange { value, min, max }))
}

pub(crate) fn at_most(field: &str, count: usize, max: usize) -> Result<(), SpecError> {
    if count <= max {
        return Ok(());
    }
    Err(SpecError::new(field, SpecProblem::TooMany { count: as_u64(count), max: as_u64(max) }))
}

fn text(field: &str, text: &str, max: usize) -> Result<(), SpecError> {
    if text.len() > max {
        return Err(SpecError::new(field, SpecProblem::TooLong { len: as_u64(text.len()), max: as_u64(max) }));
    }
    if text.chars().any(char::is_control) {
        return Err(SpecError::new(field, SpecProblem::ControlCharacter));
    }
    Ok(())
}

pub(crate) fn unique<'a>(field: &str, names: impl Iterator<Item = &'a str>) -> Result<(), SpecError> {
    // Few: their number was checked before.
    let mut sorted: Vec<&str> = names.collect();
    order::ascending(&mut sorted);
    match sorted.windows(2).find(|pair| pair.first() == pair.last()) {
        Some(pair) => {
            let name = pair.first().map(ToString::to_string).unwrap_or_default();
            Err(SpecError::new(field, SpecProblem::Duplicate { name }))
        }
        None => Ok(()),
    }
}

fn as_u64(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
