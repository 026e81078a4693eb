//! What a cell that does not drive the machine's disks has to know of them: plain bytes.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::gpt::Partition;

/// A disk of the machine, as the cell that drives it found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskDescription {
    /// Its name: the serial number.
    pub name: String,
    /// Its size in sectors.
    pub sectors: u64,
    /// Whether it refuses writes.
    pub is_read_only: bool,
    /// Its partitions.
    pub partitions: Vec<Partition>,
}

impl DiskDescription {
    /// Writes the descriptions of all disks to `room`; the bytes that they take. `None` if they do not fit.
    #[must_use]
    pub fn write_all(disks: &[Self], room: &mut [u8]) -> Option<usize> {
        postcard::to_slice(disks, room).ok().map(|bytes| bytes.len())
    }

    /// Reads what [`DiskDescription::write_all`] has written; `None` if it is something else.
    #[must_use]
    pub fn read_all(bytes: &[u8]) -> Option<Vec<Self>> {
        postcard::from_bytes(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn comes_back_as_it_was_written() {
        let partition = |label: &str| Partition { label: label.into(), first_sector: 2048, sectors: 1 << 33 };
        let disk = |name: &str, partitions| DiskDescription {
            name: name.into(),
            sectors: 1 << 34,
            is_read_only: name.len() == 4,
            partitions,
        };
        let disks = [disk("root", vec![partition("system"), partition("")]), disk("", vec![])];
        let mut room = [0; 4096];
        let len = DiskDescription::write_all(&disks, &mut room).expect("there is room");
        assert_eq!(DiskDescription::read_all(&room[..len]).as_deref(), Some(&disks[..]));
        assert_eq!(DiskDescription::write_all(&disks, &mut room[..len - 1]), None);
        assert_eq!(DiskDescription::read_all(&room[..len - 1]), None);
        assert_eq!(DiskDescription::read_all(&[0xff; 16]), None);
    }
}
