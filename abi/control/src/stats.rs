//! Counters. Those of the machine count since boot, those of a VM since it started last; they can be read until it starts
//! again. None falls in that time; all wrap.

use addr::{CpuIndex, NodeId, VcpuIndex, VmId};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::exit::ExitCounts;
use crate::latency::Latencies;
use crate::name::Name;
use crate::spec::Gang;
use crate::stretch::Stretches;
use crate::vm::VmMemory;

/// Counters of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineStats {
    /// Ticks when this was made.
    pub now_ticks: u64,
    /// Every hart, by index.
    pub harts: Vec<HartStats>,
    /// Every node, by id.
    pub nodes: Vec<NodeStats>,
    /// Every disk that VMs can have.
    pub disks: Vec<DiskStats>,
    /// Memory of the monitor itself.
    pub monitor: Vec<MonitorMemory>,
}

/// Counters of one hart. Its times add up to the time since it came online.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HartStats {
    /// Its index.
    pub index: CpuIndex,
    /// Its node.
    pub node: NodeId,
    /// Ticks in guests.
    pub guest_ticks: u64,
    /// Ticks in the monitor.
    pub monitor_ticks: u64,
    /// Ticks with nothing to do.
    pub idle_ticks: u64,
    /// Switches from one vCPU to another.
    pub switches: u64,
    /// vCPUs in its run queue now, the running one included.
    pub queued: u32,
    /// The vCPU that runs now.
    pub running: Option<(VmId, VcpuIndex)>,
    /// Exits by cause.
    pub exits: ExitCounts,
    /// How long it stays in the monitor at a time.
    pub stretches: Stretches,
}

/// Memory of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStats {
    /// The node.
    pub node: NodeId,
    /// All its memory, in bytes.
    pub total_bytes: u64,
    /// Free memory, in bytes.
    pub free_bytes: u64,
    /// Of the free memory, whole 2 MiB blocks.
    pub free_large_blocks: u64,
    /// In the disk cache, in bytes; what guests map of it included.
    pub disk_cache_bytes: u64,
    /// Memory that guests share copy-on-write, in the disk cache or not, in bytes.
    pub shared_bytes: u64,
    /// Guest memory that it backs, in bytes: what it would take without sharing.
    pub sharing_bytes: u64,
    /// Memory of one VM each, in bytes.
    pub private_bytes: u64,
    /// All memory that may be shared, mapped now or not, in bytes: the disk cache, modified blocks, and what was merged.
    pub sharable_bytes: u64,
}

/// Counters of one disk and its cache. Bytes of reads that the cache or modified blocks answered: mapped, or copied for one
/// of two reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStats {
    /// Its name.
    pub name: Name,
    /// In its cache now, in bytes.
    pub cached_bytes: u64,
    /// Blocks (4 KiB) that requests found in the cache, or that came for them.
    pub hits: u64,
    /// Blocks that had to be read for a request.
    pub misses: u64,
    /// Blocks that somebody else was reading already.
    pub joins: u64,
    /// Read without a copy: the guest has the page.
    pub mapped_bytes: u64,
    /// Copied because the request or its buffer is not a whole page.
    pub unaligned_bytes: u64,
    /// Copied because the guest's page could not be replaced.
    pub refused_bytes: u64,
    /// Read operations of the machine's disk.
    pub reads: u64,
    /// Bytes that they read, those ahead included.
    pub read_bytes: u64,
    /// Write operations of the machine's disk.
    pub writes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
    /// Pages that the cache has let go of.
    pub reclaimed_pages: u64,
}

/// Memory of the monitor for one purpose on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitorMemory {
    /// The node.
    pub node: NodeId,
    /// The purpose.
    pub kind: MonitorMemoryKind,
    /// Bytes.
    pub bytes: u64,
}

/// What the monitor needs memory for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MonitorMemoryKind {
    /// The image, or this node's copy of it.
    Image,
    /// Page tables, the VMs' included; stacks; back-maps of shared pages.
    PageTables,
    /// The memmap.
    Memmap,
    /// Heap in use.
    HeapUsed,
    /// Heap taken from the frame allocator and not in use.
    HeapFree,
    /// Kernels, initrds and firmwares.
    Modules,
}

/// Counters of one VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmStats {
    /// Its name.
    pub name: Name,
    /// Its identity.
    pub id: VmId,
    /// Ticks when this was made.
    pub now_ticks: u64,
    /// Every vCPU, by index.
    pub vcpus: Vec<VcpuStats>,
    /// Machine memory behind it, per node that has any.
    pub memory: Vec<VmMemory>,
    /// Sectors (512 bytes) read from its disks.
    pub disk_read_sectors: u64,
    /// Sectors (512 bytes) written to its disks.
    pub disk_written_sectors: u64,
    /// Bytes that it sent to its subnets.
    pub net_sent_bytes: u64,
    /// Bytes that it received from its subnets.
    pub net_received_bytes: u64,
    /// Pages that it gave back through its balloon.
    pub pages_returned: u64,
    /// Pages that its disks' reads mapped into it.
    pub pages_mapped: u64,
    /// Pages that were shared and became its own by a write.
    pub pages_unshared: u64,
    /// Pages that were merged with equal ones of other VMs.
    pub pages_merged: u64,
    /// Pages that were nothing but zeroes, and came back.
    pub zero_pages_returned: u64,
    /// What became of its pages by placement.
    pub placement: PlacementStats,
    /// How it shares harts with others.
    pub share: ShareStats,
}

/// How a VM shares harts with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareStats {
    /// Its weight.
    pub weight: u16,
    /// Whether its vCPUs run together, as its description says.
    pub gang: Gang,
    /// Whether they do so now.
    pub gathers: bool,
    /// Turns in which they did.
    pub turns: u64,
    /// Waits of vCPUs that woke up, until they ran.
    pub wakes: Latencies,
    /// Waits of vCPUs that could go on and had lost their hart, until they ran again: what guests see as steal time.
    pub steals: Latencies,
}

/// What became of a VM's pages on a machine of several nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementStats {
    /// Pages (4 KiB) that migrated to another node; those of whole blocks are not among them.
    pub migrated_pages: u64,
    /// 2 MiB blocks that migrated.
    pub migrated_blocks: u64,
    /// Replicas made.
    pub replicated_pages: u64,
    /// Replicated pages that became one again, by a write or for another reason.
    pub collapsed_pages: u64,
    /// Pages that were watched for writes before they may be replicated.
    pub watched_pages: u64,
    /// 2 MiB blocks that were split because their pages have different users.
    pub split_blocks: u64,
    /// 2 MiB blocks that were put together again after whatever had split them.
    pub joined_blocks: u64,
    /// Hot pages that were left where they are, and proposals that could not be carried out.
    pub refused: u64,
    /// How well samples and miss counters agree.
    pub samples: SampleStats,
}

/// What samples of pages asked for, against the machine's miss counters: counted where a VM's pages are placed by samples
/// ([`crate::PlacementBy::Samples`]) on a machine that counts misses nevertheless. Single pages only, for each node that a page
/// is not on; what both want to leave is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleStats {
    /// Both asked for the same: to move it, or to copy it.
    pub agreed: u64,
    /// Only samples asked for something: it is used, but from caches, or not enough.
    pub only_samples: u64,
    /// Only the counters did: samples missed a use, or saw more users.
    pub only_misses: u64,
    /// One asked to move it, the other to copy it.
    pub disagreed: u64,
}

/// Counters of one vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuStats {
    /// Its index in the VM.
    pub index: VcpuIndex,
    /// What it does.
    pub state: VcpuState,
    /// The hart that it runs on, or ran on last.
    pub hart: CpuIndex,
    /// Ticks in which it ran, the monitor's work for it included.
    pub run_ticks: u64,
    /// Ticks in which it wanted to run and could not (steal time).
    pub wait_ticks: u64,
    /// Guest-page faults answered with a page.
    pub faults: u64,
    /// Moves from one hart to another.
    pub migrations: u64,
    /// Exits by cause.
    pub exits: ExitCounts,
}

/// What a vCPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum VcpuState {
    /// Stopped (SBI HSM), or its VM is.
    Stopped,
    /// On a hart.
    Running,
    /// In a run queue.
    Ready,
    /// Waits for an interrupt.
    Waiting,
    /// Its VM is paused.
    Paused,
}

/// Pages in one answer to [`Request::PageMap`](crate::Request::PageMap) at most: bounded work for the monitor.
pub const PAGE_MAP_PART: u64 = 1024;

/// What is behind a page of a VM's RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PageKind {
    /// No machine memory: it was never touched, or given back.
    Absent = 0,
    /// A machine page of its own.
    Private = 1,
    /// A machine page that others have, too, or the disk cache.
    Shared = 2,
    /// Equal machine pages of its own on several nodes.
    Replicated = 3,
}

impl PageKind {
    /// The kind with this number.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Absent,
            1 => Self::Private,
            2 => Self::Shared,
            3 => Self::Replicated,
            _ => return None,
        })
    }
}
