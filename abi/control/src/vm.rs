//! A virtual machine as it is.

use addr::{NodeId, VcpuIndex, VmId};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::Text;
use crate::name::Name;

/// A virtual machine as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmSummary {
    /// Its name.
    pub name: Name,
    /// Its identity in events; never reused while the machine runs.
    pub id: VmId,
    /// What it does.
    pub state: VmState,
    /// Why it stopped last; `None` if it never did.
    pub reason: Option<StopReason>,
    /// Number of vCPUs.
    pub vcpus: u16,
    /// Guest memory in MiB.
    pub memory_mib: u32,
    /// MiB that are kept for it, of that memory and of modified blocks of disks in memory.
    pub promised_mib: u64,
    /// Machine memory behind it, per node that has any.
    pub resident: Vec<VmMemory>,
    /// Ticks since its last start; 0 if it does not run.
    pub uptime_ticks: u64,
    /// How often the guest was reset since it was created.
    pub resets: u32,
    /// The cell that it is in.
    pub cell: u8,
    /// Its copy-on-write disks.
    pub disks: Vec<DiskUse>,
}

/// How much of what it may modify a VM has modified of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUse {
    /// The disk's name in the VM.
    pub name: Name,
    /// Whether modified blocks are in a store, and last.
    pub lasts: bool,
    /// Bytes of modified blocks, and in memory of what finds them; 0 while the VM is stopped.
    pub used_bytes: u64,
    /// Most that there may be. `None`: as many as the disk has blocks.
    pub limit_bytes: Option<u64>,
}

/// The life of a VM.
///
/// ```text
/// CreateVm -> Stopped --StartVm--> Running <--ResumeVm/PauseVm--> Paused
///                ^                    |                              |
///                +--- guest powers off, KillVm, guest fault ---------+
/// DestroyVm is possible in Stopped alone.
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum VmState {
    /// No vCPU runs and none of its memory is held, but for the modified blocks of its disks.
    Stopped,
    /// Its vCPUs run or wait for interrupts; or they are about to, when what it boots from is in its memory.
    Running,
    /// Its vCPUs stand still; memory and devices are kept.
    Paused,
    /// Its vCPUs are leaving their harts, then its memory goes back.
    Stopping,
}

impl VmState {
    /// The word for it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopping => "stopping",
        }
    }
}

impl core::fmt::Display for VmState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.label())
    }
}

/// Why a VM stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// The guest powered off in order.
    PowerOff,
    /// The guest reported a failure of its own (SBI system reset with reason "system failure", or the failure code
    /// of the power-off device).
    GuestFailure {
        /// The code that it gave; 0 if none.
        code: u32,
    },
    /// [`crate::Request::KillVm`].
    Killed,
    /// [`crate::Request::Shutdown`] of the machine.
    MachineShutdown,
    /// The guest did what no guest may do.
    GuestFault {
        /// The vCPU that did it, if one did.
        vcpu: Option<VcpuIndex>,
        /// The device or facility concerned, as `virtio-blk root` or `vcpu`.
        device: Text,
        /// What was wrong.
        reason: Text,
        /// The offending value: an address, an index, a length.
        value: u64,
    },
    /// The guest reset itself again and again without getting anywhere.
    ResetLoop {
        /// Resets in the last minute.
        resets: u32,
    },
    /// The machine had no memory left for it.
    OutOfMemory {
        /// Bytes that were needed at once.
        needed: u64,
    },
    /// Its cell is lost.
    CellLost {
        /// The cell.
        cell: Name,
    },
}

impl StopReason {
    /// Whether the guest failed, so that [`crate::OnCrash`] applies.
    #[must_use]
    pub const fn is_crash(&self) -> bool {
        matches!(self, Self::GuestFailure { .. } | Self::GuestFault { .. })
    }
}

impl core::fmt::Display for StopReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::PowerOff => f.write_str("powered off"),
            Self::GuestFailure { code } => write!(f, "guest reported failure {code}"),
            Self::Killed => f.write_str("killed"),
            Self::MachineShutdown => f.write_str("machine shut down"),
            Self::GuestFault { vcpu: Some(vcpu), device, reason, value } => {
                write!(f, "guest fault on vCPU {vcpu}: {device}: {reason} ({value:#x})")
            }
            Self::GuestFault { vcpu: None, device, reason, value } => {
                write!(f, "guest fault: {device}: {reason} ({value:#x})")
            }
            Self::ResetLoop { resets } => write!(f, "reset loop: {resets} resets within a minute"),
            Self::OutOfMemory { needed } => write!(f, "out of machine memory ({needed} bytes needed)"),
            Self::CellLost { cell } => write!(f, "cell {cell} is lost"),
        }
    }
}

/// Machine memory of one node behind one VM, in 4 KiB pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmMemory {
    /// The node: in the first cell as [`crate::MachineInfo`] numbers them, elsewhere by the machine's numbers.
    pub node: NodeId,
    /// Guest memory in 2 MiB leaves (512 pages each).
    pub large_pages: u64,
    /// Guest memory in 4 KiB leaves, of this VM alone.
    pub private_pages: u64,
    /// Pages shared copy-on-write with other VMs or the disk cache.
    pub shared_pages: u64,
    /// Replicas of pages whose home is another node.
    pub replica_pages: u64,
    /// Modified blocks of its copy-on-write disks.
    pub disk_pages: u64,
    /// G-stage tables.
    pub table_pages: u64,
    /// The monitor's own bookkeeping for it: pmap, vCPUs, device models.
    pub monitor_pages: u64,
}

impl VmMemory {
    /// Pages that the guest sees as its memory.
    #[must_use]
    pub const fn guest_pages(&self) -> u64 {
        self.large_pages.saturating_add(self.private_pages).saturating_add(self.shared_pages)
    }

    /// All pages.
    #[must_use]
    pub const fn total_pages(&self) -> u64 {
        self.guest_pages()
            .saturating_add(self.replica_pages)
            .saturating_add(self.disk_pages)
            .saturating_add(self.table_pages)
            .saturating_add(self.monitor_pages)
    }
}
