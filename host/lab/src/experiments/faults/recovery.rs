//! How long it takes from a fault until the cells that are left have agreed to go on.

use std::time::Instant;

use addr::NodeId;
use control::{CellSpec, CellState, EventKind, VmSpec};
use faults::{Fault, NodeSet, Request, Trigger};
use machine::{FaultPort, Injection};

use crate::LabError;
use crate::compare::ratio;
use crate::plan::Trial;
use crate::report::{commit_of, describe};
use crate::rig::{Rig, Running, WATCHDOG, name, probe_vm};
use crate::run::Progress;
use crate::store::{Measured, Value};

/// The figure: until the last of them has agreed.
pub const RECOVERY: &str = "recovery_ms";
/// Until the last of them has missed a cell.
pub const NOTICE: &str = "notice_ms";
/// Rounds of a computation that does not end while the machine runs.
const FOR_EVER: u64 = 1_000_000;

/// Boots the trial's machine with a VM that computes in each cell, and takes the power from the last node.
///
/// # Errors
/// [`LabError`] if the machine does not run, or a cell does not tell of the loss.
pub fn time(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    let cells = trial.machine.nodes.len();
    let vms = (0..cells).map(|cell| vm(cell, FOR_EVER)).collect::<Result<Vec<_>, _>>()?;
    progress.say("boot");
    let machine = boot(trial, "bench-recovery", &vms)?;
    for vm in &vms {
        machine.wait_text(&vm.name, "WORKING")?;
    }
    let info = machine.client().machine_info()?;
    progress.say("a node fails");
    let fault = Fault::NodePower(NodeSet::one(cells - 1));
    let fault = inject(&machine, Request { fault, trigger: Trigger::Now })?;
    let told = losses(&machine, cells - 1)?;
    let ms = |ticks: Option<u64>| ratio(ticks.unwrap_or(0).saturating_sub(fault), info.timebase_hz.max(1)) * 1000.0;
    let values = vec![
        Value::new(RECOVERY, ms(told.iter().map(|(agreed, _)| *agreed).max()), "ms", 1),
        Value::new(NOTICE, ms(told.iter().map(|(_, noticed)| *noticed).max()), "ms", 1),
    ];
    Ok(Measured { machine: describe(&info), commit: commit_of(&info.monitor.version), values })
}

/// A VM that computes in a cell.
pub fn vm(cell: usize, rounds: u64) -> Result<VmSpec, LabError> {
    let spec = probe_vm(&format!("vm{cell}"), 1, 32, &format!("figure=checksum n={rounds}"))?;
    Ok(VmSpec { cell: cell as u8, autostart: true, ..spec })
}

/// Boots the trial's machine with a cell for each node, and waits until all have begun.
pub fn boot(trial: &Trial, machine: &str, vms: &[VmSpec]) -> Result<Running, LabError> {
    let cells = trial.machine.nodes.len();
    let cell = |node| Ok(CellSpec { name: name(&format!("c{node}"))?, nodes: vec![NodeId(node)] });
    let cells = (0..cells as u8).map(cell).collect::<Result<Vec<_>, LabError>>()?;
    let rig = Rig::of(machine, trial)?.with_probe()?.cells(cells);
    let machine = vms.iter().fold(rig, |rig, vm| rig.vm(vm.clone())).boot()?;
    wait(&machine, "all cells to begin", || {
        let cells = machine.client().cells()?;
        Ok(cells.iter().all(|cell| cell.state == CellState::In).then_some(()))
    })?;
    Ok(machine)
}

/// Makes hardware fail; when, in ticks, if it has failed at once.
pub fn inject(machine: &Running, request: Request) -> Result<u64, LabError> {
    let failed = |why: machine::FaultError| trouble(machine, why.to_string());
    match FaultPort::of(machine.machine().dir()).and_then(|port| port.inject(request, WATCHDOG)).map_err(failed)? {
        Injection::Done { ticks, .. } => Ok(ticks),
        Injection::Armed => Ok(0),
    }
}

/// When so many losses were agreed on, and when some cell was missed first, in ticks.
fn losses(machine: &Running, count: usize) -> Result<Vec<(u64, u64)>, LabError> {
    wait(machine, "the cells to agree", || {
        let told = machine.events()?.into_iter().filter_map(|event| match event.kind {
            EventKind::CellLost { noticed_ticks, .. } => Some((event.ticks, noticed_ticks)),
            _ => None,
        });
        let told: Vec<_> = told.collect();
        Ok((told.len() >= count).then_some(told))
    })
}

/// Looks again and again until there is something.
pub fn wait<T>(
    machine: &Running,
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>, LabError>,
) -> Result<T, LabError> {
    let begin = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if begin.elapsed() > WATCHDOG {
            return Err(trouble(machine, format!("waited in vain for {what}")));
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// What went wrong, with the machine's log.
pub fn trouble(machine: &Running, reason: String) -> LabError {
    LabError::Guest { experiment: "faults".to_owned(), reason, console: machine.log() }
}
