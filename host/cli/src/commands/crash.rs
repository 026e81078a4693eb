//! `crash`: what the monitor left when it panicked.

use std::path::{Path, PathBuf};

use control::Event;
use crash::{Crash, HartCrash, How};
use machine::{RunDir, RunRoot, Symbols, crashes_in};
use serde::Serialize;

use super::Context;
use crate::args::Crash as Arguments;
use crate::failure::Failure;
use crate::model::{EventView, Names, cause_label, seconds};
use crate::output::{Cell, Output, Table, harmless};

pub fn run(context: &Context, args: &Arguments) -> Result<(), Failure> {
    let (log, mut crashes) = find(context, args)?;
    if !args.all {
        let surplus = crashes.len() - 1;
        crashes.drain(..surplus);
    }
    let symbols = symbols(context, args)?;
    let view = |crash: &Crash| View::new(crash, symbols.as_ref());
    let views: Vec<View> = crashes.iter().map(view).collect();
    if args.json.json {
        return context.output.json(&views);
    }
    for (at, view) in views.iter().enumerate() {
        if at > 0 {
            context.output.line("")?;
        }
        print(&context.output, &log, view)?;
    }
    let is_other = |crash: &&Crash| symbols.as_ref().is_some_and(|it| it.fingerprint() != crash.begin.fingerprint);
    if let Some(crash) = crashes.iter().find(is_other) {
        let build = harmless(&crash.build);
        context.say(&format!("mirrorball: no names: this is another monitor than {build}; say --elf"));
    }
    Ok(())
}

/// The log meant, and the crashes in it, of which there are some.
fn find(context: &Context, args: &Arguments) -> Result<(PathBuf, Vec<Crash>), Failure> {
    if let Some(file) = &args.file {
        let crashes = crashes_in(file).map_err(|source| Failure::File { path: file.clone(), source })?;
        return non_empty(file, crashes).ok_or_else(|| none(&format!("{}", file.display())));
    }
    let root = RunRoot::from_env();
    let named = context.global.machine.as_ref();
    let machines = named.map_or_else(|| root.known(), |name| vec![root.machine(name)]);
    // A machine that was started again has an earlier log; one that panicked after that has the later one.
    let logs = machines.iter().flat_map(|dir: &RunDir| [dir.monitor_log(), dir.crash_log()]);
    let with_crash = logs.filter_map(|log| non_empty(&log, crashes_in(&log).ok()?));
    let latest = with_crash.max_by_key(|(log, _)| log.metadata().and_then(|it| it.modified()).ok());
    latest.ok_or_else(|| match named {
        Some(name) => none(&format!("the logs of machine {name}")),
        None => none("the log of any machine"),
    })
}

fn non_empty(log: &Path, crashes: Vec<Crash>) -> Option<(PathBuf, Vec<Crash>)> {
    (!crashes.is_empty()).then(|| (log.to_owned(), crashes))
}

fn none(place: &str) -> Failure {
    Failure::Other(format!("there is no crash in {place}"))
}

/// The names, if there are some. Only a program that was asked for has to be there.
fn symbols(context: &Context, args: &Arguments) -> Result<Option<Symbols>, Failure> {
    if let Some(elf) = &args.elf {
        return Symbols::of(elf).map(Some).map_err(|error| Failure::Other(error.to_string()));
    }
    let own = lab::artifacts::monitor().ok().and_then(|image| Symbols::of(&image.with_extension("")).ok());
    if own.is_none() {
        context.say("mirrorball: no names: the monitor is not built here; say --elf");
    }
    Ok(own)
}

#[derive(Debug, Serialize)]
struct View {
    cell: u64,
    hart: u64,
    time_s: f64,
    build: String,
    message: String,
    lost_lines: u64,
    whole: bool,
    harts: Vec<HartView>,
}

#[derive(Debug, Serialize)]
struct HartView {
    index: u64,
    hart: u64,
    node: u64,
    state: &'static str,
    message: Option<String>,
    /// VM and vCPU that it ran last, by number.
    vm: Option<u16>,
    vcpu: Option<u16>,
    trap: Option<TrapView>,
    registers: Vec<RegisterView>,
    stack: Vec<PlaceView>,
    exits: Vec<ExitView>,
    events: Vec<EventView>,
}

#[derive(Debug, Serialize)]
struct TrapView {
    cause: String,
    scause: u64,
    sepc: PlaceView,
    stval: u64,
    sstatus: u64,
}

#[derive(Debug, Serialize)]
struct RegisterView {
    name: &'static str,
    value: u64,
}

#[derive(Debug, Serialize)]
struct PlaceView {
    address: u64,
    function: Option<String>,
}

#[derive(Debug, Serialize)]
struct ExitView {
    time_s: f64,
    cause: String,
    pc: u64,
    stval: u64,
}

const REGISTERS: [&str; 32] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "s2",
    "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
];
/// Registers in a line.
const IN_A_LINE: usize = 4;

impl View {
    fn new(crash: &Crash, symbols: Option<&Symbols>) -> Self {
        let symbols = symbols.filter(|symbols| symbols.fingerprint() == crash.begin.fingerprint);
        let hz = crash.begin.timebase_hz;
        Self {
            cell: crash.cell,
            hart: crash.begin.hart,
            time_s: seconds(crash.begin.ticks, hz),
            build: harmless(&crash.build),
            message: said(crash.message()),
            lost_lines: crash.lost,
            whole: crash.is_whole,
            harts: crash.harts.iter().map(|hart| HartView::new(hart, symbols, hz)).collect(),
        }
    }
}

/// A message with its line ends, and nothing else that a terminal obeys.
fn said(text: &str) -> String {
    text.lines().map(harmless).collect::<Vec<_>>().join("\n")
}

impl HartView {
    fn new(hart: &HartCrash, symbols: Option<&Symbols>, hz: u64) -> Self {
        let exit = |exit: &crash::Exit| ExitView {
            time_s: seconds(exit.ticks, hz),
            cause: cause_label(exit.scause),
            pc: exit.pc,
            stval: exit.stval,
        };
        let trap = hart.trap.map(|trap| TrapView {
            cause: cause_label(trap.scause),
            scause: trap.scause,
            sepc: PlaceView::of_instruction(trap.sepc, symbols),
            stval: trap.stval,
            sstatus: trap.sstatus,
        });
        let registers = REGISTERS.iter().zip(&hart.registers);
        let mut names = Names::default();
        let events = hart.events.iter().filter_map(|bytes| Event::from_bytes(bytes));
        Self {
            index: hart.hart.index,
            hart: hart.hart.hart_id,
            node: hart.hart.node,
            state: match hart.how {
                How::Panicked => "panicked",
                How::Stopped => "stopped",
                How::Silent => "silent",
            },
            message: (hart.how == How::Panicked).then(|| said(&hart.message)),
            vm: hart.hart.running.map(|(vm, _)| vm),
            vcpu: hart.hart.running.map(|(_, vcpu)| vcpu),
            trap,
            registers: registers.filter_map(|(name, value)| Some(RegisterView { name, value: (*value)? })).collect(),
            stack: hart.calls.iter().map(|call| PlaceView::of_call(*call, symbols)).collect(),
            exits: hart.exits.iter().map(exit).collect(),
            events: events.map(|event| EventView::new(&event, hz, &mut names)).collect(),
        }
    }
}

impl PlaceView {
    fn of_instruction(address: u64, symbols: Option<&Symbols>) -> Self {
        let symbol = symbols.and_then(|symbols| symbols.at(address));
        Self { address, function: symbol.map(|it| format!("{}+{:#x}", it.name, it.offset)) }
    }

    fn of_call(address: u64, symbols: Option<&Symbols>) -> Self {
        let symbol = symbols.and_then(|symbols| symbols.of_call(address));
        Self { address, function: symbol.map(|it| format!("{}+{:#x}", it.name, it.offset)) }
    }

    fn text(&self) -> String {
        format!("{:#018x} {}", self.address, self.function.as_deref().unwrap_or("?"))
    }
}

fn print(output: &Output, log: &Path, view: &View) -> Result<(), Failure> {
    let View { cell, hart, time_s, build, message, lost_lines, whole, harts } = view;
    output.title(&format!("monitor {build}, cell {cell}: hart {hart} panicked at {time_s:.6} s"))?;
    message.lines().try_for_each(|line| output.line(line))?;
    output.line(format!("log: {}", log.display()))?;
    if *lost_lines > 0 || !whole {
        let end = if *whole { "" } else { ", and its end is missing" };
        output.line(format!("{lost_lines} lines of the record are damaged{end}"))?;
    }
    harts.iter().try_for_each(|view| print_hart(output, view, view.index == *hart))
}

fn print_hart(output: &Output, hart: &HartView, is_first: bool) -> Result<(), Failure> {
    output.line("")?;
    let ran = match (hart.vm, hart.vcpu) {
        (Some(vm), Some(vcpu)) => format!(", last vCPU {vcpu} of vm-{vm}"),
        _ => String::new(),
    };
    output.title(&format!("hart {} (id {}, node {}): {}{ran}", hart.index, hart.hart, hart.node, hart.state))?;
    if let Some(message) = hart.message.as_ref().filter(|_| !is_first) {
        message.lines().try_for_each(|line| output.line(line))?;
    }
    if let Some(trap) = &hart.trap {
        output.line(format!("trap: {} at {}, stval {:#x}", trap.cause, trap.sepc.text(), trap.stval))?;
    }
    if hart.state == "panicked" {
        for registers in hart.registers.chunks(IN_A_LINE) {
            let fields = registers.iter().map(|register| format!("{:>4} {:#018x}", register.name, register.value));
            output.line(fields.collect::<Vec<_>>().join("  "))?;
        }
    }
    if !hart.stack.is_empty() {
        output.line("stack:")?;
        hart.stack.iter().try_for_each(|place| output.line(format!("  {}", place.text())))?;
    }
    if !hart.exits.is_empty() {
        output.line("exits:")?;
        let mut table = Table::new(&["TIME", "CAUSE", "PC", "STVAL"]);
        for exit in &hart.exits {
            let hexadecimal = |value: u64| Cell::from(format!("{value:#x}"));
            let time = Cell::from(format!("{:.6}", exit.time_s));
            table.row([time, Cell::from(exit.cause.clone()), hexadecimal(exit.pc), hexadecimal(exit.stval)]);
        }
        output.table(&table)?;
    }
    if !hart.events.is_empty() {
        output.line("events:")?;
        hart.events.iter().try_for_each(|event| output.line(format!("  {}", event.line(output.has_color()))))?;
    }
    Ok(())
}
