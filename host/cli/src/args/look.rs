//! Commands that look inside VMs, and that tell other tools.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap_complete::ArgValueCompleter;
use control::Name;

use super::complete;
use super::values::{parse_duration, parse_loopback, parse_name};

/// `gdb`.
#[derive(Args, Debug)]
pub struct Gdb {
    /// The VM, running or paused; it stands still while gdb is at it, until gdb lets it go on
    #[arg(value_parser = parse_name, add = ArgValueCompleter::new(complete::vms))]
    pub vm: Name,
    /// Serve gdb's remote protocol here, on this host only, and start no gdb
    #[arg(long, value_name = "127.0.0.1:PORT", value_parser = parse_loopback, conflicts_with_all = ["program", "rest"])]
    pub listen: Option<SocketAddr>,
    /// The file with the guest's symbols, such as a vmlinux
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Further arguments for gdb
    #[arg(last = true, value_name = "ARGUMENT")]
    pub rest: Vec<String>,
}

/// `dump`.
#[derive(Args, Debug)]
pub struct Dump {
    /// The VM, running or paused; it stands still meanwhile
    #[arg(value_parser = parse_name, add = ArgValueCompleter::new(complete::vms))]
    pub vm: Name,
    /// The core file to write; it must not exist
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `perf`.
#[derive(Args, Debug)]
pub struct Perf {
    /// The VM
    #[arg(value_parser = parse_name, add = ArgValueCompleter::new(complete::vms))]
    pub vm: Name,
    /// How long to look
    #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub time: Duration,
    /// How often to look, each second
    #[arg(long, value_name = "N", default_value = "49")]
    pub hz: u32,
    /// Names of the guest's functions, as `System.map` or `/proc/kallsyms`; without it the guest's agent is asked
    #[arg(long, value_name = "FILE")]
    pub map: Option<PathBuf>,
    /// Write a flame graph
    #[arg(long, value_name = "FILE.svg")]
    pub flame: Option<PathBuf>,
    /// Write folded stacks, for other tools
    #[arg(long, value_name = "FILE")]
    pub folded: Option<PathBuf>,
    /// So many functions in the table
    #[arg(long, value_name = "N", default_value = "20")]
    pub top: usize,
}

/// `metrics`.
#[derive(Args, Debug)]
pub struct Metrics {
    /// Serve collectors here, on this host only, until interrupted; without it the text is printed once
    #[arg(long, value_name = "127.0.0.1:PORT", value_parser = parse_loopback)]
    pub listen: Option<SocketAddr>,
}
