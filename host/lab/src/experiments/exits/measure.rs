//! The measurements of `exits`.

use control::{Boot, DiskMode, DiskSpec, MachineInfo, MachineStats, MonitorMemoryKind, Pages, VmSpec};

use crate::LabError;
use crate::compare::ratio;
use crate::plan::{Procedure, Trial, Work};
use crate::report::{commit_of, describe};
use crate::rig::{Rig, Running, name, probe_vm};
use crate::run::Progress;
use crate::store::{Measured, Value};

/// Time slices of 1 ms, so that switches are frequent enough to measure.
const TIME_SLICE_US: u32 = 1_000;
/// Runs of each guest whose exits are counted.
const RUNS: u32 = 3;
/// The disk that is read.
const DISK: &str = "scratch";
/// Guest memory of the VM whose overhead is counted.
const OVERHEAD_VM_MIB: u32 = 256;

/// What one hart is enough for: calls, memory, devices, switches, sizes.
///
/// # Errors
/// [`LabError`] if the machine does not run. A guest that fails costs its own value only.
pub fn one_hart(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    let rig = Rig::of("bench-exits", trial)?.with_probe()?.scratch(DISK, 16)?;
    let machine = rig.options(|options| options.time_slice_us = TIME_SLICE_US).boot()?;
    let info = machine.client().machine_info()?;
    let mut values = operations(&machine, repetitions(trial), progress)?;
    values.extend(sizes(&machine, &info)?);
    Ok(Measured { machine: describe(&info), commit: commit_of(&info.monitor.version), values })
}

/// What needs a running neighbour: messages between vCPUs.
///
/// # Errors
/// As [`one_hart`].
pub fn two_harts(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    let machine = Rig::of("bench-exits-2", trial)?.with_probe()?.boot()?;
    let info = machine.client().machine_info()?;
    let mut values = Vec::new();
    for (id, figure) in [("ipi_exits", "ipi"), ("rfence_exits", "rfence")] {
        progress.say(figure);
        values.push(exits(&machine, id, figure, 2, repetitions(trial).min(400)));
    }
    Ok(Measured { machine: describe(&info), commit: commit_of(&info.monitor.version), values })
}

pub(super) const fn repetitions(trial: &Trial) -> u64 {
    match &trial.work {
        Work::Procedure(Procedure { count, .. }) => *count,
        Work::Guest(_) => 1,
    }
}

fn operations(machine: &Running, repetitions: u64, progress: &Progress) -> Result<Vec<Value>, LabError> {
    let mut figures = Vec::new();
    for (figure, vcpus, count) in [
        ("sbi_null", 1, repetitions),
        ("sbi_full", 1, repetitions),
        ("mmio", 1, repetitions),
        ("mmio_store", 1, repetitions),
        ("wfi_wake", 2, repetitions),
        ("wfi_alone", 1, repetitions),
        ("vcpu_switch", 2, 100),
    ] {
        progress.say(figure);
        figures.extend(measured(machine, &guest(figure, vcpus, count)?, figure));
    }
    progress.say("first_touch");
    let base = VmSpec { pages: Pages::Base, ..guest("first_touch", 1, repetitions)? };
    figures.extend(without_zeroing(measured(machine, &base, "first_touch")));
    progress.say("blk_read_4k");
    let disk = DiskSpec {
        name: name("data")?,
        source: name(DISK)?,
        partition: None,
        mode: DiskMode::CopyOnWrite,
        overlay: None,
        limit_mib: None,
    };
    let reader = VmSpec { disks: vec![disk], ..guest("blk_read_4k", 1, repetitions)? };
    figures.extend(measured(machine, &reader, "blk_read_4k"));
    figures.push(exits(machine, "timer_exits", "timer", 1, repetitions));
    Ok(figures)
}

fn guest(figure: &str, vcpus: u16, count: u64) -> Result<VmSpec, LabError> {
    let vm = format!("{}-{count}", figure.replace('_', "-"));
    probe_vm(&vm, vcpus, 64, &format!("figure={figure} n={count}"))
}

/// All figures that a guest prints; if it does not, the one wanted with the reason.
fn measured(machine: &Running, spec: &VmSpec, wanted: &str) -> Vec<Value> {
    let console = match machine.run(spec) {
        Ok(ended) => ended.console,
        Err(error) => return vec![Value::missing(wanted, error.to_string())],
    };
    let figures: Vec<_> = console.lines().filter_map(parse).collect();
    if figures.iter().any(|figure| figure.name == wanted) {
        return figures;
    }
    vec![Value::missing(wanted, format!("the guest said `{}`", console.trim()))]
}

/// `FIGURE id value unit samples`.
pub(super) fn parse(line: &str) -> Option<Value> {
    let mut words = line.trim().strip_prefix("FIGURE ")?.split(' ');
    let (id, value, unit) = (words.next()?, words.next()?.parse::<u32>().ok()?, words.next()?);
    Some(Value::new(id, value.into(), unit, words.next()?.parse().ok()?))
}

/// First touch as measured contains the zeroing of the page; what that costs the guest measured, too.
pub(super) fn without_zeroing(figures: Vec<Value>) -> Vec<Value> {
    let zeroing = figures.iter().find(|figure| figure.name == "page_zeroing").and_then(|figure| figure.number);
    let Some(zeroing) = zeroing else { return figures };
    let mut all = Vec::new();
    for mut figure in figures {
        if let ("first_touch", Some(value)) = (figure.name.as_str(), figure.number) {
            all.push(Value::new("first_touch_with_zeroing", value, "instructions", figure.samples));
            figure.number = Some((value - zeroing).max(0.0));
        }
        all.push(figure);
    }
    all
}

/// Exits per operation: two runs that differ only in the repetitions.
fn exits(machine: &Running, id: &str, figure: &str, vcpus: u16, repetitions: u64) -> Value {
    // What else happens meanwhile, and it is more on a busy computer, only adds.
    let total = |count: u64| -> Result<u64, LabError> {
        (0..RUNS).try_fold(u64::MAX, |least, _| Ok(least.min(total_exits(machine, figure, vcpus, count)?)))
    };
    match total(repetitions).and_then(|few| Ok((few, total(3 * repetitions)?))) {
        Ok((few, many)) => {
            let difference = many.saturating_sub(few);
            let per_operation = f64::from(u32::try_from(difference).unwrap_or(u32::MAX)) / two(repetitions);
            // Time slices end whatever the guest does: less than one exit in a hundred operations is theirs.
            let mut found = Value::new(id, (per_operation * 50.0).round() / 50.0, "exits", 2 * repetitions);
            if difference > 0 {
                found.note = format!("{difference} exits more in {} operations", 2 * repetitions);
            }
            found
        }
        Err(error) => Value::missing(id, error.to_string()),
    }
}

/// All exits of a guest with so many operations. Its counters are read while it lives: they go with it.
fn total_exits(machine: &Running, figure: &str, vcpus: u16, count: u64) -> Result<u64, LabError> {
    let mut spec = guest(figure, vcpus, count)?;
    if let Boot::Kernel { cmdline, .. } = &mut spec.boot {
        cmdline.push_str(" stay");
    }
    machine.start(&spec)?;
    let waited = machine.wait_text(&spec.name, "IDLE");
    let stats = machine.client().vm_stats(&spec.name);
    machine.client().kill_vm(&spec.name)?;
    machine.client().destroy_vm(&spec.name)?;
    let (console, stats) = (waited?, stats?);
    if stats.vcpus.is_empty() || !console.lines().any(|line| parse(line).is_some()) {
        let (experiment, reason) = (figure.to_owned(), "it gave no figure, or has no counters".to_owned());
        return Err(LabError::Guest { experiment, reason, console });
    }
    Ok(stats.vcpus.iter().map(|vcpu| vcpu.exits.total()).sum())
}

fn two(repetitions: u64) -> f64 {
    f64::from(u32::try_from(2 * repetitions).unwrap_or(u32::MAX))
}

/// What the monitor itself takes.
fn sizes(machine: &Running, info: &MachineInfo) -> Result<Vec<Value>, LabError> {
    let stats = machine.stats()?;
    let image = info.monitor.text_bytes + info.monitor.rodata_bytes;
    let pages: u64 = stats.nodes.iter().map(|node| node.total_bytes / 4096).sum();
    let mut figures = vec![
        Value::new("monitor_bytes", ratio(image, 1), "bytes", 1),
        Value::new("monitor_text", ratio(info.monitor.text_bytes, 1), "bytes", 1),
        Value::new("monitor_rodata", ratio(info.monitor.rodata_bytes, 1), "bytes", 1),
        Value::new("memmap_bytes", ratio(kind(&stats, MonitorMemoryKind::Memmap), pages.max(1)), "bytes", pages),
    ];
    figures.extend(
        vm_overhead(machine).unwrap_or_else(|error| vec![Value::missing("vm_overhead_mib", error.to_string())]),
    );
    Ok(figures)
}

/// What a VM costs beyond its own pages, when it has touched them all: G-stage tables, bookkeeping, heap.
fn vm_overhead(machine: &Running) -> Result<Vec<Value>, LabError> {
    let before = machine.stats()?;
    let spec = probe_vm("overhead", 1, OVERHEAD_VM_MIB, &format!("figure=touch n={OVERHEAD_VM_MIB}"))?;
    machine.start(&spec)?;
    machine.wait_text(&spec.name, "TOUCHED")?;
    let after = machine.stats()?;
    let summary = machine.client().vm(&spec.name)?;
    let guest: u64 = summary.resident.iter().map(|node| node.guest_pages() * 4096).sum();
    let tables: u64 = summary.resident.iter().map(|node| (node.table_pages + node.monitor_pages) * 4096).sum();
    let free = |stats: &MachineStats| stats.nodes.iter().map(|node| node.free_bytes).sum::<u64>();
    // Memory taken from the free lists, but for the guest's own; heap that was taken and is unused counts less.
    let heap_free = |stats: &MachineStats| kind(stats, MonitorMemoryKind::HeapFree);
    let taken = free(&before).saturating_sub(free(&after)).saturating_sub(guest);
    let unused = heap_free(&after).saturating_sub(heap_free(&before));
    // Or heap that was taken before and is used now.
    let filled = heap_free(&before).saturating_sub(heap_free(&after));
    let heap = kind(&after, MonitorMemoryKind::HeapUsed).saturating_sub(kind(&before, MonitorMemoryKind::HeapUsed));
    machine.client().kill_vm(&spec.name)?;
    machine.client().destroy_vm(&spec.name)?;
    let mib = |bytes: u64| ratio(bytes, 1 << 20);
    let mut overhead =
        Value::new("vm_overhead_mib", mib((taken + filled).saturating_sub(unused).max(tables)), "MiB", 1);
    if after.monitor.iter().all(|memory| memory.kind != MonitorMemoryKind::HeapFree) {
        overhead.note.push_str("a lower bound: this monitor does not tell how much of its heap is in use");
    }
    Ok(vec![
        overhead,
        Value::new("vm_tables_and_bookkeeping", mib(tables), "MiB", 1),
        Value::new("vm_heap", mib(heap), "MiB", 1),
        Value::new("vm_taken_and_unused", mib(unused), "MiB", 1),
    ])
}

fn kind(stats: &MachineStats, kind: MonitorMemoryKind) -> u64 {
    stats.monitor.iter().filter(|memory| memory.kind == kind).map(|memory| memory.bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_parsed() {
        let figure = parse("FIGURE mmio 380 instructions 2000\r").expect("a figure");
        assert_eq!((figure.number, figure.samples), (Some(380.0), 2000));
        assert_eq!(parse("FIGURE blk_read_4k impossible: no disk"), None);
        assert_eq!(parse("PROBE mmio ok"), None);
    }

    #[test]
    fn zeroing_is_told_apart() {
        let figures =
            vec![Value::new("first_touch", 700.0, "", 10), Value::new("page_zeroing", 200.0, "instructions", 1)];
        let figures = without_zeroing(figures);
        let value = |id: &str| figures.iter().find(|figure| figure.name == id).and_then(|figure| figure.number);
        assert_eq!(value("first_touch"), Some(500.0));
        assert_eq!(value("first_touch_with_zeroing"), Some(700.0));
    }
}
