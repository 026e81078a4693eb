//! The peer: Linux KVM on the same machine. Debian's kernel is the host and Debian's own emulator the VMM, both for the
//! machine's architecture; in it runs the very guest that runs bare and under the monitor, with the same kernel, files
//! and command line, so its marks come out as theirs do.
//!
//! To be fair to KVM, everything is as Debian sets it, and the host says on its console what that is: transparent huge
//! pages, halt polling, memory that comes when it is touched. The guest has AIA with guest interrupt files in the
//! hardware, and a seed for its random numbers in the device tree, which the VMM always gives. vCPUs are not pinned.

use loads::KvmGuests;

use crate::plan::{Artifact, Trial, Workload};
use crate::{LabError, artifacts};

/// The initial file system of the host, with the workload's guest in it.
///
/// # Errors
/// [`LabError::Memory`] if the trial's machine is too small for it; [`LabError::Load`] if the host has not been built.
pub fn host(trial: &Trial, workload: &Workload, guest: &[u8]) -> Result<Vec<u8>, LabError> {
    let (guests, has) = (guests(trial, workload), trial.machine.memory_mib());
    let needs = guests.host_memory_mib(guest.len());
    if has < needs {
        return Err(LabError::Memory { trial: trial.name.clone(), has, needs });
    }
    Ok(guests.initrd(&artifacts::load_files()?, &Artifact::LINUX.path()?, guest)?)
}

/// The host's command line, without a console.
///
/// # Errors
/// [`LabError::Load`] if the guest's command line cannot stand in it.
pub fn cmdline(trial: &Trial, workload: &Workload) -> Result<String, LabError> {
    Ok(guests(trial, workload).command_line(&workload.cmdline)?)
}

/// A vCPU for each hart of the machine.
fn guests(trial: &Trial, workload: &Workload) -> KvmGuests {
    KvmGuests::one(trial.machine.harts(), workload.memory_mib)
}

/// What the host said about itself and its settings.
pub fn settings(console: &str) -> Option<&str> {
    console.lines().find_map(|line| line.trim().strip_prefix("KVM host "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_tells_its_settings() {
        let console =
            "[    0.0] boot\r\nKVM host kernel=6.12 halt_poll_ns=500000 hugepages=thp aia=on\r\nWORKLOAD done";
        assert_eq!(settings(console), Some("kernel=6.12 halt_poll_ns=500000 hugepages=thp aia=on"));
        assert_eq!(settings("WORKLOAD done"), None);
    }
}
