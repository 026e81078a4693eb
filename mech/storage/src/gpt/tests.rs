//! Tables written by another implementation, and damaged ones.

use std::io::Cursor;
use std::vec;
use std::vec::Vec;

use ::gpt::disk::LogicalBlockSize;
use ::gpt::mbr::ProtectiveMBR;
use proptest::prelude::*;

use super::*;

const CAPACITY: u64 = 4_096;

/// A disk with partitions of these names and sizes in sectors.
fn image(partitions: &[(&str, u64)]) -> Vec<u8> {
    let mut image = Cursor::new(vec![0; (CAPACITY * SECTOR) as usize]);
    ProtectiveMBR::with_lb_size(CAPACITY as u32 - 1).overwrite_lba0(&mut image).unwrap();
    let config = ::gpt::GptConfig::new().writable(true).logical_block_size(LogicalBlockSize::Lb512);
    let mut disk = config.create_from_device(&mut image, None).unwrap();
    for (name, sectors) in partitions {
        disk.add_partition(name, sectors * SECTOR, ::gpt::partition_types::LINUX_FS, 0, None).unwrap();
    }
    disk.write().unwrap();
    image.into_inner()
}

fn read(image: &[u8]) -> Result<Vec<Partition>, GptError> {
    read_partitions(CAPACITY, &mut |sector, buf| {
        let start = (sector * SECTOR) as usize;
        image.get(start..start + buf.len()).is_some_and(|bytes| {
            buf.copy_from_slice(bytes);
            true
        })
    })
}

#[test]
fn partitions_are_found_by_name() {
    let partitions = read(&image(&[("root", 100), ("Daten-Übung", 1_000)])).unwrap();
    let found: Vec<_> = partitions.iter().map(|part| (part.label.as_str(), part.sectors)).collect();
    assert_eq!(found, [("root", 100), ("Daten-Übung", 1_000)]);
    assert!(partitions[1].first_sector >= partitions[0].first_sector + 100);
}

#[test]
fn the_backup_helps_and_both_damaged_are_an_error() {
    let good = image(&[("root", 100)]);
    let mut first_damaged = good.clone();
    first_damaged[512 + 40] ^= 1;
    assert_eq!(read(&first_damaged), read(&good));
    let mut entries_damaged = good.clone();
    entries_damaged[2 * 512 + 33] ^= 1;
    assert_eq!(read(&entries_damaged), read(&good));
    let last = ((CAPACITY - 1) * SECTOR) as usize;
    first_damaged[last + 16] ^= 1;
    assert_eq!(read(&first_damaged), Err(GptError::BadChecksum));
    assert_eq!(read(&vec![0; (CAPACITY * SECTOR) as usize]), Err(GptError::NoTable));
    assert_eq!(read(&[]), Err(GptError::Unreadable { sector: 1 }));
}

/// Changes a field of the first header, makes its checksum right, and hides the backup.
fn forged(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut image = image(&[("root", 100), ("more", 100)]);
    image[512 + at..512 + at + bytes.len()].copy_from_slice(bytes);
    sign(&mut image);
    image
}

fn sign(image: &mut [u8]) {
    let entries = checksum(&image[1_024..1_024 + 128 * 128]);
    image[512 + 88..512 + 92].copy_from_slice(&entries.to_le_bytes());
    image[512 + 16..512 + 20].fill(0);
    let sum = checksum(&image[512..512 + 92]);
    image[512 + 16..512 + 20].copy_from_slice(&sum.to_le_bytes());
    let last = ((CAPACITY - 1) * SECTOR) as usize;
    image[last..].fill(0);
}

#[test]
fn impossible_headers_are_refused() {
    let field = |at, bytes: &[u8]| match read(&forged(at, bytes)) {
        Err(GptError::BadHeader { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(field(12, &[0xff, 0xff, 0, 0]), "HeaderSize");
    assert_eq!(field(24, &[9]), "MyLBA");
    assert_eq!(field(48, &[0xff; 8]), "LastUsableLBA");
    assert_eq!(field(72, &[0xff; 8]), "PartitionEntryLBA");
    assert_eq!(field(80, &[0xff; 4]), "NumberOfPartitionEntries");
    assert_eq!(field(84, &[0, 0, 0, 0]), "SizeOfPartitionEntry");
    assert_eq!(field(84, &[0xff; 4]), "SizeOfPartitionEntry");
}

#[test]
fn impossible_partitions_are_refused() {
    let with_entry = |at: usize, bytes: &[u8]| {
        let mut image = forged(0, b"EFI PART");
        image[1_024 + at..1_024 + at + bytes.len()].copy_from_slice(bytes);
        sign(&mut image);
        read(&image)
    };
    assert!(matches!(with_entry(40, &[0xff; 8]), Err(GptError::BadRange { index: 0, .. })));
    assert!(matches!(with_entry(32, &[0; 8]), Err(GptError::BadRange { index: 0, .. })));
    let first = read(&forged(0, b"EFI PART")).unwrap()[0].first_sector;
    assert_eq!(with_entry(128 + 32, &first.to_le_bytes()), Err(GptError::Overlap { index: 1 }));
}

proptest! {
    /// Whatever a disk holds, with right checksums or not: an answer, and only partitions inside the disk.
    #[test]
    fn no_table_is_too_bad(edits in prop::collection::vec((512..2_000_usize, any::<u8>()), 0..20), is_signed: bool) {
        let mut image = image(&[("root", 100), ("more", 100)]);
        for (at, value) in edits {
            image[at] = value;
        }
        if is_signed {
            sign(&mut image);
        }
        for partition in read(&image).unwrap_or_default() {
            prop_assert!(partition.first_sector.checked_add(partition.sectors).unwrap() <= CAPACITY);
        }
    }
}
