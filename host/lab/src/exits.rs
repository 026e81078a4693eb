//! Experiment `exits`: what single operations of a guest cost, in instructions and exits.
//!
//! All on one machine of one hart (two for what needs running neighbours), with time counting instructions, by the probe
//! guest. Exits are counted by the monitor: the difference of two runs that differ only in their repetitions, so that
//! boot and console cancel.

use control::{Boot, DiskMode, DiskSpec, MachineInfo, MachineStats, MonitorMemoryKind, Pages, VmSpec};

use crate::figure::Figure;
use crate::report::{Report, commit_of};
use crate::rig::{Rig, Running, name, probe_vm};
use crate::{LabError, Options};

/// Time slices of 1 ms, so that switches are frequent enough to measure.
const TIME_SLICE_US: u32 = 1_000;
/// The disk that is read.
const DISK: &str = "scratch";
/// Guest memory of the VM whose overhead is counted.
const OVERHEAD_VM_MIB: u32 = 256;

/// Runs the experiment.
///
/// # Errors
/// [`LabError`] if the machine does not run. A guest that fails costs its own figure only.
pub fn run(options: &Options) -> Result<Report, LabError> {
    let repetitions = if options.quick { 200 } else { 2_000 };
    options.progress("one hart: calls, memory, devices, switches");
    let rig = Rig::new("bench-exits", 1, 768)?.with_probe()?.scratch(DISK, 16)?;
    let machine = rig.counting().options(|options| options.time_slice_us = TIME_SLICE_US).boot()?;
    let info = machine.client().machine_info()?;
    let mut figures = one_hart(&machine, repetitions, options)?;
    figures.extend(sizes(&machine, &info)?);
    drop(machine);
    options.progress("two harts: messages between running vCPUs");
    // Time counts nothing here: with two harts counting would make them take turns of millions of instructions.
    let machine = Rig::new("bench-exits-2", 2, 512)?.with_probe()?.boot()?;
    for (id, figure) in [("ipi_exits", "ipi"), ("rfence_exits", "rfence")] {
        figures.push(exits(&machine, id, figure, 2, repetitions.min(400)));
    }
    figures.sort_by_key(|figure| order(&figure.id));
    Ok(Report { name: "exits".into(), machine: describe(&info), commit: commit_of(&info.monitor.version), figures })
}

/// Where a figure stands in the list; parts of the breakdown go last.
fn order(id: &str) -> usize {
    crate::figure::GOALS.iter().position(|goal| goal.id == id).unwrap_or(usize::MAX)
}

/// The machine in a few words.
#[must_use]
pub fn describe(info: &MachineInfo) -> String {
    let (nodes, harts) = (info.nodes.len(), info.harts.len());
    format!("{}: {nodes} nodes, {harts} harts, {}, {:?}", info.model, info.monitor.gstage_mode, info.interrupts)
}

fn one_hart(machine: &Running, repetitions: u64, options: &Options) -> Result<Vec<Figure>, LabError> {
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
        options.progress(figure);
        figures.extend(measured(machine, &guest(figure, vcpus, count)?, figure));
    }
    options.progress("first_touch");
    let base = VmSpec { pages: Pages::Base, ..guest("first_touch", 1, repetitions)? };
    figures.extend(without_zeroing(measured(machine, &base, "first_touch")));
    options.progress("blk_read_4k");
    let disk = DiskSpec { name: name("data")?, source: name(DISK)?, partition: None, mode: DiskMode::CopyOnWrite };
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
fn measured(machine: &Running, spec: &VmSpec, wanted: &str) -> Vec<Figure> {
    let console = match machine.run(spec) {
        Ok(ended) => ended.console,
        Err(error) => return vec![Figure::missing(wanted, error.to_string())],
    };
    let figures: Vec<_> = console.lines().filter_map(parse).collect();
    if figures.iter().any(|figure| figure.id == wanted) {
        return figures;
    }
    vec![Figure::missing(wanted, format!("the guest said {:?}", console.trim()))]
}

/// `FIGURE id value unit samples`.
fn parse(line: &str) -> Option<Figure> {
    let mut words = line.trim().strip_prefix("FIGURE ")?.split(' ');
    let (id, value, unit) = (words.next()?, words.next()?.parse::<u32>().ok()?, words.next()?);
    Some(Figure::new(id, value.into(), unit, words.next()?.parse().ok()?))
}

/// First touch as measured contains the zeroing of the page; what that costs the guest measured, too.
fn without_zeroing(figures: Vec<Figure>) -> Vec<Figure> {
    let zeroing = figures.iter().find(|figure| figure.id == "page_zeroing").and_then(|figure| figure.value);
    let Some(zeroing) = zeroing else { return figures };
    let mut all = Vec::new();
    for mut figure in figures {
        if let ("first_touch", Some(value)) = (figure.id.as_str(), figure.value) {
            all.push(Figure::new("first_touch_with_zeroing", value, "instructions", figure.samples));
            figure.value = Some((value - zeroing).max(0.0));
        }
        all.push(figure);
    }
    all
}

/// Exits per operation: two runs that differ only in the repetitions.
fn exits(machine: &Running, id: &str, figure: &str, vcpus: u16, repetitions: u64) -> Figure {
    let total = |count: u64| total_exits(machine, figure, vcpus, count);
    match total(repetitions).and_then(|few| Ok((few, total(3 * repetitions)?))) {
        Ok((few, many)) => {
            let difference = many.saturating_sub(few);
            let per_operation = f64::from(u32::try_from(difference).unwrap_or(u32::MAX)) / two(repetitions);
            // Time slices end whatever the guest does: less than one exit in a hundred operations is theirs.
            let mut found = Figure::new(id, (per_operation * 50.0).round() / 50.0, "exits", 2 * repetitions);
            if difference > 0 {
                found.note = format!("{}; {difference} exits more in {} operations", found.note, 2 * repetitions);
            }
            found
        }
        Err(error) => Figure::missing(id, error.to_string()),
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
fn sizes(machine: &Running, info: &MachineInfo) -> Result<Vec<Figure>, LabError> {
    let stats = machine.stats()?;
    let image = info.monitor.text_bytes + info.monitor.rodata_bytes;
    let pages: u64 = stats.nodes.iter().map(|node| node.total_bytes / 4096).sum();
    let mut figures = vec![
        Figure::new("monitor_bytes", ratio(image, 1), "bytes", 1),
        Figure::new("monitor_text", ratio(info.monitor.text_bytes, 1), "bytes", 1),
        Figure::new("monitor_rodata", ratio(info.monitor.rodata_bytes, 1), "bytes", 1),
        Figure::new("memmap_bytes", ratio(kind(&stats, MonitorMemoryKind::Memmap), pages.max(1)), "bytes", pages),
    ];
    figures.extend(
        vm_overhead(machine).unwrap_or_else(|error| vec![Figure::missing("vm_overhead_mib", error.to_string())]),
    );
    Ok(figures)
}

/// What a VM costs beyond its own pages, when it has touched them all: G-stage tables, bookkeeping, heap.
fn vm_overhead(machine: &Running) -> Result<Vec<Figure>, LabError> {
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
        Figure::new("vm_overhead_mib", mib((taken + filled).saturating_sub(unused).max(tables)), "MiB", 1);
    if after.monitor.iter().all(|memory| memory.kind != MonitorMemoryKind::HeapFree) {
        overhead.note.push_str("; a lower bound: this monitor does not tell how much of its heap is in use");
    }
    Ok(vec![
        overhead,
        Figure::new("vm_tables_and_bookkeeping", mib(tables), "MiB", 1),
        Figure::new("vm_heap", mib(heap), "MiB", 1),
        Figure::new("vm_taken_and_unused", mib(unused), "MiB", 1),
    ])
}

fn kind(stats: &MachineStats, kind: MonitorMemoryKind) -> u64 {
    stats.monitor.iter().filter(|memory| memory.kind == kind).map(|memory| memory.bytes).sum()
}

/// A quotient of counts; these are far below what a float holds exactly.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub fn ratio(value: u64, of: u64) -> f64 {
    value as f64 / of as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_parsed() {
        let figure = parse("FIGURE mmio 380 instructions 2000\r").expect("a figure");
        assert_eq!((figure.value, figure.target, figure.samples), (Some(380.0), Some(400.0), 2000));
        assert_eq!(parse("FIGURE blk_read_4k impossible: no disk"), None);
        assert_eq!(parse("PROBE mmio ok"), None);
    }

    #[test]
    fn zeroing_is_told_apart() {
        let figures =
            vec![Figure::new("first_touch", 700.0, "", 10), Figure::new("page_zeroing", 200.0, "instructions", 1)];
        let figures = without_zeroing(figures);
        let value = |id: &str| figures.iter().find(|figure| figure.id == id).and_then(|figure| figure.value);
        assert_eq!(value("first_touch"), Some(500.0));
        assert_eq!(value("first_touch_with_zeroing"), Some(700.0));
    }
}
