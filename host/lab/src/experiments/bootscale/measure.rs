//! The measurement of `bootscale`: one machine, with or without VMs.

use control::{Event, EventKind, VmSpec};

use crate::LabError;
use crate::compare::ratio;
use crate::plan::{Trial, Work};
use crate::report::{commit_of, describe};
use crate::rig::{Rig, Running, probe_vm};
use crate::run::Progress;
use crate::store::{Measured, Value};

/// Memory of each VM.
const VM_MIB: u32 = 32;

/// Boots the trial's machine with as many VMs as its procedure counts: once with guests that end, for the time, and once
/// with guests that stay, for the memory.
///
/// # Errors
/// [`LabError`] if the machine does not run, or a guest does not start.
pub fn boot(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    let count = match &trial.work {
        Work::Procedure(procedure) => procedure.count,
        Work::Guest(_) => 0,
    };
    progress.say("time");
    let (machine, vms) = start(trial, count, "figure=ipi_self n=1")?;
    let info = machine.client().machine_info()?;
    for vm in &vms {
        machine.wait_stopped(&vm.name)?;
    }
    let mut values = times(&machine.events()?, info.timebase_hz, count);
    drop(machine);
    progress.say("memory");
    let (machine, vms) = start(trial, count, "figure=idle")?;
    for vm in &vms {
        machine.wait_text(&vm.name, "IDLE")?;
    }
    values.push(monitor_memory(&machine)?);
    Ok(Measured { machine: describe(&info), commit: commit_of(&info.monitor.version), values })
}

/// The machine, with VMs that the monitor starts when it boots.
fn start(trial: &Trial, count: u64, cmdline: &str) -> Result<(Running, Vec<VmSpec>), LabError> {
    let guest = |number| Ok(VmSpec { autostart: true, ..probe_vm(&format!("vm-{number}"), 1, VM_MIB, cmdline)? });
    let vms = (0..count).map(guest).collect::<Result<Vec<_>, LabError>>()?;
    let rig = Rig::of("bench-boot", trial)?.with_probe()?;
    let machine = vms.iter().fold(rig, |rig, vm| rig.vm(vm.clone())).boot()?;
    Ok((machine, vms))
}

fn times(events: &[Event], hz: u64, vms: u64) -> Vec<Value> {
    let ms = |ticks: u64| ratio(ticks, hz.max(1)) * 1000.0;
    let value = |name: &str, ticks: Option<u64>, why: &str| match ticks {
        Some(ticks) => Value::new(name, ms(ticks), "ms", 1),
        None => Value::missing(name, why),
    };
    let takeover = events.iter().find(|event| matches!(event.kind, EventKind::MachineBooted { .. }));
    let takeover = takeover.map(|event| event.ticks);
    let mut values = vec![value("boot_ms", takeover, "the monitor does not say when it took the machine over")];
    if vms > 0 {
        let ended = |event: &&Event| matches!(event.kind, EventKind::VmStopped { .. });
        let ended: Vec<_> = events.iter().filter(ended).map(|event| event.ticks).collect();
        let all = u64::try_from(ended.len()).is_ok_and(|found| found == vms);
        let last = ended.into_iter().max().filter(|_| all);
        let took = takeover.and_then(|takeover| Some(last?.saturating_sub(takeover)));
        values.push(value("vms_ms", took, "not every VM has ended"));
    }
    values
}

/// Memory of the monitor itself. Unused heap is the monitor's, too.
fn monitor_memory(machine: &Running) -> Result<Value, LabError> {
    let bytes: u64 = machine.stats()?.monitor.iter().map(|memory| memory.bytes).sum();
    Ok(Value::new("monitor_kib", ratio(bytes, 1024), "KiB", 1))
}

#[cfg(test)]
mod tests {
    use control::StopReason;

    use super::*;

    fn event(ticks: u64, kind: EventKind) -> Event {
        Event { sequence: ticks, ticks, hart: Default::default(), cell: 0, vm: None, kind }
    }

    #[test]
    fn times_are_those_of_the_last_of_all() {
        let mut events = vec![
            event(150, EventKind::MachineBooted { harts: 2, nodes: 1, free_bytes: 1 }),
            event(400, EventKind::VmStopped { reason: StopReason::PowerOff }),
        ];
        let find = |events: &[Event], name| {
            let values = times(events, 1000, 2);
            values.into_iter().find(|value| value.name == name).and_then(|value| value.number)
        };
        assert_eq!(find(&events, "boot_ms"), Some(150.0));
        // One of two VMs.
        assert_eq!(find(&events, "vms_ms"), None);
        events.push(event(390, EventKind::VmStopped { reason: StopReason::PowerOff }));
        assert_eq!(find(&events, "vms_ms"), Some(250.0));
    }
}
