//! `./x`: every chore of this tree in one place: set up a machine, build, check, test, make guest images.
//!
//! It keeps little logic of its own: guest artifacts are made by crate `image`; here are the order of steps, the checks
//! that the compiler cannot do (floors, unsafe code), and the flat monitor binary. Only two things ask a question, on a terminal:
//! what would install or download on the way to something else, and cleaning the cache. `--yes` answers both.
#![forbid(unsafe_code)]

mod build;
mod check;
mod clean;
mod flatten;
mod fuzz;
mod prepare;
mod refusals;
mod setup;
mod stamp;
mod test;
mod tree;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use image::{Cache, CloudImage, Kernel, KvmHost, LoadParts, NfsDisk, RootImage, UBoot};

use crate::tree::Tree;

/// Chores of the Mirrorball tree.
#[derive(Parser)]
#[command(name = "x", bin_name = "./x", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

/// What `./x demo` runs unless it is told another one.
const DEMO_MACHINE: &str = "examples/demo.toml";
/// What `./x demo --faults` runs, and what fails there.
const FAULTS_MACHINE: &str = "examples/faults.toml";
const FAULT: [&str; 3] = ["--inject", "node-power", "2"];

#[derive(Subcommand)]
enum Chore {
    /// Install what this machine lacks: the Rust target, QEMU 10 or newer with its firmware, small tools
    Setup,
    /// Build the monitor's image, the probe guest and the fault firmware for the bare machine
    Build,
    /// Format, lints, and the rules of the house: no upward dependency, every unsafe file gives its reason
    Check,
    /// All tests; sets the machine up first
    Test {
        /// Only checks and tests that run on the host: seconds, for every edit
        #[arg(long)]
        fast: bool,
    },
    /// Coverage-guided fuzzing of everything that reads what a guest, a client, a disk or a file says; findings go to target/fuzz
    Fuzz {
        /// The target, or all in turn
        target: Option<String>,
        /// An input to run once, as one that was found
        #[arg(requires = "target")]
        input: Option<PathBuf>,
        /// How long, of each target: as 30s, 5m or 1h
        #[arg(long, value_parser = fuzz::parse_time, default_value = "60s")]
        time: Duration,
        /// How many executions of each target, however long that takes
        #[arg(long, conflicts_with = "time")]
        runs: Option<u64>,
        /// Write what came of it into docs/fuzzing.md
        #[arg(long)]
        record: bool,
    },
    /// Refuse memory to everybody who asks for some, one by one, and see that none is left out
    Refusals,
    /// Build the guests: kernel, initial file systems, root image; prints where they are
    Image {
        /// The workload guests and the KVM host of the lab as well
        #[arg(long)]
        loads: bool,
        /// Only what `mirrorball launch` starts if nobody names an image: a Debian with cloud-init that boots by EFI, and the firmware
        #[arg(long, conflicts_with = "loads")]
        cloud: bool,
    },
    /// Build and run the host command, with what its machine or experiment needs; asks before it installs or downloads anything
    #[command(disable_help_flag = true)]
    Mirrorball {
        /// Install and download what is missing without a question; also among the arguments
        #[arg(long)]
        yes: bool,
        /// Handed to `mirrorball` as they are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run the demonstration: four Debian VMs on a machine of four nodes build a real program; makes what it needs, and asks on a
    /// terminal before it installs or downloads anything
    Demo {
        /// Install and download what is missing without a question; also among the options
        #[arg(long)]
        yes: bool,
        /// Four cells, of which one loses its power while the VMs work: the others go on, and its VM starts again
        #[arg(long, conflicts_with = "machine")]
        faults: bool,
        /// The machine to run
        #[arg(default_value = DEMO_MACHINE)]
        machine: String,
        /// Further options of `mirrorball demo`, such as --json or --keep
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Remove guests and downloads from the cache; results of the lab and files of yours stay. Says what goes, and asks
    CleanCache {
        /// Keep what the present recipes made
        #[arg(long)]
        old: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
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
        Chore::Build => show(&build::machine_programs(&tree)?),
        Chore::Check => check::all(&tree)?,
        Chore::Test { fast } => test::run(&tree, fast)?,
        Chore::Fuzz { target, input, time, runs, record } => {
            let time = runs.is_none().then_some(time);
            fuzz::run(&tree, &fuzz::Round { target, input, time, runs, record })?;
        }
        Chore::Refusals => refusals::run(&tree)?,
        Chore::Image { cloud: true, .. } => {
            let (firmware, image) = build_cloud(&tree)?;
            println!("u-boot       {}", firmware.binary().display());
            println!("cloud image  {}", image.disk().display());
        }
        Chore::Image { loads, cloud: false } => {
            let guests = build_images(&tree)?;
            print_places(&guests);
            if loads {
                print_loads(&guests.kernel)?;
            }
        }
        Chore::Mirrorball { yes, mut arguments } => {
            let yes = prepare::take_yes(&mut arguments) || yes;
            prepare::prepare(&tree, &arguments, yes)?;
            return mirrorball(&tree, &arguments);
        }
        Chore::Demo { yes, faults, machine, mut options } => {
            let yes = prepare::take_yes(&mut options) || yes;
            let machine = if faults { FAULTS_MACHINE.to_owned() } else { machine };
            if faults {
                options.splice(..0, FAULT.map(str::to_owned));
            }
            prepare::prepare_demo(&tree, &machine, yes)?;
            return demo(&tree, &machine, &options);
        }
        Chore::CleanCache { old, yes } => clean::cache(old, yes)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The guests' files.
struct Guests {
    kernel: Kernel,
    firmware: UBoot,
    root: RootImage,
}

fn build_images(tree: &Tree) -> Result<Guests> {
    setup::machine(tree)?;
    let cache = Cache::open()?;
    let kernel = Kernel::get_or_build(&cache)?;
    let firmware = UBoot::get_or_build(&cache)?;
    let root = RootImage::get_or_build(&cache, &kernel)?;
    Ok(Guests { kernel, firmware, root })
}

/// Builds what `mirrorball launch` starts without an image.
fn build_cloud(tree: &Tree) -> Result<(UBoot, CloudImage)> {
    setup::machine(tree)?;
    let cache = Cache::open()?;
    let kernel = Kernel::get_or_build(&cache)?;
    let firmware = UBoot::get_or_build(&cache)?;
    let image = CloudImage::get_or_build(&cache, &kernel)?;
    Ok((firmware, image))
}

fn print_places(guests: &Guests) {
    println!("kernel       {}", guests.kernel.image().display());
    println!("initrd       {}", guests.kernel.initrd().display());
    println!("tiny initrd  {}", guests.kernel.tiny_initrd().display());
    println!("u-boot       {}", guests.firmware.binary().display());
    println!("root disk    {}", guests.root.disk().display());
    println!("reference    {}", guests.root.reference_file().display());
}

/// Builds what the tests boot of the workload guests: those that need no packages of Debian, the NFS disk, and the KVM host.
fn build_small_loads(kernel: &Kernel) -> Result<(KvmHost, NfsDisk)> {
    let cache = Cache::open()?;
    LoadParts::build_base(&cache, kernel)?;
    Ok((KvmHost::get_or_build(&cache, kernel)?, NfsDisk::get_or_build(&cache, kernel)?))
}

/// Builds what the lab's experiments boot besides, and says where it is.
fn print_loads(kernel: &Kernel) -> Result<()> {
    let (host, nfs) = build_small_loads(kernel)?;
    let cache = Cache::open()?;
    let parts = LoadParts::get_or_build(&cache, kernel)?;
    println!("KVM host     {}", host.part().display());
    println!("NFS disk     {}", nfs.disk().display());
    println!("NFS part     {}", nfs.part().display());
    for (name, place) in parts.places() {
        println!("{name:<12} {}", place.display());
    }
    Ok(())
}

/// The demonstration, once all that it needs is there.
fn demo(tree: &Tree, machine: &str, more: &[String]) -> Result<ExitCode> {
    let reference = build_images(tree)?.root.reference_file();
    if machine == DEMO_MACHINE {
        eprintln!(
            "demo: four Debian VMs of 2 vCPUs on an emulated machine of 4 nodes x 2 harts, from one disk image; each \
             builds bzip2\n      with gcc (make -j2); the programs' checksums must be those of a machine without a \
             monitor. About 5 minutes on 2 cores."
        );
    }
    if machine == FAULTS_MACHINE {
        eprintln!(
            "demo: four cells of one node and one hart, each with a Debian VM that builds bzip2 with gcc; when all of them \
             do, node 2\n      loses its power. The other VMs must end with the right sums; that of node 2 starts again in \
             the first cell."
        );
    }
    let reference = reference.to_string_lossy().into_owned();
    let fixed = ["demo", machine, "--exec", "/usr/local/bin/mirrorball-build", "--reference", &reference];
    // Four guests that boot at once on two cores of the host take their time.
    let patient = ["--agent-timeout", "900s", "--watch", "/var/tmp/mirrorball-build.log"];
    // The figures that the tree's pages have of the demonstration are those of its usual machine.
    let record = (machine == DEMO_MACHINE && more.is_empty()).then_some("--record");
    let arguments = fixed.iter().chain(&patient).chain(&record).map(|argument| (*argument).to_owned());
    mirrorball(tree, &arguments.chain(more.iter().cloned()).collect::<Vec<_>>())
}

fn show(programs: &[build::Flat]) {
    for program in programs {
        eprintln!("{} ({} KiB)", program.place.display(), program.bytes.div_ceil(1024));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn demo_of(words: &[&str]) -> (bool, String, Vec<String>) {
        let words = ["x", "demo"].iter().chain(words);
        match Arguments::try_parse_from(words).expect("it is a demo").chore {
            Chore::Demo { yes, machine, mut options, .. } => (prepare::take_yes(&mut options) || yes, machine, options),
            _ => panic!("it is a demo"),
        }
    }

    #[test]
    fn the_demo_takes_a_yes_in_any_place() {
        let own = || "own.toml".to_owned();
        assert_eq!(demo_of(&[]), (false, DEMO_MACHINE.to_owned(), vec![]));
        assert_eq!(demo_of(&["--yes"]), (true, DEMO_MACHINE.to_owned(), vec![]));
        assert_eq!(demo_of(&["--yes", "own.toml", "--json"]), (true, own(), vec!["--json".to_owned()]));
        assert_eq!(demo_of(&["own.toml", "--json", "--yes"]), (true, own(), vec!["--json".to_owned()]));
    }
}
