//! The measurement of `sharing` under the monitor.

use std::thread;
use std::time::{Duration, Instant};

use control::{DiskMode, DiskSpec, MachineStats, VmSpec, VmStats};
use machine::{Client, GuestAgent};

use super::parts::{self, Parts};
use super::{DISK, INITRD, MIB, VM_MIB};
use crate::compare::ratio;
use crate::plan::{Trial, Work};
use crate::report::{commit_of, describe};
use crate::rig::{Rig, Running, WATCHDOG, debian_vm, name as named};
use crate::run::Progress;
use crate::store::{Measured, Value};
use crate::{LabError, artifacts};

pub const PAGE: u64 = 4096;
pub const MIB_BYTES: u64 = 1 << 20;
/// What compiles: bzip2, whose source is in the image. Its own tests are left out: they compile nothing.
const COMPILE: &str = "cp -r /usr/src/workload /var/tmp/build && cd /var/tmp/build && \
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

/// What a value of `count` VMs is called.
pub fn name(count: u64, kind: &str) -> String {
    format!("{kind}_{count}_mib")
}

/// Guests that compile, a few more at a time.
///
/// # Errors
/// [`LabError`] if the machine does not run, or a guest does not do its work.
pub fn compile(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    let (machine, vms) = boot(trial)?;
    let (mut values, mut started, mut looks) = (Vec::new(), 0, Vec::new());
    for count in counts(most(trial)) {
        let upto = usize::try_from(count).unwrap_or(usize::MAX).min(vms.len());
        progress.say(&format!("{count} VMs"));
        run_all(&machine, &vms[started..upto], COMPILE)?;
        started = upto;
        let stats = rest(&machine)?;
        let look = Footprint::of(&machine, &vms[..upto], &stats)?;
        let own = vms[..upto].iter().map(|vm| own_parts(&machine, vm)).collect::<Result<Vec<_>, _>>()?;
        let last = own.last().map_or(0, |parts| parts.kernel_pages() * PAGE);
        let (common, kernel) = (mib(shareable(&look, &own)), mib(last));
        progress.say(&format!("{count} VMs: {common:.1} MiB in common, {kernel:.1} MiB the last one's kernel's own"));
        looks.push((count, look, own));
    }
    for (count, look, own) in &looks {
        values.extend(look.values(*count));
        values.push(Value::new(&name(*count, "shareable"), mib(shareable(look, own)), MIB, 1));
    }
    values.push(match looks.first().zip(looks.last()) {
        Some(((_, one, own_of_one), (_, all, own))) => {
            Value::new("shared_footprint_8", ratio(shareable(all, own), shareable(one, own_of_one)), "", 1)
        }
        None => Value::missing("shared_footprint_8", "no VM was started"),
    });
    values.push(mapped_share(&machine.stats()?));
    if let Some(last) = looks.last().and_then(|(_, _, own)| own.last()) {
        values.extend(last.values());
    }
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
        run_all(&machine, std::slice::from_ref(vm), "systemctl is-system-running --wait || true")?;
        let stats = rest(&machine)?;
        used.push(in_use(&stats));
        values.extend(Footprint::of(&machine, &vms[..=index], &stats)?.values(index as u64 + 1));
    }
    values.push(match used[..] {
        [.., before, after] => Value::new("extra_vm_mib", mib(after.saturating_sub(before)), MIB, 1),
        _ => Value::missing("extra_vm_mib", "there are not two VMs"),
    });
    finish(&machine, values)
}

fn most(trial: &Trial) -> u64 {
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

/// Starts VMs, and runs a script in each at the same time.
fn run_all(machine: &Running, vms: &[VmSpec], script: &str) -> Result<(), LabError> {
    start_all(machine, vms)?;
    let client = machine.client();
    let outcome = thread::scope(|scope| {
        let running: Vec<_> = vms.iter().map(|vm| scope.spawn(move || shell(client, vm, script))).collect();
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

/// Bytes of what VMs can have in common: the disk cache, what was merged, and what of their kernels' code and constants was not.
fn shareable(look: &Footprint, own: &[Parts]) -> u64 {
    look.cache + look.merged + own.iter().map(|parts| parts.text * PAGE).sum::<u64>()
}

fn in_use(stats: &MachineStats) -> u64 {
    stats.nodes.iter().map(|node| node.total_bytes - node.free_bytes).sum()
}

pub fn mib(bytes: u64) -> f64 {
    ratio(bytes, MIB_BYTES)
}

/// Memory by kind, in bytes.
#[derive(Clone, Copy, Debug)]
struct Footprint {
    private: u64,
    /// Guest memory that shared pages stand for.
    seen_shared: u64,
    cache: u64,
    /// Shared by VMs, in no disk's cache: merged pages.
    merged: u64,
    overlays: u64,
    tables: u64,
}

impl Footprint {
    fn of(machine: &Running, vms: &[VmSpec], stats: &MachineStats) -> Result<Self, LabError> {
        let of_vms = vms
            .iter()
            .map(|vm| Ok(machine.client().vm_stats(&vm.name)?))
            .collect::<Result<Vec<VmStats>, LabError>>()?;
        let memory = || of_vms.iter().flat_map(|vm| &vm.memory);
        let sum = |of: fn(&control::NodeStats) -> u64| stats.nodes.iter().map(of).sum::<u64>();
        let overlays = memory().map(|on| on.disk_pages).sum::<u64>() * PAGE;
        let cache = sum(|node| node.disk_cache_bytes);
        Ok(Self {
            private: sum(|node| node.private_bytes),
            seen_shared: sum(|node| node.sharing_bytes),
            cache,
            merged: sum(|node| node.sharable_bytes).saturating_sub(cache + overlays),
            overlays,
            tables: memory().map(|on| on.table_pages + on.monitor_pages).sum::<u64>() * PAGE,
        })
    }

    fn values(&self, count: u64) -> Vec<Value> {
        let Self { private, seen_shared, cache, merged, overlays, tables } = *self;
        let parts = [
            ("virtual", private + seen_shared),
            ("machine", private + cache + merged + overlays + tables),
            ("private", private),
            ("disk_cache", cache),
            ("merged", merged),
            ("modified_blocks", overlays),
            ("tables", tables),
        ];
        parts.map(|(kind, bytes)| Value::new(&name(count, kind), mib(bytes), MIB, 1)).into()
    }
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

/// What a guest has for itself, by part.
fn own_parts(machine: &Running, vm: &VmSpec) -> Result<Parts, LabError> {
    let said = shell(machine.client(), vm, parts::SCRIPT)?;
    let kinds = machine.client().page_map(&vm.name)?;
    Parts::of(&said, &kinds).ok_or_else(|| LabError::Guest {
        experiment: format!("sharing: {}", vm.name),
        reason: format!("{} pages, and of their use it says: {:.200}", kinds.len(), said),
        console: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_double() {
        assert_eq!(counts(8), [1, 2, 4, 8]);
        assert_eq!(counts(2), [1, 2]);
        assert_eq!(name(4, "machine"), "machine_4_mib");
    }
}
