//! Commands in the guest.

use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{AgentError, GuestAgent};

/// What a command left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecResult {
    /// How it ended.
    pub status: ExecStatus,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// Whether the agent cut the output (it keeps 16 MiB of each).
    pub is_truncated: bool,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecStatus {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
}

impl ExecStatus {
    /// The code that a shell would give: that of the command, or 128 and the signal.
    #[must_use]
    pub const fn code(self) -> i32 {
        match self {
            Self::Exited(code) => code,
            Self::Signalled(signal) => 128_i32.saturating_add(signal),
        }
    }

    /// Whether the command succeeded.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Exited(0))
    }
}

/// The agent has no event for a command's end: its state is asked for, first often, then less so.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

impl GuestAgent {
    /// Runs a program in the guest (looked for in its `PATH`), gives it `input`, and waits for its end, at most so
    /// long; `None` = as long as it takes.
    ///
    /// # Errors
    /// If it cannot be started, does not end in time ([`AgentError::StillRunning`]; it goes on in the guest), or the agent
    /// fails.
    pub fn exec(
        &mut self,
        program: &str,
        arguments: &[String],
        input: &[u8],
        timeout: Option<Duration>,
    ) -> Result<ExecResult, AgentError> {
        let mut request = json!({"path": program, "arg": arguments, "capture-output": true});
        if let (false, Some(fields)) = (input.is_empty(), request.as_object_mut()) {
            fields.insert("input-data".into(), STANDARD.encode(input).into());
        }
        let started = self.command("guest-exec", request)?;
        let Some(pid) = started.get("pid").and_then(Value::as_i64) else {
            return Err(self.nonsense("guest-exec", "no `pid`"));
        };
        self.wait_for_exit(program, pid, timeout)
    }

    fn wait_for_exit(&mut self, program: &str, pid: i64, timeout: Option<Duration>) -> Result<ExecResult, AgentError> {
        let deadline = timeout.map(|timeout| (timeout, Instant::now() + timeout));
        let mut pause = FIRST_PAUSE;
        loop {
            let status = self.command("guest-exec-status", json!({"pid": pid}))?;
            match status.get("exited").and_then(Value::as_bool) {
                Some(true) => return result(&status).map_err(|what| self.nonsense("guest-exec-status", &what)),
                Some(false) => {}
                None => return Err(self.nonsense("guest-exec-status", "no `exited`")),
            }
            if let Some((timeout, _)) = deadline.filter(|(_, deadline)| Instant::now() >= *deadline) {
                let (vm, program) = (self.vm().clone(), program.to_owned());
                return Err(AgentError::StillRunning { vm, program, pid, after: timeout });
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

fn result(status: &Value) -> Result<ExecResult, String> {
    let output = |key: &str| match status.get(key) {
        None => Ok(Vec::new()),
        Some(text) => {
            text.as_str().and_then(|text| STANDARD.decode(text).ok()).ok_or_else(|| format!("`{key}` is not base64"))
        }
    };
    let is_set = |key: &str| status.get(key).and_then(Value::as_bool).unwrap_or(false);
    Ok(ExecResult {
        status: exit_of(status)?,
        stdout: output("out-data")?,
        stderr: output("err-data")?,
        is_truncated: is_set("out-truncated") || is_set("err-truncated"),
    })
}

/// How a command ended, from the agent's answer.
pub fn exit_of(status: &Value) -> Result<ExecStatus, String> {
    let number = |key: &str| status.get(key).and_then(Value::as_i64).and_then(|value| i32::try_from(value).ok());
    match (number("exitcode"), number("signal")) {
        (Some(code), _) => Ok(ExecStatus::Exited(code)),
        (None, Some(signal)) => Ok(ExecStatus::Signalled(signal)),
        (None, None) => Err("neither `exitcode` nor `signal`".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_checked() {
        let good = json!({"exited": true, "exitcode": 3, "out-data": "aGk=", "err-truncated": true});
        let expected = ExecResult {
            status: ExecStatus::Exited(3),
            stdout: b"hi".to_vec(),
            stderr: Vec::new(),
            is_truncated: true,
        };
        assert_eq!(result(&good), Ok(expected));
        let killed = result(&json!({"exited": true, "signal": 9})).expect("it is good");
        assert_eq!(killed.status.code(), 137);
        assert_eq!(result(&json!({"exited": true})), Err("neither `exitcode` nor `signal`".into()));
        let bad = json!({"exitcode": 0, "out-data": "%"});
        assert_eq!(result(&bad), Err("`out-data` is not base64".into()));
    }
}
