//! `inject`: hardware that fails.

use std::time::Duration;

use addr::CpuIndex;
use clap::ValueEnum;
use control::{Name, PanicBy};
use faults::{Fault, Kind, NodeSet, Record, Request, Status, TICKS_PER_SECOND, Trigger};
use machine::{FaultError, FaultPort, Injection, RunDir, RunRoot};
use serde::Serialize;

use super::Context;
use crate::args::{FaultKind, Inject};
use crate::failure::Failure;
use crate::output::{Output, Table};

/// How long the firmware may take to see a request: it looks every millisecond of its machine's time.
const TIMEOUT: Duration = Duration::from_secs(10);

/// `inject --json`.
#[derive(Debug, Serialize)]
struct InjectionView {
    fault: String,
    state: &'static str,
    epoch: Option<u64>,
    time_s: Option<f64>,
}

/// `inject --list --json`.
#[derive(Debug, Serialize)]
struct ListView {
    machine: Name,
    epoch: u64,
    recovered: u64,
    nodes: Vec<NodeView>,
    poisoned_pages: Vec<u64>,
    faults: Vec<RecordView>,
    armed: Vec<ArmedView>,
}

#[derive(Debug, Serialize)]
struct NodeView {
    id: usize,
    live: bool,
    reaches: Vec<usize>,
}

#[derive(Debug, Serialize)]
struct RecordView {
    epoch: u64,
    fault: String,
    time_s: f64,
    hart: u64,
    instructions: u64,
}

#[derive(Debug, Serialize)]
struct ArmedView {
    fault: String,
    at_s: Option<f64>,
    after_instructions: Option<u64>,
    hart: Option<u64>,
}

pub fn run(context: &Context, args: &Inject) -> Result<(), Failure> {
    let dir = machine::find(&RunRoot::from_env(), context.global.machine.as_ref())?;
    if let (Some(FaultKind::Panic), Some(target)) = (args.kind, &args.target) {
        return panic(context, target);
    }
    let port = FaultPort::of(&dir).map_err(failure)?;
    let (Some(kind), Some(target)) = (args.kind, &args.target) else {
        return list(context, &dir, &port, args.json.json);
    };
    let request = Request { fault: fault(kind, target)?, trigger: trigger(args, &dir)? };
    let view = match port.inject(request, TIMEOUT).map_err(failure)? {
        Injection::Armed => {
            InjectionView { fault: request.fault.to_string(), state: "armed", epoch: None, time_s: None }
        }
        Injection::Done { epoch, ticks } => InjectionView {
            fault: request.fault.to_string(),
            state: "done",
            epoch: Some(epoch),
            time_s: Some(seconds(ticks)),
        },
    };
    if args.json.json {
        return context.output.json(&view);
    }
    context.output.line(match (view.epoch, view.time_s) {
        (Some(epoch), Some(time)) => {
            format!("machine {}: {} failed at {time:.6} s, fault number {epoch}", dir.name(), view.fault)
        }
        _ => format!("machine {}: {} will fail; `mirrorball inject --list` shows when it has", dir.name(), view.fault),
    })
}

/// The monitor's own failure, which is no fault of the hardware.
fn panic(context: &Context, target: &str) -> Result<(), Failure> {
    let hart = target.parse().map_err(|_| Failure::Usage(format!("`{target}` is no hart; for example 0")))?;
    context.connect()?.panic(CpuIndex(hart), PanicBy::Statement)?;
    context.output.line(format!("hart {hart} panics; `mirrorball crash` shows what it leaves"))
}

fn failure(error: FaultError) -> Failure {
    Failure::Other(error.to_string())
}

/// The fault of these two words of a command line.
pub fn fault_of(kind: &str, target: &str) -> Result<Fault, Failure> {
    let kind = FaultKind::from_str(kind, true)
        .map_err(|_| Failure::Usage(format!("`{kind}` is no kind of fault; for example node-power")))?;
    fault(kind, target)
}

fn fault(kind: FaultKind, target: &str) -> Result<Fault, Failure> {
    let kind = match kind {
        FaultKind::NodePower => Kind::NodePower,
        FaultKind::Router => Kind::Router,
        FaultKind::Link => Kind::Link,
        FaultKind::NodeController => Kind::NodeController,
        FaultKind::Page => Kind::Page,
        FaultKind::Panic => return Err(Failure::Usage("a panic is no fault of the hardware".to_owned())),
    };
    let (nodes, address) = if kind == Kind::Page { (NodeSet::EMPTY, address(target)?) } else { (nodes(target)?, 0) };
    let decoded = Fault::decode(kind as u64, nodes.0, address);
    decoded.map_err(|refusal| Failure::Usage(format!("{} {target}: {refusal}", kind.name())))
}

fn address(text: &str) -> Result<u64, Failure> {
    let digits = text.replace('_', "");
    let parsed = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    parsed.map_err(|_| Failure::Usage(format!("`{text}` is no address of a page; for example 0x90000000")))
}

fn nodes(text: &str) -> Result<NodeSet, Failure> {
    let wrong = || Failure::Usage(format!("`{text}` are no nodes; for example 2, or 0,1"));
    text.split(',').try_fold(NodeSet::EMPTY, |set, number| {
        let node = NodeSet::one(number.trim().parse().map_err(|_| wrong())?);
        if node.is_empty() { Err(wrong()) } else { Ok(set.or(node)) }
    })
}

fn trigger(args: &Inject, dir: &RunDir) -> Result<Trigger, Failure> {
    if let Some(count) = args.after_instructions {
        // Elsewhere the counter shows the host's time.
        if !dir.state().is_some_and(|state| state.counts_instructions) {
            let text =
                "the machine does not count instructions: say icount = true in [machine] of its file, or use --at";
            return Err(Failure::Other(text.to_owned()));
        }
        return Ok(Trigger::AfterInstructions { count, hart: args.hart });
    }
    Ok(args.at.map_or(Trigger::Now, |at| {
        let ticks = at.as_nanos() * u128::from(TICKS_PER_SECOND) / 1_000_000_000;
        Trigger::At { ticks: u64::try_from(ticks).unwrap_or(u64::MAX) }
    }))
}

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / TICKS_PER_SECOND as f64
}

fn list(context: &Context, dir: &RunDir, port: &FaultPort, json: bool) -> Result<(), Failure> {
    let status = port.status().ok_or_else(|| failure(FaultError::NoMailbox))?;
    let view = ListView::new(dir.name().clone(), &status, &port.history(), &port.armed());
    if json { context.output.json(&view) } else { print(&context.output, &view) }
}

impl ListView {
    fn new(machine: Name, status: &Status, history: &[Record], armed: &[Request]) -> Self {
        let node = |id: usize| {
            let reach = status.reach[id];
            NodeView { id, live: !reach.is_empty(), reaches: reach.iter().collect() }
        };
        let record = |record: &Record| RecordView {
            epoch: record.epoch,
            fault: record.fault.to_string(),
            time_s: seconds(record.time),
            hart: record.hart,
            instructions: record.instructions,
        };
        Self {
            machine,
            epoch: status.epoch,
            recovered: status.recovered,
            nodes: (0..status.nodes).map(node).collect(),
            poisoned_pages: status.poisoned().to_vec(),
            faults: history.iter().map(record).collect(),
            armed: armed.iter().map(ArmedView::new).collect(),
        }
    }
}

impl ArmedView {
    fn new(request: &Request) -> Self {
        let (at_s, after_instructions, hart) = match request.trigger {
            Trigger::Now => (None, None, None),
            Trigger::At { ticks } => (Some(seconds(ticks)), None, None),
            Trigger::AfterInstructions { count, hart } => (None, Some(count), Some(hart)),
        };
        Self { fault: request.fault.to_string(), at_s, after_instructions, hart }
    }

    fn when(&self) -> String {
        match (self.at_s, self.after_instructions, self.hart) {
            (Some(at), _, _) => format!("at {at:.6} s"),
            (_, Some(count), Some(hart)) => format!("after {count} instructions of hart {hart}"),
            _ => "at once".to_owned(),
        }
    }
}

fn print(output: &Output, view: &ListView) -> Result<(), Failure> {
    let mut nodes = Table::new(&["NODE", "STATE", "REACHES"]);
    for node in &view.nodes {
        let reaches = node.reaches.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let state = if node.live { "live" } else { "lost" };
        nodes.row([node.id.to_string().into(), state.into(), reaches.into()]);
    }
    output.title(&format!(
        "{}  {} faults, {} of them known to all survivors",
        view.machine, view.epoch, view.recovered
    ))?;
    output.table(&nodes)?;
    let mut faults = Table::new(&[">FAULT", "WHAT", ">TIME", ">HART", ">INSTRUCTIONS"]);
    for fault in &view.faults {
        faults.row([
            fault.epoch.to_string().into(),
            fault.fault.clone().into(),
            format!("{:.6} s", fault.time_s).into(),
            fault.hart.to_string().into(),
            fault.instructions.to_string().into(),
        ]);
    }
    let mut armed = Table::new(&["TO COME", "WHEN"]);
    for fault in &view.armed {
        armed.row([fault.fault.clone().into(), fault.when().into()]);
    }
    for table in [faults, armed] {
        if !table.is_empty() {
            output.line("")?;
            output.table(&table)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: FaultKind, target: &str) -> String {
        fault(kind, target).expect_err("it is wrong").to_string()
    }

    #[test]
    fn targets_are_nodes_or_a_page() {
        assert_eq!(fault(FaultKind::Router, "0, 3").ok(), Some(Fault::Router(NodeSet(0b1001))));
        assert_eq!(fault(FaultKind::Page, "0x9000_0000").ok(), Some(Fault::Page(0x9000_0000)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert_eq!(message(FaultKind::Link, "x"), "`x` are no nodes; for example 2, or 0,1");
        assert_eq!(message(FaultKind::Link, "64"), "`64` are no nodes; for example 2, or 0,1");
        assert_eq!(message(FaultKind::Link, "1,,2"), "`1,,2` are no nodes; for example 2, or 0,1");
        assert!(message(FaultKind::NodePower, "1,2").ends_with("for several name a router"));
        assert!(message(FaultKind::Page, "0x123").contains("a multiple of 0x1000"));
        assert!(message(FaultKind::Page, "none").contains("no address"));
    }
}
