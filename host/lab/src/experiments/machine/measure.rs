//! The measurements of `machine`.

use std::fs;
use std::path::PathBuf;

use config::Hardware;
use machine::{BareBoot, BareMachine};
use machine_model::{Config, Fidelity};

use crate::compare::ratio;
use crate::plan::{Artifact, Procedure, Trial, Work};
use crate::rig::{Rig, WATCHDOG};
use crate::run::Progress;
use crate::store::{Measured, Value};
use crate::{LabError, artifacts};

/// A run on the bare machine.
struct Ended {
    console: String,
    /// The lines of its marks, but for the last: the emulator ends some time after the machine.
    marks: Vec<String>,
    /// Clock ticks of the host's CPUs.
    cpu: u64,
}

/// From every node to every node, against the description.
///
/// # Errors
/// [`LabError`] if the machine does not run, as for all here.
pub fn latency(trial: &Trial, _: &Progress) -> Result<Measured, LabError> {
    let hardware = hardware(trial)?;
    let (nodes, mib) = (hardware.nodes.len(), u64::from(hardware.nodes[0].memory_mib));
    let config = description(trial, &hardware)?;
    let mut values = probe(trial, hardware, "model_latency", mib * 16 + nodes as u64)?;
    let number = |name: &str| values.iter().find(|value| value.name == name)?.number;
    let mut worst: Option<f64> = None;
    for (from, to) in (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to))) {
        let both = number(&format!("chase_{from}_{to}")).zip(number("chase_l1"));
        let error = both.map(|(missing, hitting)| {
            let wanted = ratio(config.latency(from, to), 1);
            100.0 * (missing - hitting - wanted).abs() / wanted
        });
        worst = error.map(|error| worst.unwrap_or(0.0).max(error));
        if worst.is_none() {
            values.push(Value::missing("latency_error", format!("the probe has not measured node {from} to {to}")));
            return Ok(measured(trial, values));
        }
    }
    values.push(Value::new("latency_error", worst.unwrap_or(0.0), "%", nodes as u64 * nodes as u64));
    Ok(measured(trial, values))
}

/// Time of a load by size.
pub fn caches(trial: &Trial, _: &Progress) -> Result<Measured, LabError> {
    Ok(measured(trial, probe(trial, hardware(trial)?, "model_caches", 1)?))
}

/// Time of a load by the number of pages.
pub fn tlb(trial: &Trial, _: &Progress) -> Result<Measured, LabError> {
    Ok(measured(trial, probe(trial, hardware(trial)?, "model_tlb", 1)?))
}

/// Clocks of several harts, and timers.
pub fn clocks(trial: &Trial, _: &Progress) -> Result<Measured, LabError> {
    Ok(measured(trial, probe(trial, hardware(trial)?, "model_clocks", count(trial))?))
}

/// A loop on one hart, and on all.
pub fn parallel(trial: &Trial, _: &Progress) -> Result<Measured, LabError> {
    let figures = probe(trial, hardware(trial)?, "model_parallel", count(trial))?;
    let number = |name: &str| figures.iter().find(|value| value.name == name).and_then(|value| value.number);
    let harts = trial.machine.harts();
    let name = format!("parallel_error_{harts}");
    let value = match (number("parallel_alone"), number("parallel_together")) {
        (Some(alone), Some(together)) => Value::new(&name, 100.0 * (together - alone).abs() / alone, "%", harts.into()),
        _ => Value::missing(&name, "the probe has not measured it"),
    };
    Ok(measured(trial, vec![value]))
}

/// The same boot several times, and the same program.
pub fn determinism(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    let mut differing = 0;
    let mut lines = 0;
    for what in ["kernel", "probe"] {
        let run = || match what {
            "kernel" => linux(trial, hardware(trial)?),
            _ => bare(trial, hardware(trial)?, artifacts::probe()?, None, "figure=model_parallel n=100000".to_owned()),
        };
        let first = run()?;
        for repetition in 1..count(trial) {
            progress.say(&format!("{what}, run {}", repetition + 1));
            let again = run()?;
            differing += differences(&first.console, &again.console);
            differing += differences(&first.marks.join("\n"), &again.marks.join("\n"));
        }
        lines += first.console.lines().count() + first.marks.len();
    }
    Ok(measured(trial, vec![Value::new("determinism", ratio(differing, 1), "differences", lines as u64)]))
}

/// The host's CPU time of a boot: with the model in both modes, with it switched off, and without. The least of several
/// runs of each, which take turns: whatever else the host does only adds. And how far off the fast mode's time is.
pub fn slowdown(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    const KINDS: [&str; 4] = ["without", "off", "fast", "on"];
    let (mut least, mut took) = ([u64::MAX; KINDS.len()], [None; KINDS.len()]);
    for turn in 1..=count(trial) {
        for (at, what) in KINDS.into_iter().enumerate() {
            progress.say(&format!("{what}, run {turn}"));
            let mut hardware = hardware(trial)?;
            if what == "without" {
                hardware.model = None;
                hardware.qemu_args.extend(["-accel".to_owned(), "tcg,thread=single".to_owned()]);
            }
            if let Some(model) = &mut hardware.model {
                model.starts_on = what != "off";
                model.fidelity = if what == "fast" { Fidelity::Fast } else { Fidelity::Reference };
            }
            let ended = linux(trial, hardware)?;
            least[at] = ended.cpu.min(least[at]);
            took[at] = kernel_time(&ended.console);
        }
    }
    let harts = trial.machine.harts();
    let [without, ..] = least;
    let values = ["model_off_slowdown", "model_fast_slowdown", "model_slowdown"].iter().zip(&least[1..]);
    let values = values.map(|(name, of)| {
        let mut value = Value::new(&format!("{name}_{harts}"), ratio(*of, without.max(1)), "x", count(trial));
        value.note = format!("a boot to user space, {:.1} s of host CPU without the model", ratio(without, 100));
        value
    });
    let name = format!("fast_error_{harts}");
    let error = match took {
        [.., Some(fast), Some(reference)] => Value::new(&name, 100.0 * (fast - reference).abs() / reference, "%", 1),
        _ => Value::missing(&name, "the kernel has not said when it ended"),
    };
    Ok(measured(trial, values.chain([error]).collect()))
}

/// The time that a kernel gives its last line, in seconds.
fn kernel_time(console: &str) -> Option<f64> {
    let line = console.lines().rev().find(|line| line.contains("] reboot: "))?;
    line.trim_start_matches('[').split(']').next()?.trim().parse().ok()
}

fn measured(trial: &Trial, values: Vec<Value>) -> Measured {
    let machine = &trial.machine;
    let text = format!("virt: {} nodes, {} harts, {} MiB", machine.nodes.len(), machine.harts(), machine.memory_mib());
    Measured { machine: text, commit: String::new(), values }
}

const fn count(trial: &Trial) -> u64 {
    match &trial.work {
        Work::Procedure(Procedure { count, .. }) => *count,
        Work::Guest(_) => 1,
    }
}

fn hardware(trial: &Trial) -> Result<Hardware, LabError> {
    Ok(Rig::of("bench-machine", trial)?.into_hardware())
}

/// What the model of this machine is.
fn description(trial: &Trial, hardware: &Hardware) -> Result<Config, LabError> {
    let described = hardware.model.as_ref().and_then(|model| model.describe(hardware).ok());
    let Trial { name, system, meter, .. } = trial;
    let unsupported = LabError::Unsupported { trial: name.clone(), system: *system, meter: *meter };
    described.map(|description| description.machine).ok_or(unsupported)
}

/// Runs the probe bare; gives its figures.
fn probe(trial: &Trial, hardware: Hardware, figure: &str, count: u64) -> Result<Vec<Value>, LabError> {
    let ended = bare(trial, hardware, artifacts::probe()?, None, format!("figure={figure} n={count}"))?;
    let figures: Vec<_> = ended.console.lines().filter_map(parse).collect();
    if figures.is_empty() {
        let reason = "it measured nothing".to_owned();
        return Err(LabError::Guest { experiment: trial.label(), reason, console: ended.console });
    }
    Ok(figures)
}

/// `FIGURE id value unit samples`.
fn parse(line: &str) -> Option<Value> {
    let mut words = line.trim().strip_prefix("FIGURE ")?.split(' ');
    let (id, value, unit) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    Some(Value::new(id, ratio(value, 1), unit, words.next()?.parse().ok()?))
}

/// Boots the kernel to user space, which ends at once.
fn linux(trial: &Trial, hardware: Hardware) -> Result<Ended, LabError> {
    let (kernel, initrd) = (Artifact::Cached("kernel/Image").path()?, artifacts::cached("kernel/initrd-tiny.cpio")?);
    let ended = bare(trial, hardware, kernel, Some(initrd), "console=ttyS0 panic=-1".to_owned())?;
    if ended.console.contains("MIRRORBALL-GUEST-UP") {
        return Ok(ended);
    }
    let reason = "user space was not reached".to_owned();
    Err(LabError::Guest { experiment: trial.label(), reason, console: ended.console })
}

fn bare(
    trial: &Trial,
    hardware: Hardware,
    kernel: PathBuf,
    initrd: Option<PathBuf>,
    cmdline: String,
) -> Result<Ended, LabError> {
    let dir = tempfile::Builder::new().prefix("mirrorball-machine-").tempdir().map_err(LabError::io("a directory"))?;
    let plugin = Some(artifacts::numa_plugin()?);
    let (firmware, faults, dir) = (None, Vec::new(), dir.path().to_owned());
    let before = cpu_of_children()?;
    let machine = BareMachine::launch(&hardware, &BareBoot { kernel, initrd, cmdline, dir, plugin, firmware, faults })?;
    let ended = machine.wait_timeout(WATCHDOG);
    machine.kill();
    let console = machine.console();
    if ended.is_none() {
        let reason = "it still ran when time was up".to_owned();
        return Err(LabError::Guest { experiment: trial.label(), reason, console });
    }
    let marks = fs::read_to_string(machine.marks()).unwrap_or_default();
    let mut marks: Vec<_> = marks.lines().map(str::to_owned).collect();
    marks.pop();
    Ok(Ended { console, marks, cpu: cpu_of_children()? - before })
}

/// Clock ticks that children of this process have used that have ended: `cutime` and `cstime`.
fn cpu_of_children() -> Result<u64, LabError> {
    let path = "/proc/self/stat";
    let text = fs::read_to_string(path).map_err(LabError::io(path))?;
    // The second word is the program's name in parentheses, which may hold anything.
    let words = text.rsplit_once(") ").map_or("", |(_, words)| words).split(' ');
    Ok(words.skip(13).take(2).filter_map(|word| word.parse::<u64>().ok()).sum())
}

/// Lines that differ, and lines that one has more.
fn differences(one: &str, other: &str) -> u64 {
    let pairs = one.lines().zip(other.lines()).filter(|(one, other)| one != other).count();
    (pairs + one.lines().count().abs_diff(other.lines().count())) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_counted_by_line() {
        assert_eq!(differences("a\nb\nc", "a\nb\nc"), 0);
        assert_eq!(differences("a\nb\nc", "a\nx\nc\nd\ne"), 3);
    }

    #[test]
    fn a_kernels_last_words_have_a_time() {
        assert_eq!(kernel_time("[    2.5] x\n[   12.928890] reboot: Power down\n"), Some(12.928_89));
        assert_eq!(kernel_time("[    2.5] x\nreboot\n"), None);
    }

    #[test]
    fn figures_of_the_probe_are_read() {
        let value = parse("FIGURE chase_0_1 902890 ps 1\r").expect("a figure");
        assert_eq!((value.name.as_str(), value.number), ("chase_0_1", Some(902_890.0)));
        assert!(parse("PROBES passed=0 failed=0").is_none() && parse("FIGURE x y ps 1").is_none());
    }
}
