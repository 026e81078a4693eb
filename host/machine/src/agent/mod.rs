//! The guest agent (qemu-guest-agent, as Debian ships it) over a VM's named port.
//!
//! The protocol is QMP's little sister: one JSON object a line, one answer each, in order. Everything that comes from
//! the guest is hostile: lines are bounded, types are checked, and nothing waits for ever.

mod exec;
mod line;
mod running;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use control::{ControlError, GUEST_AGENT_PORT, Label, Name, StreamData};
use serde_json::{Value, json};
use thiserror::Error;

use crate::client::{Client, ClientError, Stream};
pub use exec::{ExecResult, ExecStatus};
use line::Lines;
pub use running::{MAX_INPUT, Progress, RunningCommand};

/// A session with the agent of one guest.
#[derive(Debug)]
pub struct GuestAgent {
    vm: Name,
    stream: Stream,
    lines: Lines,
    /// Whether a process in the guest has the port open, as far as was told.
    guest_open: bool,
    /// Whether the agent repeats a command's id in its answer, as those of this decade do.
    repeats_ids: bool,
    timeout: Duration,
}

/// How the guest is to go down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownMode {
    /// And its power off.
    PowerDown,
    /// And up again.
    Reboot,
    /// And stand still.
    Halt,
}

/// Why the agent did not do it.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The connection to the machine failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The VM has no port for an agent.
    #[error("VM {vm:?} has no guest-agent port: add \"{GUEST_AGENT_PORT}\" to its ports")]
    NoPort {
        /// The VM.
        vm: Name,
    },
    /// Nobody in the guest has the port open.
    #[error("no guest agent runs in VM {vm:?} (after {seconds} s): is qemu-guest-agent installed and started there?")]
    NotRunning {
        /// The VM.
        vm: Name,
        /// How long was waited.
        seconds: u64,
    },
    /// The agent has the port open but does not answer.
    #[error("the guest agent of VM {vm:?} did not answer {command} within {seconds} s")]
    Silent {
        /// The VM.
        vm: Name,
        /// What was asked.
        command: String,
        /// How long was waited.
        seconds: u64,
    },
    /// The command has not ended in time, and goes on.
    #[error("`{program}` still runs in VM {vm:?} after {}, as process {pid} there; nobody waits for it any more", span(*after))]
    StillRunning {
        /// The VM.
        vm: Name,
        /// The program.
        program: String,
        /// Its process id in the guest.
        pid: i64,
        /// How long was waited.
        after: Duration,
    },
    /// The agent refused.
    #[error("the guest agent of VM {vm:?} refused {command}: {reason}")]
    Refused {
        /// The VM.
        vm: Name,
        /// What was asked.
        command: String,
        /// What it said.
        reason: String,
    },
    /// The agent's answer is not what its protocol says.
    #[error("the guest agent of VM {vm:?} answered {command} with nonsense: {what}")]
    Nonsense {
        /// The VM.
        vm: Name,
        /// What was asked.
        command: String,
        /// What is wrong with the answer.
        what: String,
    },
}

impl GuestAgent {
    /// Connects to the agent of `vm`, waiting for it to come up, at most so long. The same time bounds each answer.
    ///
    /// # Errors
    /// [`AgentError::NoPort`], [`AgentError::NotRunning`], [`AgentError::Silent`], or what the machine refuses.
    pub fn connect(client: &Client, vm: &Name, timeout: Duration) -> Result<Self, AgentError> {
        let port = Label::new(GUEST_AGENT_PORT).expect("the usual port has a good name");
        let stream = client.port(vm, &port).map_err(|error| match error.refusal() {
            Some(ControlError::NoSuchPort { .. }) => AgentError::NoPort { vm: vm.clone() },
            _ => AgentError::Client(error),
        })?;
        let mut agent =
            Self { vm: vm.clone(), stream, lines: Lines::default(), guest_open: false, repeats_ids: false, timeout };
        let deadline = Instant::now() + timeout;
        agent.wait_for_guest(deadline)?;
        agent.synchronise(deadline)?;
        Ok(agent)
    }

    /// The VM.
    #[must_use]
    pub const fn vm(&self) -> &Name {
        &self.vm
    }

    /// Sets how long each answer may take.
    pub const fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Asks whether the agent is there.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn ping(&mut self) -> Result<(), AgentError> {
        self.command("guest-ping", json!({})).map(drop)
    }

    /// Asks the guest to go down in order. There is no answer: watch the VM's state.
    ///
    /// # Errors
    /// If the agent does not take the command.
    pub fn shutdown(&mut self, mode: ShutdownMode) -> Result<(), AgentError> {
        let mode = match mode {
            ShutdownMode::PowerDown => "powerdown",
            ShutdownMode::Reboot => "reboot",
            ShutdownMode::Halt => "halt",
        };
        let id = fresh_id();
        self.send(&json!({"execute": "guest-shutdown", "arguments": {"mode": mode}, "id": id}), false)
    }

    /// Gives any command; its `return` is the result.
    ///
    /// # Errors
    /// If the agent refuses, is silent, or talks nonsense.
    pub fn command(&mut self, command: &str, arguments: Value) -> Result<Value, AgentError> {
        let deadline = Instant::now() + self.timeout;
        let id = fresh_id();
        self.send(&json!({"execute": command, "arguments": arguments, "id": id}), false)?;
        let answer = self.answer_to(command, id, deadline)?;
        if let Some(error) = answer.get("error") {
            let reason = error.get("desc").and_then(Value::as_str).unwrap_or("it does not say why").to_owned();
            return Err(AgentError::Refused { vm: self.vm.clone(), command: command.to_owned(), reason });
        }
        match answer.get("return") {
            Some(value) => Ok(value.clone()),
            None => Err(self.nonsense(command, "neither `return` nor `error`")),
        }
    }

    fn wait_for_guest(&mut self, deadline: Instant) -> Result<(), AgentError> {
        while !self.guest_open {
            if !self.receive(deadline)? {
                return Err(AgentError::NotRunning { vm: self.vm.clone(), seconds: self.timeout.as_secs() });
            }
        }
        Ok(())
    }

    /// Finds a point from which both sides agree what is whose answer: an earlier session may have left half a
    /// command, or an answer that nobody read. The agent's side skips to the byte 0xff, ours to the id.
    fn synchronise(&mut self, deadline: Instant) -> Result<(), AgentError> {
        let id = fresh_id();
        let command = json!({"execute": "guest-sync-delimited", "arguments": {"id": id}, "id": id});
        self.send(&command, true)?;
        loop {
            let answer = self.answer("guest-sync-delimited", deadline);
            match answer {
                Ok(answer) if answer.get("return").and_then(Value::as_u64) == Some(id) => {
                    self.repeats_ids = answer.get("id").is_some();
                    return Ok(());
                }
                // Left over from earlier, or the end of it.
                Ok(_) | Err(AgentError::Nonsense { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&mut self, command: &Value, with_delimiter: bool) -> Result<(), AgentError> {
        let mut bytes = if with_delimiter { vec![0xff] } else { Vec::new() };
        bytes.extend(command.to_string().into_bytes());
        bytes.push(b'\n');
        Ok(self.stream.send_all(&bytes, self.timeout)?)
    }

    /// The answer to one command. What has another id, or none where the agent gives one, is not it: an earlier session's
    /// answer, or the agent's complaint about the byte that synchronises.
    fn answer_to(&mut self, command: &str, id: u64, deadline: Instant) -> Result<Value, AgentError> {
        loop {
            let answer = self.answer(command, deadline)?;
            if !self.repeats_ids || answer.get("id").and_then(Value::as_u64) == Some(id) {
                return Ok(answer);
            }
        }
    }

    /// The next line, as JSON.
    fn answer(&mut self, command: &str, deadline: Instant) -> Result<Value, AgentError> {
        loop {
            if let Some(line) = self.lines.next_line() {
                let value = line.and_then(|line| serde_json::from_slice(&line).map_err(|error| error.to_string()));
                return value.map_err(|what| self.nonsense(command, &what));
            }
            if !self.receive(deadline)? {
                let seconds = self.timeout.as_secs();
                return Err(AgentError::Silent { vm: self.vm.clone(), command: command.to_owned(), seconds });
            }
        }
    }

    /// Takes what comes from the guest next; `false` at the deadline.
    fn receive(&mut self, deadline: Instant) -> Result<bool, AgentError> {
        let Some(data) = self.stream.recv_timeout(deadline.saturating_duration_since(Instant::now()))? else {
            return Ok(false);
        };
        match data {
            StreamData::Port { bytes } => self.lines.push(&bytes),
            StreamData::PortState { guest_open } => self.guest_open = guest_open,
            _ => {}
        }
        Ok(true)
    }

    fn nonsense(&self, command: &str, what: &str) -> AgentError {
        AgentError::Nonsense { vm: self.vm.clone(), command: command.to_owned(), what: what.to_owned() }
    }
}

fn span(time: Duration) -> String {
    if time < Duration::from_secs(1) { format!("{} ms", time.as_millis()) } else { format!("{} s", time.as_secs()) }
}

/// A number that no other session of this port has used or will use: the time, and a count for what happens at once. Agents
/// want it to be a signed number of 64 bits.
fn fresh_id() -> u64 {
    const COUNT_BITS: u32 = 12;
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed) % (1 << COUNT_BITS);
    let micros = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    // The lower 51 bits of the microseconds last until 2041.
    (u64::try_from(micros).unwrap_or_default() << COUNT_BITS | count) & (u64::MAX >> 1)
}
