//! The demonstration: boots a machine, lets every VM of it build a real C program at the same time, compares the results
//! with those of a plain machine, and shows what it cost.
//!
//! `./x demo` prepares everything and runs this. It is an ordinary user of crate `machine`: the same requests that
//! `mirrorball exec`, `stats` and `shutdown` send.
//!
//! It refuses to call a run a success when a VM failed, a result differs, or the machine ended early. No `unsafe`. Tested:
//! reading results and laying out tables by unit tests; the whole by running it.
#![forbid(unsafe_code)]

mod job;
mod live;
mod report;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use config::{Loader, MachinePlan};
use control::Name;
use machine::{LaunchOptions, Machine, Step};

use crate::job::{Job, Outcome};
use crate::live::Live;

/// Runs a machine whose VMs each build a program, and checks the results.
#[derive(Parser)]
#[command(name = "demo", max_term_width = 100)]
struct Arguments {
    /// The machine to run
    machine: PathBuf,
    /// The monitor's image
    #[arg(long, env = "MIRRORBALL_MONITOR")]
    monitor: PathBuf,
    /// File with the checksum that every VM must reach
    #[arg(long)]
    reference: Option<PathBuf>,
    /// Longest time for one VM to boot and to build, in seconds each
    #[arg(long, default_value_t = 900)]
    limit: u64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool> {
    let started = Instant::now();
    let loader = Loader::from_env();
    let plan = loader.load(&arguments.machine).map_err(|error| anyhow::anyhow!("{error}"))?;
    let reference = read_reference(arguments, &loader)?;
    let machine = launch(&plan, arguments)?;
    let limit = Duration::from_secs(arguments.limit);
    let vms: Vec<Name> = plan.boot.vms.iter().map(|vm| vm.name.clone()).collect();
    let outcomes = run_jobs(&machine, &vms, limit)?;
    let report = report::collect(&machine.client()?, &outcomes, &reference)?;
    shut_down(&machine)?;
    print!("{report}");
    println!("The whole demonstration took {:.0} s.", started.elapsed().as_secs_f64());
    Ok(report.is_success())
}

fn read_reference(arguments: &Arguments, loader: &Loader) -> Result<String> {
    let in_cache = || loader.cache.as_ref().map(|cache| cache.join("root/reference.sha256"));
    let path = arguments.reference.clone().or_else(in_cache).context("there is no cache directory: set HOME")?;
    let text = std::fs::read_to_string(&path);
    let text = text.with_context(|| format!("no reference checksum {}: run `./x image`", path.display()))?;
    Ok(text.trim().to_owned())
}

fn launch(plan: &MachinePlan, arguments: &Arguments) -> Result<Machine> {
    let hardware = &plan.hardware;
    let step = image::Step::begin(format!(
        "machine {}: {} nodes, {} harts, {} MiB",
        plan.name,
        hardware.nodes.len(),
        hardware.harts(),
        hardware.memory_mib()
    ));
    let options = LaunchOptions { monitor: Some(arguments.monitor.clone()), ..LaunchOptions::default() };
    let machine = Machine::launch(plan, &options, |at| step.note(describe(&at)))?;
    step.finish(format!("monitor {} is up", machine.hello().monitor));
    Ok(machine)
}

fn describe(step: &Step) -> String {
    match step {
        Step::Emulator { version, .. } => format!("QEMU {version}"),
        Step::Bundle { bytes } => format!("boot bundle of {} MiB", bytes >> 20),
        Step::Started { .. } => "waiting for the monitor".into(),
        Step::Ready { hello } => hello.monitor.clone(),
    }
}

/// One thread a VM; this one watches that the machine stays.
fn run_jobs(machine: &Machine, vms: &[Name], limit: Duration) -> Result<Vec<Outcome>> {
    let live = Live::new(vms);
    std::thread::scope(|scope| {
        let jobs: Vec<_> = vms
            .iter()
            .map(|vm| {
                let client = machine.client()?;
                let job = Job { client, vm: vm.clone(), limit };
                let live = &live;
                Ok(scope.spawn(move || job.run(live)))
            })
            .collect::<Result<_>>()?;
        while !jobs.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            // When the machine ends early, every job fails at once with its lost connection: this says why.
            if let Some(outcome) = machine.wait_timeout(Duration::from_millis(200)) {
                bail!("the machine ended before the work was done ({}){}", outcome.status, outcome.logs);
            }
        }
        jobs.into_iter().map(|job| job.join().map_err(|_| anyhow::anyhow!("a job panicked"))).collect()
    })
}

/// In order where the monitor answers; in any case the machine is gone afterwards.
fn shut_down(machine: &Machine) -> Result<()> {
    machine.client()?.shutdown()?;
    if machine.wait_timeout(Duration::from_secs(30)).is_none() {
        machine.kill();
        bail!("the machine did not power off within 30 s");
    }
    Ok(())
}
