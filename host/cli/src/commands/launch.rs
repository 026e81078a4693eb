//! Starting a machine with a supervisor of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs, thread};

use config::{Loader, MachinePlan};
use machine::{Client, DetachError, RunDir, RunRoot, spawn_detached};

use super::shutdown::power_off;
use crate::args::Launch;
use crate::failure::Failure;

/// A machine that this process has started. It is powered off when this process ends, however that happens, unless
/// it was released.
#[derive(Debug)]
pub struct Running {
    dir: RunDir,
    client: Client,
}

impl Running {
    /// Reads a machine file, and nothing more.
    pub fn plan(file: &Path, launch: &Launch) -> Result<MachinePlan, Failure> {
        Ok(loader(launch).load(file)?)
    }

    /// Starts the machine and waits until its monitor answers; `on_step` is told how far it is.
    pub fn start(plan: &MachinePlan, launch: &Launch, on_step: impl FnMut(&str)) -> Result<Self, Failure> {
        let program = env::current_exe().map_err(Failure::system("cannot find this program"))?;
        let mut command = Command::new(program);
        command.args(["supervise", "--tied"]).arg(&plan.file);
        command.args(["--boot-timeout", &format!("{}s", launch.boot_timeout.as_secs_f64())]);
        if launch.restricted {
            command.arg("--restricted");
        }
        if let Some(monitor) = &launch.monitor {
            command.arg("--monitor").arg(monitor);
        }
        spawn_detached(&mut command, on_step).map_err(failure)?;
        let dir = RunRoot::from_env().machine(&plan.name);
        let client = Client::connect_to(&dir)?;
        Ok(Self { dir, client })
    }

    /// The connection has ended: waits until the machine has ended, too, or until it was started again after a panic. Whether
    /// it runs.
    pub fn rejoin(&mut self) -> bool {
        while self.dir.is_running() {
            if let Ok(client) = Client::connect_to(&self.dir) {
                self.client = client;
                return true;
            }
            thread::sleep(LOOK);
        }
        false
    }

    pub const fn dir(&self) -> &RunDir {
        &self.dir
    }

    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Leaves the machine running when this process ends.
    pub fn release(self) -> Result<(), Failure> {
        let path = released_path(&self.dir);
        fs::write(&path, "").map_err(|source| Failure::File { path, source })
    }

    /// Powers it off and waits for its end.
    pub fn power_off(self) -> Result<(), Failure> {
        power_off(&self.client, &self.dir)
    }

    /// Why the machine failed, once it has ended; nothing if it was powered off in order.
    pub fn failure(&self) -> Option<Failure> {
        let said = fs::read_to_string(supervisor_log(&self.dir)).unwrap_or_default();
        let said = said.lines().filter(|line| !line.starts_with(RESTART)).collect::<Vec<_>>().join("\n");
        (!said.trim().is_empty()).then(|| said_failure(&said))
    }
}

/// Time between two looks at a machine that may be starting again.
const LOOK: Duration = Duration::from_millis(100);

/// How a line of the supervisor's log begins that tells of a restart, which is no failure.
pub const RESTART: &str = "restart: ";

/// Its presence tells the supervisor that the machine outlives the process that started it.
pub fn released_path(dir: &RunDir) -> PathBuf {
    dir.path().join("released")
}

/// What the supervisor says after the machine has booted.
pub fn supervisor_log(dir: &RunDir) -> PathBuf {
    dir.path().join("supervisor.log")
}

/// Reads machine files as the command line says.
pub fn loader(launch: &Launch) -> Loader {
    Loader { is_restricted: launch.restricted, ..Loader::from_env() }
}

/// The monitor's image: the one named on the command line or in the machine file, else the one that a tree has built.
pub fn monitor_image(launch: &Launch, in_file: Option<PathBuf>) -> Option<PathBuf> {
    launch.monitor.clone().or(in_file).or_else(|| lab::artifacts::monitor().ok())
}

fn failure(error: DetachError) -> Failure {
    match error {
        DetachError::Failed { said } => said_failure(&said),
        other => Failure::Other(other.to_string()),
    }
}

/// The supervisor's message, which has this program's name in front already.
fn said_failure(said: &str) -> Failure {
    let said = said.trim();
    Failure::Other(said.strip_prefix("mirrorball: ").unwrap_or(said).to_owned())
}
