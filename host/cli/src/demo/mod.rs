//! `demo`: one command in all VMs of a machine at once, with progress, a comparison of results and a final table.

mod checksum;
mod guest;
mod progress;
mod record;
mod report;

use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use control::{Name, VmState};
use machine::Client;

use crate::args::Demo;
use crate::commands::{Context, Running};
use crate::failure::Failure;
use crate::model::{MachineView, Sample, VmView};
use checksum::Checksum;
use guest::{Guest, GuestRun};
use progress::Progress;
pub use record::findings;
use report::{Report, VmReport};

pub fn run(context: &Context, args: &Demo) -> Result<ExitCode, Failure> {
    let reference = args.reference.as_deref().map(Checksum::from_reference).transpose()?;
    let plan = Running::plan(&args.file, &args.launch)?;
    let vms: Vec<Name> = plan.boot.vms.iter().filter(|vm| vm.autostart).map(|vm| vm.name.clone()).collect();
    if vms.is_empty() {
        return Err(Failure::Usage(format!("{}: no VM starts with the machine", args.file.display())));
    }
    let progress = Progress::new();
    let started = Instant::now();
    let machine_line = progress.line(plan.name.as_str());
    machine_line.stage("starting");
    let running = Running::start(&plan, &args.launch, |step| machine_line.detail(step))?;
    machine_line.done(&format!("up after {}", crate::output::units::duration(started.elapsed())));
    let runs = run_all(running.client(), &vms, args, &progress, started);
    progress.clear();
    let view = MachineView::new(&Sample::collect(running.client())?, None);
    let reports = runs.into_iter().map(|run| VmReport::new(run, reference.as_ref())).collect();
    let report = Report::new(&view, reports, started.elapsed());
    if args.keep {
        running.release()?;
    } else {
        running.power_off()?;
    }
    if args.record && report.ok {
        record::keep(&report)?;
    }
    if args.json.json {
        context.output.json(&report)?
    } else {
        report.print(&context.output)?
    }
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What became of one VM.
#[derive(Debug)]
pub struct VmRun {
    pub vm: Name,
    pub result: Result<GuestRun, Failure>,
    /// Its counters when it was done.
    pub view: Option<VmView>,
}

fn run_all(client: &Client, vms: &[Name], args: &Demo, progress: &Progress, started: Instant) -> Vec<VmRun> {
    thread::scope(|scope| {
        let threads: Vec<_> = vms
            .iter()
            .map(|vm| {
                let line = progress.line(vm.as_str());
                scope.spawn(move || {
                    let guest = Guest { client, vm, args, started, line: &line };
                    let result = guest.run();
                    match &result {
                        Ok(run) => line.done(&run.summary()),
                        Err(error) => line.failed(&error.to_string()),
                    }
                    VmRun { vm: vm.clone(), result, view: counters(client, vm) }
                })
            })
            .collect();
        let joined = threads.into_iter().zip(vms).map(|(thread, vm)| {
            let lost = || Failure::Other("a thread of this command failed".to_owned());
            thread.join().unwrap_or_else(|_| VmRun { vm: vm.clone(), result: Err(lost()), view: None })
        });
        joined.collect()
    })
}

/// A VM's counters now; nothing if the machine is gone.
fn counters(client: &Client, vm: &Name) -> Option<VmView> {
    let sample = Sample::collect(client).ok()?;
    VmView::all(&sample, None).into_iter().find(|view| view.name == vm.as_str())
}

/// Whether a VM may still come to something.
fn is_alive(state: VmState) -> bool {
    !matches!(state, VmState::Stopped | VmState::Stopping)
}
