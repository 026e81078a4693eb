//! The guests of `sharing`, and what all its trials do with them.

use std::thread;
use std::time::{Duration, Instant};

use control::{MachineStats, VmSpec};

use super::VM_MIB;
use crate::LabError;
use crate::compare::ratio;
use crate::experiments::debian;
use crate::plan::{Trial, Work};
use crate::report::{commit_of, describe};
use crate::rig::Running;
use crate::store::{Measured, Value};

pub const PAGE: u64 = 4096;
pub const MIB_BYTES: u64 = 1 << 20;
/// Memory is at rest when it has not shrunk by more than this in [`REST`].
const AT_REST: u64 = MIB_BYTES;
/// Longer than the time between the first passes over a VM's memory.
const REST: Duration = Duration::from_secs(45);
/// Longest wait for that.
const LONGEST_REST: Duration = Duration::from_secs(400);

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
    let vm = |number| debian::vm(&format!("vm-{number}"), 1, VM_MIB);
    (1..=most(trial)).map(vm).collect()
}

/// Starts VMs.
pub fn start_all(machine: &Running, vms: &[VmSpec]) -> Result<(), LabError> {
    vms.iter().try_for_each(|vm| machine.start(vm))
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
