//! The measurement of `odd`.

use std::thread;
use std::time::Duration;

use config::MachineInterrupts;
use control::{HartStats, MachineStats, VmSpec};

use crate::LabError;
use crate::compare::ratio;
use crate::experiments::debian::{self, BOOTED, run_all, shell};
use crate::plan::{Trial, Work};
use crate::report::{commit_of, describe};
use crate::rig::Running;
use crate::run::Progress;
use crate::store::{Measured, Value};

/// The figure of idle guests.
pub const IDLE: &str = "odd_idle";
/// The figure of guests that compile.
pub const COMPILING: &str = "odd_compiling";
/// vCPUs of the guests.
const VCPUS: [u16; 2] = [5, 3];
/// Memory of each guest.
const VM_MIB: u32 = 512;
/// The largest CPU that the emulator has.
const CPU: &str = "max";
/// Compiles in the background, again and again, as much at a time as the guest has vCPUs. The file is there as long as that goes well.
const COMPILE_ON: &str = "rm -rf /var/tmp/build && cp -r /usr/src/workload /var/tmp/build && cd /var/tmp/build && \
    touch /var/tmp/compiles && { { while make -j$(nproc) CC=gcc CFLAGS='-Wall -O1 -D_FILE_OFFSET_BITS=64' libbz2.a bzip2 \
    bzip2recover && make clean; do :; done; rm /var/tmp/compiles; } >/var/tmp/log 2>&1 </dev/null & }";
/// Whether it does.
const COMPILES: &str = "test -e /var/tmp/compiles || { tail -n 5 /var/tmp/log >&2; exit 1; }";

/// Boots the guests; looks at the harts while they are idle, then while they compile.
///
/// # Errors
/// [`LabError`] if the machine does not run, or a guest does not compile.
pub fn shares(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    let seconds = match &trial.work {
        Work::Procedure(procedure) => procedure.count,
        Work::Guest(_) => 0,
    };
    let guests = VCPUS.into_iter().zip(1..).map(|(vcpus, number)| debian::vm(&format!("vm-{number}"), vcpus, VM_MIB));
    let vms = guests.collect::<Result<Vec<VmSpec>, LabError>>()?;
    let rig = debian::rig("bench-odd", trial)?.hardware(|hardware| {
        hardware.cpu = CPU.to_owned();
        hardware.interrupts = MachineInterrupts::Plic;
    });
    let machine = rig.boot()?;
    let run = |script| run_all(machine.client(), vms.iter().map(|vm| (vm, script)));
    progress.say("boot");
    vms.iter().try_for_each(|vm| machine.start(vm))?;
    run(BOOTED)?;
    progress.say("guests idle");
    let mut values = watched(&machine, IDLE, seconds)?;
    run(COMPILE_ON)?;
    progress.say("guests compile");
    let compiling = watched(&machine, COMPILING, seconds)?;
    for vm in &vms {
        shell(machine.client(), vm, COMPILES)?;
    }
    values.extend(compiling);
    let info = machine.client().machine_info()?;
    Ok(Measured { machine: describe(&info), commit: commit_of(&info.monitor.version), values })
}

/// Lets so many seconds pass, and tells of as many further ones.
fn watched(machine: &Running, figure: &str, seconds: u64) -> Result<Vec<Value>, LabError> {
    thread::sleep(Duration::from_secs(seconds));
    let before = machine.stats()?;
    thread::sleep(Duration::from_secs(seconds));
    Ok(values(figure, &before, &machine.stats()?))
}

/// The worst hart's share, then each hart's, and how much of its time each was busy.
fn values(figure: &str, before: &MachineStats, after: &MachineStats) -> Vec<Value> {
    let harts: Vec<_> = after.harts.iter().filter_map(|hart| Share::of(before, hart)).collect();
    let mut values = vec![match harts.iter().max_by(|a, b| a.monitor().total_cmp(&b.monitor())) {
        Some(worst) => {
            let note = format!("hart {}", worst.index);
            Value { note, ..Value::new(figure, worst.monitor(), "%", 1) }
        }
        None => Value::missing(figure, "no hart was busy"),
    }];
    for hart in &harts {
        values.push(Value::new(&format!("{figure}_hart_{}", hart.index), hart.monitor(), "%", 1));
        values.push(Value::new(&format!("{figure}_hart_{}_busy", hart.index), hart.busy(), "%", 1));
    }
    values
}

/// What a hart did between two looks, in ticks.
#[derive(Clone, Copy, Debug)]
struct Share {
    index: u64,
    guest_ticks: u64,
    monitor_ticks: u64,
    idle_ticks: u64,
}

impl Share {
    /// Nothing of a hart that was not busy.
    fn of(before: &MachineStats, after: &HartStats) -> Option<Self> {
        let before = before.harts.iter().find(|hart| hart.index == after.index)?;
        let share = Self {
            index: u64::from(after.index.0),
            guest_ticks: after.guest_ticks.saturating_sub(before.guest_ticks),
            monitor_ticks: after.monitor_ticks.saturating_sub(before.monitor_ticks),
            idle_ticks: after.idle_ticks.saturating_sub(before.idle_ticks),
        };
        (share.busy_ticks() > 0).then_some(share)
    }

    const fn busy_ticks(self) -> u64 {
        self.guest_ticks + self.monitor_ticks
    }

    /// The monitor's part of the busy time, in percent.
    fn monitor(self) -> f64 {
        100.0 * ratio(self.monitor_ticks, self.busy_ticks())
    }

    /// The busy part of all time, in percent.
    fn busy(self) -> f64 {
        100.0 * ratio(self.busy_ticks(), self.busy_ticks() + self.idle_ticks)
    }
}

#[cfg(test)]
mod tests {
    use addr::{CpuIndex, NodeId};

    use super::*;

    fn look(harts: &[(u64, u64, u64)]) -> MachineStats {
        let hart = |(index, (guest_ticks, monitor_ticks, idle_ticks)): (u16, &(u64, u64, u64))| HartStats {
            index: CpuIndex(index),
            node: NodeId::default(),
            guest_ticks: *guest_ticks,
            monitor_ticks: *monitor_ticks,
            idle_ticks: *idle_ticks,
            switches: 0,
            queued: 0,
            running: None,
            exits: Default::default(),
            stretches: Default::default(),
        };
        let harts = (0..).zip(harts).map(hart).collect();
        MachineStats { now_ticks: 0, harts, nodes: Vec::new(), disks: Vec::new(), monitor: Vec::new() }
    }

    #[test]
    fn the_worst_hart_counts_and_what_was_before_does_not() {
        let before = look(&[(100, 900, 0), (0, 0, 0), (5, 5, 5)]);
        let after = look(&[(190, 910, 0), (95, 5, 300), (5, 5, 900)]);
        let values = values(IDLE, &before, &after);
        let number = |name: &str| values.iter().find(|value| value.name == name).and_then(|value| value.number);
        assert_eq!((number(IDLE), values[0].note.as_str()), (Some(10.0), "hart 0"));
        assert_eq!((number("odd_idle_hart_1"), number("odd_idle_hart_1_busy")), (Some(5.0), Some(25.0)));
        // It slept all the time.
        assert_eq!(number("odd_idle_hart_2"), None);
    }
}
