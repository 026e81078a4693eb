//! The command in one VM.

use std::thread;
use std::time::{Duration, Instant};

use control::{Name, VmSummary};
use machine::{AgentError, Client, GuestAgent};
use serde_json::{Value, json};

use super::checksum::Checksum;
use super::is_alive;
use super::progress::ProgressLine;
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
    pub fn run(self) -> Result<GuestRun, Failure> {
        self.line.stage("booting");
        let mut agent = self.wait_for_agent()?;
        let boot = self.started.elapsed();
        self.line.stage("running");
        let began = Instant::now();
        let status = self.run_command(&mut agent, began)?;
        let time = began.elapsed();
        let output =
            agent.exec("cat", &[OUTPUT.to_owned()], &[], Some(self.args.agent_timeout)).map_err(failure)?.stdout;
        let checksum = Checksum::last_in(&String::from_utf8_lossy(&output));
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
    fn run_command(self, agent: &mut GuestAgent, began: Instant) -> Result<i64, Failure> {
        let script = format!("exec >{OUTPUT} 2>&1\n{}", self.args.exec);
        let started =
            agent.command("guest-exec", json!({"path": "/bin/sh", "arg": ["-c", script]})).map_err(failure)?;
        let pid = started.get("pid").and_then(Value::as_i64);
        let pid = pid.ok_or_else(|| Failure::Other("the guest agent gave no process id".to_owned()))?;
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
