//! The command line.

mod help;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use control::{Label, Name};

use crate::console::EscapeKey;
pub use crate::output::ColorChoice;

/// Runs emulated NUMA machines under the Mirrorball monitor, watches them and manages their virtual machines.
#[derive(Debug, Parser)]
#[command(name = "mirrorball", version, long_about = help::ABOUT, after_help = help::OVERVIEW,
    after_long_help = help::OVERVIEW_LONG, arg_required_else_help = true, max_term_width = 110)]
pub struct Arguments {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// The machine meant, if several run
    #[arg(long, short, global = true, value_name = "NAME", env = "MIRRORBALL_MACHINE", hide_env_values = true,
        value_parser = parse_name)]
    pub machine: Option<Name>,
    /// When to use colour; `auto` means on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_default_value = true)]
    pub color: ColorChoice,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Boot a machine and its VMs
    #[command(after_help = help::RUN)]
    Run(Run),
    /// Check a machine file, without booting anything
    #[command(after_help = help::CHECK)]
    Check(Check),
    /// List machines and their VMs
    #[command(after_help = help::LS)]
    Ls(Json),
    /// Show what a machine is: nodes, harts, disks, devices, modules, monitor
    Info(Json),
    /// Watch a machine live
    #[command(after_help = help::TOP)]
    Top(Top),
    /// Print all counters
    #[command(after_help = help::STATS)]
    Stats(Stats),
    /// Print what the monitor did and why
    #[command(after_help = help::EVENTS)]
    Events(Events),
    /// Print the latest exits of a VM's vCPUs
    #[command(after_help = help::TRACE)]
    Trace(Trace),
    /// Show what the NUMA model of the machine has counted, or switch it
    #[command(after_help = help::MODEL)]
    Model(Model),
    /// Make a node, a router, a link or a page of the machine fail; or list what has
    #[command(after_help = help::INJECT)]
    Inject(Inject),
    /// Use the console of a VM
    #[command(after_help = help::CONSOLE)]
    Console(Console),
    /// Run a command inside a VM, through its guest agent
    #[command(after_help = help::EXEC)]
    Exec(Exec),
    /// Add a VM to the running machine
    #[command(after_help = help::CREATE)]
    Create(Create),
    /// Start a stopped VM
    Start(Vm),
    /// Ask a VM to shut down, and wait until it has
    #[command(after_help = help::STOP)]
    Stop(Stop),
    /// Take the power from a VM, at once
    Kill(Vm),
    /// Reset a VM: it boots again
    Reset(Vm),
    /// Freeze the vCPUs of a VM; memory and devices are kept
    Pause(Vm),
    /// Let a paused VM go on
    Resume(Vm),
    /// Forget a stopped VM and the modified blocks of its disks
    Destroy(Vm),
    /// Freeze what a disk of a VM shows now, for VMs that begin as that
    #[command(after_help = help::SNAPSHOT)]
    Snapshot(Snapshot),
    /// List what stores of modified blocks hold, or remove a volume or snapshot
    #[command(after_help = help::VOLUMES)]
    Volumes(Volumes),
    /// Upload a kernel, initrd or firmware that VMs can boot
    #[command(after_help = help::PUT)]
    Put(Put),
    /// Power the machine off: all VMs are killed, disks are flushed
    Shutdown(Shutdown),
    /// Run one command in all VMs of a machine and compare the results
    #[command(after_help = help::DEMO)]
    Demo(Box<Demo>),
    /// Measure what the monitor costs, in instructions and exits
    #[command(after_help = help::BENCH)]
    Bench(Bench),
    /// Own an emulated machine; `run` and `demo` start this
    #[command(hide = true)]
    Supervise(Supervise),
    /// Print a completion script for a shell
    #[command(after_help = help::COMPLETION)]
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Print the versions of this command and of the running machine
    Version(Json),
}

/// `run`.
#[derive(Args, Debug)]
pub struct Run {
    /// The machine file
    #[arg(value_name = "MACHINE.toml")]
    pub file: PathBuf,
    /// Return as soon as the monitor answers, and leave the machine running
    #[arg(long, short)]
    pub detach: bool,
    /// Print progress lines instead of the live view
    #[arg(long, conflicts_with = "detach")]
    pub plain: bool,
    #[command(flatten)]
    pub launch: Launch,
}

/// How a machine is launched.
#[derive(Args, Clone, Debug)]
pub struct Launch {
    /// The monitor's image; normally found by itself
    #[arg(long, value_name = "FILE", env = "MIRRORBALL_MONITOR", hide_env_values = true)]
    pub monitor: Option<PathBuf>,
    /// How long the monitor may take to answer
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = parse_duration)]
    pub boot_timeout: Duration,
}

/// `check`.
#[derive(Args, Debug)]
pub struct Check {
    /// The machine file
    #[arg(value_name = "MACHINE.toml")]
    pub file: PathBuf,
    /// Do not look at the files that it names (kernels, disks)
    #[arg(long)]
    pub no_files: bool,
    #[command(flatten)]
    pub json: Json,
}

/// `--json`.
#[derive(Args, Clone, Copy, Debug)]
pub struct Json {
    /// Print JSON; the fields are described in docs/cli.md
    #[arg(long)]
    pub json: bool,
}

/// `top`.
#[derive(Args, Debug)]
pub struct Top {
    /// Time between two looks at the machine, 100ms to 60s
    #[arg(long, short, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub interval: Duration,
}

/// `stats`.
#[derive(Args, Debug)]
pub struct Stats {
    /// Only these VMs, and nothing of the machine
    #[arg(value_name = "VM", value_parser = parse_name)]
    pub vms: Vec<Name>,
    /// Also measure rates over this time
    #[arg(long, short, value_name = "TIME", value_parser = parse_interval)]
    pub rates: Option<Duration>,
    #[command(flatten)]
    pub json: Json,
}

/// `events`.
#[derive(Args, Debug)]
pub struct Events {
    /// Go on with new events as they happen
    #[arg(long, short)]
    pub follow: bool,
    /// Only events of this VM
    #[arg(long, value_name = "VM", value_parser = parse_name)]
    pub vm: Option<Name>,
    /// Only the last N events kept
    #[arg(long, short = 'n', value_name = "N")]
    pub last: Option<usize>,
    /// Print one JSON object per line; the fields are described in docs/cli.md
    #[arg(long)]
    pub json: bool,
}

/// `trace`.
#[derive(Args, Debug)]
pub struct Trace {
    /// The VM
    #[arg(value_parser = parse_name)]
    pub vm: Name,
    /// Only this vCPU
    #[arg(long, value_name = "N")]
    pub vcpu: Option<u16>,
    /// Only the last N exits of each vCPU
    #[arg(long, short = 'n', value_name = "N")]
    pub last: Option<usize>,
    #[command(flatten)]
    pub json: Json,
}

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
}

/// `console`.
#[derive(Args, Debug)]
pub struct Console {
    /// The VM
    #[arg(value_parser = parse_name)]
    pub vm: Name,
    /// The key that detaches: ^A to ^_, or `none`
    #[arg(long, short, value_name = "KEY", default_value = "^]")]
    pub escape: EscapeKey,
    /// Do not print output from before now
    #[arg(long, conflicts_with = "dump")]
    pub no_scrollback: bool,
    /// Print the output that is kept, and end
    #[arg(long, conflicts_with = "until")]
    pub dump: bool,
    /// End with success once this text has been printed
    #[arg(long, value_name = "TEXT")]
    pub until: Option<String>,
    /// End with failure after this time
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
}

/// `exec`.
#[derive(Args, Debug)]
pub struct Exec {
    /// The VM
    #[arg(value_parser = parse_name)]
    pub vm: Name,
    /// Kill the wait after this time; the command in the VM goes on
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
    pub timeout: Duration,
    /// How long the guest agent may take to answer
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = parse_duration)]
    pub agent_timeout: Duration,
    /// The command and its arguments; a single word with spaces is given to `sh -c`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `create`.
#[derive(Args, Debug)]
pub struct Create {
    /// A file with the keys of one `[[vm]]`
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
    /// Another name than the file gives
    #[arg(long, value_name = "VM", value_parser = parse_name)]
    pub name: Option<Name>,
    /// Do not start it, whatever its `autostart` says
    #[arg(long)]
    pub no_start: bool,
}

/// A VM.
#[derive(Args, Debug)]
pub struct Vm {
    /// The VM
    #[arg(value_parser = parse_name)]
    pub vm: Name,
}

/// `stop`.
#[derive(Args, Debug)]
pub struct Stop {
    /// The VM
    #[arg(value_parser = parse_name)]
    pub vm: Name,
    /// How long the guest may take to shut down
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = parse_duration)]
    pub timeout: Duration,
}

/// `snapshot`.
#[derive(Args, Debug)]
pub struct Snapshot {
    /// The VM, running or not
    #[arg(value_parser = parse_name)]
    pub vm: Name,
    /// The disk's name in the VM; it must have an overlay
    #[arg(value_parser = parse_name)]
    pub disk: Name,
    /// The snapshot's name, unique in its store
    #[arg(value_parser = parse_name)]
    pub name: Name,
}

/// `volumes`.
#[derive(Args, Debug)]
pub struct Volumes {
    /// Remove this volume (VM/DISK) or snapshot: no VM may use it, nothing may continue it
    #[arg(long, value_name = "NAME")]
    pub remove: Option<String>,
    /// The store meant, if several have the name
    #[arg(long, value_name = "DISK[/PARTITION]", requires = "remove")]
    pub store: Option<String>,
    #[command(flatten)]
    pub json: Json,
}

/// `put`.
#[derive(Args, Debug)]
pub struct Put {
    /// The file to upload
    pub file: PathBuf,
    /// The module's name; the file's name if not given
    #[arg(long, value_name = "NAME", value_parser = parse_label)]
    pub name: Option<Label>,
    /// Replace a module of the same name
    #[arg(long)]
    pub replace: bool,
}

/// `shutdown`.
#[derive(Args, Debug)]
pub struct Shutdown {
    /// Ask every running VM to shut down first, and wait so long for it
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub stop_vms: Option<Duration>,
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
    /// Leave the machine running at the end
    #[arg(long)]
    pub keep: bool,
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
    /// Fewer repetitions: ends within ten minutes on two cores
    #[arg(long)]
    pub quick: bool,
    /// Measure again what is stored
    #[arg(long)]
    pub fresh: bool,
    /// Measure only the runs whose names have this in them
    #[arg(long, value_name = "RUN")]
    pub only: Option<String>,
    /// Where JSON, table and charts go [default: results/EXPERIMENT]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub json: Json,
}

/// `supervise`.
#[derive(Args, Debug)]
pub struct Supervise {
    /// The machine file
    pub file: PathBuf,
    /// Power the machine off when the process that started this one goes without having released it
    #[arg(long)]
    pub tied: bool,
    #[command(flatten)]
    pub launch: Launch,
}

fn parse_name(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|error| error.to_string())
}

fn parse_label(text: &str) -> Result<Label, String> {
    Label::new(text).map_err(|error| error.to_string())
}

/// `500ms`, `2s`, `1.5m`, `1h`; a bare number means seconds.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("`{unit}` is no unit of time; use ms, s, m or h")),
    };
    let number: f64 = number.parse().map_err(|_| "a time is a number with a unit, as 500ms, 2s, 1.5m".to_owned())?;
    Duration::try_from_secs_f64(number * scale).map_err(|_| "this time is too long".to_owned())
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    let possible = Duration::from_millis(100)..=Duration::from_secs(60);
    if possible.contains(&interval) { Ok(interval) } else { Err("it must lie between 100ms and 60s".to_owned()) }
}

impl ValueEnum for ColorChoice {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Auto, Self::Always, Self::Never]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }))
    }
}

#[cfg(test)]
mod tests;
