//! What the VMs and the monitor took: the final table.

use std::time::Duration;

use control::ExitCause;
use serde::Serialize;

use super::VmRun;
use super::checksum::Checksum;
use super::timeline::{self, Phase, Span};
use crate::failure::Failure;
use crate::model::{ExitsView, MachineView, VmView};
use crate::output::{Cell, Output, Table, Tone, harmless, units};

/// `demo --json`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether every command succeeded and every sum is as expected.
    pub ok: bool,
    /// The machine's name.
    pub machine: String,
    /// Seconds from the start to the last result.
    pub total_s: f64,
    /// Its VMs.
    pub vms: Vec<VmReport>,
    /// The monitor.
    pub monitor: MonitorReport,
    /// Hardware that was made to fail: seconds from the start, and what it was.
    pub faults: Vec<(f64, String)>,
}

/// What became of a VM.
#[derive(Debug, Serialize)]
pub struct VmReport {
    pub vm: String,
    /// `ok`, `failed` (status not 0), `wrong` (another sum), `no-sum`, `cell-lost` (with hardware that was made to fail), or `lost` (no
    /// result at all).
    pub result: &'static str,
    /// What went wrong, for people.
    pub message: Option<String>,
    /// Seconds from the machine's start until the guest agent answered.
    pub boot_s: Option<f64>,
    /// Seconds that the command took.
    pub time_s: Option<f64>,
    /// Its exit status.
    pub status: Option<i64>,
    /// The sum in its output.
    pub checksum: Option<String>,
    /// Seconds that its vCPUs ran, boot included, added up.
    pub vcpu_s: f64,
    /// Seconds that they wanted to run and could not.
    pub wait_s: f64,
    /// Exits by cause, boot included.
    pub exits: ExitsView,
    /// All of them.
    pub exits_total: u64,
    /// Machine memory behind it.
    pub resident_bytes: u64,
    /// What its guest believes to have.
    pub memory_bytes: u64,
    /// What it was at, and when.
    pub spans: Vec<Span>,
}

/// What the monitor took.
#[derive(Debug, Serialize)]
pub struct MonitorReport {
    /// Its version and commit.
    pub version: String,
    /// Seconds in the monitor on all harts.
    pub time_s: f64,
    /// Seconds in guests on all harts.
    pub guest_s: f64,
    /// Its memory on all nodes.
    pub memory_bytes: u64,
    /// Its image: text and read-only data.
    pub image_bytes: u64,
    /// In the disk cache.
    pub disk_cache_bytes: u64,
}

impl Report {
    pub fn new(view: &MachineView, vms: Vec<VmReport>, total: Duration, faults: Vec<(f64, String)>) -> Self {
        // Who is lost with a cell that was made to fail was to be lost; some must be left to be right.
        let is_fine = |vm: &VmReport| vm.result == "ok" || vm.result == "cell-lost";
        Self {
            ok: vms.iter().all(is_fine) && vms.iter().any(|vm| vm.result == "ok"),
            machine: view.machine.clone(),
            total_s: total.as_secs_f64(),
            vms,
            faults,
            monitor: MonitorReport {
                version: view.monitor.version.clone(),
                time_s: view.monitor.time_s,
                guest_s: view.harts.iter().map(|hart| hart.guest_s).sum(),
                memory_bytes: view.monitor.memory_bytes,
                image_bytes: view.monitor.text_bytes + view.monitor.rodata_bytes,
                disk_cache_bytes: view.nodes.iter().map(|node| node.disk_cache_bytes).sum(),
            },
        }
    }

    /// What pages show of it: no colours, and nothing of exits.
    pub fn summary(&self) -> String {
        let (vms, monitor) = (self.vm_table().render(false), self.monitor_table().render(false));
        format!("{}\n{}\n{}\n", vms.trim_end(), monitor.trim_end(), self.verdict())
    }

    /// The monitor's part of the busy time.
    pub fn monitor_share(&self) -> f64 {
        self.monitor.time_s / (self.monitor.time_s + self.monitor.guest_s).max(f64::MIN_POSITIVE)
    }

    fn verdict(&self) -> String {
        let lost = self.vms.iter().filter(|vm| vm.result == "cell-lost").count();
        let verdict = match (self.ok, lost) {
            (true, 0) => "all results are right".to_owned(),
            (true, lost) => format!("all results are right but of {lost} VMs that were lost with their cell"),
            (false, _) => "NOT all results are right".to_owned(),
        };
        format!("{verdict}, after {}", units::seconds(self.total_s))
    }

    pub fn print(&self, output: &Output) -> Result<(), Failure> {
        output.table(&self.vm_table())?;
        output.line("")?;
        output.table(&self.exit_table())?;
        output.line("")?;
        output.table(&self.monitor_table())?;
        if !self.faults.is_empty() {
            output.line("")?;
            let vms = self.vms.iter().map(|vm| (vm.vm.as_str(), vm.spans.as_slice()));
            output.line(timeline::draw(vms, Duration::from_secs_f64(self.total_s), &self.faults).trim_end())?;
            output.line("")?;
        }
        for vm in &self.vms {
            if let Some(message) = &vm.message {
                output.line(Tone::Bad.paint(&format!("{}: {message}", vm.vm), output.has_color()))?;
            }
        }
        let tone = if self.ok { Tone::Good } else { Tone::Bad };
        output.line(tone.paint(&self.verdict(), output.has_color()))
    }

    fn vm_table(&self) -> Table {
        let mut table = Table::new(&[
            "VM",
            "RESULT",
            ">BOOT",
            ">TIME",
            ">VCPU TIME",
            ">WAITED",
            ">EXITS",
            ">RESIDENT",
            ">OF",
            "SHA-256",
        ]);
        for vm in &self.vms {
            let seconds = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), units::seconds);
            let sum = vm.checksum.as_ref().map_or_else(|| "-".to_owned(), |sum| sum.chars().take(12).collect());
            table.row([
                vm.vm.clone().into(),
                Cell::toned(vm.result, if vm.result == "ok" { Tone::Good } else { Tone::Bad }),
                seconds(vm.boot_s).into(),
                seconds(vm.time_s).into(),
                units::seconds(vm.vcpu_s).into(),
                units::seconds(vm.wait_s).into(),
                units::count(vm.exits_total).into(),
                units::bytes(vm.resident_bytes).into(),
                units::bytes(vm.memory_bytes).into(),
                sum.into(),
            ]);
        }
        table
    }

    /// A row per VM, a column per cause that occurred, most first, as many as a line of 100 characters holds.
    fn exit_table(&self) -> Table {
        let total = ExitsView::sum(self.vms.iter().map(|vm| &vm.exits));
        let causes: Vec<ExitCause> = total.ranked().into_iter().map(|(cause, _)| cause).take(7).collect();
        let mut headers = vec!["EXITS"];
        headers.extend(causes.iter().map(|cause| right_header(*cause)));
        headers.push(">others");
        let mut table = Table::new(&headers);
        for vm in &self.vms {
            let counts: Vec<u64> = causes.iter().map(|cause| vm.exits.get(*cause)).collect();
            let others = vm.exits_total.saturating_sub(counts.iter().sum());
            let cells = counts.into_iter().chain([others]).map(|count| Cell::from(units::count(count)));
            table.row(std::iter::once(Cell::from(vm.vm.clone())).chain(cells));
        }
        table
    }

    fn monitor_table(&self) -> Table {
        let monitor = &self.monitor;
        let mut table = Table::new(&["MONITOR", ">TIME", ">OF BUSY TIME", ">MEMORY", ">DISK CACHE", ">IMAGE"]);
        table.row([
            monitor.version.clone().into(),
            units::seconds(monitor.time_s).into(),
            format!("{}%", units::percent(self.monitor_share())).into(),
            units::bytes(monitor.memory_bytes).into(),
            units::bytes(monitor.disk_cache_bytes).into(),
            units::bytes(monitor.image_bytes).into(),
        ]);
        table
    }
}

impl VmReport {
    pub fn new(run: VmRun, reference: Option<&Checksum>) -> Self {
        let view = run.view.as_ref();
        let counters = view.and_then(|view| view.counters.as_ref());
        let (result, message) = verdict(&run, reference);
        let guest = run.result.as_ref().ok();
        Self {
            vm: run.vm.to_string(),
            result,
            message,
            boot_s: guest.map(|guest| guest.boot.as_secs_f64()),
            time_s: guest.map(|guest| guest.time.as_secs_f64()),
            status: guest.map(|guest| guest.status),
            checksum: guest.and_then(|guest| guest.checksum.as_ref()).map(ToString::to_string),
            vcpu_s: counters.map_or(0.0, |counters| counters.run_s),
            wait_s: counters.map_or(0.0, |counters| counters.wait_s),
            exits: counters.map_or_else(ExitsView::default, |counters| counters.exits),
            exits_total: counters.map_or(0, |counters| counters.exits_total),
            resident_bytes: view.map_or(0, |view: &VmView| view.resident_bytes),
            memory_bytes: view.map_or(0, |view| view.memory_bytes),
            spans: run.spans,
        }
    }
}

fn verdict(run: &VmRun, reference: Option<&Checksum>) -> (&'static str, Option<String>) {
    let guest = match &run.result {
        Ok(guest) => guest,
        Err(error) => {
            let is_with_cell = run.spans.last().is_some_and(|span| span.phase == Phase::Lost);
            return (if is_with_cell { "cell-lost" } else { "lost" }, Some(harmless(&error.to_string())));
        }
    };
    if guest.status != 0 {
        let said =
            guest.last_line.as_deref().map(|line| format!("; it said last: {}", harmless(line))).unwrap_or_default();
        return ("failed", Some(format!("the command ended with status {}{said}", guest.status)));
    }
    match (reference, &guest.checksum) {
        (None, _) => ("ok", None),
        (Some(expected), Some(sum)) if sum == expected => ("ok", None),
        (Some(expected), Some(sum)) => ("wrong", Some(format!("its sum is {sum}, expected is {expected}"))),
        (Some(_), None) => ("no-sum", Some("no SHA-256 sum is in the command's output".to_owned())),
    }
}

/// The header of a column of numbers: tables want `>` in front.
const fn right_header(cause: ExitCause) -> &'static str {
    match cause {
        ExitCause::SbiCall => ">sbi-call",
        ExitCause::TimerInterrupt => ">timer",
        ExitCause::Ipi => ">ipi",
        ExitCause::ExternalInterrupt => ">external",
        ExitCause::GuestExternal => ">guest-external",
        ExitCause::InstructionGuestPageFault => ">fetch-fault",
        ExitCause::LoadGuestPageFault => ">load-fault",
        ExitCause::StoreGuestPageFault => ">store-fault",
        ExitCause::MmioLoad => ">mmio-load",
        ExitCause::MmioStore => ">mmio-store",
        ExitCause::Wfi => ">wfi",
        ExitCause::VirtualInstruction => ">virtual-insn",
        ExitCause::IllegalInstruction => ">illegal-insn",
        ExitCause::FpLazy => ">fp-lazy",
        ExitCause::AccessFault => ">access-fault",
        ExitCause::Other => ">other",
    }
}

#[cfg(test)]
mod tests {
    use control::Name;

    use super::*;
    use crate::demo::guest::GuestRun;
    use crate::model::fixture::{DEMO, view};

    fn run(index: usize, status: i64, sum: &str) -> VmRun {
        let guest = GuestRun {
            boot: Duration::from_secs(21),
            time: Duration::from_secs(155),
            status,
            checksum: Checksum::last_in(sum),
            last_line: Some("make: *** stop".into()),
        };
        let machine = view(DEMO);
        let vm = machine.vms.get(index).cloned();
        VmRun {
            vm: Name::new(format!("build-{}", index + 1)).expect("a name"),
            result: Ok(guest),
            view: vm,
            spans: Vec::new(),
        }
    }

    fn report(runs: Vec<VmRun>) -> Report {
        let reference = Checksum::last_in(&"a".repeat(64));
        let vms = runs.into_iter().map(|run| VmReport::new(run, reference.as_ref())).collect();
        Report::new(&view(DEMO), vms, Duration::from_secs(200), Vec::new())
    }

    #[test]
    fn the_table_reads_well() {
        let lost = VmRun { result: Err(Failure::Other("the VM stopped: killed".into())), ..run(3, 0, "") };
        let report = report(vec![run(0, 0, &"a".repeat(64)), run(1, 2, ""), run(2, 0, &"b".repeat(64)), lost]);
        assert!(!report.ok);
        let messages: Vec<String> = report.vms.iter().filter_map(|vm| vm.message.clone()).collect();
        let text = [
            report.vm_table().render(false),
            report.exit_table().render(false),
            report.monitor_table().render(false),
            messages.join("\n"),
        ];
        insta::assert_snapshot!(text.join("\n"));
    }

    #[test]
    fn all_must_be_right() {
        assert!(report(vec![run(0, 0, &"a".repeat(64)), run(1, 0, &"A".repeat(64))]).ok);
        assert_eq!(report(vec![run(0, 0, "none")]).vms.first().map(|vm| vm.result), Some("no-sum"));
    }
}
