//! `shutdown`: power a machine off.

use std::thread;
use std::time::{Duration, Instant};

use control::VmState;
use machine::{Client, ClientError, RunDir, RunRoot};

use super::{Context, vm};
use crate::args::Shutdown;
use crate::failure::Failure;

/// How long the emulator may take to end after the monitor has said goodbye.
const END_TIMEOUT: Duration = Duration::from_secs(30);

pub fn run(context: &Context, args: &Shutdown) -> Result<(), Failure> {
    let dir = machine::find(&RunRoot::from_env(), context.global.machine.as_ref())?;
    let client = Client::connect_to(&dir)?;
    if let Some(timeout) = args.stop_vms {
        stop_all(context, &client, timeout)?;
    }
    power_off(&client, &dir)?;
    context.output.line(format!("machine {} is off", dir.name()))
}

/// All at once: each has the whole time.
fn stop_all(context: &Context, client: &Client, timeout: Duration) -> Result<(), Failure> {
    let running: Vec<_> = client.vms()?.into_iter().filter(|vm| vm.state == VmState::Running).collect();
    thread::scope(|scope| {
        let stops: Vec<_> =
            running.iter().map(|vm| (vm, scope.spawn(|| vm::shut_down(client, &vm.name, timeout)))).collect();
        for (vm, stop) in stops {
            // A guest that does not answer loses its power with the machine.
            if let Ok(Err(error)) = stop.join() {
                context.say(&format!("mirrorball: VM {}: {error}", vm.name));
            }
        }
    });
    Ok(())
}

/// Powers a machine off and waits until nothing of it is left.
pub fn power_off(client: &Client, dir: &RunDir) -> Result<(), Failure> {
    match client.shutdown() {
        // It may go before its answer arrives.
        Ok(()) | Err(ClientError::Disconnected { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let deadline = Instant::now() + END_TIMEOUT;
    while dir.is_running() {
        if Instant::now() >= deadline {
            let seconds = END_TIMEOUT.as_secs();
            let pid = dir.state().map_or_else(String::new, |state| format!(" (process {})", state.supervisor_pid));
            return Err(Failure::Other(format!(
                "machine {} still runs after {seconds} s; end its supervisor{pid}",
                dir.name()
            )));
        }
        // The end of a process that is not our child makes no event.
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
