//! Partitions of a cloud image: an EFI system partition, and the root file system behind it, where a larger disk lets it grow.

use std::io::{self, SeekFrom};
use std::ops::Range;

use gpt::disk::LogicalBlockSize;
use gpt::mbr::ProtectiveMBR;
use gpt::partition_types::{EFI, LINUX_FS};
use gpt::{DiskDevice, GptConfig};

const SECTOR: u64 = 512;
/// Where the first partition begins: at 1 MiB, as every partitioning tool has it.
const FIRST_BYTES: u64 = 1 << 20;
/// What the second table takes at the disk's end, rounded up.
const END_BYTES: u64 = 1 << 20;

/// Numbers of the partitions, as in Debian's own cloud images: 15 is the EFI system partition, though it lies first.
const ESP_NUMBER: u32 = 15;
const ROOT_NUMBER: u32 = 1;

/// Where the root file system lies in an image whose EFI system partition has so many bytes.
#[must_use]
pub const fn root_range(esp_bytes: u64, root_bytes: u64) -> Range<u64> {
    let start = FIRST_BYTES + esp_bytes;
    start..start + root_bytes
}

/// Bytes of the whole image.
#[must_use]
pub const fn image_bytes(esp_bytes: u64, root_bytes: u64) -> u64 {
    root_range(esp_bytes, root_bytes).end + END_BYTES
}

/// Writes the table and the EFI system partition's content to a device of [`image_bytes`]; the root file system is there, or comes later.
///
/// # Errors
/// The device cannot be written.
pub fn write<D: DiskDevice>(mut device: D, esp: &[u8], root_bytes: u64) -> io::Result<D> {
    let esp_bytes = esp.len() as u64;
    let bytes = image_bytes(esp_bytes, root_bytes);
    let sectors = u32::try_from(bytes / SECTOR - 1).unwrap_or(u32::MAX);
    ProtectiveMBR::with_lb_size(sectors).overwrite_lba0(&mut device).map_err(io::Error::other)?;
    let config = GptConfig::new().writable(true).logical_block_size(LogicalBlockSize::Lb512);
    let mut disk = config.create_from_device(device, None).map_err(io::Error::other)?;
    let root = root_range(esp_bytes, root_bytes);
    disk.add_partition_at("root", ROOT_NUMBER, root.start / SECTOR, root_bytes / SECTOR, LINUX_FS, 0)
        .map_err(io::Error::other)?;
    disk.add_partition_at("esp", ESP_NUMBER, FIRST_BYTES / SECTOR, esp_bytes / SECTOR, EFI, 0)
        .map_err(io::Error::other)?;
    let mut device = disk.write().map_err(io::Error::other)?;
    device.seek(SeekFrom::Start(FIRST_BYTES))?;
    device.write_all(esp)?;
    Ok(device)
}
