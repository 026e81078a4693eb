//! What a machine file amounts to.

use std::net::SocketAddrV4;
use std::path::PathBuf;

use control::{BootConfig, Label, Name, VmSpec};

use crate::model::ModelPlan;
use crate::problem::{Grant, Problem};

/// What a machine file amounts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachinePlan {
    /// The machine's name.
    pub name: Name,
    /// The file that describes it.
    pub file: PathBuf,
    /// The machine to emulate.
    pub hardware: Hardware,
    /// What the monitor is told.
    pub boot: BootConfig,
    /// The files that go with it into the boot bundle.
    pub modules: Vec<ModuleFile>,
    /// What is possible but looks wrong.
    pub warnings: Vec<Problem>,
    /// What the file asks of the host beyond reading what lies beside it, in the order of its lines.
    pub grants: Vec<Grant>,
    /// What comes after a panic of the monitor.
    pub on_panic: OnPanic,
}

/// What becomes of a machine whose monitor has panicked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnPanic {
    /// It stays off.
    #[default]
    Stop,
    /// It is started again, a few times.
    Restart,
}

/// The machine to emulate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// QEMU's name of the CPU model.
    pub cpu: String,
    /// Its interrupt controllers.
    pub interrupts: MachineInterrupts,
    /// Its nodes.
    pub nodes: Vec<NodePlan>,
    /// Distances between nodes, a row per node; `None` = QEMU's (10 local, 20 remote).
    pub distances: Option<Vec<Vec<u8>>>,
    /// Its disks.
    pub disks: Vec<DiskPlan>,
    /// Its network card; `None` = it has none.
    pub uplink: Option<Uplink>,
    /// Whether time counts instructions (deterministic, and one host thread for all harts).
    pub icount: bool,
    /// The model of a NUMA machine that it runs with; `None` = QEMU as it is.
    pub model: Option<ModelPlan>,
    /// What runs in M-mode.
    pub firmware: Firmware,
    /// The emulator; `None` = `qemu-system-riscv64` in `PATH`.
    pub qemu: Option<PathBuf>,
    /// The monitor's image; `None` = the caller knows it.
    pub monitor: Option<PathBuf>,
    /// Further arguments for the emulator, as they are.
    pub qemu_args: Vec<String>,
}

impl Hardware {
    /// All harts.
    #[must_use]
    pub fn harts(&self) -> u32 {
        self.nodes.iter().map(|node| u32::from(node.harts)).sum()
    }

    /// All memory, in MiB.
    #[must_use]
    pub fn memory_mib(&self) -> u64 {
        self.nodes.iter().map(|node| u64::from(node.memory_mib)).sum()
    }
}

/// The machine's network card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uplink {
    /// What VMs reach through it.
    pub reach: Reach,
    /// Ports of the host that lead to VMs, whatever VMs reach.
    pub forwards: Vec<Forward>,
}

/// What VMs reach through the machine's network card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// An address from DHCP, and nothing else.
    #[default]
    Nothing,
    /// What this host reaches, and the host itself: all of its ports, also those that listen for the host alone.
    Host,
}

/// A TCP port of the host that leads to a VM. Only the host itself can call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The port at 127.0.0.1.
    pub host_port: u16,
    /// Where it leads.
    pub guest: SocketAddrV4,
}

/// What runs in M-mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Firmware {
    /// The emulator's own.
    #[default]
    OpenSbi,
    /// The one whose nodes, links and pages can be made to fail.
    Faults,
}

/// The interrupt controllers of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineInterrupts {
    /// APLIC and IMSICs.
    Aia {
        /// Guest interrupt files per hart, 0 to 7.
        guest_files: u8,
    },
    /// A PLIC.
    Plic,
}

/// A node of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePlan {
    /// Its harts.
    pub harts: u16,
    /// Its memory in MiB.
    pub memory_mib: u32,
}

/// A disk of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskPlan {
    /// Its name: the serial that the monitor sees.
    pub name: Name,
    /// Where its data is.
    pub backing: Backing,
    /// Whether writes are refused.
    pub read_only: bool,
    /// How long it takes, in the machine model's time; `None` = as long as the host takes.
    pub model: Option<DiskModel>,
}

/// How long a disk takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskModel {
    /// The disk.
    pub preset: disk_model::Preset,
    /// Divides the time of its seeks, or of its cells.
    pub scale: u32,
}

/// Where a disk's data is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// In an image file.
    File {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: ImageFormat,
    },
    /// Nowhere: empty at first, and gone with the machine.
    Scratch {
        /// Its size in MiB.
        size_mib: u32,
    },
}

/// Format of a disk image. The machine file says it: a guest writes the content of a raw image, and could make it look like another
/// format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// The bytes as they are.
    Raw,
    /// QEMU's copy-on-write format.
    Qcow2 {
        /// The image that it lies over, as the machine file says; what the image itself says does not count.
        backing: Option<BackingImage>,
    },
}

/// An image below another one. It is only read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackingImage {
    /// The file.
    pub path: PathBuf,
    /// Whether it is a qcow2 image; else its bytes count as they are.
    pub is_qcow2: bool,
}

impl ImageFormat {
    /// QEMU's name of it.
    #[must_use]
    pub const fn driver(&self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 { .. } => "qcow2",
        }
    }
}

/// A file that the monitor gets under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleFile {
    /// The name that VM descriptions use. It tells the file's identity: another path or content has another name.
    pub label: Label,
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
}

/// What a VM file amounts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmPlan {
    /// The VM.
    pub spec: VmSpec,
    /// The files that it boots from.
    pub modules: Vec<ModuleFile>,
    /// What is possible but looks wrong.
    pub warnings: Vec<Problem>,
}
