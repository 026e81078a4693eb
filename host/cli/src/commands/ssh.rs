//! `ssh`, `cp`, `port`: OpenSSH's programs with what they need to know of a launched VM.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};

use control::Name;
use serde::Serialize;

use super::Context;
use crate::args::{Cp, Port, PortMap, Ssh};
use crate::failure::Failure;
use crate::launched::{Home, Homes, missing};
use crate::output::Table;

/// Becomes `ssh`; returns only if that cannot be.
pub fn run(args: &Ssh) -> Result<(), Failure> {
    let home = running(&args.vm)?;
    let mut ssh = Command::new("ssh");
    ssh.args(options(&home)).arg("-p").arg(home.ssh_port()?.to_string());
    ssh.arg(target(&home)?).args(&args.command);
    Err(missing(ssh.exec()))
}

/// Becomes `scp`. All paths that name a VM name the same one.
pub fn copy(args: &Cp) -> Result<(), Failure> {
    let homes = Homes::from_env()?;
    let of = |path: &str| {
        let (vm, _) = path.split_once(':')?;
        homes.find(&Name::new(vm).ok()?)
    };
    let mut named: Vec<Home> = args.paths.iter().filter_map(|path| of(path)).collect();
    named.dedup();
    let [home] = &named[..] else {
        let what = if named.is_empty() { "no path names a launched VM" } else { "paths name several VMs" };
        return Err(Failure::Usage(format!("{what}: one side is VM:PATH, the other a path of this host")));
    };
    let home = &running(home.name())?;
    let target = target(home)?;
    let mut scp = Command::new("scp");
    scp.args(options(home)).arg("-P").arg(home.ssh_port()?.to_string());
    if args.recursive {
        scp.arg("-r");
    }
    scp.arg("--");
    for path in &args.paths {
        match (of(path), path.split_once(':')) {
            (Some(_), Some((_, inside))) => scp.arg(format!("{target}:{inside}")),
            // A name with a colon is no host.
            _ if path.contains(':') && !path.starts_with(['/', '.']) => scp.arg(format!("./{path}")),
            _ => scp.arg(path),
        };
    }
    Err(missing(scp.exec()))
}

/// `port --json`.
#[derive(Debug, Serialize)]
struct PortsView {
    ports: Vec<PortMap>,
}

pub fn ports(context: &Context, args: &Port) -> Result<(), Failure> {
    let ports = Homes::from_env()?.get(&args.vm)?.ports()?;
    if args.json.json {
        return context.output.json(&PortsView { ports });
    }
    let mut table = Table::new(&["HOST", ">VM PORT"]);
    for port in ports {
        table.row([format!("127.0.0.1:{}", port.host).into(), port.guest.to_string().into()]);
    }
    context.output.table(&table)
}

/// Whether a login succeeds now.
///
/// # Errors
/// There is no OpenSSH on this host.
pub fn can_log_in(home: &Home, port: u16) -> Result<bool, Failure> {
    Ok(quiet(home, port, &["true"])?.success())
}

/// Runs a command in a VM, without a word.
///
/// # Errors
/// There is no OpenSSH on this host.
pub fn run_quietly(home: &Home, command: &[&str]) -> Result<ExitStatus, Failure> {
    quiet(home, home.ssh_port()?, command)
}

fn quiet(home: &Home, port: u16, command: &[&str]) -> Result<ExitStatus, Failure> {
    let mut ssh = Command::new("ssh");
    ssh.args(options(home))
        .args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=20", "-p"])
        .arg(port.to_string());
    ssh.arg(target(home)?).args(command);
    ssh.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().map_err(missing)
}

/// No file of the user's own has a say: the key, and whom to trust, are the VM's.
fn options(home: &Home) -> Vec<OsString> {
    let quoted = |path: std::path::PathBuf| format!("\"{}\"", path.display());
    let mut options: Vec<OsString> = vec!["-F".into(), "none".into(), "-i".into(), home.key().into()];
    for option in [
        "IdentitiesOnly=yes".to_owned(),
        "StrictHostKeyChecking=yes".to_owned(),
        format!("HostKeyAlias={}", home.name()),
        format!("UserKnownHostsFile={}", quoted(home.known_hosts())),
        "GlobalKnownHostsFile=none".to_owned(),
        "LogLevel=ERROR".to_owned(),
    ] {
        options.extend(["-o".into(), option.into()]);
    }
    options
}

fn target(home: &Home) -> Result<String, Failure> {
    Ok(format!("{}@127.0.0.1", home.definition()?.seed.user))
}

fn running(vm: &Name) -> Result<Home, Failure> {
    let home = Homes::from_env()?.get(vm)?;
    match home.is_running() {
        true => Ok(home),
        false => Err(Failure::Other(format!("VM {vm} does not run; `mirrorball start {vm}` starts it"))),
    }
}
