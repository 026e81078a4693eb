//! The command line.

mod complete;
mod help;
mod lab;
mod launch;
mod look;
mod values;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::{ArgValueCompleter, Shell};
use control::{Label, MAX_SETTINGS, Name, Setting};

use crate::console::EscapeKey;
pub use crate::output::ColorChoice;
pub use lab::{Bench, Demo, FaultKind, Inject, Model, ModelAction, Sim};
pub use launch::{Cp, ImageAction, ImageArgs, LaunchVm, Ls, Port, PortMap, Rename, Ssh};
pub use look::{Dump, Gdb, Metrics, Perf};
use values::{parse_duration, parse_interval, parse_label, parse_name, parse_setting};

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
    /// Start a cloud image as a VM of its own, and wait until one can log in
    #[command(after_help = help::LAUNCH)]
    Launch(Box<LaunchVm>),
    /// A shell in a launched VM, or a command
    #[command(after_help = help::SSH)]
    Ssh(Ssh),
    /// Copy files to or from a launched VM
    #[command(after_help = help::CP)]
    Cp(Cp),
    /// List the ports of this host that lead to a launched VM
    Port(Port),
    /// List, add or remove images that `launch` starts
    Image(ImageArgs),
    /// Check a machine file, without booting anything
    #[command(after_help = help::CHECK)]
    Check(Check),
    /// List machines and their VMs
    #[command(after_help = help::LS)]
    Ls(Ls),
    /// List a machine's cells, the parts that fail alone, and what is lost
    #[command(after_help = help::CELLS)]
    Cells(Json),
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
    /// Debug a VM with gdb
    #[command(after_help = help::GDB)]
    Gdb(Gdb),
    /// Write a VM's memory and registers as a core file
    #[command(after_help = help::DUMP)]
    Dump(Dump),
    /// Sample where a VM's vCPUs spend their time
    #[command(after_help = help::PERF)]
    Perf(Perf),
    /// Give all counters to collectors such as Prometheus
    #[command(after_help = help::METRICS)]
    Metrics(Metrics),
    /// Show what the NUMA model of the machine has counted, or switch it
    #[command(after_help = help::MODEL)]
    Model(Model),
    /// Make a node, a router, a link or a page of the machine fail; or list what has
    #[command(after_help = help::INJECT)]
    Inject(Inject),
    /// Print what the monitor left when it panicked, with the names of its functions
    #[command(after_help = help::CRASH)]
    Crash(Crash),
    /// Use the console of a VM
    #[command(after_help = help::CONSOLE)]
    Console(Console),
    /// Run a command inside a VM, through its guest agent
    #[command(after_help = help::EXEC)]
    Exec(Exec),
    /// Add a VM to the running machine
    #[command(after_help = help::CREATE)]
    Create(Create),
    /// Show what a launched VM is, running or not
    Inspect(Vm),
    /// Change the machine file of a launched VM in $EDITOR; it counts from its next start on
    Edit(Vm),
    /// Give a launched VM another name
    Rename(Rename),
    /// Forget a launched VM that does not run, its disk included
    Rm(Vm),
    /// Start a stopped VM; a launched one with its machine
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
    /// Change a VM, running or not
    #[command(after_help = help::SET)]
    Set(Set),
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
    /// Run an experiment that measures what the monitor costs and gains
    #[command(after_help = help::BENCH)]
    Bench(Bench),
    /// Play the monitor's scheduler on a machine that a file describes, of any size
    #[command(after_help = help::SIM)]
    Sim(Sim),
    /// Own an emulated machine; `run` and `demo` start this
    #[command(hide = true)]
    Supervise(Supervise),
    /// Print a completion script for a shell
    #[command(after_help = help::COMPLETION)]
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Write manual pages of all commands into a folder, for `man`
    Man {
        /// The folder, as ~/.local/share/man/man1
        folder: PathBuf,
    },
    /// Print the versions of this command and of the running machine
    Version(Json),
}

/// `crash`.
#[derive(Args, Debug)]
pub struct Crash {
    /// The log of a machine, or what its UART said; without it those of the machine meant, or the latest with a crash
    #[arg(value_name = "LOG")]
    pub file: Option<PathBuf>,
    /// The monitor as the linker made it, for names; without it that of this tree
    #[arg(long, value_name = "FILE")]
    pub elf: Option<PathBuf>,
    /// All crashes, not only the latest
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub json: Json,
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
    /// Refuse a machine file that asks this host for more than the files of its folder and reading the cache
    #[arg(long)]
    pub restricted: bool,
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
    /// Name as errors what `run --restricted` refuses
    #[arg(long)]
    pub restricted: bool,
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
    /// The VM; with --perfetto all, unless one is named
    #[arg(value_parser = parse_name, required_unless_present = "perfetto", add = ArgValueCompleter::new(complete::vms))]
    pub vm: Option<Name>,
    /// Write what happens for some time as a trace for Perfetto
    #[arg(long, value_name = "FILE", conflicts_with_all = ["vcpu", "last", "json"])]
    pub perfetto: Option<PathBuf>,
    /// For how long, with --perfetto
    #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = parse_duration, requires = "perfetto")]
    pub time: Duration,
    /// Time between two looks, with --perfetto
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = parse_duration, requires = "perfetto")]
    pub interval: Duration,
    /// Only this vCPU
    #[arg(long, value_name = "N")]
    pub vcpu: Option<u16>,
    /// Only the last N exits of each vCPU
    #[arg(long, short = 'n', value_name = "N")]
    pub last: Option<usize>,
    #[command(flatten)]
    pub json: Json,
}

/// `console`.
#[derive(Args, Debug)]
pub struct Console {
    /// The VM
    #[arg(value_parser = parse_name, add = ArgValueCompleter::new(complete::vms))]
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
    #[arg(value_parser = parse_name, add = ArgValueCompleter::new(complete::vms))]
    pub vm: Name,
    /// Give the command this command's standard input; it has an empty one otherwise
    #[arg(short, long)]
    pub interactive: bool,
    /// Stop waiting after this time; the command in the VM goes on
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
    pub timeout: Duration,
    /// How long the guest agent may take to answer
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = parse_duration)]
    pub agent_timeout: Duration,
    /// The command and its arguments; a single word with spaces or signs of the shell is given to `/bin/sh -c`
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
    /// Make it again whenever the machine is started, until it is destroyed; the file is read again then
    #[arg(long)]
    pub keep: bool,
}

/// A VM.
#[derive(Args, Debug)]
pub struct Vm {
    /// The VM
    #[arg(value_parser = parse_name, add = ArgValueCompleter::new(complete::vms))]
    pub vm: Name,
}

/// `set`.
#[derive(Args, Debug)]
pub struct Set {
    /// The VM
    #[arg(value_parser = parse_name, add = ArgValueCompleter::new(complete::vms))]
    pub vm: Name,
    /// What to change: `weight=1..10000`, `gang=auto|yes|no`
    #[arg(required = true, num_args = 1..=MAX_SETTINGS, value_name = "KEY=VALUE", value_parser = parse_setting)]
    pub settings: Vec<Setting>,
}

/// `stop`.
#[derive(Args, Debug)]
pub struct Stop {
    /// The VM
    #[arg(value_parser = parse_name, add = ArgValueCompleter::new(complete::vms))]
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

#[cfg(test)]
mod tests;
