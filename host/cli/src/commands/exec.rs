//! `exec`: a command inside a VM.

use std::io::{Read, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use machine::{AgentError, ExecStatus, GuestAgent, MAX_INPUT, RunningCommand};

use super::Context;
use crate::args::Exec;
use crate::failure::Failure;

/// Pauses between two looks at a command that says nothing: short at first, then longer.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Pieces of input that wait on this side.
const MOST_PIECES: usize = 2;

/// Failures of `exec` itself have statuses that no usual command has, so that its own can be told apart.
pub fn run(context: &Context, args: &Exec) -> Result<ExitCode, Failure> {
    run_command(context, args).map_err(|cause| Failure::Exec { cause: Box::new(cause) })
}

fn run_command(context: &Context, args: &Exec) -> Result<ExitCode, Failure> {
    let client = context.connect_for(&args.vm)?;
    // A VM that does not exist, or does not run, is better said before waiting for an agent.
    let state = client.vm(&args.vm)?.state;
    if state != control::VmState::Running {
        let wanted = control::VmState::Running;
        let refusal = control::ControlError::BadState { vm: args.vm.clone(), state, wanted };
        return Err(machine::ClientError::Refused(refusal).into());
    }
    let mut agent = GuestAgent::connect(&client, &args.vm, args.agent_timeout).map_err(agent_failure)?;
    let (program, arguments) = words(&args.command);
    let input = args.interactive.then(read_input);
    let mut command = agent.start(&program, &arguments, input.is_some()).map_err(agent_failure)?;
    let Some(status) = follow(context, &mut command, input.as_ref(), args.timeout)? else {
        let (vm, pid, after) = (args.vm.clone(), command.pid(), args.timeout);
        return Err(Failure::TimedOut { error: AgentError::StillRunning { vm, program, pid, after } });
    };
    // The command's own end is what counts.
    let _ = command.finish();
    // Like the operating system: the lower eight bits of a status.
    Ok(ExitCode::from((status.code() & 0xff) as u8))
}

/// Hands input and output on until the command has ended; `None` if it has not after `timeout`.
fn follow(
    context: &Context,
    command: &mut RunningCommand<'_>,
    input: Option<&Receiver<Vec<u8>>>,
    timeout: Duration,
) -> Result<Option<ExecStatus>, Failure> {
    let deadline = Instant::now() + timeout;
    let mut waiting = Waiting::default();
    let mut pause = FIRST_PAUSE;
    loop {
        let progress = command.look().map_err(agent_failure)?;
        let mut is_quiet = progress.stdout.is_empty() && progress.stderr.is_empty();
        context.output.bytes(&progress.stdout)?;
        std::io::stderr().write_all(&progress.stderr).map_err(Failure::Output)?;
        if progress.ended.is_some() {
            return Ok(progress.ended);
        }
        if let Some(input) = input {
            is_quiet &= !waiting.hand_on(command, input).map_err(agent_failure)?;
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        if is_quiet {
            thread::sleep(pause.min(deadline.saturating_duration_since(Instant::now())));
            pause = (pause * 2).min(LONGEST_PAUSE);
        } else {
            pause = FIRST_PAUSE;
        }
    }
}

/// A piece of input that the command had no room for, and whether there is no more.
#[derive(Default)]
struct Waiting {
    piece: Option<Vec<u8>>,
    has_ended: bool,
}

impl Waiting {
    /// Gives the command what was read; whether anything moved.
    fn hand_on(&mut self, command: &mut RunningCommand<'_>, input: &Receiver<Vec<u8>>) -> Result<bool, AgentError> {
        if self.piece.is_none() && !self.has_ended {
            match input.try_recv() {
                Ok(piece) => self.piece = Some(piece),
                Err(TryRecvError::Empty) => return Ok(false),
                Err(TryRecvError::Disconnected) => {
                    self.has_ended = true;
                    return command.end_input().map(|()| true);
                }
            }
        }
        let Some(piece) = &self.piece else { return Ok(false) };
        let is_taken = command.offer(piece)?;
        if is_taken {
            self.piece = None;
        }
        Ok(is_taken)
    }
}

/// Standard input in pieces, read by a thread of its own; it disconnects at the end.
fn read_input() -> Receiver<Vec<u8>> {
    let (sender, receiver) = sync_channel(MOST_PIECES);
    thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut buffer = vec![0; MAX_INPUT];
        loop {
            match stdin.read(&mut buffer) {
                Ok(0) => break,
                Ok(len) if sender.send(buffer[..len].to_vec()).is_ok() => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                // Nobody listens any more, or it cannot be read: its end for the command.
                Ok(_) | Err(_) => break,
            }
        }
    });
    receiver
}

/// What to run: a single word that needs a shell gets one.
pub fn words(command: &[String]) -> (String, Vec<String>) {
    match command {
        [single] if single.contains(|c: char| c.is_whitespace() || "|&;<>()$`\"'*?[#~".contains(c)) => {
            ("/bin/sh".to_owned(), vec!["-c".to_owned(), single.clone()])
        }
        [program, rest @ ..] => (program.clone(), rest.to_vec()),
        [] => (String::new(), Vec::new()),
    }
}

/// The machine's own refusals keep their advice.
pub fn agent_failure(error: AgentError) -> Failure {
    match error {
        AgentError::Client(error) => error.into(),
        other => Failure::Other(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(command: &[&str]) -> (String, Vec<String>) {
        words(&command.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_shell_is_used_where_one_is_needed() {
        assert_eq!(split(&["ls"]), ("ls".into(), vec![]));
        assert_eq!(split(&["echo", "a b", "*"]), ("echo".into(), vec!["a b".into(), "*".into()]));
        assert_eq!(split(&["ls | wc"]), ("/bin/sh".into(), vec!["-c".into(), "ls | wc".into()]));
        assert_eq!(split(&["exit $?"]).0, "/bin/sh");
    }
}
