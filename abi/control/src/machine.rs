//! The machine as the monitor found it.

use addr::{CpuIndex, HartId, NodeId};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::name::{Label, Name};

/// The machine as the monitor found it. Does not change while it runs, but for `online` and free memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineInfo {
    /// Its name, from the boot configuration.
    pub name: Name,
    /// The model string of its device tree.
    pub model: String,
    /// Its nodes, by id.
    pub nodes: Vec<NodeInfo>,
    /// Distances between nodes, row by row, as in the device tree (10 = local).
    pub distances: Vec<u8>,
    /// Its harts, by index.
    pub harts: Vec<HartInfo>,
    /// Its disks.
    pub disks: Vec<DiskInfo>,
    /// Its other devices that the monitor drives.
    pub devices: Vec<DeviceInfo>,
    /// Ticks of the `time` CSR per second.
    pub timebase_hz: u64,
    /// Ticks when this was made, on the same clock as events.
    pub now_ticks: u64,
    /// What runs in M-mode.
    pub firmware: FirmwareInfo,
    /// The monitor.
    pub monitor: MonitorInfo,
    /// How its harts are interrupted.
    pub interrupts: InterruptArchitecture,
    /// Modules that VMs can boot.
    pub modules: Vec<ModuleInfo>,
}

/// A node of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeInfo {
    /// Its id.
    pub id: NodeId,
    /// Its memory in bytes.
    pub total_bytes: u64,
    /// Of it, free for VMs.
    pub free_bytes: u64,
}

/// A hart of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HartInfo {
    /// Its dense index.
    pub index: CpuIndex,
    /// Its SBI hart id.
    pub hart: HartId,
    /// Its node.
    pub node: NodeId,
    /// Whether it runs the monitor.
    pub online: bool,
    /// Its ISA in short, as `rv64imafdcvh sv57 sstc svadu smstateen`.
    pub isa: String,
    /// Guest interrupt files of its IMSIC.
    pub guest_files: u16,
}

/// A disk of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskInfo {
    /// Its serial, the name that VM descriptions use.
    pub name: Name,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether it refuses writes.
    pub read_only: bool,
    /// Labels of its GPT partitions.
    pub partitions: Vec<String>,
    /// The VM that mounts it, or part of it, persistent.
    pub persistent_for: Option<Name>,
}

/// A device of the machine that the monitor drives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// What it is.
    pub kind: DeviceKind,
    /// Where it is: a device-tree node or PCI address.
    pub location: String,
    /// The node that it is near to, if the device tree says.
    pub node: Option<NodeId>,
}

/// Kinds of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceKind {
    /// The UART of the machine's own log.
    Uart,
    /// A disk.
    Disk,
    /// A network card.
    Network,
    /// The port of this protocol.
    ControlPort,
    /// Miss counters for every page and node, as a machine model has them.
    MissCounters {
        /// Version of their layout.
        layout: u32,
        /// Number of pages that are counted.
        pages: u64,
    },
}

/// What runs in M-mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirmwareInfo {
    /// SBI specification version: major in bits 24..31, minor below.
    pub sbi_version: u32,
    /// SBI implementation id (1 = OpenSBI, 4 = RustSBI, ...).
    pub implementation: u64,
    /// Its version, as it counts.
    pub implementation_version: u64,
}

/// The monitor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitorInfo {
    /// Its version and commit.
    pub version: String,
    /// Bytes of text.
    pub text_bytes: u64,
    /// Bytes of read-only data.
    pub rodata_bytes: u64,
    /// Bytes of data and bss.
    pub data_bytes: u64,
    /// The G-stage mode in use, as `sv39x4`.
    pub gstage_mode: String,
    /// Bits of `hgatp.VMID`.
    pub vmid_bits: u8,
}

/// How harts are interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InterruptArchitecture {
    /// PLIC only.
    Plic,
    /// APLIC in direct mode, no IMSIC.
    Aplic,
    /// APLIC and IMSICs, guest files where there are any.
    Aia,
}

impl core::fmt::Display for InterruptArchitecture {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Plic => "PLIC",
            Self::Aplic => "APLIC",
            Self::Aia => "AIA",
        })
    }
}

/// A module in the monitor's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleInfo {
    /// Its name.
    pub name: Label,
    /// Its size in bytes.
    pub bytes: u64,
}
