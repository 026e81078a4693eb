//! `./x`: every chore of this tree in one place: set up a machine, build, check, test, make guest images.
//!
//! It keeps little logic of its own: guest artifacts are made by crate `image`; here are the order of steps, the checks
//! that the compiler cannot do (floors, unsafe code), and the flat monitor binary. Nothing asks questions or reads standard
//! input.
#![forbid(unsafe_code)]

mod build;
mod check;
mod flatten;
mod setup;
mod test;
mod tree;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use image::{Cache, Kernel, RootImage, UBoot};

use crate::tree::Tree;

/// Chores of the Mirrorball tree.
#[derive(Parser)]
#[command(name = "x", bin_name = "./x", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Install what this machine lacks: the Rust target, QEMU 10 or newer with its firmware, small tools
    Setup,
    /// Build the monitor's image and the probe guest for the bare machine
    Build,
    /// Format, lints, and the rules of the house: no upward dependency, every unsafe file gives its reason
    Check,
    /// All tests; sets the machine up first
    Test {
        /// Only checks and tests that run on the host: seconds, for every edit
        #[arg(long)]
        fast: bool,
    },
    /// Build the guests: kernel, initial file systems, root image; prints where they are
    Image,
    /// Build and run the host command
    #[command(disable_help_flag = true)]
    Mirrorball {
        /// Handed to `mirrorball` as they are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run the demonstration: four Debian VMs on a machine of four nodes build a real program; sets everything up first
    Demo {
        /// The machine to run
        #[arg(default_value = "examples/demo.toml")]
        machine: PathBuf,
    },
    /// Remove cached artifacts and downloads
    CleanCache {
        /// Keep what the present recipes made
        #[arg(long)]
        old: bool,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().chore) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("x: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Chore) -> Result<ExitCode> {
    let tree = Tree::find()?;
    match chore {
        Chore::Setup => setup::machine(&tree)?,
        Chore::Build => build::bare_metal(&tree).map(drop)?,
        Chore::Check => check::all(&tree)?,
        Chore::Test { fast } => test::run(&tree, fast)?,
        Chore::Image => build_images(&tree)?,
        Chore::Mirrorball { arguments } => return mirrorball(&tree, &arguments),
        Chore::Demo { machine } => demo(&tree, &machine)?,
        Chore::CleanCache { old } => clean_cache(old)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn build_images(tree: &Tree) -> Result<()> {
    setup::machine(tree)?;
    let cache = Cache::open()?;
    let kernel = Kernel::get_or_build(&cache)?;
    let firmware = UBoot::get_or_build(&cache)?;
    let root = RootImage::get_or_build(&cache, &kernel)?;
    println!("kernel       {}", kernel.image().display());
    println!("initrd       {}", kernel.initrd().display());
    println!("tiny initrd  {}", kernel.tiny_initrd().display());
    println!("u-boot       {}", firmware.binary().display());
    println!("root disk    {}", root.disk().display());
    println!("reference    {}", root.reference_checksum()?);
    Ok(())
}

/// Everything that the demonstration needs, then the demonstration.
fn demo(tree: &Tree, machine: &Path) -> Result<()> {
    build_images(tree)?;
    let monitor = build::monitor(tree)?;
    let mut cargo = tree.cargo();
    cargo.args(["run", "-q", "-p", "demo", "--", "--monitor"]).arg(monitor).arg(machine);
    image::command::run_shown(&mut cargo)
}

/// The host command gets standard input and the terminal, and its exit status is ours.
fn mirrorball(tree: &Tree, arguments: &[String]) -> Result<ExitCode> {
    image::command::run_shown(tree.cargo().args(["build", "-q", "-p", "cli", "--bin", "mirrorball"]))?;
    let binary = tree.target_dir()?.join("debug/mirrorball");
    // Where `run` finds the monitor unless its caller says otherwise.
    let monitor =
        std::env::var_os("MIRRORBALL_MONITOR").map_or_else(|| build::monitor_place(tree), |set| Ok(set.into()))?;
    let status = Command::new(&binary).args(arguments).env("MIRRORBALL_MONITOR", monitor).status();
    let status = status.with_context(|| format!("cannot run {}", binary.display()))?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

fn clean_cache(old: bool) -> Result<()> {
    let cache = Cache::open()?;
    if old {
        return [Kernel::recipe(), UBoot::recipe(), RootImage::recipe()]
            .iter()
            .try_for_each(|key| cache.remove_older(key));
    }
    std::fs::remove_dir_all(cache.root()).with_context(|| format!("cannot remove {}", cache.root().display()))
}
