//! `run`: boots a machine.

use std::io::{IsTerminal, stdin, stdout};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use config::OnPanic;

use super::check::warn;
use super::{Context, Running, kept};
use crate::args::Run;
use crate::failure::Failure;
use crate::tui::{Ending, LogTail, Screen, Setup};

/// Time between two looks at the machine in the live view.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long the supervisor may take to end after the connection has.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// Time between two looks at the log without a terminal.
const LOG_INTERVAL: Duration = Duration::from_millis(100);

pub fn run(context: &Context, args: &Run) -> Result<ExitCode, Failure> {
    let plan = Running::plan(&args.file, &args.launch)?;
    warn(context, &plan.warnings);
    let name = plan.name.clone();
    let mut running = Running::start(&plan, &args.launch, |step| context.say(step))?;
    kept::restore(context, running.client(), &name);
    if args.detach {
        running.release()?;
        context
            .output
            .line(format!("machine {name} runs; `mirrorball top` shows it, `mirrorball shutdown` ends it"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let has_terminal = stdin().is_terminal() && stdout().is_terminal() && !args.plain;
    let ending = loop {
        let ending = if has_terminal { watch(context, &running)? } else { follow_log(context, &running)? };
        let may_go_on = plan.on_panic == OnPanic::Restart && matches!(ending, Ending::Gone(_));
        if !may_go_on || !running.rejoin() {
            break ending;
        }
    };
    match ending {
        Ending::Leave => {
            running.release()?;
            context.output.line(format!("machine {name} goes on; `mirrorball shutdown` ends it"))?;
        }
        Ending::PowerOff => {
            context.say(&format!("powering machine {name} off"));
            running.power_off()?;
        }
        Ending::Gone(why) => {
            wait_for_end(&running, &why)?;
            match running.failure() {
                Some(failure) => return Err(failure),
                None => context.output.line(format!("machine {name} is off"))?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn watch(context: &Context, running: &Running) -> Result<Ending, Failure> {
    Screen::open()?.show(Setup {
        client: running.client(),
        log: &running.dir().monitor_log(),
        interval: INTERVAL,
        has_color: context.output.has_color(),
        has_machine: true,
    })
}

/// Prints the machine's log until it ends.
fn follow_log(context: &Context, running: &Running) -> Result<Ending, Failure> {
    let mut log = LogTail::new(&running.dir().monitor_log());
    loop {
        let is_over = !running.dir().is_running();
        for line in log.poll() {
            context.output.line(line)?;
        }
        if is_over {
            return Ok(Ending::Gone(String::new()));
        }
        thread::sleep(LOG_INTERVAL);
    }
}

/// The connection ends a moment before the supervisor has said why.
fn wait_for_end(running: &Running, why: &str) -> Result<(), Failure> {
    let deadline = Instant::now() + END_TIMEOUT;
    while running.dir().is_running() {
        if Instant::now() >= deadline {
            // The supervisor sees that this process goes, and powers the machine off.
            return Err(Failure::Other(format!("lost machine {}: {why}; powering it off", running.dir().name())));
        }
        thread::sleep(LOG_INTERVAL);
    }
    Ok(())
}
