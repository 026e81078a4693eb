//! `trace --perfetto`: what a machine does for some time, for Perfetto.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::thread;
use std::time::Instant;

use addr::{VcpuIndex, VmId};
use control::{MachineStats, Name, VmState, VmSummary};
use machine::{Client, ClientError};
use perfetto::{Trace, Track};
use serde_json::json;

use super::Context;
use crate::args;
use crate::failure::Failure;
use crate::model::{EventView, Names, cause_label, grown};

/// The process that is the machine; those of VMs come after it.
const MACHINE: u32 = 1;
const FIRST_VM: u32 = 10;
/// The thread of a process for events that are no hart's and no vCPU's.
const EVENTS: u32 = 10_000;

pub fn run(context: &Context, args: &args::Trace, path: &Path) -> Result<(), Failure> {
    let client = context.connect()?;
    let file = File::create(path).map_err(|source| Failure::File { path: path.to_owned(), source })?;
    let mut recorder = Recorder::begin(client, args.vm.clone(), file)?;
    let begin = Instant::now();
    loop {
        let is_last = begin.elapsed() >= args.time;
        match recorder.look() {
            // The machine may go while it is looked at: then what was seen is the trace.
            Err(Failure::Client { error: ClientError::Disconnected { .. } }) => break,
            looked => looked?,
        }
        if is_last {
            break;
        }
        thread::sleep(args.interval.min(args.time.saturating_sub(begin.elapsed())));
    }
    let (exits, events, lost) = (recorder.exits, recorder.events, recorder.lost);
    recorder.end()?;
    context.say(&format!(
        "{exits} exits and {events} events in {}; {lost} exits came and went between two looks",
        path.display()
    ));
    Ok(())
}

/// A vCPU's place in the trace and in its ring of exits.
#[derive(Default)]
struct Followed {
    /// The number of the next exit wanted; none before the first look, whose exits are from before.
    next: Option<u64>,
}

struct Recorder {
    client: Client,
    only: Option<Name>,
    trace: Trace<BufWriter<File>>,
    timebase_hz: u64,
    /// Processes that have names.
    vms: HashMap<VmId, Name>,
    vcpus: HashMap<(VmId, u16), Followed>,
    before: Option<MachineStats>,
    next_event: u64,
    names: Names,
    exits: u64,
    events: u64,
    lost: u64,
}

impl Recorder {
    fn begin(client: Client, only: Option<Name>, file: File) -> Result<Self, Failure> {
        let info = client.machine_info()?;
        let mut trace = Trace::begin(BufWriter::new(file)).map_err(Failure::Output)?;
        trace.process(MACHINE, &format!("machine {}", info.name)).map_err(Failure::Output)?;
        for hart in &info.harts {
            let name = format!("hart {} (node {})", hart.index.0, hart.node.0);
            trace.thread(hart_track(hart.index.0), &name).map_err(Failure::Output)?;
        }
        trace.thread(Track { process: MACHINE, thread: EVENTS }, "events").map_err(Failure::Output)?;
        let mut recorder = Self {
            client,
            only,
            trace,
            timebase_hz: info.timebase_hz,
            vms: HashMap::new(),
            vcpus: HashMap::new(),
            before: None,
            next_event: 0,
            names: Names::default(),
            exits: 0,
            events: 0,
            lost: 0,
        };
        // What happened before is not of this trace, but names the VMs.
        recorder.read_events(|_, _| Ok(()))?;
        Ok(recorder)
    }

    fn us(&self, ticks: u64) -> f64 {
        ticks as f64 * 1e6 / self.timebase_hz.max(1) as f64
    }

    fn look(&mut self) -> Result<(), Failure> {
        let vms = self.client.vms()?;
        let only = self.only.clone();
        let wanted = vms.into_iter().filter(|vm| only.as_ref().is_none_or(|name| *name == vm.name));
        for vm in wanted.filter(|vm| vm.state != VmState::Stopped) {
            self.name_vm(&vm)?;
            self.read_exits(&vm)?;
        }
        self.read_harts()?;
        let events = self.read_events(Self::put_event)?;
        self.events += events;
        Ok(())
    }

    fn name_vm(&mut self, vm: &VmSummary) -> Result<(), Failure> {
        if self.vms.insert(vm.id, vm.name.clone()).is_none() {
            let process = process_of(vm.id);
            self.trace.process(process, &format!("VM {}", vm.name)).map_err(Failure::Output)?;
            for vcpu in 0..vm.vcpus {
                self.trace.thread(vcpu_track(vm.id, vcpu), &format!("vCPU {vcpu}")).map_err(Failure::Output)?;
            }
            self.trace.thread(Track { process, thread: EVENTS }, "events").map_err(Failure::Output)?;
        }
        Ok(())
    }

    fn read_exits(&mut self, vm: &VmSummary) -> Result<(), Failure> {
        for vcpu in 0..vm.vcpus {
            let trace = match self.client.exit_trace(&vm.name, VcpuIndex(vcpu)) {
                Ok(trace) => trace,
                // It has gone meanwhile.
                Err(ClientError::Refused(_)) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let followed = self.vcpus.entry((vm.id, vcpu)).or_default();
            let end = trace.lost + trace.exits.len() as u64;
            // A ring that ends before what was seen is that of another life.
            let next = followed.next.replace(end).map_or(end, |next| if next > end { 0 } else { next });
            self.lost += trace.lost.saturating_sub(next);
            let seen = usize::try_from(next.saturating_sub(trace.lost)).unwrap_or(usize::MAX);
            let track = vcpu_track(vm.id, vcpu);
            for exit in trace.exits.iter().skip(seen) {
                let arguments = json!({"pc": format!("{:#x}", exit.pc), "stval": format!("{:#x}", exit.stval)});
                let at = self.us(exit.ticks);
                let put = self.trace.moment(track, &cause_label(exit.scause), "exit", at, &arguments);
                put.map_err(Failure::Output)?;
                self.exits += 1;
            }
        }
        Ok(())
    }

    /// What harts run now, and where their time went since the last look.
    fn read_harts(&mut self) -> Result<(), Failure> {
        let stats = self.client.machine_stats()?;
        if let Some(before) = self.before.take() {
            let (from, to) = (self.us(before.now_ticks), self.us(stats.now_ticks));
            let over = grown(stats.now_ticks, before.now_ticks).max(1) as f64 / 100.0;
            for (hart, last) in stats.harts.iter().zip(&before.harts) {
                let percent = |now: u64, then: u64| grown(now, then) as f64 / over;
                let values = json!({
                    "guest": percent(hart.guest_ticks, last.guest_ticks),
                    "monitor": percent(hart.monitor_ticks, last.monitor_ticks),
                });
                let name = format!("hart {} busy %", hart.index.0);
                self.trace.counter(MACHINE, &name, to, &values).map_err(Failure::Output)?;
                if let Some((vm, vcpu)) = hart.running {
                    let label = self.vms.get(&vm).map_or_else(|| format!("vm-{vm}"), Name::to_string);
                    let name = format!("{label}/{}", vcpu.0);
                    let put = self.trace.span(hart_track(hart.index.0), &name, "sampled", from, to - from);
                    put.map_err(Failure::Output)?;
                }
            }
            for disk in &stats.disks {
                let name = format!("disk {} KiB", disk.name);
                let values = json!({"read": disk.read_bytes / 1024, "written": disk.written_bytes / 1024});
                self.trace.counter(MACHINE, &name, to, &values).map_err(Failure::Output)?;
            }
            for node in &stats.nodes {
                let values = json!({"free": node.free_bytes / 1024});
                let name = format!("node {} KiB", node.node.0);
                self.trace.counter(MACHINE, &name, to, &values).map_err(Failure::Output)?;
            }
        }
        self.before = Some(stats);
        Ok(())
    }

    /// Hands on the events since the last time; how many.
    fn read_events(
        &mut self,
        mut each: impl FnMut(&mut Self, &(Option<VmId>, EventView)) -> Result<(), Failure>,
    ) -> Result<u64, Failure> {
        let mut count = 0;
        loop {
            let batch = self.client.events(self.next_event)?;
            let is_last = batch.events.is_empty() || batch.next <= self.next_event;
            self.next_event = batch.next;
            for event in &batch.events {
                let view = EventView::new(event, self.timebase_hz, &mut self.names);
                each(self, &(event.vm.as_ref().map(|vm| vm.id), view))?;
                count += 1;
            }
            if is_last {
                return Ok(count);
            }
        }
    }

    fn put_event(&mut self, (vm, view): &(Option<VmId>, EventView)) -> Result<(), Failure> {
        let known = vm.filter(|vm| self.vms.contains_key(vm));
        let track = match (known, view.details.get("vcpu").and_then(serde_json::Value::as_u64)) {
            (Some(vm), Some(vcpu)) => vcpu_track(vm, u16::try_from(vcpu).unwrap_or(u16::MAX)),
            (Some(vm), None) => Track { process: process_of(vm), thread: EVENTS },
            (None, _) => Track { process: MACHINE, thread: EVENTS },
        };
        let arguments = json!({"text": view.text, "vm": view.vm, "hart": view.hart, "details": view.details});
        self.trace.moment(track, view.event, "event", view.time_s * 1e6, &arguments).map_err(Failure::Output)
    }

    fn end(self) -> Result<(), Failure> {
        self.trace.end().map(drop).map_err(Failure::Output)
    }
}

const fn hart_track(hart: u16) -> Track {
    Track { process: MACHINE, thread: hart as u32 + 1 }
}

const fn process_of(vm: VmId) -> u32 {
    FIRST_VM + vm.0 as u32
}

const fn vcpu_track(vm: VmId, vcpu: u16) -> Track {
    Track { process: process_of(vm), thread: vcpu as u32 + 1 }
}
