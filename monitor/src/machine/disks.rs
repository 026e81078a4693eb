//! The machine's disks as VMs use them.

use super::devices;
use addr::NodeId;
use alloc::vec::Vec;
use control::{ControlError, DeviceInfo, DiskInfo, Name, VmSpec};
use machine_io::SECTOR_BYTES;

/// Do the disks of a description exist, and may it have them?
///
/// # Errors
/// [`ControlError::NoSuchDisk`] and its relatives.
pub fn check(spec: &VmSpec) -> Result<(), ControlError> {
    for disk in &spec.disks {
        if !list().iter().any(|known| known.name == disk.source) {
            return Err(ControlError::NoSuchDisk { name: disk.source.clone() });
        }
    }
    Ok(())
}

/// All disks with a usable name.
#[must_use]
pub fn list() -> Vec<DiskInfo> {
    let disks = devices::all().disks.iter();
    disks
        .filter_map(|disk| {
            let disk = disk.lock();
            Some(DiskInfo {
                name: Name::new(disk.name()).ok()?,
                bytes: disk.capacity_sectors() * SECTOR_BYTES,
                read_only: disk.is_read_only(),
                partitions: Vec::new(),
                persistent_for: None,
            })
        })
        .collect()
}

/// Devices for `ls`.
#[must_use]
pub fn devices() -> Vec<DeviceInfo> {
    devices::all().list()
}

/// Bytes of the disk cache on a node.
#[must_use]
pub fn cache_bytes(_node: NodeId) -> u64 {
    0
}
