//! `demo`: one command in all VMs of a machine at once, with progress, a comparison of results and a final table.

mod checksum;
mod guest;
mod hardware;
mod progress;
mod record;
mod report;
mod timeline;

use std::process::ExitCode;
use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::{Duration, Instant};

use config::MachinePlan;
use control::{Name, OnFailure, VmSpec, VmState};
use machine::Client;

use crate::args::Demo;
use crate::commands::{Context, Running, fault_of};
use crate::failure::Failure;
use crate::model::{MachineView, Sample, VmView};
use checksum::Checksum;
use guest::{Guest, GuestRun};
use hardware::Trouble;
use progress::Progress;
pub use record::findings;
use report::{Report, VmReport};
use timeline::{Span, Timeline};

pub fn run(context: &Context, args: &Demo) -> Result<ExitCode, Failure> {
    let reference = args.reference.as_deref().map(Checksum::from_reference).transpose()?;
    let plan = Running::plan(&args.file, &args.launch)?;
    let vms: Vec<&VmSpec> = plan.boot.vms.iter().filter(|vm| vm.autostart).collect();
    if vms.is_empty() {
        return Err(Failure::Usage(format!("{}: no VM starts with the machine", args.file.display())));
    }
    let trouble = trouble(args, &plan, vms.len())?;
    let progress = Progress::new();
    let started = Instant::now();
    let machine_line = progress.line(plan.name.as_str());
    machine_line.stage("starting");
    let running = Running::start(&plan, &args.launch, |step| machine_line.detail(step))?;
    machine_line.done(&format!("up after {}", crate::output::units::duration(started.elapsed())));
    let (runs, struck) = run_all(&running, &vms, args, &progress, started, trouble.as_ref());
    progress.clear();
    let marks = match (struck.transpose()?, &trouble) {
        (Some(at), Some(trouble)) => vec![(at.as_secs_f64(), trouble.fault.to_string())],
        _ => Vec::new(),
    };
    let view = MachineView::new(&Sample::collect(running.client())?, None);
    let reports = runs.into_iter().map(|run| VmReport::new(run, reference.as_ref())).collect();
    let report = Report::new(&view, reports, started.elapsed(), marks);
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
    /// What it was at, and when.
    pub spans: Vec<Span>,
}

/// The hardware that is to fail.
fn trouble(args: &Demo, plan: &MachinePlan, vms: usize) -> Result<Option<Trouble>, Failure> {
    let Some([kind, nodes]) = args.inject.as_deref() else { return Ok(None) };
    let fault = fault_of(kind, nodes)?;
    if plan.hardware.firmware != config::Firmware::Faults {
        let file = args.file.display();
        return Err(Failure::Usage(format!(
            "{file}: only hardware with `firmware = \"faults\"` in [machine] fails on request"
        )));
    }
    Ok(Some(Trouble { fault, after: args.inject_after, to_begin: AtomicUsize::new(vms) }))
}

/// Runs the command in all VMs, and makes hardware fail meanwhile; when it did.
fn run_all(
    running: &Running,
    vms: &[&VmSpec],
    args: &Demo,
    progress: &Progress,
    started: Instant,
    trouble: Option<&Trouble>,
) -> (Vec<VmRun>, Option<Result<Duration, Failure>>) {
    let client = running.client();
    thread::scope(|scope| {
        let threads: Vec<_> = vms
            .iter()
            .map(|spec| {
                let line = progress.line(spec.name.as_str());
                scope.spawn(move || {
                    let vm = &spec.name;
                    let restarts = spec.on_failure == OnFailure::Restart;
                    let guest = Guest { client, vm, args, started, line: &line, trouble, restarts };
                    let mut timeline = Timeline::default();
                    let result = guest.run(&mut timeline);
                    match &result {
                        Ok(run) => line.done(&run.summary()),
                        Err(error) => line.failed(&error.to_string()),
                    }
                    VmRun { vm: vm.clone(), result, view: counters(client, vm), spans: timeline.into_spans() }
                })
            })
            .collect();
        let is_over = || threads.iter().all(|thread| thread.is_finished());
        let struck = trouble.map(|trouble| {
            let line = progress.line("hardware");
            let struck = trouble.strike(running.dir(), started, &is_over);
            match &struck {
                Ok(_) => line.done(&format!("{} has failed", trouble.fault)),
                Err(error) => line.failed(&error.to_string()),
            }
            struck
        });
        let joined = threads.into_iter().zip(vms).map(|(thread, spec)| {
            let lost = || Failure::Other("a thread of this command failed".to_owned());
            let vm = spec.name.clone();
            thread.join().unwrap_or_else(|_| VmRun { vm, result: Err(lost()), view: None, spans: Vec::new() })
        });
        (joined.collect(), struck)
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
