//! The measurement of `sharing` under the monitor.

use std::thread;
use std::time::{Duration, Instant};

use control::{DiskMode, DiskSpec, MachineStats, VmSpec};
use machine::{Client, GuestAgent};

use super::footprint::{self, Footprint, Look};
use super::{DISK, INITRD, MIB, VM_MIB};
use crate::compare::ratio;
use crate::plan::{Trial, Work};
use crate::report::{commit_of, describe};
use crate::rig::{Rig, Running, WATCHDOG, debian_vm, name as named};
use crate::run::Progress;
use crate::store::{Measured, Value};
use crate::{LabError, artifacts};

/// The figure of Fig. 7.
pub const FOOTPRINT: &str = "shared_footprint_8";
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

/// The numbers of VMs that are measured.
pub fn counts(most: u64) -> Vec<u64> {
    std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|count| *count <= most).collect()
}

/// Guests that compile, a few more at a time.
///
/// # Errors
/// [`LabError`] if the machine does not run, or a guest does not do its work.
pub fn compile(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    let (machine, vms) = boot(trial)?;
    let (mut looks, mut started) = (Vec::new(), 0);
    for count in counts(most(trial)) {
        let upto = usize::try_from(count).unwrap_or(usize::MAX).min(vms.len());
        progress.say(&format!("{count} VMs"));
        let more = &vms[started..upto];
        start_all(&machine, more)?;
        run_all(machine.client(), more.iter().map(|vm| (vm, COMPILE)))?;
        started = upto;
        looks.push(Look::take(&machine, &vms[..upto], count.to_string(), progress)?);
    }
    let mut values: Vec<_> = looks.iter().flat_map(Look::values).collect();
    values.push(footprint::growth(FOOTPRINT, &looks));
    values.push(footprint::extra_of(&looks));
    values.push(mapped_share(&machine.stats()?));
    values.extend(looks.last().map(Look::values_of_last).unwrap_or_default());
    finish(&machine, values)
}

/// Guests with nothing to do: what the last one took.
///
/// # Errors
/// As [`compile`].
pub fn idle(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    let (machine, vms) = boot(trial)?;
    let (mut values, mut used) = (Vec::new(), Vec::new());
    for (index, vm) in vms.iter().enumerate() {
        progress.say(&format!("VM {}", index + 1));
        machine.start(vm)?;
        shell(machine.client(), vm, "systemctl is-system-running --wait || true")?;
        let stats = rest(&machine)?;
        used.push(in_use(&stats));
        values.extend(Footprint::of(&machine, &vms[..=index], &stats)?.values(&(index + 1).to_string()));
    }
    values.push(match used[..] {
        [.., before, after] => Value::new("extra_vm_mib", mib(after.saturating_sub(before)), MIB, 1),
        _ => Value::missing("extra_vm_mib", "there are not two VMs"),
    });
    finish(&machine, values)
}

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

/// A processor that spares guests fences after they have mapped something: each empties the emulator's whole TLB, and only
/// memory counts here.
pub fn quick(rig: Rig) -> Rig {
    rig.hardware(|hardware| hardware.cpu = "rva23s64,svvptc=on".into())
}

/// The machine, with its VMs made and not started.
fn boot(trial: &Trial) -> Result<(Running, Vec<VmSpec>), LabError> {
    let rig = quick(Rig::of("bench-sharing", trial)?).with_debian(INITRD)?;
    let machine = rig.image(DISK, artifacts::cached("root/root.img")?)?.boot()?;
    Ok((machine, vms(trial)?))
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
    let patience = Some(4 * WATCHDOG);
    let result = agent.exec("sh", &words, &[], patience).map_err(|why| failed(why.to_string()))?;
    if !result.status.is_success() {
        return Err(failed(format!("{script}: {:?}: {}", result.status, String::from_utf8_lossy(&result.stderr))));
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

fn in_use(stats: &MachineStats) -> u64 {
    stats.nodes.iter().map(|node| node.total_bytes - node.free_bytes).sum()
}

pub fn mib(bytes: u64) -> f64 {
    ratio(bytes, MIB_BYTES)
}

fn mapped_share(stats: &MachineStats) -> Value {
    let sum = |of: fn(&control::DiskStats) -> u64| stats.disks.iter().map(of).sum::<u64>();
    let mapped = sum(|disk| disk.mapped_bytes);
    let served = mapped + sum(|disk| disk.unaligned_bytes + disk.refused_bytes);
    if served == 0 {
        return Value::missing("mapped_read_share", "nothing was read");
    }
    Value::new("mapped_read_share", ratio(mapped, served), "", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_double() {
        assert_eq!(counts(8), [1, 2, 4, 8]);
        assert_eq!(counts(2), [1, 2]);
    }
}
