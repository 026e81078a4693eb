//! `console`: use a VM's console.

use std::io::{IsTerminal, stdin, stdout};
use std::process::ExitCode;

use super::Context;
use crate::args::Console;
use crate::console::{Attachment, Detached, Pipe, PipeEnd};
use crate::failure::Failure;

pub fn run(context: &Context, args: &Console) -> Result<ExitCode, Failure> {
    let client = context.connect_for(&args.vm)?;
    if args.dump {
        Pipe::dump(&client, &args.vm, &context.output)?;
        return Ok(ExitCode::SUCCESS);
    }
    let is_terminal = stdin().is_terminal() && stdout().is_terminal();
    if is_terminal && args.until.is_none() && args.timeout.is_none() {
        let attachment =
            Attachment { client: &client, vm: &args.vm, escape: args.escape, has_scrollback: !args.no_scrollback };
        return match attachment.interactive()? {
            Detached::ByKey => Ok(ExitCode::SUCCESS),
            Detached::Ended(_) => Ok(ExitCode::FAILURE),
        };
    }
    let pipe = Pipe {
        client: &client,
        vm: &args.vm,
        has_scrollback: !args.no_scrollback,
        until: args.until.as_deref(),
        timeout: args.timeout,
        with_input: !stdin().is_terminal(),
    };
    match (pipe.run(&context.output)?, &args.until) {
        (PipeEnd::Seen, _) | (PipeEnd::Stopped, None) => Ok(ExitCode::SUCCESS),
        (PipeEnd::Stopped, Some(text)) => {
            Err(Failure::Other(format!("VM {} stopped before its console showed {text:?}", args.vm)))
        }
        (PipeEnd::TimedOut, Some(text)) => {
            Err(Failure::Other(format!("the console of {} did not show {text:?} in time", args.vm)))
        }
        (PipeEnd::TimedOut, None) => {
            Err(Failure::Other(format!("VM {} still runs after the time of --timeout", args.vm)))
        }
    }
}
