//! What a control client asks about the machine's disks.

use super::{Unit, find, stores, units};
use crate::machine::devices;
use addr::{BASE_PAGE, NodeId};
use alloc::{string::String, vec::Vec};
use control::{ControlError, DeviceInfo, DiskInfo, DiskStats, Name, VmSpec};
use machine_io::SECTOR_BYTES;

/// Refuses a description that names disks, or partitions of them, that do not exist.
///
/// # Errors
/// [`ControlError::NoSuchDisk`], [`ControlError::NoSuchPartition`].
pub fn check(spec: &VmSpec) -> Result<(), ControlError> {
    for disk in &spec.disks {
        let (_, unit) = find(&disk.source)?;
        let shared = unit.shared.lock();
        if let Some(label) = &disk.partition
            && !shared.partitions().iter().any(|partition| partition.label == *label)
        {
            return Err(ControlError::NoSuchPartition { disk: disk.source.clone(), label: label.clone() });
        }
        drop(shared);
        disk.overlay.as_ref().map_or(Ok(()), stores::check)?;
    }
    Ok(())
}

/// All disks.
#[must_use]
pub fn list() -> Vec<DiskInfo> {
    let info = |(index, unit): (usize, &Unit)| {
        let shared = unit.shared.lock();
        // The shared disk uses less of one that is very large.
        let sectors = devices::all().disks.get(index).map(|driver| driver.lock().capacity_sectors());
        DiskInfo {
            name: unit.name.clone(),
            bytes: sectors.unwrap_or(shared.capacity_sectors()) * SECTOR_BYTES,
            read_only: shared.is_disk_read_only(),
            partitions: shared.partitions().iter().map(|partition| String::from(&*partition.label)).collect(),
            persistent_for: shared.persistent_holder().and_then(|holder| Name::new(holder).ok()),
        }
    };
    units().iter().enumerate().map(info).collect()
}

/// Counters of all disks.
#[must_use]
pub fn stats() -> Vec<DiskStats> {
    let of = |unit: &Unit| {
        let metrics = unit.shared.lock().metrics();
        DiskStats {
            name: unit.name.clone(),
            cached_bytes: metrics.cached_pages * BASE_PAGE,
            hits: metrics.hits,
            misses: metrics.misses,
            joins: metrics.joins,
            mapped_bytes: metrics.mapped_bytes,
            unaligned_bytes: metrics.unaligned_bytes,
            refused_bytes: metrics.refused_bytes,
            reads: metrics.io_reads,
            read_bytes: metrics.io_blocks_read * BASE_PAGE,
            writes: metrics.io_writes,
            written_bytes: metrics.io_sectors_written * SECTOR_BYTES,
            reclaimed_pages: metrics.reclaimed,
        }
    };
    units().iter().map(of).collect()
}

/// Devices for `ls`.
#[must_use]
pub fn devices() -> Vec<DeviceInfo> {
    devices::all().list()
}

/// Bytes of the disk caches in memory of `node`.
#[must_use]
pub fn cache_bytes(node: NodeId) -> u64 {
    units().iter().map(|unit| unit.shared.lock().cached_pages_on(node) * BASE_PAGE).sum()
}
