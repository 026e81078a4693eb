//! Machines, nodes and the monitor.

use control::{DeviceKind, DiskStats, InterruptArchitecture, MachineInfo, MonitorMemory, MonitorMemoryKind, NodeStats};
use serde::Serialize;

use super::{ExitsView, HartView, Sample, VmView, grown, seconds};

/// A machine with all its counters: `stats --json`, and the live view.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineView {
    /// Its name.
    pub machine: String,
    /// Its model.
    pub model: String,
    /// Seconds of its clock.
    pub clock_s: f64,
    /// Seconds that rates cover.
    pub interval_s: Option<f64>,
    /// Its nodes.
    pub nodes: Vec<NodeView>,
    /// Memory in use by kind.
    pub footprint: FootprintView,
    /// Its disks.
    pub disks: Vec<DiskView>,
    /// Its harts.
    pub harts: Vec<HartView>,
    /// Its VMs.
    pub vms: Vec<VmView>,
    /// The monitor.
    pub monitor: MonitorView,
}

/// A node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeView {
    /// Its id.
    pub id: u8,
    /// All its memory.
    pub total_bytes: u64,
    /// Free memory.
    pub free_bytes: u64,
    /// Of the free memory, whole 2 MiB blocks.
    pub free_large_blocks: u64,
    /// In the disk cache.
    pub disk_cache_bytes: u64,
    /// Shared by guests copy-on-write.
    pub shared_bytes: u64,
    /// What it would take without sharing.
    pub sharing_bytes: u64,
    /// Of one VM each.
    pub private_bytes: u64,
    /// All that may be shared, mapped now or not.
    pub sharable_bytes: u64,
    /// Behind VMs.
    pub vm_bytes: u64,
    /// The monitor's own.
    pub monitor_bytes: u64,
}

/// Memory in use by kind: what it would be without sharing, and what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FootprintView {
    /// Pages of one VM each.
    pub private_bytes: u64,
    /// Guest memory that shared pages stand for.
    pub sharing_bytes: u64,
    /// Those pages.
    pub shared_bytes: u64,
    /// The disk cache and modified blocks of disks, as far as no guest maps them.
    pub unmapped_bytes: u64,
    /// The monitor's own, tables of VMs included.
    pub monitor_bytes: u64,
    /// All guest memory, pages counted for every VM that maps them.
    pub virtual_bytes: u64,
    /// All machine memory in use.
    pub machine_bytes: u64,
}

impl FootprintView {
    fn of(nodes: &[NodeView]) -> Self {
        let sum = |of: fn(&NodeView) -> u64| nodes.iter().map(of).sum::<u64>();
        let (private_bytes, shared_bytes) = (sum(|node| node.private_bytes), sum(|node| node.shared_bytes));
        let unmapped_bytes = sum(|node| node.sharable_bytes).saturating_sub(shared_bytes);
        let (sharing_bytes, monitor_bytes) = (sum(|node| node.sharing_bytes), sum(|node| node.monitor_bytes));
        Self {
            private_bytes,
            sharing_bytes,
            shared_bytes,
            unmapped_bytes,
            monitor_bytes,
            virtual_bytes: private_bytes + sharing_bytes,
            machine_bytes: private_bytes + shared_bytes + unmapped_bytes + monitor_bytes,
        }
    }
}

/// A disk of the machine and its cache.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskView {
    /// Its name.
    pub name: String,
    /// In its cache.
    pub cached_bytes: u64,
    /// Blocks found in the cache.
    pub hits: u64,
    /// Blocks that had to be read.
    pub misses: u64,
    /// Blocks that somebody else was reading already.
    pub joins: u64,
    /// Bytes read without a copy.
    pub mapped_bytes: u64,
    /// Bytes copied because the request or its buffer is not a whole page.
    pub unaligned_bytes: u64,
    /// Bytes copied because the guest's page could not be replaced.
    pub refused_bytes: u64,
    /// Of the bytes served from memory, those without a copy; `None` while there are none.
    pub mapped_share: Option<f64>,
    /// Read operations of the machine's disk.
    pub reads: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Write operations of the machine's disk.
    pub writes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
    /// Pages that the cache has let go of.
    pub reclaimed_pages: u64,
}

/// The monitor.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MonitorView {
    /// Its version and commit.
    pub version: String,
    /// Bytes of text.
    pub text_bytes: u64,
    /// Bytes of read-only data.
    pub rodata_bytes: u64,
    /// Bytes of data and bss.
    pub data_bytes: u64,
    /// Seconds in the monitor on all harts.
    pub time_s: f64,
    /// All its memory.
    pub memory_bytes: u64,
    /// Its memory by node and purpose.
    pub memory: Vec<MonitorMemoryView>,
}

/// Memory of the monitor for one purpose on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MonitorMemoryView {
    /// The node.
    pub node: u8,
    /// The purpose.
    pub kind: &'static str,
    /// Bytes.
    pub bytes: u64,
}

/// What a machine is: `info --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InfoView {
    /// Its name.
    pub machine: String,
    /// Its model.
    pub model: String,
    /// Ticks of its clock per second.
    pub timebase_hz: u64,
    /// `plic`, `aplic` or `aia`.
    pub interrupts: &'static str,
    /// SBI version of the firmware, as `2.0`.
    pub sbi_version: String,
    /// What the firmware is.
    pub firmware: String,
    /// The monitor's version and commit.
    pub monitor_version: String,
    /// The G-stage mode in use.
    pub gstage_mode: String,
    /// Bits of VMIDs.
    pub vmid_bits: u8,
    /// Distances between nodes, row by row.
    pub distances: Vec<Vec<u8>>,
    /// Its nodes.
    pub nodes: Vec<InfoNode>,
    /// Its harts.
    pub harts: Vec<InfoHart>,
    /// Its disks.
    pub disks: Vec<InfoDisk>,
    /// Its other devices.
    pub devices: Vec<InfoDevice>,
    /// Its miss counters.
    pub miss_counters: Option<InfoCounters>,
    /// Modules that VMs can boot.
    pub modules: Vec<InfoModule>,
}

/// A node of [`InfoView`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct InfoNode {
    pub id: u8,
    pub total_bytes: u64,
    pub free_bytes: u64,
}

/// A hart of [`InfoView`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InfoHart {
    pub index: u16,
    pub hart_id: u64,
    pub node: u8,
    pub online: bool,
    pub isa: String,
    pub guest_files: u16,
}

/// A disk of [`InfoView`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InfoDisk {
    pub name: String,
    pub bytes: u64,
    pub read_only: bool,
    pub partitions: Vec<String>,
    pub persistent_for: Option<String>,
}

/// A device of [`InfoView`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InfoDevice {
    pub kind: &'static str,
    pub location: String,
    pub node: Option<u8>,
}

/// Miss counters of [`InfoView`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct InfoCounters {
    pub layout: u32,
    pub pages: u64,
}

/// A module of [`InfoView`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InfoModule {
    pub name: String,
    pub bytes: u64,
}

impl MachineView {
    /// A machine with its counters, and rates since `before` if given.
    pub fn new(sample: &Sample, before: Option<&Sample>) -> Self {
        let info = &sample.info;
        let ticks = |before: &Sample| grown(sample.stats.now_ticks, before.stats.now_ticks);
        let vms = VmView::all(sample, before);
        let harts = HartView::all(sample, before);
        let memory: Vec<_> = sample.stats.monitor.iter().map(MonitorMemoryView::from).collect();
        let nodes: Vec<_> = sample.stats.nodes.iter().map(|node| NodeView::new(node, &vms, &memory)).collect();
        Self {
            machine: info.name.to_string(),
            model: info.model.clone(),
            clock_s: seconds(sample.stats.now_ticks, info.timebase_hz),
            interval_s: before.map(|before| seconds(ticks(before), info.timebase_hz)),
            footprint: FootprintView::of(&nodes),
            nodes,
            disks: sample.stats.disks.iter().map(DiskView::from).collect(),
            monitor: MonitorView {
                version: info.monitor.version.clone(),
                text_bytes: info.monitor.text_bytes,
                rodata_bytes: info.monitor.rodata_bytes,
                data_bytes: info.monitor.data_bytes,
                time_s: harts.iter().map(|hart| hart.monitor_s).sum(),
                memory_bytes: memory.iter().map(|part| part.bytes).sum(),
                memory,
            },
            harts,
            vms,
        }
    }

    /// Exits of all harts since boot.
    pub fn exits(&self) -> ExitsView {
        ExitsView::sum(self.harts.iter().map(|hart| &hart.exits))
    }

    /// A VM.
    pub fn vm(&self, name: &str) -> Option<&VmView> {
        self.vms.iter().find(|vm| vm.name == name)
    }
}

impl MonitorView {
    /// Its memory by purpose, over all nodes.
    pub fn memory_by_kind(&self) -> Vec<(&'static str, u64)> {
        let mut kinds: Vec<(&'static str, u64)> = Vec::new();
        for part in &self.memory {
            match kinds.iter_mut().find(|(kind, _)| *kind == part.kind) {
                Some((_, bytes)) => *bytes = bytes.saturating_add(part.bytes),
                None => kinds.push((part.kind, part.bytes)),
            }
        }
        kinds
    }
}

impl NodeView {
    fn new(stats: &NodeStats, vms: &[VmView], monitor: &[MonitorMemoryView]) -> Self {
        let id = stats.node.0;
        Self {
            id,
            total_bytes: stats.total_bytes,
            free_bytes: stats.free_bytes,
            free_large_blocks: stats.free_large_blocks,
            disk_cache_bytes: stats.disk_cache_bytes,
            shared_bytes: stats.shared_bytes,
            sharing_bytes: stats.sharing_bytes,
            private_bytes: stats.private_bytes,
            sharable_bytes: stats.sharable_bytes,
            vm_bytes: vms.iter().map(|vm| vm.resident_on(id)).sum(),
            monitor_bytes: monitor.iter().filter(|part| part.node == id).map(|part| part.bytes).sum(),
        }
    }

    /// Memory in use.
    pub const fn used_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.free_bytes)
    }
}

impl From<&DiskStats> for DiskView {
    fn from(disk: &DiskStats) -> Self {
        let copied = disk.unaligned_bytes.saturating_add(disk.refused_bytes);
        let served = disk.mapped_bytes.saturating_add(copied);
        Self {
            name: disk.name.to_string(),
            cached_bytes: disk.cached_bytes,
            hits: disk.hits,
            misses: disk.misses,
            joins: disk.joins,
            mapped_bytes: disk.mapped_bytes,
            unaligned_bytes: disk.unaligned_bytes,
            refused_bytes: disk.refused_bytes,
            mapped_share: (served > 0).then(|| disk.mapped_bytes as f64 / served as f64),
            reads: disk.reads,
            read_bytes: disk.read_bytes,
            writes: disk.writes,
            written_bytes: disk.written_bytes,
            reclaimed_pages: disk.reclaimed_pages,
        }
    }
}

impl From<&MonitorMemory> for MonitorMemoryView {
    fn from(memory: &MonitorMemory) -> Self {
        Self { node: memory.node.0, kind: memory_label(memory.kind), bytes: memory.bytes }
    }
}

impl From<&MachineInfo> for InfoView {
    fn from(info: &MachineInfo) -> Self {
        let firmware = &info.firmware;
        Self {
            machine: info.name.to_string(),
            model: info.model.clone(),
            timebase_hz: info.timebase_hz,
            interrupts: match info.interrupts {
                InterruptArchitecture::Plic => "plic",
                InterruptArchitecture::Aplic => "aplic",
                InterruptArchitecture::Aia => "aia",
            },
            // SBI specification, "Function: Get SBI specification version": major in bits 24 to 30.
            sbi_version: format!("{}.{}", firmware.sbi_version >> 24 & 0x7f, firmware.sbi_version & 0x00ff_ffff),
            firmware: firmware_label(firmware.implementation, firmware.implementation_version),
            monitor_version: info.monitor.version.clone(),
            gstage_mode: info.monitor.gstage_mode.clone(),
            vmid_bits: info.monitor.vmid_bits,
            distances: info.distances.chunks(info.nodes.len().max(1)).map(<[u8]>::to_vec).collect(),
            nodes: info.nodes.iter().map(InfoNode::from).collect(),
            harts: info.harts.iter().map(InfoHart::from).collect(),
            disks: info.disks.iter().map(InfoDisk::from).collect(),
            devices: info.devices.iter().map(InfoDevice::from).collect(),
            miss_counters: info.devices.iter().find_map(InfoCounters::of),
            modules: info
                .modules
                .iter()
                .map(|module| InfoModule { name: module.name.to_string(), bytes: module.bytes })
                .collect(),
        }
    }
}

impl From<&control::NodeInfo> for InfoNode {
    fn from(node: &control::NodeInfo) -> Self {
        Self { id: node.id.0, total_bytes: node.total_bytes, free_bytes: node.free_bytes }
    }
}

impl From<&control::HartInfo> for InfoHart {
    fn from(hart: &control::HartInfo) -> Self {
        Self {
            index: hart.index.0,
            hart_id: hart.hart.0,
            node: hart.node.0,
            online: hart.online,
            isa: hart.isa.clone(),
            guest_files: hart.guest_files,
        }
    }
}

impl From<&control::DiskInfo> for InfoDisk {
    fn from(disk: &control::DiskInfo) -> Self {
        Self {
            name: disk.name.to_string(),
            bytes: disk.bytes,
            read_only: disk.read_only,
            partitions: disk.partitions.clone(),
            persistent_for: disk.persistent_for.as_ref().map(ToString::to_string),
        }
    }
}

impl From<&control::DeviceInfo> for InfoDevice {
    fn from(device: &control::DeviceInfo) -> Self {
        let kind = match device.kind {
            DeviceKind::Uart => "uart",
            DeviceKind::Disk => "disk",
            DeviceKind::Network => "network",
            DeviceKind::ControlPort => "control-port",
            DeviceKind::MissCounters { .. } => "miss-counters",
        };
        Self { kind, location: device.location.clone(), node: device.node.map(|node| node.0) }
    }
}

impl InfoCounters {
    const fn of(device: &control::DeviceInfo) -> Option<Self> {
        match device.kind {
            DeviceKind::MissCounters { layout, pages } => Some(Self { layout, pages }),
            _ => None,
        }
    }
}

const fn memory_label(kind: MonitorMemoryKind) -> &'static str {
    match kind {
        MonitorMemoryKind::Image => "image",
        MonitorMemoryKind::PageTables => "page-tables",
        MonitorMemoryKind::Memmap => "memmap",
        MonitorMemoryKind::HeapUsed => "heap-used",
        MonitorMemoryKind::HeapFree => "heap-free",
        MonitorMemoryKind::Modules => "modules",
    }
}

/// SBI specification, "SBI Implementation IDs".
fn firmware_label(implementation: u64, version: u64) -> String {
    match implementation {
        1 => format!("OpenSBI {}.{}", version >> 16, version & 0xffff),
        3 => "KVM".to_owned(),
        4 => format!("RustSBI {}.{}.{}", version >> 16 & 0xff, version >> 8 & 0xff, version & 0xff),
        other => format!("SBI implementation {other}, version {version:#x}"),
    }
}
