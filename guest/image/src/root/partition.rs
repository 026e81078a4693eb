//! The partition table of the root disk: the old PC kind with one entry, which every boot loader reads.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};

/// Where the partition begins: at 1 MiB, as every partitioning tool has it.
pub const START_BYTES: u64 = 1 << 20;

const SECTOR: u64 = 512;

/// Writes a table whose one bootable partition starts at [`START_BYTES`].
pub fn write_table(disk: &Path, partition_bytes: u64) -> Result<()> {
    let file = OpenOptions::new().write(true).open(disk).context("cannot open the disk image")?;
    file.write_all_at(&table(partition_bytes)?, 0).context("cannot write the partition table")?;
    // The file system may end before its partition does.
    if file.metadata()?.len() < START_BYTES + partition_bytes {
        file.set_len(START_BYTES + partition_bytes)?;
    }
    Ok(())
}

fn table(partition_bytes: u64) -> Result<[u8; 512]> {
    let start = u32::try_from(START_BYTES / SECTOR)?;
    let sectors = u32::try_from(partition_bytes / SECTOR).context("the partition is too large for this table")?;
    let mut table = [0; 512];
    table[440..444].copy_from_slice(b"mrbl"); // disk signature: fixed, as all else in the image
    let entry = &mut table[446..462];
    entry[0] = 0x80; // bootable
    entry[1..4].fill(0xff); // cylinders and heads are not used any more
    entry[4] = 0x83; // Linux
    entry[5..8].fill(0xff);
    entry[8..12].copy_from_slice(&start.to_le_bytes());
    entry[12..16].copy_from_slice(&sectors.to_le_bytes());
    table[510..512].copy_from_slice(&[0x55, 0xaa]);
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_says_where_the_file_system_is() {
        let table = table(1200 << 20).unwrap();
        assert_eq!(&table[510..], [0x55, 0xaa]);
        assert_eq!((table[446], table[450]), (0x80, 0x83));
        assert_eq!(table[454..458], 2048_u32.to_le_bytes());
        assert_eq!(table[458..462], (1200_u32 << 11).to_le_bytes());
    }

    #[test]
    fn what_the_table_cannot_say_is_refused() {
        assert!(table(1 << 42).is_err());
    }
}
