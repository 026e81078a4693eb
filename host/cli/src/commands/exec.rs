//! `exec`: a command inside a VM.

use std::io::Write;
use std::process::ExitCode;

use machine::{AgentError, ExecResult, GuestAgent};

use super::Context;
use crate::args::Exec;
use crate::failure::Failure;

pub fn run(context: &Context, args: &Exec) -> Result<ExitCode, Failure> {
    let client = context.connect()?;
    // A VM that does not exist, or does not run, is better said before waiting for an agent.
    let state = client.vm(&args.vm)?.state;
    if state != control::VmState::Running {
        let wanted = control::VmState::Running;
        let refusal = control::ControlError::BadState { vm: args.vm.clone(), state, wanted };
        return Err(machine::ClientError::Refused(refusal).into());
    }
    let mut agent = GuestAgent::connect(&client, &args.vm, args.agent_timeout).map_err(agent_failure)?;
    let (program, arguments) = words(&args.command);
    let result = agent.exec(&program, &arguments, &[], Some(args.timeout)).map_err(agent_failure)?;
    print(context, &result)?;
    if result.is_truncated {
        context.say("mirrorball: the guest agent has cut the output");
    }
    // Like the operating system: the lower eight bits of a status.
    Ok(ExitCode::from((result.status.code() & 0xff) as u8))
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

fn print(context: &Context, result: &ExecResult) -> Result<(), Failure> {
    context.output.bytes(&result.stdout)?;
    std::io::stderr().write_all(&result.stderr).map_err(Failure::Output)
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
