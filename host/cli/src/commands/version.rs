//! `version`.

use control::PROTOCOL_VERSION;
use machine::ClientError;
use serde::Serialize;

use super::Context;
use crate::failure::Failure;

/// `version --json`.
#[derive(Debug, Serialize)]
struct VersionView {
    /// Of this command.
    version: &'static str,
    /// Of the control protocol.
    protocol: u32,
    /// The running machine's name.
    machine: Option<String>,
    /// Its monitor's version and commit.
    monitor: Option<String>,
}

pub fn run(context: &Context, json: bool) -> Result<(), Failure> {
    let client = match context.connect() {
        Ok(client) => Some(client),
        // Nothing was asked of a machine.
        Err(Failure::Client { error: ClientError::NoMachine | ClientError::SeveralMachines { .. } }) => None,
        Err(error) => return Err(error),
    };
    let server = client.as_ref().map(machine::Client::server);
    let view = VersionView {
        version: env!("CARGO_PKG_VERSION"),
        protocol: PROTOCOL_VERSION,
        machine: server.map(|server| server.machine.to_string()),
        monitor: server.map(|server| server.monitor.clone()),
    };
    if json {
        return context.output.json(&view);
    }
    context.output.line(format!("mirrorball {} (control protocol {})", view.version, view.protocol))?;
    match (&view.machine, &view.monitor) {
        (Some(machine), Some(monitor)) => context.output.line(format!("machine {machine}: monitor {monitor}")),
        _ => Ok(()),
    }
}
