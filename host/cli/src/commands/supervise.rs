//! `supervise`: owns an emulated machine until it ends. Hidden: `run` and `demo` start it.

use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use config::OnPanic;
use machine::{Daemon, LaunchOptions, Machine, Outcome, Restarts, RunDir, RunRoot, Step};

use super::launch::{RESTART, loader, monitor_image, released_path, supervisor_log};
use crate::args::Supervise;
use crate::failure::Failure;
use crate::output::units;

/// How often to look whether the starting process is still there.
const LOOK: Duration = Duration::from_millis(300);
/// How long an orderly power-off may take.
const POWER_OFF: Duration = Duration::from_secs(20);

pub fn run(args: &Supervise) -> Result<(), Failure> {
    let daemon = Daemon::begin().map_err(Failure::system("cannot leave the terminal's session"))?;
    // The parent's end shows in this number: the system gives orphans another parent.
    let parent = rustix::process::getppid();
    let mut plan = loader(&args.launch).load(&args.file)?;
    plan.hardware.monitor = monitor_image(&args.launch, plan.hardware.monitor.take());
    let options = LaunchOptions {
        root: RunRoot::from_env(),
        monitor: None,
        plugin: lab::artifacts::numa_plugin().ok(),
        firmware: lab::artifacts::firmware().ok(),
        boot_timeout: args.launch.boot_timeout,
    };
    let mut machine = Machine::launch(&plan, &options, tell).map_err(|error| Failure::Other(error.to_string()))?;
    for stale in [released_path(machine.dir()), supervisor_log(machine.dir())] {
        let _ = fs::remove_file(stale);
    }
    daemon.ready(&supervisor_log(machine.dir())).map_err(Failure::system("cannot write the supervisor's log"))?;
    let is_orphan = |dir: &RunDir| args.tied && rustix::process::getppid() != parent && !released_path(dir).exists();
    let mut restarts = Restarts::default();
    let outcome = loop {
        let Some(outcome) = machine.wait_timeout(LOOK) else {
            if is_orphan(machine.dir()) {
                break power_off(&machine);
            }
            continue;
        };
        let Some(panic) = outcome.panic.as_ref().filter(|_| plan.on_panic == OnPanic::Restart) else { break outcome };
        let Some(count) = restarts.begin(Instant::now()).filter(|_| !is_orphan(machine.dir())) else { break outcome };
        // Where the machine's output goes now: the supervisor's log.
        eprintln!("{RESTART}machine {} is started again (restart {count}): {}", plan.name, one_line(panic));
        plan.boot.options.restarts = count;
        machine = machine.restart(&plan, &options, |_| {}).map_err(|error| Failure::Other(error.to_string()))?;
    };
    if outcome.is_orderly() {
        Ok(())
    } else {
        Err(Failure::Other(format!(
            "machine {} failed: the emulator ended with {}{}",
            plan.name, outcome.status, outcome.logs
        )))
    }
}

/// What is said in several lines, in one.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn power_off(machine: &Machine) -> Outcome {
    // Whatever goes wrong here ends in `kill`.
    let _ = machine.client().and_then(|client| client.with_timeout(POWER_OFF).shutdown());
    machine.wait_timeout(POWER_OFF).unwrap_or_else(|| {
        machine.kill();
        loop {
            if let Some(outcome) = machine.wait_timeout(POWER_OFF) {
                break outcome;
            }
        }
    })
}

/// Tells the starting process how far it is. If that has gone, the loop above will see it.
fn tell(step: Step) {
    let text = match step {
        Step::Emulator { program, version } => format!("emulator {} {version}", program.display()),
        Step::Bundle { bytes } => format!("boot bundle written, {}", units::bytes(bytes)),
        Step::Started { pid } => format!("emulator started, process {pid}; waiting for the monitor"),
        Step::Ready { hello } => format!("monitor {} answers", hello.monitor),
    };
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}
