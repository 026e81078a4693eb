//! Arguments of what measures the machine, and of what makes it another one: model, faults, demonstration, experiments.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::values::parse_duration;
use super::{Json, Launch};

/// `model`.
#[derive(Args, Debug)]
pub struct Model {
    /// Switch the model on or off, or zero the miss counters of all pages
    #[arg(value_name = "ACTION")]
    pub action: Option<ModelAction>,
    /// Show so many of the pages with the most remote misses
    #[arg(long, value_name = "N", default_value = "10")]
    pub pages: usize,
    #[command(flatten)]
    pub json: Json,
}

/// What is asked of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModelAction {
    /// Caches, latencies and page walks count
    On,
    /// Plain speed
    Off,
    /// Zero the pages' miss counters
    Reset,
}

/// `inject`.
#[derive(Args, Debug)]
pub struct Inject {
    /// What fails
    #[arg(required_unless_present = "list", value_name = "KIND")]
    pub kind: Option<FaultKind>,
    /// The nodes that it is about, as 2 or 0,1; for a page its machine address, as 0x9000_0000
    #[arg(required_unless_present = "list", value_name = "NODES|ADDR")]
    pub target: Option<String>,
    /// When the machine's time has come this far, counted from its reset
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "after_instructions")]
    pub at: Option<Duration>,
    /// When a hart has executed so many instructions since reset; the machine must count them (icount)
    #[arg(long, value_name = "N")]
    pub after_instructions: Option<u64>,
    /// The hart whose instructions count
    #[arg(long, value_name = "N", default_value = "0", requires = "after_instructions")]
    pub hart: u64,
    /// Show what has failed, what will, and what is left
    #[arg(long, conflicts_with_all = ["kind", "target", "at", "after_instructions"])]
    pub list: bool,
    #[command(flatten)]
    pub json: Json,
}

/// What can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FaultKind {
    /// A node loses its power: its harts stop, its memory is gone
    NodePower,
    /// A router fails, and with it all nodes behind it
    Router,
    /// The link between these nodes and all others: both parts live on without each other
    Link,
    /// A node's controller hangs: its memory is gone, its harts hang
    NodeController,
    /// A page of memory cannot be accessed any more
    Page,
    /// The monitor panics on this hart, if `[options]` of the machine file says allow_panic = true
    Panic,
}

/// `demo`.
#[derive(Args, Debug)]
pub struct Demo {
    /// The machine file
    #[arg(value_name = "MACHINE.toml")]
    pub file: PathBuf,
    /// The shell command to run in every VM; its output names a SHA-256 sum
    #[arg(long, value_name = "COMMAND")]
    pub exec: String,
    /// A file with the SHA-256 sum expected, or the sum itself
    #[arg(long, value_name = "FILE")]
    pub reference: Option<String>,
    /// A file in the guest whose last line is shown as progress
    #[arg(long, value_name = "GUEST-FILE")]
    pub watch: Option<String>,
    /// How long the guests may take to answer after the machine has booted
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = parse_duration)]
    pub agent_timeout: Duration,
    /// How long the command may take
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = parse_duration)]
    pub timeout: Duration,
    /// Make hardware fail while the VMs work, as `mirrorball inject` does: VMs of a lost cell may be lost, all others must be right
    #[arg(long, num_args = 2, value_names = ["KIND", "NODES"])]
    pub inject: Option<Vec<String>>,
    /// When it fails, after all VMs have begun the command
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration, requires = "inject")]
    pub inject_after: Duration,
    /// Leave the machine running at the end
    #[arg(long)]
    pub keep: bool,
    /// Keep the result for `bench report --write`: for `./x demo`, whose machine is always the same
    #[arg(long, hide = true)]
    pub record: bool,
    #[command(flatten)]
    pub json: Json,
    #[command(flatten)]
    pub launch: Launch,
}

/// `bench`.
#[derive(Args, Debug)]
pub struct Bench {
    /// The experiment; `list` names them, `report` collects what is stored of all
    #[arg(value_name = "EXPERIMENT")]
    pub name: String,
    /// Small sizes and few repetitions: minutes
    #[arg(long)]
    pub quick: bool,
    /// Measure again what is stored
    #[arg(long)]
    pub fresh: bool,
    /// Measure only the runs whose names have this in them
    #[arg(long, value_name = "RUN")]
    pub only: Option<String>,
    /// With `report`: put what is stored into the tree's records, and write the pages that quote them (docs/claims.md, README.md)
    #[arg(long)]
    pub write: bool,
    /// Where JSON, table and charts go [default: results/EXPERIMENT]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub json: Json,
}

/// `sim`.
#[derive(Args, Debug)]
pub struct Sim {
    /// The machine, its VMs and what they do
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
    /// Draw who ran where and when: harts by time, a colour for each VM
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
    /// Write the same for Perfetto
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
    /// Begin of the drawing, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub from_ms: u64,
    /// End of the drawing [default: 200 ms after its begin]
    #[arg(long, value_name = "MS")]
    pub to_ms: Option<u64>,
    #[command(flatten)]
    pub json: Json,
}
