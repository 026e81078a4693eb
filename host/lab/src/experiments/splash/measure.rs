//! What SPLASHOS takes before its program: time, and memory.

use control::{Boot, Pages, VmSpec};
use machine::ModelFiles;

use crate::LabError;
use crate::compare::ratio;
use crate::plan::{Artifact, Mark, Phase, System, Trial};
use crate::report::{commit_of, describe};
use crate::rig::{Rig, Running, label, probe_vm};
use crate::run::{Marks, Progress};
use crate::store::{Measured, Value};

/// The module.
const SPLASH: &str = "splash";
const VM_MIB: u32 = 256;
/// `guest/splashos` sets these marks at its entry, and before it calls the program.
const BOOT: Phase = Phase { name: "boot", from: Mark::Hint(204), to: Mark::Hint(205) };

/// Starts SPLASHOS without a program, once with each kind of pages, while the model is on.
///
/// # Errors
/// [`LabError`] if a machine does not run.
pub fn start(trial: &Trial, progress: &Progress) -> Result<Measured, LabError> {
    let image = Artifact::Splash.path()?;
    let bytes = std::fs::metadata(&image).map_err(LabError::io(image.display().to_string()))?.len();
    let machine = Rig::of("bench-splash", trial)?.module(SPLASH, image)?.boot()?;
    progress.say("boot");
    let mut values = vec![Value::new("image_kib", ratio(bytes, 1024), "KiB", 1)];
    for (name, pages) in [("footprint_kib", Pages::Base), ("footprint_blocks_kib", Pages::Large)] {
        values.push(Value::new(name, ratio(resident(&machine, trial, pages)?, 1024), "KiB", 1));
    }
    let info = machine.client().machine_info()?;
    let marks = Marks::read(&ModelFiles::marks(machine.machine().dir().path()))?;
    let boot = marks.values(&BOOT, System::Mirrorball, 1).into_iter().find(|value| value.name == "boot.total");
    values.push(match boot.and_then(|value| value.number) {
        Some(nanoseconds) => Value::new("boot_ms", nanoseconds / 1e6, "ms", 1),
        None => Value::missing("boot_ms", "a mark is missing"),
    });
    Ok(Measured { machine: describe(&info), commit: commit_of(&info.monitor.version), values })
}

/// Bytes that a VM has whose program waits, of those that the monitor did not put there for the VM itself.
fn resident(machine: &Running, trial: &Trial, pages: Pages) -> Result<u64, LabError> {
    let name = if pages == Pages::Base { "small-pages" } else { "blocks" };
    let cmdline = "program=none stay=1".to_owned();
    let spec = probe_vm(name, trial.machine.harts(), VM_MIB, &cmdline)?;
    let boot = Boot::Kernel { kernel: label(SPLASH)?, initrd: None, cmdline };
    let spec = VmSpec { boot, pages, ..spec };
    machine.start(&spec)?;
    machine.wait_text(&spec.name, "SPLASH stays")?;
    let summary = machine.client().vm(&spec.name)?;
    let bytes = summary.resident.iter().map(|node| node.guest_pages() * 4096).sum();
    machine.client().kill_vm(&spec.name)?;
    machine.end_of(&spec.name)?;
    Ok(bytes)
}
