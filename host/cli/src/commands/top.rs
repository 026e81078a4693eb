//! `top`: the live view.

use std::io::{IsTerminal, stdin, stdout};

use machine::{Client, RunRoot};

use super::Context;
use crate::args::Top;
use crate::failure::Failure;
use crate::tui::{Ending, Screen, Setup};

pub fn run(context: &Context, args: &Top) -> Result<(), Failure> {
    if !(stdin().is_terminal() && stdout().is_terminal()) {
        return Err(Failure::Usage("`top` needs a terminal; use `mirrorball stats --rates 1s [--json]`".to_owned()));
    }
    let dir = machine::find(&RunRoot::from_env(), context.global.machine.as_ref())?;
    let client = Client::connect_to(&dir)?;
    let setup = Setup {
        client: &client,
        log: &dir.monitor_log(),
        interval: args.interval,
        has_color: context.output.has_color(),
        has_machine: false,
    };
    let ending = Screen::open()?.show(setup)?;
    if let Ending::Gone(why) = ending {
        context.say(&format!("machine {}: {why}", dir.name()));
    }
    Ok(())
}
