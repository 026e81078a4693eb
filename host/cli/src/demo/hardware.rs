//! Hardware that fails while the VMs work: once all of them run the command.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use control::{Name, StopReason, VmState, VmSummary};
use faults::{Fault, Request, Trigger};
use machine::{Client, FaultPort, RunDir};

use crate::failure::Failure;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// How long the firmware may take to see a request.
const FIRMWARE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long cells may take to agree, to take devices over, and to make a VM anew.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);

/// A fault to come.
#[derive(Debug)]
pub struct Trouble {
    pub fault: Fault,
    /// After the last VM has begun the command.
    pub after: Duration,
    /// VMs that still boot for the first time.
    pub to_begin: AtomicUsize,
}

/// What has become of a VM with which something went wrong.
#[derive(Debug)]
pub enum Fate {
    /// It runs on, in this cell; only the way to it was lost.
    RunsOn,
    /// It was lost with its cell, and has been made anew.
    StartsAgain,
    /// It was lost with its cell.
    Lost,
    /// Something else.
    Other,
}

impl Trouble {
    /// Makes the hardware fail, when all VMs work; when that was, from `started` on. Gives up when no VM is left that could begin.
    pub fn strike(&self, dir: &RunDir, started: Instant, is_over: &dyn Fn() -> bool) -> Result<Duration, Failure> {
        while self.to_begin.load(Ordering::Relaxed) > 0 {
            if is_over() {
                return Err(Failure::Other("the VMs ended before all of them ran the command".to_owned()));
            }
            thread::sleep(LOOK);
        }
        thread::sleep(self.after);
        let failed = |error: machine::FaultError| Failure::Other(error.to_string());
        let port = FaultPort::of(dir).map_err(failed)?;
        let at = started.elapsed();
        port.inject(Request { fault: self.fault, trigger: Trigger::Now }, FIRMWARE_TIMEOUT).map_err(failed)?;
        Ok(at)
    }
}

/// What became of a VM that was in `cell`, as soon as the cells agree on it.
pub fn fate_of(client: &Client, vm: &Name, cell: u8, restarts: bool) -> Fate {
    let begin = Instant::now();
    while begin.elapsed() < SETTLE_TIMEOUT {
        // Nobody may answer while the machine changes hands.
        if let Ok(summary) = client.vm(vm)
            && let Some(fate) = judge(&summary, cell, restarts)
        {
            return fate;
        }
        thread::sleep(LOOK);
    }
    Fate::Other
}

/// `None`: it is not settled yet.
fn judge(vm: &VmSummary, cell: u8, restarts: bool) -> Option<Fate> {
    let is_lost = matches!(vm.reason, Some(StopReason::CellLost { .. }));
    match vm.state {
        VmState::Running if vm.cell == cell => Some(Fate::RunsOn),
        VmState::Running => Some(Fate::StartsAgain),
        VmState::Stopped if is_lost && !restarts => Some(Fate::Lost),
        VmState::Stopped if !is_lost && vm.cell == cell => Some(Fate::Other),
        _ => None,
    }
}
