//! The life of VMs: `create`, `start`, `stop`, `kill`, `reset`, `pause`, `resume`, `destroy`.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use config::{Loader, ModuleFile};
use control::{ControlError, Name, VmState, VmSummary};
use machine::{AgentError, Client, ClientError, GuestAgent, RunRoot, ShutdownMode, WaitError, wait_for_vm};

use super::check::warn;
use super::kept::Keeper;
use super::{Context, launched, put};
use crate::args::{Create, Set, Stop};
use crate::failure::Failure;

/// How long a guest agent may take to answer before `stop` gives up on it.
const AGENT_TIMEOUT: Duration = Duration::from_secs(10);

pub fn create(context: &Context, args: &Create) -> Result<(), Failure> {
    let dir = machine::find(&RunRoot::from_env(), context.global.machine.as_ref())?;
    let client = Client::connect_to(&dir)?;
    let (name, starts) = create_from(context, &client, &args.file, args.name.as_ref(), !args.no_start)?;
    if args.keep {
        Keeper::of(dir.name())?.keep(&name, &args.file, !args.no_start)?;
    }
    context.output.line(format!("VM {name} created{}", if starts { " and started" } else { "" }))
}

/// Makes the VM of a file, and starts it if the file says so, too; its name, and whether it starts.
///
/// # Errors
/// The file is wrong, or the machine refuses.
pub fn create_from(
    context: &Context,
    client: &Client,
    file: &Path,
    name: Option<&Name>,
    may_start: bool,
) -> Result<(Name, bool), Failure> {
    let plan = Loader::from_env().load_vm(file, name)?;
    warn(context, &plan.warnings);
    let name = plan.spec.name.clone();
    let starts = plan.spec.autostart && may_start;
    // Before the upload, which may take long; the monitor checks again.
    if client.vms()?.iter().any(|vm| vm.name == name) {
        return Err(ClientError::Refused(ControlError::VmExists { name }).into());
    }
    for module in &plan.modules {
        upload_missing(client, module)?;
    }
    client.create_vm(plan.spec)?;
    if starts {
        client.start_vm(&name)?;
    }
    Ok((name, starts))
}

/// The label tells the file's identity, so what is there already is the same.
fn upload_missing(client: &Client, module: &ModuleFile) -> Result<(), Failure> {
    if client.machine_info()?.modules.iter().any(|known| known.name == module.label) {
        return Ok(());
    }
    let file = File::open(&module.path).map_err(|source| Failure::File { path: module.path.clone(), source })?;
    put::upload(client, &module.label, module.bytes, file)
}

pub fn start(context: &Context, vm: &Name) -> Result<(), Failure> {
    if context.global.machine.is_none()
        && let Some(done) = launched::start(context, vm)
    {
        return done;
    }
    context.connect_for(vm)?.start_vm(vm)?;
    context.output.line(format!("VM {vm} started"))
}

pub fn kill(context: &Context, vm: &Name) -> Result<(), Failure> {
    context.connect_for(vm)?.kill_vm(vm)?;
    context.output.line(format!("VM {vm} killed"))
}

pub fn reset(context: &Context, vm: &Name) -> Result<(), Failure> {
    context.connect_for(vm)?.reset_vm(vm)?;
    context.output.line(format!("VM {vm} reset"))
}

pub fn pause(context: &Context, vm: &Name) -> Result<(), Failure> {
    context.connect_for(vm)?.pause_vm(vm)?;
    context.output.line(format!("VM {vm} paused"))
}

pub fn resume(context: &Context, vm: &Name) -> Result<(), Failure> {
    context.connect_for(vm)?.resume_vm(vm)?;
    context.output.line(format!("VM {vm} goes on"))
}

pub fn set(context: &Context, args: &Set) -> Result<(), Failure> {
    context.connect()?.set_vm(&args.vm, args.settings.clone())?;
    let settings: Vec<_> = args.settings.iter().map(ToString::to_string).collect();
    context.output.line(format!("VM {} set to {}", args.vm, settings.join(" ")))
}

pub fn destroy(context: &Context, vm: &Name) -> Result<(), Failure> {
    context.connect_for(vm)?.destroy_vm(vm)?;
    let dir = machine::find(&RunRoot::from_env(), context.global.machine.as_ref());
    if let Ok(keeper) = dir.map_err(Failure::from).and_then(|dir| Keeper::of(dir.name())) {
        keeper.forget(vm);
    }
    context.output.line(format!("VM {vm} destroyed"))
}

pub fn stop(context: &Context, args: &Stop) -> Result<(), Failure> {
    if context.global.machine.is_none()
        && let Some(done) = launched::stop(context, &args.vm, args.timeout)
    {
        return done;
    }
    let client = context.connect()?;
    shut_down(&client, &args.vm, args.timeout)?;
    context.output.line(format!("VM {} stopped", args.vm))
}

/// Asks a guest to shut down, and waits until its VM has stopped.
pub fn shut_down(client: &Client, vm: &Name, timeout: Duration) -> Result<VmSummary, Failure> {
    let state = client.vm(vm)?.state;
    if state != VmState::Running {
        let refusal = ControlError::BadState { vm: vm.clone(), state, wanted: VmState::Running };
        return Err(ClientError::Refused(refusal).into());
    }
    let asked = GuestAgent::connect(client, vm, AGENT_TIMEOUT.min(timeout))
        .and_then(|mut agent| agent.shutdown(ShutdownMode::PowerDown).map(|()| agent));
    // Its session stays open until the end: an agent that has something to say to a port that nobody holds waits for ever,
    // and systemd waits a minute and a half for the agent.
    let _agent = asked.map_err(|error| no_agent(error, vm))?;
    wait_for_vm(client, vm, timeout, |summary| summary.state == VmState::Stopped).map_err(|error| match error {
        WaitError::Client(error) => error.into(),
        other => Failure::Other(format!("{other} although its guest was asked to shut down; {}", kill_hint(vm))),
    })
}

fn no_agent(error: AgentError, vm: &Name) -> Failure {
    match error {
        AgentError::Client(error) => error.into(),
        other => Failure::Other(format!("{other}; {}", kill_hint(vm))),
    }
}

fn kill_hint(vm: &Name) -> String {
    format!("`mirrorball kill {vm}` takes its power")
}
