//! `model`: the NUMA model that a machine runs with.

use std::time::Duration;

use machine::{HartState, ModelState, PageMisses, RunRoot, SharedModel};
use model_file::{Header, Mode, ModeCounters, Request, Stall};
use serde::Serialize;

use super::Context;
use crate::args::{Model, ModelAction};
use crate::failure::Failure;
use crate::output::{Output, Table, Tone, units};

/// How long the model may take to obey.
const TIMEOUT: Duration = Duration::from_secs(10);

/// `model --json`.
#[derive(Debug, Serialize)]
struct ModelView {
    machine: String,
    on: bool,
    clock_s: f64,
    switches: u64,
    dropped_hot_pages: u64,
    nodes: Vec<NodeView>,
    harts: Vec<HartView>,
    hottest_pages: Vec<PageView>,
}

/// Misses of the harts of a node.
#[derive(Debug, Serialize)]
struct NodeView {
    id: usize,
    local_misses: u64,
    remote_misses: u64,
    /// Of a miss on each node's memory.
    latency_ns: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct HartView {
    index: usize,
    node: u64,
    clock_s: f64,
    idle: bool,
    modes: Vec<ModeView>,
}

#[derive(Debug, Serialize)]
struct ModeView {
    mode: &'static str,
    instructions: u64,
    time_s: f64,
    stalls: Vec<StallView>,
    walk_reads: u64,
    invalidations: u64,
}

#[derive(Debug, Serialize)]
struct StallView {
    kind: &'static str,
    count: u64,
    time_s: f64,
}

#[derive(Debug, Serialize)]
struct PageView {
    address: u64,
    home: usize,
    misses: Vec<u32>,
}

pub fn run(context: &Context, args: &Model) -> Result<(), Failure> {
    let dir = machine::find(&RunRoot::from_env(), context.global.machine.as_ref())?;
    let model = SharedModel::of(&dir).map_err(failure)?;
    if let Some(action) = args.action {
        model.request(request(action), TIMEOUT).map_err(failure)?;
        if !args.json.json {
            return context.output.line(format!("machine {}: {}", dir.name(), done(action)));
        }
    }
    let state = model.state().map_err(failure)?;
    let pages = model.hottest(args.pages).map_err(failure)?;
    let view = ModelView::new(dir.name().to_string(), model.header(), &state, &pages);
    if args.json.json { context.output.json(&view) } else { print(&context.output, &view) }
}

fn failure(error: machine::SharedError) -> Failure {
    Failure::Other(error.to_string())
}

const fn request(action: ModelAction) -> Request {
    match action {
        ModelAction::On => Request::On,
        ModelAction::Off => Request::Off,
        ModelAction::Reset => Request::ResetPages,
    }
}

const fn done(action: ModelAction) -> &'static str {
    match action {
        ModelAction::On => "the model is on",
        ModelAction::Off => "the model is off, time has no stalls",
        ModelAction::Reset => "the pages' miss counters are zero",
    }
}

impl ModelView {
    fn new(machine: String, header: &Header, state: &ModelState, pages: &[PageMisses]) -> Self {
        let harts = state.harts.iter().enumerate().map(|(index, hart)| HartView::new(index, hart)).collect();
        let page = |page: &PageMisses| PageView { address: page.address, home: page.home, misses: page.misses.clone() };
        Self {
            machine,
            on: state.is_on,
            clock_s: seconds(state.now_ps),
            switches: state.switches,
            dropped_hot_pages: state.dropped,
            nodes: (0..header.nodes().len()).map(|node| NodeView::new(node, header, state)).collect(),
            harts,
            hottest_pages: pages.iter().map(page).collect(),
        }
    }
}

impl NodeView {
    fn new(id: usize, header: &Header, state: &ModelState) -> Self {
        let harts = state.harts.iter().filter(|hart| hart.clock.node == id as u64);
        let count =
            |stall: Stall| harts.clone().flat_map(|hart| hart.modes).map(|mode| mode.stalls[stall as usize]).sum();
        let (local_misses, remote_misses) = (count(Stall::Local), count(Stall::Remote));
        let to = 0..header.nodes().len();
        let latency_ns = to.filter_map(|to| header.latency_ps(id, to)).map(|latency| latency / 1000).collect();
        Self { id, local_misses, remote_misses, latency_ns }
    }
}

impl HartView {
    fn new(index: usize, hart: &HartState) -> Self {
        let modes = Mode::ALL.iter().zip(&hart.modes).filter(|(_, counters)| **counters != ModeCounters::default());
        let modes = modes.map(|(mode, counters)| ModeView::new(*mode, counters)).collect();
        let (node, clock_s, idle) = (hart.clock.node, seconds(hart.clock.now_ps), hart.clock.is_idle == 1);
        Self { index, node, clock_s, idle, modes }
    }
}

impl ModeView {
    fn new(mode: Mode, counters: &ModeCounters) -> Self {
        let stall = |kind: &Stall| StallView {
            kind: kind.name(),
            count: counters.stalls[*kind as usize],
            time_s: seconds(counters.stall_ps[*kind as usize]),
        };
        Self {
            mode: mode.name(),
            instructions: counters.instructions,
            time_s: seconds(counters.time_ps),
            stalls: Stall::ALL.iter().map(stall).collect(),
            walk_reads: counters.walk_reads,
            invalidations: counters.invalidations,
        }
    }
}

fn seconds(picoseconds: u64) -> f64 {
    picoseconds as f64 / 1e12
}

/// What a mode is on a machine with the monitor.
fn who(mode: &str) -> &str {
    match mode {
        "u" => "user",
        "s" => "monitor",
        "m" => "firmware",
        "vu" => "guest user",
        "vs" => "guest kernel",
        other => other,
    }
}

fn print(output: &Output, view: &ModelView) -> Result<(), Failure> {
    let (word, tone) = if view.on { ("on", Tone::Good) } else { ("off", Tone::Dim) };
    output.line(format!(
        "{}  model {}, {:.6} s of machine time, switched {} times",
        view.machine,
        tone.paint(word, output.has_color()),
        view.clock_s,
        view.switches
    ))?;
    for table in [hart_table(view), node_table(view), page_table(view)] {
        if !table.is_empty() {
            output.line("")?;
            output.table(&table)?;
        }
    }
    if view.dropped_hot_pages > 0 {
        output.line(format!("\n{} hot pages found the queue full", units::count(view.dropped_hot_pages)))?;
    }
    Ok(())
}

fn hart_table(view: &ModelView) -> Table {
    let mut table = Table::new(&[
        "HART",
        ">NODE",
        "MODE",
        ">INSTRUCTIONS",
        ">TIME",
        ">L2",
        ">LOCAL",
        ">REMOTE",
        ">UPGRADE",
        ">WALK",
    ]);
    let ms = |seconds: f64| format!("{:.3} ms", seconds * 1e3);
    for hart in &view.harts {
        for (row, mode) in hart.modes.iter().enumerate() {
            let once = |text: String| if row == 0 { text } else { String::new() };
            let start = [once(hart.index.to_string()), once(hart.node.to_string()), who(mode.mode).to_owned()];
            let counts = [units::count(mode.instructions), ms(mode.time_s)];
            let stalls = mode.stalls.iter().map(|stall| ms(stall.time_s));
            table.row(start.into_iter().chain(counts).chain(stalls).map(Into::into));
        }
    }
    table
}

fn node_table(view: &ModelView) -> Table {
    let mut table = Table::new(&["NODE", ">LOCAL MISSES", ">REMOTE MISSES", ">LOCAL%", "LATENCIES IN ns"]);
    for node in &view.nodes {
        let all = node.local_misses + node.remote_misses;
        let share = if all == 0 { "-".to_owned() } else { units::percent(node.local_misses as f64 / all as f64) };
        table.row([
            node.id.to_string().into(),
            units::count(node.local_misses).into(),
            units::count(node.remote_misses).into(),
            share.into(),
            list(&node.latency_ns).into(),
        ]);
    }
    table
}

fn page_table(view: &ModelView) -> Table {
    let mut table = Table::new(&["PAGE", ">HOME", "MISSES OF EACH NODE"]);
    for page in &view.hottest_pages {
        table.row([format!("{:#x}", page.address).into(), page.home.to_string().into(), list(&page.misses).into()]);
    }
    table
}

fn list(numbers: &[impl ToString]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
