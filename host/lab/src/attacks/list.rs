//! The list.

use config::MachineInterrupts;
use control::{DiskMode, DiskSpec, Interrupts};

use super::{Attack, DISK};
use crate::LabError;
use crate::rig::name;

/// What interrupt controllers a machine has, and its VMs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Board {
    /// AIA, with so many guest interrupt files for each hart.
    Aia(u8),
    /// A PLIC.
    Plic,
}

impl Board {
    /// What the machine has.
    #[must_use]
    pub const fn machine(self) -> MachineInterrupts {
        match self {
            Self::Aia(guest_files) => MachineInterrupts::Aia { guest_files },
            Self::Plic => MachineInterrupts::Plic,
        }
    }

    /// What its VMs have.
    #[must_use]
    pub const fn interrupts(self) -> Interrupts {
        match self {
            // Without guest interrupt files VMs have a PLIC.
            Self::Aia(0) => Interrupts::Auto,
            Self::Aia(_) => Interrupts::Aia,
            Self::Plic => Interrupts::Plic,
        }
    }
}

/// Something that is attacked.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name; with a number behind it, on a machine of so many guest interrupt files.
    pub device: &'static str,
    /// On which machine.
    pub board: Board,
    /// Whether it is a virtio device, to which more is done.
    pub is_virtio: bool,
    /// How.
    pub behaviours: &'static [&'static str],
}

const USUAL: Board = Board::Aia(7);

/// What is done to any virtio device, besides what only makes sense of one.
const TO_VIRTIO: &[&str] = &[
    "refill",
    "rewrite",
    "wild",
    "alias",
    "indirect",
    "nested",
    "long",
    "index",
    "reset",
    "move",
    "features",
    "registers",
    "unbacked",
    "overlap",
    "itself",
    "devices",
    "notify",
    "hot",
    "status",
    "late",
    "events",
    "given",
];
/// What is done to interrupt files.
const TO_FILES: &[&str] = &["registers", "own", "others", "offsets", "files", "wakes"];

/// All that is attacked.
pub const TARGETS: &[Target] = &[
    Target {
        device: "block",
        board: USUAL,
        is_virtio: true,
        behaviours: &["sectors", "discard", "zero", "wipe", "name", "commands", "fill", "read"],
    },
    Target {
        device: "net",
        board: USUAL,
        is_virtio: true,
        behaviours: &["segments", "extensions", "checksums", "flood", "addresses", "tiny", "control"],
    },
    Target {
        device: "console",
        board: USUAL,
        is_virtio: true,
        behaviours: &["control", "opens", "flood", "emergency"],
    },
    Target { device: "rng", board: USUAL, is_virtio: true, behaviours: &[] },
    Target { device: "balloon", board: USUAL, is_virtio: true, behaviours: &["same", "beyond", "all", "report"] },
    Target { device: "uart", board: USUAL, is_virtio: false, behaviours: &["registers", "print", "interrupts"] },
    Target { device: "rtc", board: USUAL, is_virtio: false, behaviours: &["registers", "alarms"] },
    Target { device: "power", board: USUAL, is_virtio: false, behaviours: &["registers"] },
    Target { device: "nothing", board: USUAL, is_virtio: false, behaviours: &["registers"] },
    Target { device: "plic", board: Board::Plic, is_virtio: false, behaviours: &["registers", "claims", "enables"] },
    Target {
        device: "aplic",
        board: USUAL,
        is_virtio: false,
        behaviours: &["registers", "generated", "sources", "domain"],
    },
    Target { device: "imsic", board: USUAL, is_virtio: false, behaviours: TO_FILES },
    Target { device: "imsic0", board: Board::Aia(0), is_virtio: false, behaviours: TO_FILES },
    Target { device: "imsic1", board: Board::Aia(1), is_virtio: false, behaviours: TO_FILES },
    Target { device: "imsic2", board: Board::Aia(2), is_virtio: false, behaviours: TO_FILES },
    Target {
        device: "sbi",
        board: USUAL,
        is_virtio: false,
        behaviours: &[
            "calls", "lives", "sleeps", "messages", "fences", "text", "stolen", "events", "firmware", "timers",
        ],
    },
    Target { device: "csr", board: USUAL, is_virtio: false, behaviours: &["all", "waits"] },
    Target {
        device: "memory",
        board: USUAL,
        is_virtio: false,
        behaviours: &["ping-pong", "holes", "outside", "across", "atomics", "tables"],
    },
];

/// All attacks on a device by so many vCPUs. None: there is no such device.
#[must_use]
pub fn on(device: &str, vcpus: u16) -> Vec<Attack> {
    let of = |target: &'static Target| {
        let all = if target.is_virtio { TO_VIRTIO } else { &[] };
        let each = all.iter().chain(target.behaviours);
        each.map(move |behaviour| Attack { device: target.device, behaviour, vcpus })
    };
    TARGETS.iter().filter(|target| target.device == device).flat_map(of).collect()
}

/// The machine on which a device is attacked.
#[must_use]
pub fn board(device: &str) -> Board {
    TARGETS.iter().find(|target| target.device == device).map_or(USUAL, |target| target.board)
}

/// An attacker's own view of the machine's disk.
pub(super) fn disk() -> Result<DiskSpec, LabError> {
    Ok(DiskSpec {
        name: name("data")?,
        source: name(DISK)?,
        partition: None,
        mode: DiskMode::CopyOnWrite,
        overlay: None,
        limit_mib: None,
    })
}
