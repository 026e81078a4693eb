//! Arguments of `launch` and of what belongs to launched VMs and to images.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use clap_complete::ArgValueCompleter;
use control::Name;

use super::values::{parse_duration, parse_name, parse_port, parse_size, parse_user};
use super::{Json, complete, help};

/// A port of the host that leads to a port of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PortMap {
    /// The host's, at 127.0.0.1.
    pub host: u16,
    /// The VM's.
    pub guest: u16,
}

/// `launch`.
#[derive(Args, Debug)]
pub struct LaunchVm {
    /// An image of the store, or a file with one: qcow2 or raw; without it the project's own Debian (`./x image --cloud`)
    #[arg(value_name = "IMAGE")]
    pub image: Option<String>,
    /// The name of the VM, and of the machine that it gets
    #[arg(long, value_name = "VM", value_parser = parse_name)]
    pub name: Option<Name>,
    /// vCPUs
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub cpus: u16,
    /// Memory, as 1G or 768M
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub memory: u64,
    /// Size of the disk, as 20G; the image's own size if that is larger
    #[arg(long, value_name = "SIZE", default_value = "10G", value_parser = parse_size)]
    pub disk: u64,
    /// A port of this host's 127.0.0.1 that leads to a TCP port of the VM; may be given often
    #[arg(long = "port", short, value_name = "HOST:GUEST", value_parser = parse_port)]
    pub ports: Vec<PortMap>,
    /// The user that is made in the VM
    #[arg(long, value_name = "NAME", default_value = "me", value_parser = parse_user)]
    pub user: String,
    /// A file with public keys that may log in, besides the one that is made for `mirrorball ssh`; may be given often
    #[arg(long = "ssh-key", value_name = "FILE")]
    pub ssh_keys: Vec<PathBuf>,
    /// A package to install at the first boot; needs --network; may be given often
    #[arg(long = "package", value_name = "NAME", requires = "network")]
    pub packages: Vec<String>,
    /// Let the VM reach the Internet, and every port of this host, as you do
    #[arg(long)]
    pub network: bool,
    /// How long the VM may take until one can log in
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = parse_duration)]
    pub timeout: Duration,
    /// Do not wait until one can log in
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub machine: super::Launch,
}

/// `ssh`.
#[derive(Args, Debug)]
pub struct Ssh {
    /// The VM, made by `launch`
    #[arg(value_parser = parse_name, add = ArgValueCompleter::new(complete::launched))]
    pub vm: Name,
    /// A command to run there instead of a shell
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `cp`.
#[derive(Args, Debug)]
pub struct Cp {
    /// Copy folders with all that is in them
    #[arg(short, long)]
    pub recursive: bool,
    /// From where, and to where as the last: a path, or VM:PATH
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub paths: Vec<String>,
}

/// `port`.
#[derive(Args, Debug)]
pub struct Port {
    /// The VM, made by `launch`
    #[arg(value_parser = parse_name, add = ArgValueCompleter::new(complete::launched))]
    pub vm: Name,
    #[command(flatten)]
    pub json: Json,
}

/// `image`.
#[derive(Args, Debug)]
#[command(after_help = help::IMAGE)]
pub struct ImageArgs {
    #[command(subcommand)]
    pub action: ImageAction,
}

/// What to do with images.
#[derive(Debug, Subcommand)]
pub enum ImageAction {
    /// List the images of the store
    Ls(Json),
    /// Take an image in: look at it, and keep it as a raw disk
    Add {
        /// The file: qcow2 or raw
        file: PathBuf,
        /// Its name in the store; the file's name if not given
        #[arg(long)]
        name: Option<String>,
    },
    /// Remove an image that no launched VM uses
    Rm {
        /// Its name
        name: String,
    },
}

/// `ls`.
#[derive(Args, Clone, Copy, Debug)]
pub struct Ls {
    /// Also VMs that are defined and do not run
    #[arg(long, short)]
    pub all: bool,
    #[command(flatten)]
    pub json: Json,
}

/// `rename`.
#[derive(Args, Debug)]
pub struct Rename {
    /// The VM, made by `launch`; it must not run
    #[arg(value_parser = parse_name, add = ArgValueCompleter::new(complete::launched))]
    pub vm: Name,
    /// Its new name
    #[arg(value_parser = parse_name)]
    pub to: Name,
}
