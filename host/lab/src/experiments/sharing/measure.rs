//! The measurement of `sharing` under the monitor.

use control::{DiskStats, MachineStats, VmSpec};

use super::MIB;
use super::footprint::{self, Footprint, Look};
use super::guests::{finish, in_use, mib, most, rest, start_all, vms};
use crate::LabError;
use crate::compare::ratio;
use crate::experiments::debian::{self, COMPILE, run_all, shell};
use crate::plan::Trial;
use crate::rig::Running;
use crate::run::Progress;
use crate::store::{Measured, Value};

/// The figure of Fig. 7.
pub const FOOTPRINT: &str = "shared_footprint_8";
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
        shell(machine.client(), vm, debian::BOOTED)?;
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

/// The machine, with its VMs made and not started.
fn boot(trial: &Trial) -> Result<(Running, Vec<VmSpec>), LabError> {
    Ok((debian::rig("bench-sharing", trial)?.boot()?, vms(trial)?))
}

fn mapped_share(stats: &MachineStats) -> Value {
    let sum = |of: fn(&DiskStats) -> u64| stats.disks.iter().map(of).sum::<u64>();
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
