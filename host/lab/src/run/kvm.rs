//! The peer: Linux KVM on the same machine. Debian's kernel is the host and Debian's own emulator the VMM, both for the
//! machine's architecture; in it runs the very guest that runs bare and under the monitor, with the same kernel, files
//! and command line, so its marks come out as theirs do.
//!
//! To be fair to KVM, everything is as Debian sets it, and the host says on its console what that is: transparent huge
//! pages, halt polling, memory that comes when it is touched. The guest has AIA with guest interrupt files in the
//! hardware, and a seed for its random numbers in the device tree, which the VMM always gives. vCPUs are not pinned.

use std::path::{Path, PathBuf};

use loads::{Files, KvmGuests};

use crate::plan::{Trial, Workload};
use crate::{LabError, artifacts};

/// What a KVM host boots.
pub(super) struct Host {
    /// Its memory, the guest's included.
    pub memory_mib: u32,
    /// Its initial file system, with the guest's files in it.
    pub initrd: PathBuf,
    /// Its command line, without a console.
    pub cmdline: String,
}

impl Host {
    /// The host of a workload's guest, which has a vCPU per hart of the machine. Its files are made in `dir`.
    pub(super) fn of(trial: &Trial, workload: &Workload, initrd: &Path, dir: &Path) -> Result<Self, LabError> {
        let guests = KvmGuests::one(trial.machine.harts(), workload.memory_mib);
        let guest = std::fs::read(initrd).map_err(LabError::io(initrd.display().to_string()))?;
        let cmdline = guests.command_line(&workload.cmdline)?;
        // The host's own files are all that is needed of those.
        let cache = config::cache_dir().unwrap_or_default();
        let files = Files { cache, program: PathBuf::new() };
        let bytes = guests.initrd(&files, &artifacts::cached("kernel/Image")?, &guest)?;
        let path = dir.join("kvm-host.cpio");
        crate::store::write_whole(&path, &bytes)?;
        Ok(Self { memory_mib: guests.host_memory_mib(guest.len()), initrd: path, cmdline })
    }
}

/// What the host said about itself and its settings.
pub(super) fn settings(console: &str) -> String {
    let said = console.lines().find_map(|line| line.trim().strip_prefix("KVM host "));
    said.map_or_else(|| "settings unknown".to_owned(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_tells_its_settings() {
        let console =
            "[    0.0] boot\r\nKVM host kernel=6.12 halt_poll_ns=500000 hugepages=thp aia=on\r\nWORKLOAD done";
        assert_eq!(settings(console), "kernel=6.12 halt_poll_ns=500000 hugepages=thp aia=on");
        assert_eq!(settings("WORKLOAD done"), "settings unknown");
    }
}
