//! Reads by somebody who mounts nothing here: another cell, which has a shared disk of its own over the same disk of the machine.

use alloc::borrow::ToOwned;
use alloc::collections::VecDeque;

use crate::disk::SharedDisk;
use crate::mount::{Backing, Mount, MountError, Streams};

impl SharedDisk {
    /// `holder` is about to read `sectors` from `sector` on of the machine's disk, and may do so again at any time: from here on nobody
    /// mounts persistently what these are part of, a partition or the whole disk. What lies in no partition of a disk that has some is
    /// nobody's.
    ///
    /// # Errors
    /// [`MountError::InUse`]: somebody has it persistently.
    pub fn claim(&mut self, holder: &str, sector: u64, sectors: u64) -> Result<(), MountError> {
        let end = sector.saturating_add(sectors);
        for at in 0..self.partitions().len().max(1) {
            let part = self.partitions().get(at).map(|part| (part.first_sector, part.sectors));
            let (first, count) = part.unwrap_or((0, self.capacity_sectors()));
            if first >= end || sector >= first + count {
                continue;
            }
            let mut others = self.mounts.values().filter(|other| other.overlaps(first, count));
            if let Some(other) = others.clone().find(|other| other.is_persistent()) {
                return Err(MountError::InUse { holder: other.holder.clone(), is_persistent: true });
            }
            if others.any(|other| other.holder == holder && (other.first_sector, other.sectors) == (first, count)) {
                continue;
            }
            self.mounts.insert(Mount {
                holder: holder.to_owned(),
                first_sector: first,
                sectors: count,
                backing: Backing::Nowhere,
                streams: Streams::default(),
                ready: VecDeque::new(),
                has_turn: false,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpt::Partition;
    use crate::{Mode, MountSpec};
    use std::vec;

    fn wants(holder: &'static str, partition: Option<&'static str>, mode: Mode) -> MountSpec<'static> {
        MountSpec { holder, partition, mode }
    }

    fn disk(is_divided: bool) -> SharedDisk {
        let part = |label: &str, first_sector| Partition { label: label.into(), first_sector, sectors: 100 };
        let parts = if is_divided { vec![part("a", 50), part("b", 150)] } else { vec![] };
        SharedDisk::new("disk", 1000, false, parts, 100)
    }

    #[test]
    fn what_others_read_is_not_mounted_persistently() {
        let mut disk = disk(true);
        disk.claim("others", 60, 8).expect("nobody has it");
        disk.claim("others", 70, 8).expect("the same again");
        assert_eq!(disk.mounts.len(), 1, "one view for each part");
        let refused = disk.mount(&wants("vm", Some("a"), Mode::Persistent));
        assert_eq!(refused, Err(MountError::InUse { holder: "others".into(), is_persistent: false }));
        disk.mount(&wants("vm", Some("a"), Mode::CopyOnWrite { limit_pages: 1 })).expect("many may read");
        disk.mount(&wants("vm", Some("b"), Mode::Persistent)).expect("nobody reads there");
        assert!(disk.claim("others", 245, 8).is_err(), "a read that touches it");
        assert!(disk.claim("others", 249, 1).is_err());
        disk.claim("others", 250, 8).expect("behind it");
        disk.claim("others", 0, 50).expect("the table before the partitions is nobody's");
    }

    #[test]
    fn a_disk_without_partitions_is_one_part() {
        let mut disk = disk(false);
        disk.mount(&wants("vm", None, Mode::Persistent)).expect("nobody has it");
        assert!(disk.claim("others", 999, 1).is_err());
        disk.claim("others", u64::MAX, 8).expect("outside there is nothing to hold");
    }
}
