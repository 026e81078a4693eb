//! The measurement of `stretches`.

use control::{HartStats, MachineStats, Placement, STRETCH_CLASSES, STRETCH_LIMITS_US, VmSpec};

use crate::LabError;
use crate::compare::ratio;
use crate::experiments::scalability;
use crate::plan::{Trial, Work};
use crate::report::{commit_of, describe};
use crate::rig::{self, Ended, Rig, Running, WATCHDOG, debian_vm};
use crate::run::Progress;
use crate::store::{Measured, Value};

/// The figure of the share.
pub const SHARE: &str = "stretches_share";
/// The figure of the longest.
pub const WORST: &str = "stretches_worst";
/// What a stretch may take, in microseconds; one of [`STRETCH_LIMITS_US`].
const SHORT_US: u32 = 50;
/// Memory of each guest.
const VM_MIB: u32 = 640;
/// The guests' initial file system.
const INITRD: &str = "workload.cpio";
/// Seconds between the end of boot and the compile: the first pass over a VM's memory comes meanwhile.
const BEFORE_COMPILE_S: u64 = 30;
/// The longest that a guest is waited for, in [`WATCHDOG`]s.
const PATIENCE: u32 = 9;

/// The machine's counters at the end of a phase.
struct Look {
    phase: &'static str,
    stats: MachineStats,
}

/// Boots guests, has them compile, and lets them rest.
///
/// # Errors
/// [`LabError`] if the machine does not run, or a guest does not do its work.
pub fn stretches(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    let dir = tempfile::tempdir().map_err(LabError::io("a temporary directory"))?;
    let initrd = dir.path().join(INITRD);
    crate::store::write_whole(&initrd, &scalability::compiler()?)?;
    let kernel = crate::artifacts::cached("kernel/Image")?;
    let rig = Rig::of("bench-stretches", trial)?.module(rig::KERNEL, kernel)?.module(INITRD, initrd)?;
    let machine = rig.boot()?;
    let info = machine.client().machine_info()?;
    let mut looks = Vec::new();
    let mut look = |phase| -> Result<u64, LabError> {
        let look = Look { phase, stats: machine.stats()? };
        progress.say(&told(&look, info.timebase_hz));
        looks.push(look);
        Ok(looks.last().map_or(0, |look| look.stats.now_ticks))
    };
    let vms = vms(trial)?;
    vms.iter().try_for_each(|vm| machine.start(vm))?;
    let ready = |vm: &VmSpec| patiently(|| machine.wait_line(&vm.name, "WORKLOAD "));
    let ready = vms.iter().map(ready).collect::<Result<Vec<_>, LabError>>()?;
    let begin = look("boot")? + BEFORE_COMPILE_S * info.timebase_hz;
    for (_, console) in &ready {
        console.send_all(format!("begin {begin}\n").as_bytes(), WATCHDOG)?;
    }
    let ended = vms.iter().map(|vm| ended(&machine, vm)).collect::<Result<Vec<_>, LabError>>()?;
    look("compile")?;
    let mut values = values(&looks, info.timebase_hz);
    values.extend(done(&ended));
    Ok(Measured { machine: describe(&info), commit: commit_of(&info.monitor.version), values })
}

/// Guests with vCPUs for more than half of the harts each: no node has room for one of them.
fn vms(trial: &Trial) -> Result<Vec<VmSpec>, LabError> {
    let Work::Procedure(procedure) = &trial.work else { return Ok(Vec::new()) };
    let (vcpus, sources) = (trial.machine.harts() / 2 + 1, procedure.count);
    let words = format!("quiet nokaslr jobs={vcpus} harts={vcpus} sources={sources} together=1");
    let vm = |number| {
        let spec = debian_vm(&format!("vm-{number}"), vcpus, VM_MIB, INITRD, &words)?;
        Ok(VmSpec { placement: Placement::Dynamic, ..spec })
    };
    (1..=trial.machine.nodes.len()).map(vm).collect()
}

/// Waits longer than the machine's watchdog does, which is for short things.
fn patiently<T>(mut wait: impl FnMut() -> Result<T, LabError>) -> Result<T, LabError> {
    (1..PATIENCE).find_map(|_| wait().ok()).map_or_else(wait, Ok)
}

/// Waits until a guest has compiled, rested, and powered off.
fn ended(machine: &Running, vm: &VmSpec) -> Result<Ended, LabError> {
    patiently(|| machine.wait_stopped(&vm.name))?;
    let ended = machine.end_of(&vm.name)?;
    if ended.console.contains("WORKLOAD done") {
        return Ok(ended);
    }
    let reason = "it did not compile to its end".to_owned();
    Err(LabError::Guest { experiment: format!("the guest {}", vm.name), reason, console: ended.console })
}

/// What happened to pages meanwhile: without it the figures would say less than they promise.
fn done(vms: &[Ended]) -> [Value; 4] {
    let sum = |of: fn(&Ended) -> u64| vms.iter().map(of).sum::<u64>();
    [
        ("pages_merged", sum(|vm| vm.stats.pages_merged)),
        ("pages_migrated", sum(|vm| vm.stats.placement.migrated_pages)),
        ("pages_replicated", sum(|vm| vm.stats.placement.replicated_pages)),
        ("zero_pages_returned", sum(|vm| vm.stats.zero_pages_returned)),
    ]
    .map(|(name, count)| Value::new(name, ratio(count, 1), "pages", 1))
}

/// The figures, and what they are made of.
fn values(looks: &[Look], hz: u64) -> Vec<Value> {
    let Some(last) = looks.last() else { return Vec::new() };
    let harts = &last.stats.harts;
    let mut values = vec![share(SHARE, counts(harts)), worst(WORST, harts, hz)];
    let mut before = [0; STRETCH_CLASSES];
    for look in looks {
        let now = counts(&look.stats.harts);
        let of_phase = std::array::from_fn(|class| now[class].saturating_sub(before[class]));
        values.push(share(&format!("{}_share", look.phase), of_phase));
        values.push(worst(&format!("worst_until_{}", look.phase), &look.stats.harts, hz));
        before = now;
    }
    let limits = STRETCH_LIMITS_US.iter().map(|limit| format!("up_to_{limit}_us")).chain(["longer".to_owned()]);
    values.extend(limits.zip(before).map(|(name, count)| Value::new(&name, ratio(count, 1), "stretches", 1)));
    values.extend(harts.iter().map(|hart| {
        let name = format!("hart_{}_worst", hart.index);
        worst(&name, std::slice::from_ref(hart), hz)
    }));
    values.extend(harts.iter().map(|hart| share(&format!("hart_{}_share", hart.index), hart.stretches.counts)));
    values
}

/// Stretches of some harts by class.
fn counts(harts: &[HartStats]) -> [u64; STRETCH_CLASSES] {
    std::array::from_fn(|class| harts.iter().map(|hart| hart.stretches.counts[class]).sum())
}

/// How many in a hundred took no longer than [`SHORT_US`].
fn share(name: &str, counts: [u64; STRETCH_CLASSES]) -> Value {
    let all: u64 = counts.iter().sum();
    let short = counts.iter().zip(STRETCH_LIMITS_US).filter(|(_, limit)| *limit <= SHORT_US).map(|(count, _)| count);
    match all {
        0 => Value::missing(name, "no hart was in the monitor"),
        _ => Value::new(name, 100.0 * ratio(short.sum(), all), "%", all),
    }
}

/// The longest stretch of some harts, and what it was for.
fn worst(name: &str, harts: &[HartStats], hz: u64) -> Value {
    let Some(worst) = harts.iter().max_by_key(|hart| hart.stretches.worst_ticks) else {
        return Value::missing(name, "there is no hart");
    };
    let stretches = &worst.stretches;
    let us = ratio(stretches.worst_ticks, hz.max(1)) * 1e6;
    let note = format!("{} on hart {}", stretches.worst_place, worst.index);
    Value { note, ..Value::new(name, us, "us", stretches.total()) }
}

fn told(look: &Look, hz: u64) -> String {
    let (share, worst) = (share("", counts(&look.stats.harts)), worst("", &look.stats.harts, hz));
    let number = |value: &Value| value.number.unwrap_or(0.0);
    format!(
        "{} done after {:.0} s of the machine's time: {:.3} % of {} stretches up to {SHORT_US} us, the longest {:.0} us ({})",
        look.phase,
        ratio(look.stats.now_ticks, hz.max(1)),
        number(&share),
        share.samples,
        number(&worst),
        worst.note
    )
}

#[cfg(test)]
mod tests {
    use addr::{CpuIndex, NodeId};
    use control::{StretchPlace, Stretches};

    use super::*;

    fn hart(index: u16, counts: [u64; STRETCH_CLASSES], worst_ticks: u64, worst_place: StretchPlace) -> HartStats {
        HartStats {
            index: CpuIndex(index),
            node: NodeId::default(),
            guest_ticks: 0,
            monitor_ticks: 0,
            idle_ticks: 0,
            switches: 0,
            queued: 0,
            running: None,
            exits: Default::default(),
            stretches: Stretches { counts, worst_ticks, worst_place },
        }
    }

    fn look(phase: &'static str, harts: Vec<HartStats>) -> Look {
        let stats = MachineStats { now_ticks: 0, harts, nodes: Vec::new(), disks: Vec::new(), monitor: Vec::new() };
        Look { phase, stats }
    }

    #[test]
    fn harts_are_added_up_and_phases_taken_apart() {
        let booted = [
            hart(0, [90, 0, 0, 5, 5, 0, 0, 0, 0, 0], 900, StretchPlace::Clients),
            hart(1, [0; 10], 0, StretchPlace::None),
        ];
        let rested = [
            hart(0, [190, 0, 0, 5, 5, 0, 0, 0, 0, 0], 900, StretchPlace::Clients),
            hart(1, [198, 1, 0, 0, 0, 0, 0, 0, 1, 0], 70_000, StretchPlace::Merging),
        ];
        let values = values(&[look("boot", booted.into()), look("compile", rested.into())], 10_000_000);
        let value = |name: &str| values.iter().find(|value| value.name == name).expect("it is there");
        let number = |name: &str| value(name).number.expect("measured");
        // Six of 400.
        assert!((number(SHARE) - 98.5).abs() < 1e-9);
        assert!((number("boot_share") - 95.0).abs() < 1e-9);
        // One of 300.
        assert!((number("compile_share") - 100.0 * 299.0 / 300.0).abs() < 1e-9);
        assert_eq!((number(WORST), value(WORST).note.as_str()), (7_000.0, "merging on hart 1"));
        assert_eq!((number("worst_until_boot"), value("worst_until_boot").note.as_str()), (90.0, "clients on hart 0"));
        assert_eq!((number("up_to_100_us"), number("up_to_10000_us"), number("hart_0_worst")), (5.0, 1.0, 90.0));
    }

    #[test]
    fn nothing_is_no_share() {
        assert_eq!(share(SHARE, [0; STRETCH_CLASSES]).number, None);
        assert!(STRETCH_LIMITS_US.contains(&SHORT_US));
    }
}
