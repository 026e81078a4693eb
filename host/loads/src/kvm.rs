//! The KVM host around a workload's guest.

use std::path::Path;

use image::Archive;

use crate::{Files, LoadError, read};

/// What backs the guests' memory on the KVM host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Transparent huge pages, always: Debian's own setting.
    #[default]
    Transparent,
    /// Reserved pages of 2 MiB, which KVM maps as such.
    Reserved,
    /// 4 KiB pages.
    None,
}

/// Guests under KVM: how many, how large, with which settings of the host. The host says on its console what it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvmGuests {
    /// How many guests.
    pub count: u16,
    /// vCPUs of each.
    pub vcpus: u16,
    /// Memory of each.
    pub memory_mib: u32,
    /// How long a halted vCPU polls before it sleeps; the module's own choice without it.
    pub halt_poll_ns: Option<u32>,
    /// What backs their memory.
    pub huge_pages: HugePages,
    /// Whether they have AIA, else a PLIC.
    pub aia: bool,
    /// Whether vCPU i of the only guest runs on hart i alone.
    pub pinned: bool,
}

impl KvmGuests {
    /// One guest with Debian's settings.
    #[must_use]
    pub const fn one(vcpus: u16, memory_mib: u32) -> Self {
        let huge_pages = HugePages::Transparent;
        Self { count: 1, vcpus, memory_mib, halt_poll_ns: None, huge_pages, aia: true, pinned: false }
    }

    /// Memory that the host needs: its own and its initial file system's with the guests' files, twice while it is
    /// unpacked, and the guests'.
    #[must_use]
    pub fn host_memory_mib(&self, guest_initrd_bytes: usize) -> u32 {
        const OWN_MIB: u32 = 320;
        const EMULATOR_MIB: u32 = 48;
        let files = u32::try_from(guest_initrd_bytes >> 20).unwrap_or(u32::MAX).saturating_add(32 + 52);
        OWN_MIB + 3 * files + u32::from(self.count) * (self.memory_mib + EMULATOR_MIB)
    }

    /// The host's kernel command line; `guest` is that of the guests, without a console.
    ///
    /// # Errors
    /// [`LoadError::Quoted`].
    pub fn command_line(&self, guest: &str) -> Result<String, LoadError> {
        if guest.contains('"') {
            return Err(LoadError::Quoted { line: guest.to_owned() });
        }
        let poll = self.halt_poll_ns.map(|ns| format!(" halt_poll_ns={ns}")).unwrap_or_default();
        let pages = match self.huge_pages {
            HugePages::Transparent => "thp",
            HugePages::Reserved => "hugetlb",
            HugePages::None => "none",
        };
        let (aia, pin) = (if self.aia { "on" } else { "off" }, if self.pinned { " pin=1" } else { "" });
        Ok(format!(
            "quiet guests={} vcpus={} memory={}{poll} hugepages={pages} aia={aia}{pin} guest=\"{guest}\"",
            self.count, self.vcpus, self.memory_mib
        ))
    }

    /// The host's initial file system, with the guests' kernel and initial file system in it.
    ///
    /// # Errors
    /// [`LoadError::Missing`].
    pub fn initrd(&self, files: &Files, guest_kernel: &Path, guest_initrd: &[u8]) -> Result<Vec<u8>, LoadError> {
        let mut bytes = read(&files.cache.join("kvm-host/kvm-host.cpio"), "./x image --loads")?;
        let kernel = read(guest_kernel, "./x image")?;
        let mut guest = Archive::new();
        guest.directory("guest").file("guest/Image", 0o644, &kernel).file("guest/initrd", 0o644, guest_initrd);
        bytes.extend(guest.finish());
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_quotes_the_guests() {
        let guests = KvmGuests { halt_poll_ns: Some(0), huge_pages: HugePages::Reserved, ..KvmGuests::one(2, 512) };
        assert_eq!(
            guests.command_line("quiet workload=compute").unwrap(),
            "quiet guests=1 vcpus=2 memory=512 halt_poll_ns=0 hugepages=hugetlb aia=on guest=\"quiet workload=compute\""
        );
        assert!(guests.command_line("a=\"b\"").unwrap_err().to_string().contains("a=\"b\""));
    }

    #[test]
    fn the_host_has_room_for_all_guests() {
        let guests = KvmGuests { count: 4, ..KvmGuests::one(1, 512) };
        assert!(guests.host_memory_mib(100 << 20) > 4 * 512 + 200);
    }
}
