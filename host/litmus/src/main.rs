//! `litmus`: runs tests on the protocol, or writes the generated ones.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use dsm::{Protocol, Visibility};
use litmus::{Lay, allowed, parse, run};

/// Litmus tests on machines that share a memory by the DSM protocol.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run tests and count their ends; fail if the memory model forbids one.
    Run {
        /// Files in the litmus format.
        #[arg(required = true)]
        tests: Vec<PathBuf>,
        /// Machines; threads go round them.
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=8))]
        machines: u8,
        /// Runs of each test.
        #[arg(long, default_value_t = 1_000)]
        rounds: usize,
        /// First random number.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Write the generated tests into a folder.
    Generate {
        /// The folder.
        folder: PathBuf,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Generate { folder } => generate(&folder),
        Command::Run { tests, machines, rounds, seed } => {
            let mut forbidden = 0;
            for path in &tests {
                forbidden += run_file(path, machines, rounds, seed)?;
            }
            ensure!(forbidden == 0, "{forbidden} forbidden ends");
            Ok(())
        }
    }
}

fn generate(folder: &PathBuf) -> Result<()> {
    fs::create_dir_all(folder)?;
    for (name, text) in litmus::generate::all() {
        fs::write(folder.join(format!("{name}.litmus")), text)?;
    }
    Ok(())
}

fn run_file(path: &PathBuf, machines: u8, rounds: usize, seed: u64) -> Result<usize> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let test = parse(&text).with_context(|| format!("cannot use {}", path.display()))?;
    let allowed = allowed(&test).with_context(|| format!("{} is too large for the model", path.display()))?;
    let visibility = if test.threads.len() <= usize::from(machines) { Visibility::Early } else { Visibility::Ordered };
    let lay = Lay { machines, protocol: Protocol::UpdatePlus, visibility, to_update: 1 };
    let ends = run(&test, lay, rounds, seed);
    let verdict = if allowed.contains(&test.asked()) { "allowed" } else { "forbidden" };
    let asked = ends.get(&test.asked()).copied().unwrap_or(0);
    let wrong: usize = ends.iter().filter(|(end, _)| !allowed.contains(*end)).map(|(_, count)| count).sum();
    println!(
        "{:<28} {verdict:<9} seen {asked:>6}  ends {}/{}  forbidden {wrong}",
        test.name,
        ends.len(),
        allowed.len()
    );
    Ok(wrong)
}
