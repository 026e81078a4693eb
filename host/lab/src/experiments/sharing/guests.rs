//! The guests of `sharing`, and what all its trials do with them.

use std::thread;
use std::time::{Duration, Instant};

use control::{DiskMode, DiskSpec, MachineStats, VmSpec};
use machine::{Client, GuestAgent};

use super::{DISK, INITRD, VM_MIB};
use crate::LabError;
use crate::compare::ratio;
use crate::plan::{Trial, Work};
use crate::report::{commit_of, describe};
use crate::rig::{Running, WATCHDOG, debian_vm, name as named};
use crate::store::{Measured, Value};

pub const PAGE: u64 = 4096;
pub const MIB_BYTES: u64 = 1 << 20;
/// What compiles: bzip2, whose source is in the image. Its own tests are left out: they compile nothing.
pub const COMPILE: &str = "rm -rf /var/tmp/build && cp -r /usr/src/workload /var/tmp/build && cd /var/tmp/build && \
                       make CC=gcc CFLAGS='-Wall -O1 -D_FILE_OFFSET_BITS=64' libbz2.a bzip2 bzip2recover >/var/tmp/log 2>&1";
/// Memory is at rest when it has not shrunk by more than this in [`REST`].
const AT_REST: u64 = MIB_BYTES;
/// Longer than the time between the first passes over a VM's memory.
const REST: Duration = Duration::from_secs(45);
/// Longest wait for that.
const LONGEST_REST: Duration = Duration::from_secs(400);
/// The longest that a guest works: two hours for one of eight that compile over NFS, on a host that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(7_200);

/// How many VMs a trial has at most.
pub fn most(trial: &Trial) -> u64 {
    match &trial.work {
        Work::Procedure(procedure) => procedure.count,
        Work::Guest(_) => 1,
    }
}

pub fn finish(machine: &Running, values: Vec<Value>) -> Result<Measured, LabError> {
    let info = machine.client().machine_info()?;
    Ok(Measured { machine: describe(&info), commit: commit_of(&info.monitor.version), values })
}

/// The VMs of a trial.
pub fn vms(trial: &Trial) -> Result<Vec<VmSpec>, LabError> {
    let vm = |number| {
        let cmdline = format!("root=/dev/vda1 rw quiet systemd.hostname=vm-{number}");
        let disk = DiskSpec {
            name: named("root")?,
            source: named(DISK)?,
            partition: None,
            mode: DiskMode::CopyOnWrite,
            overlay: None,
        };
        let spec = debian_vm(&format!("vm-{number}"), 1, VM_MIB, INITRD, &cmdline)?;
        Ok(VmSpec { disks: vec![disk], ..spec })
    };
    (1..=most(trial)).map(vm).collect()
}

/// Starts VMs.
pub fn start_all(machine: &Running, vms: &[VmSpec]) -> Result<(), LabError> {
    vms.iter().try_for_each(|vm| machine.start(vm))
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
        experiment: format!("sharing: {}", vm.name),
        reason,
        console: String::new(),
    };
    let mut agent = GuestAgent::connect(client, &vm.name, WATCHDOG).map_err(|why| failed(why.to_string()))?;
    let words = ["-c".to_owned(), script.to_owned()];
    let result = agent.exec("sh", &words, &[], Some(PATIENCE)).map_err(|why| failed(why.to_string()))?;
    if !result.status.is_success() {
        let said = String::from_utf8_lossy(&result.stderr);
        return Err(failed(format!("`{script}` ended with status {}: {}", result.status.code(), said.trim())));
    }
    Ok(String::from_utf8_lossy(&result.stdout).into_owned())
}

/// Waits until merging and free page reporting have nothing more to give.
pub fn rest(machine: &Running) -> Result<MachineStats, LabError> {
    let begin = Instant::now();
    let (mut least, mut since) = (u64::MAX, begin);
    loop {
        let stats = machine.stats()?;
        let used = in_use(&stats);
        if used + AT_REST < least {
            (least, since) = (used, Instant::now());
        }
        if since.elapsed() > REST || begin.elapsed() > LONGEST_REST {
            return Ok(stats);
        }
        thread::sleep(Duration::from_secs(3));
    }
}

/// Memory that is not free, in bytes.
pub fn in_use(stats: &MachineStats) -> u64 {
    stats.nodes.iter().map(|node| node.total_bytes - node.free_bytes).sum()
}

pub fn mib(bytes: u64) -> f64 {
    ratio(bytes, MIB_BYTES)
}
