//! A virtual machine as it is to be.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::name::{Label, Name};

/// Most vCPUs of one VM.
pub const MAX_VCPUS: u16 = 32;
/// Least guest memory, in MiB: a kernel, its device tree and a small initrd.
pub const MIN_MEMORY_MIB: u32 = 32;
/// Most guest memory, in MiB (1 TiB).
pub const MAX_MEMORY_MIB: u32 = 1024 * 1024;
/// Longest kernel command line, in bytes.
pub const MAX_CMDLINE: usize = 2048;
/// virtio-mmio slots of the virtual platform; each disk, net, rng and balloon takes one, all ports together one.
pub const VIRTIO_SLOTS: usize = 8;
/// Longest disk name, in bytes: the length of a virtio block serial.
pub const MAX_DISK_NAME: usize = 20;
/// Most named ports of one VM.
pub const MAX_PORTS: usize = 8;
/// Most nodes that a guest sees.
pub const MAX_NODES: u16 = 8;
/// Smallest MTU of a virtual net, in bytes.
pub const MIN_MTU: u16 = 68;
/// MTU where nothing else is said, in bytes.
pub const DEFAULT_MTU: u16 = 1500;
/// Scheduling weight where nothing else is said.
pub const DEFAULT_WEIGHT: u16 = 100;
/// Largest scheduling weight.
pub const MAX_WEIGHT: u16 = 10_000;
/// Where a guest's memory begins.
pub const RAM_START: u64 = 0x8000_0000;
/// Bytes at the end of a guest's memory that are its device tree's.
pub const TREE_ROOM: u64 = 2 << 20;
/// Most pieces that a program is loaded in.
pub const MAX_SEGMENTS: usize = 16;
/// The port on which qemu-guest-agent listens.
pub const GUEST_AGENT_PORT: &str = "org.qemu.guest_agent.0";

/// A virtual machine as it is to be. Check it with [`VmSpec::validate`] before use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmSpec {
    /// Its name, unique in the machine.
    pub name: Name,
    /// Number of vCPUs, 1 to [`MAX_VCPUS`].
    pub vcpus: u16,
    /// Nodes that the guest sees, with equal parts of its vCPUs and memory: 1 hides that the machine has any. At most one
    /// per vCPU.
    pub nodes: u16,
    /// Guest memory in MiB, a multiple of 2. Machine memory is taken only as the guest touches it.
    pub memory_mib: u32,
    /// MiB that are kept for it, of all that it may take: its memory, and modified blocks of disks in memory. It has more only as
    /// long as nobody misses it, and ends when somebody does. `None`: everything is kept.
    pub promised_mib: Option<u32>,
    /// What runs first.
    pub boot: Boot,
    /// Its disks, in the order of their virtio slots (`vda`, `vdb`, ...).
    pub disks: Vec<DiskSpec>,
    /// Its network interfaces.
    pub nets: Vec<NetSpec>,
    /// Named virtio-serial ports, which [`crate::Request::PortOpen`] reaches.
    pub ports: Vec<Label>,
    /// Whether it has an entropy device.
    pub rng: bool,
    /// Whether it has a balloon with free page reporting: the guest's way to give memory back.
    pub balloon: bool,
    /// Its interrupt controllers.
    pub interrupts: Interrupts,
    /// The largest G-stage leaves to use.
    pub pages: Pages,
    /// Whether it may have memory in common with other VMs, copy-on-write: pages of disks that it reads, and pages that are
    /// found to be equal. One that may not is out of reach of guesses by the time that a write or a read takes.
    pub sharing: bool,
    /// Whether it starts with the machine.
    pub autostart: bool,
    /// What happens when the guest fails (see [`crate::StopReason::is_crash`]).
    pub on_crash: OnCrash,
    /// What happens when its cell is lost.
    pub on_failure: OnFailure,
    /// Its share of contended harts relative to others, 1 to [`MAX_WEIGHT`]; [`DEFAULT_WEIGHT`] is usual.
    pub weight: u16,
    /// Whether its vCPUs run at the same time where harts are contended.
    pub gang: Gang,
    /// What becomes of its pages on a machine of several nodes.
    pub placement: Placement,
    /// The cell that it lives in, by its position in [`crate::BootConfig::cells`]. Only the first, 0, has disks, networks and
    /// ports.
    pub cell: u8,
}

impl VmSpec {
    /// A VM with these essentials and the usual rest: a guest-agent port, rng and balloon, no disk and no net.
    #[must_use]
    pub fn new(name: Name, vcpus: u16, memory_mib: u32, boot: Boot) -> Self {
        Self {
            name,
            vcpus,
            memory_mib,
            promised_mib: None,
            boot,
            disks: Vec::new(),
            nets: Vec::new(),
            ports: Label::new(GUEST_AGENT_PORT).into_iter().collect(),
            rng: true,
            balloon: true,
            nodes: 1,
            interrupts: Interrupts::Auto,
            pages: Pages::Large,
            sharing: true,
            autostart: true,
            on_crash: OnCrash::Stop,
            on_failure: OnFailure::Stop,
            weight: DEFAULT_WEIGHT,
            gang: Gang::Auto,
            placement: Placement::Dynamic,
            cell: 0,
        }
    }

    /// Bytes of its memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        u64::from(self.memory_mib) << 20
    }

    /// Most MiB of memory for modified blocks of `disk`, if they are kept in memory: what the disk says, or half as much as the VM has
    /// memory. That is room for what a system writes beside its files (logs, package lists), and no VM takes more than half as much again
    /// as its description's first number says.
    #[must_use]
    pub fn limit_mib(&self, disk: &DiskSpec) -> Option<u32> {
        disk.is_in_memory().then(|| disk.limit_mib.unwrap_or(self.memory_mib / 2))
    }

    /// MiB that it may take: its memory, and modified blocks of disks in memory.
    #[must_use]
    pub fn most_mib(&self) -> u64 {
        let limits = self.disks.iter().filter_map(|disk| self.limit_mib(disk));
        limits.fold(u64::from(self.memory_mib), |sum, limit| sum.saturating_add(limit.into()))
    }

    /// MiB that are kept for it.
    #[must_use]
    pub fn kept_mib(&self) -> u64 {
        self.promised_mib.map_or_else(|| self.most_mib(), u64::from)
    }

    /// virtio-mmio slots that it needs.
    #[must_use]
    pub fn virtio_slots(&self) -> usize {
        let single = [!self.ports.is_empty(), self.rng, self.balloon];
        let singles = single.iter().filter(|present| **present).count();
        self.disks.len().saturating_add(self.nets.len()).saturating_add(singles)
    }
}

/// What a VM runs first. The names are modules: files of the boot bundle, or uploaded by
/// [`crate::Request::PutModule`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Boot {
    /// A kernel in RISC-V Linux `Image` format, entered as the Linux boot protocol says.
    Kernel {
        /// The kernel.
        kernel: Label,
        /// Its initial RAM disk.
        initrd: Option<Label>,
        /// Its command line, at most [`MAX_CMDLINE`] bytes, without NUL.
        cmdline: String,
    },
    /// A firmware for S-mode, placed at the start of RAM as on QEMU `virt` (Debian's `u-boot-qemu` for example).
    Firmware {
        /// The firmware.
        module: Label,
    },
    /// A program for S-mode that says itself where it goes: an ELF file, or a flat binary at an address. Its first hart
    /// enters it with the hart's id in `a0`, the device tree's address in `a1`, and translation off.
    Program {
        /// The file.
        program: Label,
        /// Where it is entered.
        entry: u64,
        /// Which pieces of the file go where, 1 to [`MAX_SEGMENTS`].
        segments: Vec<Segment>,
        /// Its initial RAM disk.
        initrd: Option<Label>,
        /// Its command line, at most [`MAX_CMDLINE`] bytes, without NUL.
        cmdline: String,
    },
}

/// A piece of a program: bytes of its file, and zeroes behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Its first byte in the file.
    pub offset: u64,
    /// Bytes that come from the file.
    pub file_bytes: u64,
    /// Where it goes in the guest's memory.
    pub address: u64,
    /// Bytes that it takes there; those that the file does not have are zero.
    pub memory_bytes: u64,
}

impl Segment {
    /// The address behind it; `None` if there is no such address.
    #[must_use]
    pub const fn end(&self) -> Option<u64> {
        self.address.checked_add(self.memory_bytes)
    }

    /// Whether both take a byte of memory.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let ends = self.end().zip(other.end());
        ends.is_none_or(|(end, other_end)| self.address < other_end && other.address < end)
    }
}

impl Boot {
    /// The modules that it names.
    pub fn modules(&self) -> impl Iterator<Item = &Label> {
        let (first, second) = match self {
            Self::Kernel { kernel, initrd, .. } => (kernel, initrd.as_ref()),
            Self::Program { program, initrd, .. } => (program, initrd.as_ref()),
            Self::Firmware { module } => (module, None),
        };
        core::iter::once(first).chain(second)
    }
}

/// A virtual disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSpec {
    /// Its serial number in the guest (`/dev/disk/by-id/virtio-NAME`), at most [`MAX_DISK_NAME`] bytes, unique in
    /// the VM.
    pub name: Name,
    /// The machine's disk (by its serial) that holds the data.
    pub source: Name,
    /// The label of the GPT partition on it; the whole disk if `None`.
    pub partition: Option<String>,
    /// Who sees what the guest writes.
    pub mode: DiskMode,
    /// Where a copy-on-write disk keeps its modified blocks, so that they outlast VM and machine; in memory if `None`.
    pub overlay: Option<OverlaySpec>,
    /// Most MiB of modified blocks that a copy-on-write disk may have. Without an overlay `None` stands for
    /// [`VmSpec::limit_mib`]; with one, the disk's size is the limit then, and nothing is kept for the disk.
    pub limit_mib: Option<u32>,
}

impl DiskSpec {
    /// Whether what the guest writes stays in the machine's memory.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.mode == DiskMode::CopyOnWrite && self.overlay.is_none()
    }

    /// The name of its volume in the overlay's store, if `vm` has it.
    #[must_use]
    pub fn volume_name(&self, vm: &Name) -> String {
        alloc::format!("{vm}/{}", self.name)
    }
}

/// A store of modified blocks: a partition of a machine disk, or a whole disk without partitions, for any number of VMs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlaySpec {
    /// The machine's disk (by its serial).
    pub disk: Name,
    /// The label of the GPT partition on it; the whole disk if `None`.
    pub partition: Option<String>,
    /// The snapshot that the VM's disk begins as, if it is not there yet.
    pub snapshot: Option<Name>,
}

/// Who sees what a guest writes to its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskMode {
    /// Only this VM. Modified blocks live in memory until it stops, or for good in an overlay. Many VMs may share the source.
    CopyOnWrite,
    /// The machine's disk is written. Only one VM at a time may have it so, and no other VM beside it.
    Persistent,
    /// Writes fail.
    ReadOnly,
}

/// A virtual network interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetSpec {
    /// The subnet to which it is plugged.
    pub subnet: Name,
    /// Its address; the monitor chooses a stable one from VM name and position if `None`.
    pub mac: Option<MacAddress>,
    /// Its MTU in bytes, [`MIN_MTU`] to 65535.
    pub mtu: u16,
}

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Whether a group and not one interface is meant.
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::str::FromStr for MacAddress {
    type Err = BadMac;

    fn from_str(text: &str) -> Result<Self, BadMac> {
        let is_hex_pair = |part: &&str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(is_hex_pair).ok_or(BadMac)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| BadMac)?;
        }
        if parts.next().is_some() { Err(BadMac) } else { Ok(Self(bytes)) }
    }
}

/// A text that is no Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an Ethernet address is six pairs of hex digits, as 02:00:00:00:00:01")]
pub struct BadMac;

/// The interrupt controllers of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Interrupts {
    /// AIA if the machine has it, else a PLIC.
    Auto,
    /// APLIC and IMSICs; refused on a machine without AIA.
    Aia,
    /// A PLIC, on any machine.
    Plic,
}

/// The largest G-stage leaves that a VM gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pages {
    /// 2 MiB where a whole block is free on the right node, 4 KiB elsewhere.
    Large,
    /// 4 KiB only: for experiments.
    Base,
}

/// What becomes of a VM's pages on a machine of several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// They migrate to the node that uses them, and are replicated for several that read them.
    Dynamic,
    /// They migrate only.
    Migrate,
    /// They are replicated only.
    Replicate,
    /// They stay where they were first touched.
    FirstTouch,
}

/// Whether the vCPUs of a VM run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Gang {
    /// While there are signs that they wait for each other.
    Auto,
    /// Always.
    Yes,
    /// Never.
    No,
}

impl Gang {
    /// The words for them.
    pub const LABELS: [(&'static str, Self); 3] = [("auto", Self::Auto), ("yes", Self::Yes), ("no", Self::No)];

    /// The word for it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Yes => "yes",
            Self::No => "no",
        }
    }
}

/// What happens to a VM when the hardware under it fails. A VM of the first cell ends in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnFailure {
    /// It has ended.
    Stop,
    /// The first cell makes it anew and starts it, if it ran.
    Restart,
}

/// What happens when a guest fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnCrash {
    /// It stays stopped, its reason can be read.
    Stop,
    /// It boots again.
    Reset,
}
