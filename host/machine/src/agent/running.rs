//! A command in the guest whose input and output flow while it runs.
//!
//! The agent itself gives a command's input at its start and its output at its end. What flows meanwhile lies in files of a
//! folder in the guest, made for this command by its `/bin/sh`: the command prints into two files, which the agent reads as they
//! grow; its input comes in numbered files, which a loop in the guest copies into a pipe, one after the other, as the command
//! reads. Of these only [`MOST_WAITING`] wait at a time. Pieces of the output that have been read are given back to the guest's
//! file system where it can do that.
//!
//! The shell gives the exit codes for a command that is not found (127) or cannot be run (126).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::exec::{ExecStatus, exit_of};
use super::{AgentError, GuestAgent};

/// Largest piece of input, in bytes.
pub const MAX_INPUT: usize = 64 << 10;
/// Pieces of input that wait in the guest.
const MOST_WAITING: usize = 8;
/// Bytes of output in one answer.
const READ: usize = 64 << 10;
/// Answers with output in one look, so that input has its turn.
const READS: usize = 8;
/// Bytes of output after which those read are given back.
const GIVE_BACK: u64 = 16 << 20;

/// Makes the folder, and removes those of commands that have ended: only one session has the agent's port at a time.
const PREPARE: &str = r#"umask 077
for place in "$TMPDIR" /var/tmp /tmp /run; do
  [ -n "$place" ] || continue
  for old in "$place"/mirrorball-exec.*; do
    if [ -d "$old" ]; then kill -0 "$(cat "$old/pid" 2>/dev/null)" 2>/dev/null || rm -rf "$old"; fi
  done
  dir=$(mktemp -d "$place/mirrorball-exec.XXXXXX" 2>/dev/null) && break
done
[ -n "$dir" ] || { echo "no folder can be made in /var/tmp, /tmp or /run"; exit 1; }
mkfifo "$dir/in" "$dir/names" && : >"$dir/out" && : >"$dir/err" && : >"$dir/taken" && echo "$dir""#;

/// Becomes the command, with the agent's process id.
const WITHOUT_INPUT: &str = r#"dir=$1; shift; echo $$ >"$dir/pid"
exec "$@" </dev/null >"$dir/out" 2>"$dir/err""#;

/// The same, with the loop that copies the input.
const WITH_INPUT: &str = r#"dir=$1; shift; echo $$ >"$dir/pid"
( while read -r n && [ "$n" != end ]; do
    cat "$dir/in.$n" && rm -f "$dir/in.$n" && echo "$n" >>"$dir/taken" || break
  done <"$dir/names" >"$dir/in" & )
exec "$@" <"$dir/in" >"$dir/out" 2>"$dir/err""#;

/// A command that runs in a guest. Dropping it leaves the command alone.
#[derive(Debug)]
pub struct RunningCommand<'a> {
    agent: &'a mut GuestAgent,
    dir: String,
    pid: i64,
    out: Output,
    err: Output,
    input: Option<Input>,
    ended: Option<ExecStatus>,
}

/// What came since the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// How the command ended, once it has and all of its output was read.
    pub ended: Option<ExecStatus>,
}

/// A file of output that is being read.
#[derive(Debug)]
struct Output {
    name: &'static str,
    handle: i64,
    read: u64,
    given_back: u64,
}

/// The way of the input.
#[derive(Debug)]
struct Input {
    names: i64,
    taken: i64,
    /// Pieces sent, and pieces that the command has read.
    sent: usize,
    copied: usize,
    has_ended: bool,
}

impl GuestAgent {
    /// Starts a program in the guest (looked for in its `PATH`). Its standard input is what [`RunningCommand::offer`] gives, or
    /// empty without `has_input`.
    ///
    /// # Errors
    /// If the guest has no `/bin/sh` or no place for the command's files, or the agent fails. A program that cannot be run
    /// ends with code 126 or 127.
    pub fn start(
        &mut self,
        program: &str,
        arguments: &[String],
        has_input: bool,
    ) -> Result<RunningCommand<'_>, AgentError> {
        let dir = self.prepare()?;
        let out = self.open_output(&dir, "out")?;
        let err = self.open_output(&dir, "err")?;
        let input = match has_input {
            true => Some(Input {
                // Opened for reading as well, a pipe does not wait for its other end.
                names: self.open_file(&format!("{dir}/names"), "r+")?,
                taken: self.open_file(&format!("{dir}/taken"), "r")?,
                sent: 0,
                copied: 0,
                has_ended: false,
            }),
            false => None,
        };
        let script = if has_input { WITH_INPUT } else { WITHOUT_INPUT };
        let fixed = ["-c", script, "mirrorball-exec", &dir, program];
        let words: Vec<&str> = fixed.into_iter().chain(arguments.iter().map(String::as_str)).collect();
        let started = self.command("guest-exec", json!({"path": "/bin/sh", "arg": words}))?;
        let pid = self.integer("guest-exec", &started, "pid")?;
        Ok(RunningCommand { agent: self, dir, pid, out, err, input, ended: None })
    }

    fn prepare(&mut self) -> Result<String, AgentError> {
        let arguments = ["-c".to_owned(), PREPARE.to_owned()];
        let made = self.exec("/bin/sh", &arguments, &[], Some(self.timeout))?;
        let said = String::from_utf8_lossy(&made.stdout).trim().to_owned();
        if made.status.is_success() && said.contains("/mirrorball-exec.") {
            return Ok(said);
        }
        let errors = String::from_utf8_lossy(&made.stderr).trim().to_owned();
        let reason = if said.is_empty() { errors } else { said };
        Err(AgentError::Refused { vm: self.vm().clone(), command: "to run a command".into(), reason })
    }

    fn open_output(&mut self, dir: &str, name: &'static str) -> Result<Output, AgentError> {
        let handle = self.open_file(&format!("{dir}/{name}"), "r")?;
        Ok(Output { name, handle, read: 0, given_back: 0 })
    }

    fn open_file(&mut self, path: &str, mode: &str) -> Result<i64, AgentError> {
        let opened = self.command("guest-file-open", json!({"path": path, "mode": mode}))?;
        opened.as_i64().ok_or_else(|| self.nonsense("guest-file-open", "no handle"))
    }

    fn write_file(&mut self, handle: i64, bytes: &[u8]) -> Result<(), AgentError> {
        let written = self.command("guest-file-write", json!({"handle": handle, "buf-b64": STANDARD.encode(bytes)}))?;
        let count = self.integer("guest-file-write", &written, "count")?;
        if usize::try_from(count).is_ok_and(|count| count == bytes.len()) {
            return Ok(());
        }
        let reason = format!("{count} of {} bytes were written", bytes.len());
        Err(AgentError::Refused { vm: self.vm().clone(), command: "guest-file-write".into(), reason })
    }

    /// The bytes of a file behind those that were read last.
    fn read_file(&mut self, handle: i64) -> Result<Vec<u8>, AgentError> {
        let read = self.command("guest-file-read", json!({"handle": handle, "count": READ}))?;
        let bytes = read.get("buf-b64").and_then(Value::as_str).and_then(|text| STANDARD.decode(text).ok());
        match bytes.filter(|bytes| bytes.len() <= READ) {
            Some(bytes) => Ok(bytes),
            None => Err(self.nonsense("guest-file-read", "`buf-b64` is not base64 of as many bytes as were asked for")),
        }
    }

    fn close_file(&mut self, handle: i64) -> Result<(), AgentError> {
        self.command("guest-file-close", json!({"handle": handle})).map(drop)
    }

    fn integer(&self, command: &str, answer: &Value, key: &str) -> Result<i64, AgentError> {
        answer.get(key).and_then(Value::as_i64).ok_or_else(|| self.nonsense(command, &format!("no `{key}`")))
    }
}

impl RunningCommand<'_> {
    /// Its process id in the guest.
    #[must_use]
    pub const fn pid(&self) -> i64 {
        self.pid
    }

    /// What it has printed since the last look, and whether it has ended.
    ///
    /// # Errors
    /// If the agent fails.
    pub fn look(&mut self) -> Result<Progress, AgentError> {
        // First its end, then its output: what it printed last is there by then.
        if self.ended.is_none() {
            let status = self.agent.command("guest-exec-status", json!({"pid": self.pid}))?;
            let has_exited = status.get("exited").and_then(Value::as_bool);
            let has_exited = has_exited.ok_or_else(|| self.agent.nonsense("guest-exec-status", "no `exited`"))?;
            if has_exited {
                self.ended = Some(exit_of(&status).map_err(|what| self.agent.nonsense("guest-exec-status", &what))?);
            }
        }
        let (stdout, more_out) = self.out.take(self.agent, &self.dir)?;
        let (stderr, more_err) = self.err.take(self.agent, &self.dir)?;
        let ended = self.ended.filter(|_| !more_out && !more_err);
        Ok(Progress { stdout, stderr, ended })
    }

    /// Gives it a piece of input, at most [`MAX_INPUT`] bytes; `false` if it has not read enough of what it was given before.
    ///
    /// # Errors
    /// If the agent fails, or the guest has no room.
    pub fn offer(&mut self, bytes: &[u8]) -> Result<bool, AgentError> {
        let Some(input) = &mut self.input else { return Ok(true) };
        let taken = self.agent.read_file(input.taken)?;
        input.copied += taken.iter().filter(|byte| **byte == b'\n').count();
        if input.sent.saturating_sub(input.copied) >= MOST_WAITING {
            return Ok(false);
        }
        let number = input.sent;
        input.sent += 1;
        let names = input.names;
        let piece = self.agent.open_file(&format!("{}/in.{number}", self.dir), "w")?;
        self.agent.write_file(piece, bytes)?;
        self.agent.close_file(piece)?;
        self.agent.write_file(names, format!("{number}\n").as_bytes())?;
        self.agent.command("guest-file-flush", json!({"handle": names})).map(|_| true)
    }

    /// Its input ends behind what was given.
    ///
    /// # Errors
    /// If the agent fails.
    pub fn end_input(&mut self) -> Result<(), AgentError> {
        let Some(input) = &mut self.input else { return Ok(()) };
        if std::mem::replace(&mut input.has_ended, true) {
            return Ok(());
        }
        // A word and not the pipe's end: the loop may not have opened its side yet.
        let names = input.names;
        self.agent.write_file(names, b"end\n")?;
        self.agent.command("guest-file-flush", json!({"handle": names})).map(drop)
    }

    /// Removes its files in the guest, after its end.
    ///
    /// # Errors
    /// If the agent fails.
    pub fn finish(self) -> Result<(), AgentError> {
        // The loop ends with its pipe.
        let input = self.input.iter().flat_map(|input| [input.names, input.taken]);
        for handle in input.chain([self.out.handle, self.err.handle]).collect::<Vec<_>>() {
            self.agent.close_file(handle)?;
        }
        let timeout = self.agent.timeout;
        self.agent.exec("/bin/rm", &["-rf".to_owned(), self.dir], &[], Some(timeout)).map(drop)
    }
}

impl Output {
    /// What was printed since; whether there may be more.
    fn take(&mut self, agent: &mut GuestAgent, dir: &str) -> Result<(Vec<u8>, bool), AgentError> {
        let mut all = Vec::new();
        for _ in 0..READS {
            let bytes = agent.read_file(self.handle)?;
            if bytes.is_empty() {
                return Ok((all, false));
            }
            self.read += bytes.len() as u64;
            all.extend(bytes);
        }
        if self.read - self.given_back >= GIVE_BACK {
            self.given_back = self.read;
            let (bytes, file) = (self.read.to_string(), format!("{dir}/{}", self.name));
            let words = ["--punch-hole", "--offset", "0", "--length", bytes.as_str(), file.as_str()];
            let timeout = agent.timeout;
            // A file system that cannot do it keeps the output until the command has ended.
            let _ = agent.exec("fallocate", &words.map(str::to_owned), &[], Some(timeout));
        }
        Ok((all, true))
    }
}
