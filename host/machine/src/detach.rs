//! A supervisor that outlives the command that started it.
//!
//! The command runs itself again with [`spawn_detached`]; the new process calls [`Daemon::begin`] first, launches the
//! machine, and calls [`Daemon::ready`]. Until then all that it prints goes to the command that waits; afterwards to
//! the machine's `supervisor.log`.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use thiserror::Error;

/// Printed by the detached process when its machine runs. No other line begins so.
const READY: &str = "\u{1}mirrorball-ready";

/// Why no detached supervisor runs.
#[derive(Debug, Error)]
pub enum DetachError {
    /// The process could not be made.
    #[error("cannot start the supervisor: {0}")]
    Spawn(io::Error),
    /// It ended before its machine ran; what it said on the way.
    #[error("{}", if said.is_empty() { "the supervisor ended without a word" } else { said.trim_end() })]
    Failed {
        /// Its error output.
        said: String,
    },
}

/// Runs `command`, which detaches itself, until its machine is ready. Its process id is the result. Lines that it
/// prints on standard output meanwhile go to `on_line`.
///
/// # Errors
/// If it cannot be started, or ends before it is ready.
pub fn spawn_detached(command: &mut Command, mut on_line: impl FnMut(&str)) -> Result<u32, DetachError> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(DetachError::Spawn)?;
    // Read on the side: a process that says much must not wait for a reader that waits for its other output.
    let errors = child.stderr.take().map(|mut errors| {
        thread::spawn(move || {
            let mut said = Vec::new();
            // Whatever cannot be read is missing in the message; the failure stands.
            let _ = errors.read_to_end(&mut said);
            String::from_utf8_lossy(&said).into_owned()
        })
    });
    let output = child.stdout.take().into_iter().flat_map(|output| BufReader::new(output).lines());
    for line in output.map_while(Result::ok) {
        if line == READY {
            return Ok(child.id());
        }
        on_line(&line);
    }
    let _ = child.wait();
    let said = errors.and_then(|errors| errors.join().ok()).unwrap_or_default();
    Err(DetachError::Failed { said })
}

/// The detached process's side.
#[derive(Debug)]
pub struct Daemon(());

impl Daemon {
    /// Leaves the terminal's session, so that neither its end nor its keys reach this process. Call it before any
    /// thread is made.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn begin() -> io::Result<Self> {
        match rustix::process::setsid() {
            // `EPERM`: this process leads a group already, as when a shell started it in a job of its own.
            Ok(_) | Err(rustix::io::Errno::PERM) => Ok(Self(())),
            Err(error) => Err(error.into()),
        }
    }

    /// The machine runs: says so, and turns the output to `log`.
    ///
    /// # Errors
    /// If the log cannot be written.
    pub fn ready(self, log: &Path) -> io::Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        // First the errors, then the word, then the output: the waiting command goes when it has read the word.
        rustix::stdio::dup2_stderr(&log)?;
        println!("{READY}");
        io::Write::flush(&mut io::stdout())?;
        rustix::stdio::dup2_stdout(&log)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn the_word_ends_the_wait() {
        let mut lines = Vec::new();
        let script = "echo one; printf '\\001mirrorball-ready\\n'; exec sleep 0";
        let pid = spawn_detached(&mut shell(script), |line| lines.push(line.to_owned()));
        assert!(pid.is_ok());
        assert_eq!(lines, ["one"]);
    }

    #[test]
    fn a_failure_says_what_the_process_said() {
        let error = spawn_detached(&mut shell("echo bad luck >&2; exit 1"), |_| {}).expect_err("it fails");
        assert_eq!(error.to_string(), "bad luck");
        let error = spawn_detached(&mut shell("exit 0"), |_| {}).expect_err("it says nothing");
        assert_eq!(error.to_string(), "the supervisor ended without a word");
    }
}
