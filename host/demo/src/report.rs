//! What the demonstration cost: a table for the VMs, one for their exits, and the monitor's own.

use std::fmt;

use anyhow::Result;
use control::{ExitCause, ExitCounts, MachineStats, VmMemory, VmStats};
use machine::Client;

use crate::job::Outcome;
use crate::table::{Table, grouped};

/// The finished report.
pub struct Report {
    work: Table,
    exits: Table,
    monitor: Table,
    harts: String,
    right: usize,
    total: usize,
}

/// Asks the machine for its counters and puts them beside the results.
///
/// # Errors
/// The machine does not answer.
pub fn collect(client: &Client, outcomes: &[Outcome], reference: &str) -> Result<Report> {
    let info = client.machine_info()?;
    let machine = client.machine_stats()?;
    let stats: Vec<VmStats> = outcomes.iter().map(|outcome| client.vm_stats(&outcome.vm)).collect::<Result<_, _>>()?;
    let is_right = |outcome: &&Outcome| outcome.build.as_ref().is_ok_and(|build| build.checksum == reference);
    Ok(Report {
        work: work(outcomes, &stats, reference, info.timebase_hz),
        exits: exits(&stats),
        monitor: monitor(&machine),
        harts: harts(&machine),
        right: outcomes.iter().filter(is_right).count(),
        total: outcomes.len(),
    })
}

impl Report {
    /// Whether every VM built what it should have.
    pub fn is_success(&self) -> bool {
        self.total > 0 && self.right == self.total
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nWork\n{}", self.work)?;
        writeln!(f, "Exits to the monitor, by cause\n{}", self.exits)?;
        writeln!(f, "The monitor itself\n{}{}\n", self.monitor, self.harts)?;
        writeln!(f, "{} of {} VMs built what a plain machine builds, bit for bit.", self.right, self.total)
    }
}

fn work(outcomes: &[Outcome], stats: &[VmStats], reference: &str, timebase_hz: u64) -> Table {
    let mut table =
        Table::new(&["VM", "checksum", "boot s", "build s", "vCPU s", "waited s", "exits", "memory MiB", "disk MiB"]);
    for (outcome, stats) in outcomes.iter().zip(stats) {
        let (verdict, seconds) = match &outcome.build {
            Ok(build) if build.checksum == reference => ("equal", format!("{:.1}", build.seconds)),
            Ok(build) => ("DIFFERS", format!("{:.1}", build.seconds)),
            Err(_) => ("FAILED", "-".into()),
        };
        let seconds_of = |ticks: u64| format!("{:.1}", ticks as f64 / timebase_hz.max(1) as f64);
        let sum = |ticks: fn(&control::VcpuStats) -> u64| stats.vcpus.iter().map(ticks).sum::<u64>();
        table.row(vec![
            outcome.vm.to_string(),
            verdict.into(),
            format!("{:.1}", outcome.boot.as_secs_f64()),
            seconds,
            seconds_of(sum(|vcpu| vcpu.run_ticks)),
            seconds_of(sum(|vcpu| vcpu.wait_ticks)),
            grouped(exits_of(stats).total()),
            grouped(mebibytes(stats)),
            grouped(stats.disk_read_sectors.saturating_add(stats.disk_written_sectors) >> 11),
        ]);
    }
    table
}

/// All machine memory behind a VM.
fn mebibytes(stats: &VmStats) -> u64 {
    let pages = stats.memory.iter().map(VmMemory::total_pages);
    // 256 pages of 4 KiB make a MiB.
    pages.fold(0, u64::saturating_add) / 256
}

fn exits_of(stats: &VmStats) -> ExitCounts {
    let mut all = ExitCounts::new();
    for vcpu in &stats.vcpus {
        all.add(&vcpu.exits);
    }
    all
}

/// A row for every cause that occurred, a column for every VM.
fn exits(stats: &[VmStats]) -> Table {
    let names: Vec<&str> = std::iter::once("cause").chain(stats.iter().map(|vm| vm.name.as_str())).collect();
    let mut table = Table::new(&names);
    let counts: Vec<ExitCounts> = stats.iter().map(exits_of).collect();
    for cause in ExitCause::ALL {
        if counts.iter().any(|counts| counts.get(*cause) > 0) {
            let cells = counts.iter().map(|counts| grouped(counts.get(*cause)));
            table.row(std::iter::once(cause.label().to_owned()).chain(cells).collect());
        }
    }
    table
}

/// A row for each purpose, a column for each node, in KiB.
fn monitor(stats: &MachineStats) -> Table {
    let nodes: Vec<String> = stats.nodes.iter().map(|node| format!("node {} KiB", node.node)).collect();
    let mut table = Table::new(&std::iter::once("memory").chain(nodes.iter().map(String::as_str)).collect::<Vec<_>>());
    let mut kinds: Vec<_> = stats.monitor.iter().map(|memory| memory.kind).collect();
    kinds.sort();
    kinds.dedup();
    for kind in kinds {
        let bytes = |node| stats.monitor.iter().filter(move |memory| memory.node == node && memory.kind == kind);
        let cells =
            stats.nodes.iter().map(|node| grouped(bytes(node.node).map(|memory| memory.bytes).sum::<u64>() >> 10));
        table.row(std::iter::once(format!("{kind:?}")).chain(cells).collect());
    }
    let cells = stats.nodes.iter().map(|node| grouped(node.disk_cache_bytes >> 10));
    table.row(std::iter::once("disk cache".to_owned()).chain(cells).collect());
    table
}

/// Where the harts' time went, all together.
fn harts(stats: &MachineStats) -> String {
    let sum = |ticks: fn(&control::HartStats) -> u64| stats.harts.iter().map(ticks).sum::<u64>();
    let (guest, monitor, idle) =
        (sum(|hart| hart.guest_ticks), sum(|hart| hart.monitor_ticks), sum(|hart| hart.idle_ticks));
    let all = (guest + monitor + idle).max(1) as f64;
    let percent = |ticks: u64| 100.0 * ticks as f64 / all;
    format!(
        "  time of {} harts: guests {:.1} %, monitor {:.1} %, idle {:.1} %",
        stats.harts.len(),
        percent(guest),
        percent(monitor),
        percent(idle)
    )
}
