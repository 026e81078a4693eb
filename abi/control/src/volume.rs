//! What stores of modified blocks hold.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::name::Name;

/// A store: one partition with volumes and snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreInfo {
    /// Its disk, or `DISK/PARTITION`.
    pub name: String,
    /// Room for modified blocks, in bytes.
    pub total_bytes: u64,
    /// Of that, free.
    pub free_bytes: u64,
    /// Its log could not be written: it takes no more writes.
    pub failed: bool,
    /// Its volumes and snapshots, oldest first.
    pub volumes: Vec<VolumeInfo>,
}

/// A volume (a VM's disk) or a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeInfo {
    /// Its name; a volume's is `VM/DISK`.
    pub name: String,
    /// Whether it is a snapshot.
    pub snapshot: bool,
    /// The snapshot that it continues.
    pub parent: Option<String>,
    /// The machine's disk below it, or `DISK/PARTITION`.
    pub base: String,
    /// Its size as the guest sees it, in bytes.
    pub bytes: u64,
    /// Modified blocks of its own, in bytes.
    pub own_bytes: u64,
    /// The VM that uses it.
    pub holder: Option<Name>,
}
