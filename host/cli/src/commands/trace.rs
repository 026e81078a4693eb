//! `trace`: the latest exits of a VM's vCPUs.

use addr::VcpuIndex;
use control::{ControlError, ExitTrace, Name, VmSummary};
use machine::{Client, ClientError};

use super::Context;
use crate::args::Trace;
use crate::failure::Failure;
use crate::model::{VcpuTraceView, cause_label};
use crate::output::{Cell, Table, units};

pub fn run(context: &Context, args: &Trace) -> Result<(), Failure> {
    if let Some(path) = &args.perfetto {
        return super::perfetto::run(context, args, path);
    }
    let Some(name) = &args.vm else { return Err(Failure::Usage("name a VM".into())) };
    let client = context.connect_for(name)?;
    let timebase_hz = client.machine_info()?.timebase_hz;
    let vm = find(&client, name)?;
    let vcpus = args.vcpu.map_or(0..vm.vcpus, |vcpu| vcpu..vcpu.saturating_add(1));
    let mut views = Vec::new();
    for vcpu in vcpus {
        let mut trace = client.exit_trace(name, VcpuIndex(vcpu))?;
        keep_last(&mut trace, args.last);
        views.push(VcpuTraceView::new(vcpu, &trace, timebase_hz));
    }
    if args.json.json { context.output.json(&views) } else { print(context, &views) }
}

fn find(client: &Client, name: &Name) -> Result<VmSummary, Failure> {
    let unknown = || ClientError::Refused(ControlError::UnknownVm { name: name.clone() });
    Ok(client.vms()?.into_iter().find(|vm| vm.name == *name).ok_or_else(unknown)?)
}

fn keep_last(trace: &mut ExitTrace, last: Option<usize>) {
    let surplus = last.map_or(0, |last| trace.exits.len().saturating_sub(last));
    trace.exits.drain(..surplus);
    trace.lost += surplus as u64;
}

fn print(context: &Context, views: &[VcpuTraceView]) -> Result<(), Failure> {
    for (at, view) in views.iter().enumerate() {
        if at > 0 {
            context.output.line("")?;
        }
        context.output.title(&format!("vCPU {}: {} exits before these", view.vcpu, units::count(view.earlier)))?;
        let mut table = Table::new(&["TIME", "CAUSE", "PC", "STVAL"]);
        for exit in &view.exits {
            let hexadecimal = |value: u64| Cell::from(format!("{value:#x}"));
            let cause = Cell::from(cause_label(exit.scause));
            let time = Cell::from(format!("{:.6}", exit.time_s));
            table.row([time, cause, hexadecimal(exit.pc), hexadecimal(exit.stval)]);
        }
        context.output.table(&table)?;
    }
    Ok(())
}
