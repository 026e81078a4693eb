//! The measurements of `pagecost`.

use control::{DiskMode, DiskSpec, MachineInfo, Pages, Placement, PlacementStats, VmSpec};
use machine::ModelFiles;

use crate::LabError;
use crate::compare::ratio;
use crate::plan::{Mark, Phase, Procedure, System, Trial, Work};
use crate::report::{commit_of, describe};
use crate::rig::{Ended, Rig, Running, name, probe_vm};
use crate::run::{Marks, Progress};
use crate::store::{Measured, Value};

/// The probe's adversaries, without the beginning of their names.
pub const ADVERSARIES: &[&str] = &["ping_pong", "phases", "rare_writer"];
/// What they do before they stop, in turns of the trial: half a minute of the machine's time each.
const TURNS: [u64; 3] = [4, 1, 3];

/// Instructions of a page's copy: five in each turn of the loop, for eight vector registers of 16 bytes (`arch/rv/src/copy.rs`).
/// What the copy needs besides is counted as work.
const COPY: f64 = 5.0 * 4096.0 / (8.0 * 16.0);
const VM_MIB: u32 = 64;
const DISK: &str = "scratch";
const DISK_MIB: u32 = 16;
/// The phases between the probe's marks.
const FIRST: Phase = Phase { name: "first", from: Mark::Hint(2), to: Mark::Hint(3) };
const SECOND: Phase = Phase { name: "second", from: Mark::Hint(4), to: Mark::Hint(5) };

/// Costs by page.
///
/// # Errors
/// [`LabError`] if a machine does not run, or the guest does not do what it should.
pub fn costs(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    let mut values = Vec::new();
    progress.say("migrate");
    let moved = Run::of(trial, "moves_migrate", Placement::Migrate)?;
    values.extend(moved.costs("migrate", moved.placed.migrated_pages, true)?);
    progress.say("replicate");
    let copied = Run::of(trial, "moves_replicate", Placement::Replicate)?;
    values.extend(copied.costs("replicate", copied.placed.replicated_pages, true)?);
    progress.say("share");
    let shared = Run::of(trial, "moves_share", Placement::FirstTouch)?;
    values.extend(shared.parts("hit", &FIRST, None, shared.pages, 0.0)?);
    values.extend(shared.parts("break", &SECOND, None, shared.pages, COPY)?);
    Ok(Measured { machine: describe(&shared.info), commit: commit_of(&shared.info.monitor.version), values })
}

/// A guest that has run on a machine of its own.
struct Run {
    info: MachineInfo,
    marks: Marks,
    placed: PlacementStats,
    /// Pages that it says it used.
    pages: u64,
    harts: u16,
}

impl Run {
    fn of(trial: &Trial, figure: &str, placement: Placement) -> Result<Self, LabError> {
        let machine = Rig::of("bench-pages", trial)?.with_probe()?.scratch(DISK, DISK_MIB)?.boot()?;
        let disk = DiskSpec {
            name: name("data")?,
            source: name(DISK)?,
            partition: None,
            mode: DiskMode::CopyOnWrite,
            overlay: None,
            limit_mib: None,
        };
        // Large pages have an experiment of their own: what they are worth is in whole workloads.
        let spec = VmSpec { pages: Pages::Base, disks: vec![disk], ..guest(trial, figure, placement, 1)? };
        let (ended, pages) = run(&machine, &spec, figure)?;
        let info = machine.client().machine_info()?;
        let marks = Marks::read(&ModelFiles::marks(machine.machine().dir().path()))?;
        Ok(Self { info, marks, placed: ended.stats.placement, pages, harts: trial.machine.harts() })
    }

    /// The cost of pages that moved in the first phase, by what the second one costs anyway.
    fn costs(&self, what: &str, pages: u64, has_copy: bool) -> Result<Vec<Value>, LabError> {
        if pages < self.pages * 9 / 10 {
            let why = format!("of {} pages {pages} moved", self.pages);
            return Ok(vec![Value::missing(&format!("{what}_cost"), why)]);
        }
        self.parts(what, &FIRST, Some(&SECOND), pages, if has_copy { COPY } else { 0.0 })
    }

    /// Instructions and time of the monitor by page, on all harts together, the copy's taken off the former.
    fn parts(
        &self,
        what: &str,
        phase: &Phase,
        usual: Option<&Phase>,
        pages: u64,
        copy: f64,
    ) -> Result<Vec<Value>, LabError> {
        let [instructions, nanoseconds] = self.monitor(phase, usual);
        let by_page = |total: Option<f64>| total.map(|total| total / ratio(pages.max(1), 1));
        let (cost, time) = (format!("{what}_cost"), format!("{what}_time"));
        let (Some(instructions), Some(nanoseconds)) = (by_page(instructions), by_page(nanoseconds)) else {
            return Ok(vec![Value::missing(&cost, "a mark is missing: the guest did not do it")]);
        };
        let mut value = Value::new(&cost, instructions - copy, "instructions", pages);
        value.note = format!("{instructions:.0} with the copy");
        Ok(vec![value, Value::new(&time, nanoseconds / 1000.0, "us", pages)])
    }

    /// Instructions and nanoseconds of the monitor in a phase, less what it has in as much time of the usual one.
    fn monitor(&self, phase: &Phase, usual: Option<&Phase>) -> [Option<f64>; 2] {
        let number = |phase: &Phase, part: &str| {
            let values = self.marks.values(phase, System::Mirrorball, 1);
            let wanted = format!("{}.{part}", phase.name);
            values.into_iter().find(|value| value.name == wanted).and_then(|value| value.number)
        };
        // Times are means over the harts, instructions are sums.
        [("monitor_instructions", 1.0), ("monitor", f64::from(self.harts))].map(|(part, harts)| {
            let all = number(phase, part)?;
            let Some(usual) = usual else { return Some(all * harts) };
            let share = number(phase, "total")? / number(usual, "total")?;
            Some((all - number(usual, part)? * share) * harts)
        })
    }
}

/// Adversaries of a VM whose pages stay.
///
/// # Errors
/// As [`costs`].
pub fn without_placement(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    adversaries(trial, progress, Placement::FirstTouch)
}

/// Adversaries of a VM whose pages move.
///
/// # Errors
/// As [`costs`].
pub fn with_placement(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    adversaries(trial, progress, Placement::Dynamic)
}

fn adversaries(trial: &Trial, progress: &Progress, placement: Placement) -> Result<Measured, LabError> {
    let machine = Rig::of("bench-pages", trial)?.with_probe()?.boot()?;
    let mut values = Vec::new();
    for (adversary, turns) in ADVERSARIES.iter().zip(TURNS) {
        progress.say(adversary);
        let figure = format!("adversary_{adversary}");
        let (ended, us) = run(&machine, &guest(trial, &figure, placement, turns)?, &figure)?;
        let mut value = Value::new(adversary, ratio(us, 1), "us", 1);
        let PlacementStats { migrated_pages, migrated_blocks, replicated_pages, .. } = ended.stats.placement;
        value.note =
            format!("{migrated_pages} pages and {migrated_blocks} blocks moved, {replicated_pages} copies were made");
        values.push(value);
    }
    let info = machine.client().machine_info()?;
    Ok(Measured { machine: describe(&info), commit: commit_of(&info.monitor.version), values })
}

fn guest(trial: &Trial, figure: &str, placement: Placement, turns: u64) -> Result<VmSpec, LabError> {
    let count = match &trial.work {
        Work::Procedure(Procedure { count, .. }) => *count * turns,
        Work::Guest(_) => 1,
    };
    let spec = probe_vm(&figure.replace('_', "-"), 2, VM_MIB, &format!("figure={figure} n={count}"))?;
    Ok(VmSpec { placement, ..spec })
}

/// Runs a guest to its end, and gives the number that it says. Nobody asks the monitor for anything before: that would count.
fn run(machine: &Running, spec: &VmSpec, figure: &str) -> Result<(Ended, u64), LabError> {
    machine.start(spec)?;
    machine.wait_text(&spec.name, &format!("FIGURE {figure} "))?;
    let ended = machine.end_of(&spec.name)?;
    let says = |line: &str| line.trim().strip_prefix("FIGURE ")?.strip_prefix(figure)?.split(' ').nth(1)?.parse().ok();
    match ended.console.lines().find_map(says) {
        Some(number) => Ok((ended, number)),
        None => {
            let (experiment, reason) = (figure.to_owned(), "it gave no figure".to_owned());
            Err(LabError::Guest { experiment, reason, console: ended.console })
        }
    }
}
