//! Whole Debian systems as guests, from the root image that all may write to, and work for them.

use std::thread;
use std::time::Duration;

use control::{DiskMode, DiskSpec, VmSpec};
use machine::{Client, GuestAgent};

use crate::plan::Trial;
use crate::rig::{Rig, debian_vm, name as named};
use crate::{LabError, artifacts};

/// The module that mounts the root disk.
pub const INITRD: &str = "initrd.cpio";
/// The machine's disk with the root image.
pub const DISK: &str = "debian";
/// What compiles: bzip2, whose source is in the image. Its own tests are left out: they compile nothing.
pub const COMPILE: &str = "rm -rf /var/tmp/build && cp -r /usr/src/workload /var/tmp/build && cd /var/tmp/build && \
                       make CC=gcc CFLAGS='-Wall -O1 -D_FILE_OFFSET_BITS=64' libbz2.a bzip2 bzip2recover >/var/tmp/log 2>&1";
/// The longest that a guest works: two hours for one of eight that compile over NFS, on a host that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(7_200);

/// The longest that a guest's agent is waited for: systems that share a modelled machine take most of an hour to boot on a busy host.
const AGENT_PATIENCE: Duration = Duration::from_secs(3_600);
/// Returns when all services of the guest have been started, or have failed.
pub const BOOTED: &str = "systemctl is-system-running --wait || true";

/// The trial's machine with what Debian guests boot from.
///
/// # Errors
/// [`LabError::Missing`] where `./x image` has not run.
pub fn rig(machine: &str, trial: &Trial) -> Result<Rig, LabError> {
    Rig::of(machine, trial)?.sparing_fences().with_debian(INITRD)?.image(DISK, artifacts::cached("root/root.img")?)
}

/// A VM with such a system.
///
/// # Errors
/// [`LabError::BadName`].
pub fn vm(name: &str, vcpus: u16, memory_mib: u32) -> Result<VmSpec, LabError> {
    let disk = DiskSpec {
        name: named("root")?,
        source: named(DISK)?,
        partition: None,
        mode: DiskMode::CopyOnWrite,
        overlay: None,
        // More than any workload writes.
        limit_mib: Some(1024),
    };
    let cmdline = format!("root=/dev/vda1 rw quiet systemd.hostname={name}");
    Ok(VmSpec { disks: vec![disk], ..debian_vm(name, vcpus, memory_mib, INITRD, &cmdline)? })
}

/// Runs a script in each of some VMs, at the same time.
pub fn run_all<'a>(client: &Client, work: impl IntoIterator<Item = (&'a VmSpec, &'a str)>) -> Result<(), LabError> {
    let outcome = thread::scope(|scope| {
        let running: Vec<_> =
            work.into_iter().map(|(vm, script)| scope.spawn(move || shell(client, vm, script))).collect();
        let ended =
            running.into_iter().map(|thread| thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why)));
        ended.collect::<Result<Vec<_>, LabError>>()
    });
    outcome.map(drop)
}

/// What a script in a guest prints.
pub fn shell(client: &Client, vm: &VmSpec, script: &str) -> Result<String, LabError> {
    let failed = |reason: String| LabError::Guest {
        experiment: format!("the guest {}", vm.name),
        reason,
        console: String::new(),
    };
    let mut agent = GuestAgent::connect(client, &vm.name, AGENT_PATIENCE).map_err(|why| failed(why.to_string()))?;
    let words = ["-c".to_owned(), script.to_owned()];
    let result = agent.exec("sh", &words, &[], Some(PATIENCE)).map_err(|why| failed(why.to_string()))?;
    if !result.status.is_success() {
        let said = String::from_utf8_lossy(&result.stderr);
        return Err(failed(format!("`{script}` ended with status {}: {}", result.status.code(), said.trim())));
    }
    Ok(String::from_utf8_lossy(&result.stdout).into_owned())
}
