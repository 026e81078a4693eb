//! `mirrorball-sim dsm`.

use anyhow::{Result, bail};
use clap::Args;
use dsm::{Protocol, Visibility};
use sim::sharing::{Link, Question, play};

/// What to play.
#[derive(Args)]
pub struct Arguments {
    /// Machines, each with one hart.
    #[arg(long, value_delimiter = ',', default_value = "2,4,8,16,32,64")]
    machines: Vec<u8>,
    /// The links' latency, one way.
    #[arg(long, default_value_t = 8_000)]
    latency_ns: u64,
    /// The links' bandwidth.
    #[arg(long, default_value_t = 1_000)]
    mbit: u64,
    /// Frames that are lost, of a million.
    #[arg(long, default_value_t = 0)]
    lost_ppm: u64,
    /// Accesses of each machine.
    #[arg(long, default_value_t = 10_000)]
    accesses: u64,
    /// First random number.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Plays each protocol with each number of machines.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.machines.iter().any(|machines| !(1..=64).contains(machines)) || arguments.mbit == 0 {
        bail!("1 to 64 machines, and links of at least 1 Mbit/s");
    }
    println!(
        "{:>8} {:<6} {:<8} {:>9} {:>10} {:>9} {:>9} {:>8} {:>8}",
        "machines", "mode", "stores", "stalls", "stalled ms", "time ms", "messages", "MB", "most MB"
    );
    let link = Link { latency_ns: arguments.latency_ns, mbit: arguments.mbit, lost_ppm: arguments.lost_ppm };
    for machines in arguments.machines.iter().copied() {
        for visibility in [Visibility::Early, Visibility::Ordered] {
            for (name, protocol) in
                [("WI", Protocol::Invalidate), ("WU", Protocol::Update), ("WU+", Protocol::UpdatePlus)]
            {
                let (accesses, seed) = (arguments.accesses, arguments.seed);
                let question = Question { machines, link, protocol, visibility, accesses, think_ns: 500, seed };
                let report = play(&question);
                println!(
                    "{machines:>8} {name:<6} {:<8} {:>9} {:>10.1} {:>9.1} {:>9} {:>8.2} {:>8.2}",
                    format!("{visibility:?}").to_lowercase(),
                    report.stalls,
                    report.stalled_ns as f64 / 1e6,
                    report.time_ns as f64 / 1e6,
                    report.messages,
                    report.bytes as f64 / 1e6,
                    report.most_bytes as f64 / 1e6,
                );
            }
        }
    }
    Ok(())
}
