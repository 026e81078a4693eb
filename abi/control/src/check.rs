//! What a description must fulfil. Both sides call these: the host to explain, the monitor to defend itself.
//!
//! Only what can be told from the description alone is checked here. That modules, disks and memory exist is for
//! whoever has them: the host's configuration check, and the monitor when it creates the VM.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::ControlFlow;

use crate::boot::{BOOT_CONFIG_VERSION, BootConfig, MAX_SUBNETS, MAX_VMS, MonitorOptions};
use crate::name::Name;
use crate::problem::{SpecError, SpecProblem};
use crate::spec::{
    Boot, DiskMode, DiskSpec, MAX_CMDLINE, MAX_DISK_NAME, MAX_MEMORY_MIB, MAX_NODES, MAX_PORTS, MAX_SEGMENTS,
    MAX_VCPUS, MAX_WEIGHT, MIN_MEMORY_MIB, MIN_MTU, NetSpec, RAM_START, Segment, TREE_ROOM, VIRTIO_SLOTS, VmSpec,
};

/// Hears of a problem, and says whether to look for more.
pub(crate) type Tell<'a> = dyn FnMut(SpecError) -> ControlFlow<SpecError> + 'a;

/// The first problem.
fn first(each: impl FnOnce(&mut Tell<'_>) -> ControlFlow<SpecError>) -> Result<(), SpecError> {
    match each(&mut ControlFlow::Break) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// All problems.
fn all(each: impl FnOnce(&mut Tell<'_>) -> ControlFlow<SpecError>) -> Vec<SpecError> {
    let mut found = Vec::new();
    let _ = each(&mut |error| {
        found.push(error);
        ControlFlow::Continue(())
    });
    found
}

/// Tells what this check has found.
pub(crate) fn tell(to: &mut Tell<'_>, checked: Result<(), SpecError>) -> ControlFlow<SpecError> {
    checked.map_or_else(to, ControlFlow::Continue)
}

/// Tells what a part finds, seen from outside of it.
fn tell_inside(
    to: &mut Tell<'_>,
    prefix: &str,
    each: impl FnOnce(&mut Tell<'_>) -> ControlFlow<SpecError>,
) -> ControlFlow<SpecError> {
    each(&mut |error| to(error.inside(prefix)))
}

impl VmSpec {
    /// Checks what can be told from the description alone.
    ///
    /// # Errors
    /// The first problem found, with the path of its field.
    pub fn validate(&self) -> Result<(), SpecError> {
        first(|to| self.each_problem(to))
    }

    /// All problems that can be told from the description alone, those left out that others cause. As many as a description has: for
    /// hosts, not for the monitor.
    #[must_use]
    pub fn problems(&self) -> Vec<SpecError> {
        all(|to| self.each_problem(to))
    }

    fn each_problem(&self, to: &mut Tell<'_>) -> ControlFlow<SpecError> {
        let vcpus = in_range("vcpus", self.vcpus.into(), 1, MAX_VCPUS.into());
        let most_nodes = if vcpus.is_ok() { MAX_NODES.min(self.vcpus) } else { MAX_NODES };
        tell(to, vcpus)?;
        tell(to, in_range("nodes", self.nodes.into(), 1, most_nodes.into()))?;
        let memory = in_range("memory_mib", self.memory_mib.into(), MIN_MEMORY_MIB.into(), MAX_MEMORY_MIB.into());
        let has_memory = memory.is_ok();
        tell(to, memory.and_then(|()| multiple("memory_mib", self.memory_mib.into(), 2)))?;
        tell(to, in_range("weight", self.weight.into(), 1, MAX_WEIGHT.into()))?;
        tell_inside(to, "boot", |to| self.boot.each_problem(has_memory.then(|| self.memory_bytes()), to))?;
        tell(to, at_most("ports", self.ports.len(), MAX_PORTS))?;
        unique("ports", self.ports.iter().map(|port| port.as_str()), to)?;
        let needed = self.virtio_slots();
        if needed > VIRTIO_SLOTS {
            let problem = SpecProblem::VirtioSlots { needed: as_u64(needed), max: as_u64(VIRTIO_SLOTS) };
            to(SpecError::new("disks", problem))?;
        }
        let most = if has_memory { self.most_mib() } else { u64::MAX };
        tell(to, in_range("promised_mib", self.promised_mib.unwrap_or(0).into(), 0, most))?;
        for (index, disk) in self.disks.iter().enumerate() {
            tell_inside(to, &format!("disks[{index}]"), |to| disk.each_problem(to))?;
        }
        unique("disks", self.disks.iter().map(|disk| disk.name.as_str()), to)?;
        for (index, net) in self.nets.iter().enumerate() {
            tell_inside(to, &format!("nets[{index}]"), |to| net.each_problem(to))?;
        }
        tell(to, self.refuse_shared_disk(self))
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
    /// In a VM with so much memory; `None` if nobody can tell.
    fn each_problem(&self, memory_bytes: Option<u64>, to: &mut Tell<'_>) -> ControlFlow<SpecError> {
        match self {
            Self::Kernel { cmdline, .. } => tell(to, text("cmdline", cmdline, MAX_CMDLINE)),
            Self::Firmware { .. } => ControlFlow::Continue(()),
            Self::Program { entry, segments, cmdline, .. } => {
                tell(to, text("cmdline", cmdline, MAX_CMDLINE))?;
                memory_bytes
                    .map_or(ControlFlow::Continue(()), |bytes| each_problem_of_segments(segments, bytes, to))?;
                tell(to, validate_entry(*entry, segments))
            }
        }
    }
}

/// What an entry is a multiple of: IALIGN of harts with compressed instructions, which all have. Pieces may lie anywhere, as they
/// are copied.
const ENTRY_ALIGNMENT: u64 = 2;

/// Each piece lies in the guest's memory, and none on another.
fn each_problem_of_segments(segments: &[Segment], memory_bytes: u64, to: &mut Tell<'_>) -> ControlFlow<SpecError> {
    if let Err(error) = at_most("segments", segments.len(), MAX_SEGMENTS) {
        return to(error);
    }
    if segments.is_empty() {
        return to(SpecError::new("segments", SpecProblem::Empty));
    }
    for (index, segment) in segments.iter().enumerate() {
        let earlier = segments.get(..index).unwrap_or_default();
        let checked = validate_segment(segment, earlier, memory_bytes);
        tell(to, checked.map_err(|problem| SpecError::new(format!("segments[{index}]"), problem)))?;
    }
    ControlFlow::Continue(())
}

/// The entry lies in a piece, where an instruction can begin. Where no piece is, others have complained.
fn validate_entry(entry: u64, segments: &[Segment]) -> Result<(), SpecError> {
    if !entry.is_multiple_of(ENTRY_ALIGNMENT) {
        return Err(SpecError::new("entry", SpecProblem::OddEntry { entry }));
    }
    let is_inside = |segment: &Segment| entry >= segment.address && segment.end().is_none_or(|end| entry < end);
    if segments.iter().all(|segment| segment.memory_bytes == 0) || segments.iter().any(is_inside) {
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

    fn each_problem(&self, to: &mut Tell<'_>) -> ControlFlow<SpecError> {
        tell(to, disk_name("name", &self.name))?;
        // A disk without a name of its own has that of its source.
        if self.source != self.name {
            tell(to, disk_name("source", &self.source))?;
        }
        tell(to, partition("partition", self.partition.as_deref()))?;
        tell(to, self.validate_limit())?;
        tell(to, self.validate_overlay())
    }

    fn validate_limit(&self) -> Result<(), SpecError> {
        let Some(limit) = self.limit_mib else { return Ok(()) };
        if self.mode != DiskMode::CopyOnWrite {
            return Err(SpecError::new("limit_mib", SpecProblem::LimitNeedsCopyOnWrite));
        }
        in_range("limit_mib", limit.into(), 1, MAX_MEMORY_MIB.into())
    }

    fn validate_overlay(&self) -> Result<(), SpecError> {
        let Some(overlay) = &self.overlay else { return Ok(()) };
        if self.mode != DiskMode::CopyOnWrite {
            return Err(SpecError::new("overlay", SpecProblem::NeedsCopyOnWrite));
        }
        disk_name("overlay", &overlay.disk)?;
        if overlay.disk == self.source && (overlay.partition.is_none() || overlay.partition == self.partition) {
            return Err(SpecError::new("overlay", SpecProblem::OverlayOnItself));
        }
        partition("overlay_partition", overlay.partition.as_deref())
    }
}

/// Whether two disks or partitions have sectors in common. A disk without a partition is meant as a whole.
fn is_overlap(one: (&Name, &Option<String>), other: (&Name, &Option<String>)) -> bool {
    one.0 == other.0 && (one.1.is_none() || other.1.is_none() || one.1 == other.1)
}

fn disk_name(field: &str, name: &Name) -> Result<(), SpecError> {
    let len = name.as_str().len();
    if len <= MAX_DISK_NAME {
        return Ok(());
    }
    Err(SpecError::new(field, SpecProblem::TooLong { len: as_u64(len), max: as_u64(MAX_DISK_NAME) }))
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
    fn each_problem(&self, to: &mut Tell<'_>) -> ControlFlow<SpecError> {
        tell(to, in_range("mtu", self.mtu.into(), MIN_MTU.into(), u16::MAX.into()))?;
        if self.mac.is_some_and(crate::MacAddress::is_multicast) {
            to(SpecError::new("mac", SpecProblem::MulticastMac))?;
        }
        ControlFlow::Continue(())
    }
}

impl BootConfig {
    /// Checks what can be told from the description alone, each VM included.
    ///
    /// # Errors
    /// The first problem found, with the path of its field.
    pub fn validate(&self) -> Result<(), SpecError> {
        first(|to| self.each_problem(to))
    }

    /// All problems that can be told from the description alone, as [`VmSpec::problems`].
    #[must_use]
    pub fn problems(&self) -> Vec<SpecError> {
        all(|to| self.each_problem(to))
    }

    fn each_problem(&self, to: &mut Tell<'_>) -> ControlFlow<SpecError> {
        if self.version != BOOT_CONFIG_VERSION {
            let problem = SpecProblem::Version { found: self.version.into(), wanted: BOOT_CONFIG_VERSION.into() };
            to(SpecError::new("version", problem))?;
        }
        tell_inside(to, "options", |to| self.options.each_problem(to))?;
        self.each_problem_of_subnets(to)?;
        self.each_problem_of_cells(to)?;
        tell(to, at_most("vms", self.vms.len(), MAX_VMS))?;
        unique("vms", self.vms.iter().map(|vm| vm.name.as_str()), to)?;
        for (index, vm) in self.vms.iter().enumerate() {
            tell_inside(to, &format!("vms[{index}]"), |to| self.each_problem_of_vm(index, vm, to))?;
        }
        let macs: Vec<String> = self
            .vms
            .iter()
            .flat_map(|vm| vm.nets.iter().filter_map(|net| net.mac))
            .map(|mac| mac.to_string())
            .collect();
        unique("vms.nets.mac", macs.iter().map(String::as_str), to)
    }

    fn each_problem_of_subnets(&self, to: &mut Tell<'_>) -> ControlFlow<SpecError> {
        tell(to, at_most("subnets", self.subnets.len(), MAX_SUBNETS))?;
        unique("subnets", self.subnets.iter().map(|subnet| subnet.name.as_str()), to)?;
        let mut gateways = self.subnets.iter().enumerate().filter(|(_, subnet)| subnet.gateway);
        let Some((_, first)) = gateways.next() else { return ControlFlow::Continue(()) };
        for (further, _) in gateways {
            let problem = SpecProblem::SecondGateway { first: first.name.clone() };
            to(SpecError::new(format!("subnets[{further}].gateway"), problem))?;
        }
        ControlFlow::Continue(())
    }

    fn each_problem_of_vm(&self, index: usize, vm: &VmSpec, to: &mut Tell<'_>) -> ControlFlow<SpecError> {
        vm.each_problem(to)?;
        vm.each_problem_of_cell(0, to)?;
        tell(to, self.validate_cell_of(vm))?;
        for (place, net) in vm.nets.iter().enumerate() {
            if !self.subnets.iter().any(|subnet| subnet.name == net.subnet) {
                let problem = SpecProblem::UnknownSubnet { name: net.subnet.clone() };
                to(SpecError::new(format!("nets[{place}].subnet"), problem))?;
            }
        }
        let earlier = self.vms.get(..index).unwrap_or_default();
        tell(to, earlier.iter().try_for_each(|other| vm.refuse_shared_disk(other)))
    }
}

impl MonitorOptions {
    fn each_problem(&self, to: &mut Tell<'_>) -> ControlFlow<SpecError> {
        tell(to, in_range("time_slice_us", self.time_slice_us.into(), 100, 1_000_000))?;
        tell(to, in_range("disk_cache_mib", self.disk_cache_mib.into(), 0, MAX_MEMORY_MIB.into()))?;
        tell(to, in_range("console_kib", self.console_kib.into(), 4, 1024))
    }
}

fn in_range(field: &str, value: u64, min: u64, max: u64) -> Result<(), SpecError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(SpecError::new(field, SpecProblem::OutOfRange { value, min, max }))
}

fn multiple(field: &str, value: u64, of: u64) -> Result<(), SpecError> {
    if value.is_multiple_of(of) {
        return Ok(());
    }
    Err(SpecError::new(field, SpecProblem::NotMultiple { value, of }))
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

/// Tells of each name that is there more than once.
pub(crate) fn unique<'a>(
    field: &str,
    names: impl Iterator<Item = &'a str>,
    to: &mut Tell<'_>,
) -> ControlFlow<SpecError> {
    let mut sorted: Vec<&str> = names.collect();
    order::ascending(&mut sorted);
    let mut last = None;
    for pair in sorted.windows(2).filter(|pair| pair.first() == pair.last()) {
        if last != pair.first() {
            last = pair.first();
            let name = last.map(ToString::to_string).unwrap_or_default();
            to(SpecError::new(field, SpecProblem::Duplicate { name }))?;
        }
    }
    ControlFlow::Continue(())
}

fn as_u64(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
