//! The command in one VM.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use control::{Name, VmSummary};
use machine::{AgentError, Client, GuestAgent};
use serde_json::{Value, json};

use super::checksum::Checksum;
use super::hardware::{Fate, Trouble, fate_of};
use super::is_alive;
use super::progress::ProgressLine;
use super::timeline::{Phase, Timeline};
use crate::args::Demo;
use crate::failure::Failure;
use crate::output::{last_line, units};

/// Where the guest keeps the command's output: memory, on every systemd.
const OUTPUT: &str = "/run/mirrorball-demo.out";
/// Time between two questions whether the command has ended: its agent writes each into the guest's journal.
const POLL: Duration = Duration::from_secs(1);
/// Time between two looks at the last line: each costs the guest a process.
const WATCH: Duration = Duration::from_secs(10);

/// One VM, and what is to be done in it.
#[derive(Clone, Copy, Debug)]
pub struct Guest<'a> {
    pub client: &'a Client,
    pub vm: &'a Name,
    pub args: &'a Demo,
    pub started: Instant,
    pub line: &'a ProgressLine,
    /// Hardware that is to fail.
    pub trouble: Option<&'a Trouble>,
    /// The VM is made anew when its cell is lost.
    pub restarts: bool,
}

/// What the command left.
#[derive(Clone, Debug)]
pub struct GuestRun {
    /// From the machine's start until the agent answered.
    pub boot: Duration,
    /// The command's.
    pub time: Duration,
    /// Its exit status.
    pub status: i64,
    /// The sum in its output.
    pub checksum: Option<Checksum>,
    /// The last line of its output.
    pub last_line: Option<String>,
}

impl GuestRun {
    pub fn summary(&self) -> String {
        let time = units::duration(self.time);
        if self.status == 0 {
            format!("done after {time}")
        } else {
            format!("failed with status {} after {time}", self.status)
        }
    }
}

impl Guest<'_> {
    /// Runs the command; where hardware is to fail, again if the VM is made anew.
    pub fn run(self, line: &mut Timeline) -> Result<GuestRun, Failure> {
        let mut pid = None;
        loop {
            let cell = self.client.vm(self.vm).map_or(0, |vm| vm.cell);
            let error = match self.run_once(&mut pid, line) {
                Ok(run) => return Ok(run),
                Err(error) => error,
            };
            let Some(trouble) = self.trouble else { return Err(error) };
            self.line.stage("the way to it is lost");
            let at = self.started.elapsed();
            match fate_of(self.client, self.vm, cell, self.restarts) {
                Fate::RunsOn => {}
                Fate::StartsAgain => {
                    pid = None;
                    line.enter(Phase::Lost, at);
                }
                Fate::Lost => {
                    line.enter(Phase::Lost, at);
                    line.end(self.started.elapsed());
                    return Err(Failure::Other(format!("lost with its cell: {}", trouble.fault)));
                }
                Fate::Other => return Err(error),
            }
        }
    }

    /// Runs the command, or goes on with the one that has the process id `pid`.
    fn run_once(self, pid: &mut Option<i64>, line: &mut Timeline) -> Result<GuestRun, Failure> {
        if pid.is_none() {
            self.line.stage("booting");
            line.enter(Phase::Boots, self.started.elapsed());
        }
        let mut agent = self.wait_for_agent()?;
        if pid.is_none() {
            line.enter(Phase::Runs, self.started.elapsed());
        }
        self.line.stage("running");
        let status = self.run_command(&mut agent, pid, Instant::now())?;
        let output =
            agent.exec("cat", &[OUTPUT.to_owned()], &[], Some(self.args.agent_timeout)).map_err(failure)?.stdout;
        line.end(self.started.elapsed());
        let checksum = Checksum::last_in(&String::from_utf8_lossy(&output));
        let (boot, time) = line.latest();
        Ok(GuestRun { boot, time, status, checksum, last_line: last_line(&output) })
    }

    /// One session for all: each new one would wait in the port behind the greeting of the last, which a guest that is
    /// still booting has not read. A VM that stops ends it at once.
    fn wait_for_agent(self) -> Result<GuestAgent, Failure> {
        let stopped = |vm: VmSummary| {
            let reason = vm.reason.map_or_else(|| "it did not start".to_owned(), |reason| reason.to_string());
            Failure::Other(format!("the VM stopped: {reason}"))
        };
        let vm = self.client.vm(self.vm)?;
        if !is_alive(vm.state) {
            return Err(stopped(vm));
        }
        GuestAgent::connect(self.client, self.vm, self.args.agent_timeout).map_err(|error| {
            match self.client.vm(self.vm) {
                Ok(vm) if !is_alive(vm.state) => stopped(vm),
                _ => failure(error),
            }
        })
    }

    /// Runs it with its output in a file of the guest, so that the last line can be shown meanwhile; gives its status.
    fn run_command(self, agent: &mut GuestAgent, known: &mut Option<i64>, began: Instant) -> Result<i64, Failure> {
        let pid = match *known {
            Some(pid) => pid,
            None => self.start_command(agent)?,
        };
        if known.replace(pid).is_none()
            && let Some(trouble) = self.trouble
        {
            // Who runs it again was counted before.
            let less = |left: usize| left.checked_sub(1);
            let _ = trouble.to_begin.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
        let watched = self.args.watch.as_deref().unwrap_or(OUTPUT);
        let mut next_watch = began + WATCH;
        loop {
            let status = agent.command("guest-exec-status", json!({"pid": pid})).map_err(failure)?;
            if status.get("exited").and_then(Value::as_bool) == Some(true) {
                return Ok(exit_status(&status));
            }
            if began.elapsed() > self.args.timeout {
                let seconds = self.args.timeout.as_secs();
                return Err(Failure::Other(format!("the command still runs after {seconds} s")));
            }
            if Instant::now() >= next_watch {
                self.show_last_line(agent, watched)?;
                next_watch = Instant::now() + WATCH;
            }
            thread::sleep(POLL);
        }
    }

    fn start_command(self, agent: &mut GuestAgent) -> Result<i64, Failure> {
        let script = format!("exec >{OUTPUT} 2>&1\n{}", self.args.exec);
        let started =
            agent.command("guest-exec", json!({"path": "/bin/sh", "arg": ["-c", script]})).map_err(failure)?;
        let pid = started.get("pid").and_then(Value::as_i64);
        pid.ok_or_else(|| Failure::Other("the guest agent gave no process id".to_owned()))
    }

    fn show_last_line(self, agent: &mut GuestAgent, file: &str) -> Result<(), Failure> {
        let arguments = ["-n", "1", file].map(str::to_owned);
        let tail = agent.exec("tail", &arguments, &[], Some(self.args.agent_timeout)).map_err(failure)?;
        let line = last_line(&tail.stdout).unwrap_or_default();
        self.line.detail(&format!("running  {line}"));
        Ok(())
    }
}

/// The code, or that of a shell for a signal.
fn exit_status(status: &Value) -> i64 {
    let number = |key: &str| status.get(key).and_then(Value::as_i64);
    number("exitcode").or_else(|| number("signal").map(|signal| 128 + signal)).unwrap_or(-1)
}

fn failure(error: AgentError) -> Failure {
    match error {
        AgentError::Client(error) => error.into(),
        other => Failure::Other(other.to_string()),
    }
}
