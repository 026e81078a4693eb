//! Everything that the monitor is told at boot.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cell::CellSpec;
use crate::name::Name;
use crate::problem::SpecError;
use crate::spec::VmSpec;

/// Version of [`BootConfig`]'s layout.
pub const BOOT_CONFIG_VERSION: u32 = 10;
/// Its file name in the boot bundle (a cpio "newc" archive). Every other file there is a module.
pub const BOOT_CONFIG_NAME: &str = "boot.cfg";
/// Most VMs of a machine.
pub const MAX_VMS: usize = 64;
/// Most subnets of a machine.
pub const MAX_SUBNETS: usize = 16;

/// Everything that the monitor is told at boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootConfig {
    /// [`BOOT_CONFIG_VERSION`]; stays the first field for ever.
    pub version: u32,
    /// The machine's name.
    pub machine_name: Name,
    /// Its cells, at most [`crate::MAX_CELLS`]; empty: all nodes are one cell.
    pub cells: Vec<CellSpec>,
    /// Its subnets, at most [`MAX_SUBNETS`].
    pub subnets: Vec<SubnetSpec>,
    /// Its first VMs, at most [`MAX_VMS`]. Others may be created later.
    pub vms: Vec<VmSpec>,
    /// How the monitor itself behaves.
    pub options: MonitorOptions,
}

/// A virtual Ethernet switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubnetSpec {
    /// Its name, unique in the machine.
    pub name: Name,
    /// Whether it has a gateway port to the machine's network card. At most one subnet has.
    pub gateway: bool,
}

/// How the monitor itself behaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitorOptions {
    /// Time slice of a vCPU on a contended hart, in microseconds, 100 to 1,000,000.
    pub time_slice_us: u32,
    /// Most memory of the disk cache, in MiB; 0 = an eighth of the machine's memory.
    pub disk_cache_mib: u32,
    /// Console output kept per VM for scroll-back, in KiB, 4 to 1024.
    pub console_kib: u32,
    /// Whether every vCPU keeps a trace of its latest exits (a dozen instructions each). Events always are kept.
    pub trace: bool,
    /// What the monitor writes to the machine's own log.
    pub log: LogLevel,
    /// What it judges by where pages should be.
    pub placement_by: PlacementBy,
    /// Whether clients may make it panic, or refuse memory that is there: for tests of what comes then.
    pub allow_panic: bool,
    /// How often the machine was started again after a panic.
    pub restarts: u32,
}

impl Default for MonitorOptions {
    fn default() -> Self {
        Self {
            time_slice_us: 10_000,
            disk_cache_mib: 0,
            console_kib: 64,
            trace: true,
            log: LogLevel::Info,
            placement_by: PlacementBy::Misses,
            allow_panic: false,
            restarts: 0,
        }
    }
}

/// What the monitor judges by where a VM's pages should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlacementBy {
    /// The machine's miss counters, where it has some; samples where it has none.
    Misses,
    /// Samples, even where the machine counts misses: to see how well they agree.
    Samples,
}

/// What the monitor writes to the machine's own log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LogLevel {
    /// Only faults of the monitor itself.
    Error,
    /// And what the machine lacks or refuses.
    Warn,
    /// And the steps of boot and of VM lives.
    Info,
    /// And details for debugging.
    Debug,
}

/// Why bytes are no [`BootConfig`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BootConfigError {
    /// They begin with another version.
    #[error("the boot configuration has version {found}, this monitor reads version {BOOT_CONFIG_VERSION}")]
    Version {
        /// The version found.
        found: u32,
    },
    /// They are cut short or damaged.
    #[error("the boot configuration is damaged")]
    Damaged,
    /// They describe something impossible.
    #[error("the boot configuration is wrong: {0}")]
    Invalid(#[from] SpecError),
}

impl BootConfig {
    /// A machine without VMs.
    #[must_use]
    pub fn new(machine_name: Name) -> Self {
        Self {
            version: BOOT_CONFIG_VERSION,
            machine_name,
            cells: Vec::new(),
            subnets: Vec::new(),
            vms: Vec::new(),
            options: MonitorOptions::default(),
        }
    }

    /// The content of the file [`BOOT_CONFIG_NAME`].
    ///
    /// # Errors
    /// [`BootConfigError::Invalid`] if it does not validate: nobody should write such a file.
    pub fn to_bytes(&self) -> Result<Vec<u8>, BootConfigError> {
        self.validate()?;
        postcard::to_allocvec(self).map_err(|_| BootConfigError::Damaged)
    }

    /// Reads and validates the file [`BOOT_CONFIG_NAME`].
    ///
    /// # Errors
    /// Says whether version, encoding or content is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BootConfigError> {
        let (found, _) = postcard::take_from_bytes::<u32>(bytes).map_err(|_| BootConfigError::Damaged)?;
        if found != BOOT_CONFIG_VERSION {
            return Err(BootConfigError::Version { found });
        }
        match postcard::take_from_bytes::<Self>(bytes) {
            Ok((config, [])) => {
                config.validate()?;
                Ok(config)
            }
            _ => Err(BootConfigError::Damaged),
        }
    }
}
