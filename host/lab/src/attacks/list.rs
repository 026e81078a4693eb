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
    /// How.
    pub behaviours: &'static [&'static str],
}

const USUAL: Board = Board::Aia(7);

/// What is done to any virtio device.
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
];

/// All that is attacked.
pub const TARGETS: &[Target] = &[
    Target { device: "block", board: USUAL, behaviours: TO_VIRTIO },
    Target { device: "net", board: USUAL, behaviours: TO_VIRTIO },
    Target { device: "console", board: USUAL, behaviours: TO_VIRTIO },
    Target { device: "rng", board: USUAL, behaviours: TO_VIRTIO },
    Target { device: "balloon", board: USUAL, behaviours: TO_VIRTIO },
    Target { device: "uart", board: USUAL, behaviours: &["registers"] },
    Target { device: "rtc", board: USUAL, behaviours: &["registers"] },
    Target { device: "power", board: USUAL, behaviours: &["registers"] },
    Target { device: "plic", board: Board::Plic, behaviours: &["registers"] },
    Target { device: "aplic", board: USUAL, behaviours: &["registers"] },
    Target { device: "imsic", board: USUAL, behaviours: &["registers"] },
    Target { device: "imsic0", board: Board::Aia(0), behaviours: &["registers"] },
    Target { device: "imsic1", board: Board::Aia(1), behaviours: &["registers"] },
    Target { device: "imsic2", board: Board::Aia(2), behaviours: &["registers"] },
    Target { device: "nothing", board: USUAL, behaviours: &["registers"] },
    Target { device: "sbi", board: USUAL, behaviours: &["calls"] },
];

/// All attacks on a device by so many vCPUs. None: there is no such device.
#[must_use]
pub fn on(device: &str, vcpus: u16) -> Vec<Attack> {
    let of = |target: &'static Target| {
        target.behaviours.iter().map(move |behaviour| Attack { device: target.device, behaviour, vcpus })
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
