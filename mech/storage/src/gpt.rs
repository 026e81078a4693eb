//! GUID partition tables (UEFI specification 2.10, section 5.3, "GUID Partition Table (GPT) Disk Layout").
//!
//! A guest with a persistent disk can write any table, and other VMs are then started from it: every field is checked.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crc::{CRC_32_ISO_HDLC, Crc};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::contract::SECTOR;

/// A partition of a machine disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Its name in the table, at most 36 UTF-16 units. Need not be unique.
    pub label: String,
    /// Its first sector.
    pub first_sector: u64,
    /// Its length in sectors.
    pub sectors: u64,
}

/// Why a disk has no usable partition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GptError {
    /// Neither the first nor the last place of the disk has a table's signature.
    #[error("no partition table")]
    NoTable,
    /// The disk could not be read.
    #[error("sector {sector} cannot be read")]
    Unreadable {
        /// The sector.
        sector: u64,
    },
    /// A checksum is wrong, in both copies of the table.
    #[error("wrong checksum")]
    BadChecksum,
    /// The header contradicts itself or the disk.
    #[error("header field {field} is {value:#x}")]
    BadHeader {
        /// The field, as the specification names it.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A partition does not lie in the usable part of the disk.
    #[error("partition {index} spans sectors {first} to {last}")]
    BadRange {
        /// Its index in the table.
        index: usize,
        /// Its first sector.
        first: u64,
        /// Its last sector.
        last: u64,
    },
    /// Two partitions overlap.
    #[error("partition {index} overlaps another one")]
    Overlap {
        /// Index of the later one.
        index: usize,
    },
}

/// Reads the partition table of a disk of `capacity_sectors` sectors, from its backup if the first copy is damaged.
/// `read` fills a buffer of whole sectors from a sector on, or says that it cannot.
///
/// # Errors
/// [`GptError`] of the first copy, unless only the backup is there.
pub fn read_partitions(
    capacity_sectors: u64,
    read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
) -> Result<Vec<Partition>, GptError> {
    let primary = match read_copy(PRIMARY_SECTOR, capacity_sectors, read) {
        Ok(partitions) => return Ok(partitions),
        Err(error) => error,
    };
    match read_copy(capacity_sectors.saturating_sub(1), capacity_sectors, read) {
        Ok(partitions) => Ok(partitions),
        Err(backup) if primary == GptError::NoTable => Err(backup),
        Err(_) => Err(primary),
    }
}

const PRIMARY_SECTOR: u64 = 1;
const SIGNATURE: &[u8] = b"EFI PART";
const MIN_HEADER_BYTES: u32 = 92;
const MIN_ENTRY_BYTES: u32 = 128;
const MAX_ENTRY_BYTES: u32 = 4096;
/// Most bytes of entries that are read: four times what every tool writes.
const MAX_TABLE_BYTES: u64 = 64 << 10;
const NAME_AT: usize = 56;
const NAME_UNITS: usize = 36;

struct Header {
    first_usable: u64,
    last_usable: u64,
    entries_sector: u64,
    entry_count: u32,
    entry_bytes: u32,
    entries_crc: u32,
}

fn read_copy(
    sector: u64,
    capacity: u64,
    read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
) -> Result<Vec<Partition>, GptError> {
    let mut raw = [0; SECTOR as usize];
    if sector >= capacity {
        return Err(GptError::NoTable);
    }
    if !read(sector, &mut raw) {
        return Err(GptError::Unreadable { sector });
    }
    let header = Header::decode(&raw, sector, capacity)?;
    let table = read_table(&header, capacity, read)?;
    decode_table(&header, &table)
}

impl Header {
    fn decode(raw: &[u8; SECTOR as usize], sector: u64, capacity: u64) -> Result<Self, GptError> {
        if !raw.starts_with(SIGNATURE) {
            return Err(GptError::NoTable);
        }
        let size = u32_at(raw, 12);
        if size < MIN_HEADER_BYTES || size as usize > raw.len() {
            return Err(GptError::BadHeader { field: "HeaderSize", value: size.into() });
        }
        let mut summed = *raw;
        summed[16..20].fill(0);
        if checksum(&summed[..size as usize]) != u32_at(raw, 16) {
            return Err(GptError::BadChecksum);
        }
        let header = Self {
            first_usable: u64_at(raw, 40),
            last_usable: u64_at(raw, 48),
            entries_sector: u64_at(raw, 72),
            entry_count: u32_at(raw, 80),
            entry_bytes: u32_at(raw, 84),
            entries_crc: u32_at(raw, 88),
        };
        let my_sector = u64_at(raw, 24);
        if my_sector != sector {
            return Err(GptError::BadHeader { field: "MyLBA", value: my_sector });
        }
        header.check(capacity)?;
        Ok(header)
    }

    fn check(&self, capacity: u64) -> Result<(), GptError> {
        let size = self.entry_bytes;
        if !(MIN_ENTRY_BYTES..=MAX_ENTRY_BYTES).contains(&size) || !size.is_power_of_two() {
            return Err(GptError::BadHeader { field: "SizeOfPartitionEntry", value: size.into() });
        }
        if self.table_bytes() > MAX_TABLE_BYTES {
            return Err(GptError::BadHeader { field: "NumberOfPartitionEntries", value: self.entry_count.into() });
        }
        if self.last_usable >= capacity {
            return Err(GptError::BadHeader { field: "LastUsableLBA", value: self.last_usable });
        }
        let end = self.entries_sector.checked_add(self.table_bytes().div_ceil(SECTOR));
        if end.is_none_or(|end| end > capacity) {
            return Err(GptError::BadHeader { field: "PartitionEntryLBA", value: self.entries_sector });
        }
        Ok(())
    }

    fn table_bytes(&self) -> u64 {
        u64::from(self.entry_count) * u64::from(self.entry_bytes)
    }
}

fn read_table(
    header: &Header,
    capacity: u64,
    read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
) -> Result<Vec<u8>, GptError> {
    debug_assert!(header.check(capacity).is_ok());
    let bytes = header.table_bytes() as usize;
    // Bounded: MAX_TABLE_BYTES, which the header was checked for.
    let mut table = vec![0; bytes.next_multiple_of(SECTOR as usize)];
    for (sector, part) in (header.entries_sector..).zip(table.chunks_exact_mut(SECTOR as usize)) {
        if !read(sector, part) {
            return Err(GptError::Unreadable { sector });
        }
    }
    table.truncate(bytes);
    if checksum(&table) != header.entries_crc {
        return Err(GptError::BadChecksum);
    }
    Ok(table)
}

fn decode_table(header: &Header, table: &[u8]) -> Result<Vec<Partition>, GptError> {
    let mut partitions: Vec<Partition> = Vec::new();
    for (index, entry) in table.chunks_exact(header.entry_bytes as usize).enumerate() {
        // A type GUID of zero: not in use.
        if entry.iter().take(16).all(|byte| *byte == 0) {
            continue;
        }
        let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
        if first < header.first_usable || last < first || last > header.last_usable {
            return Err(GptError::BadRange { index, first, last });
        }
        // `last` is below the capacity, so this cannot wrap.
        let sectors = last - first + 1;
        if partitions.iter().any(|other| first < other.first_sector + other.sectors && other.first_sector <= last) {
            return Err(GptError::Overlap { index });
        }
        partitions.push(Partition { label: label(entry), first_sector: first, sectors });
    }
    Ok(partitions)
}

fn label(entry: &[u8]) -> String {
    let name = entry.get(NAME_AT..NAME_AT + 2 * NAME_UNITS).unwrap_or_default();
    let units = name.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    char::decode_utf16(units.take_while(|unit| *unit != 0)).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}

fn checksum(bytes: &[u8]) -> u32 {
    const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);
    CRC.checksum(bytes)
}

/// Fields beyond the end read as zero; callers pass whole sectors and entries.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|field| field.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|field| field.try_into().ok()).map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests;
