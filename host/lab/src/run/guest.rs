//! A workload under a system: the machine booted, the workload run to its end, the meter read.

use std::path::Path;
use std::process::{Command, Stdio};

use control::VmSpec;

use super::counts::{self, Counts};
use crate::plan::{Artifact, Meter, System, Trial, Workload};
use crate::report::{commit_of, describe};
use crate::rig::{self, Rig, WATCHDOG, debian_vm};
use crate::store::Measured;
use crate::{LabError, artifacts};

/// The workload's kernel.
pub const KERNEL: Artifact = Artifact::Cached("kernel/Image");
/// The initial file system's module.
const INITRD: &str = "workload.cpio";

/// Runs a workload, and gives what was measured in each phase.
///
/// # Errors
/// [`LabError::Guest`] if it does not run to its end; [`LabError::Unsupported`] for what this machine cannot measure.
pub fn measure(trial: &Trial, workload: &Workload, initrd: &Path, dir: &Path) -> Result<Measured, LabError> {
    let out = dir.join("meter");
    let _ = std::fs::remove_file(&out);
    let kernel = KERNEL.path()?;
    let plugin = match trial.meter {
        Meter::Instructions => format!("{},out={}", artifacts::counter()?.display(), out.display()),
        Meter::Model | Meter::Own => return Err(unsupported(trial)),
    };
    let files = Files { kernel: &kernel, initrd, dir, plugin };
    let (machine, commit) = match trial.system {
        System::Bare => (files.bare(trial, workload)?, String::new()),
        System::Mirrorball => files.mirrorball(trial, workload)?,
        System::Kvm => return Err(unsupported(trial)),
    };
    let counts = Counts::read(&out)?;
    let values = workload.phases.iter().flat_map(|phase| counts.values(phase, trial.system)).collect();
    Ok(Measured { machine, commit, values })
}

fn unsupported(trial: &Trial) -> LabError {
    LabError::Unsupported { trial: trial.name.clone(), system: trial.system, meter: trial.meter }
}

struct Files<'a> {
    kernel: &'a Path,
    initrd: &'a Path,
    dir: &'a Path,
    plugin: String,
}

impl Files<'_> {
    fn bare(&self, trial: &Trial, workload: &Workload) -> Result<String, LabError> {
        let console = self.dir.join("console");
        let harts: u16 = trial.machine.nodes.iter().map(|node| node.harts).sum();
        let mut qemu = Command::new("qemu-system-riscv64");
        qemu.args(["-nodefaults", "-display", "none", "-no-reboot", "-M", "virt,aia=aplic-imsic,aclint=on"]);
        qemu.args(["-cpu", "rva23s64", "-smp", &harts.to_string()]);
        if trial.machine.counting {
            qemu.args(["-icount", "shift=0"]);
        }
        qemu.args(["-m", &format!("{}M", workload.memory_mib)]);
        qemu.arg("-kernel").arg(self.kernel).arg("-initrd").arg(self.initrd);
        qemu.args(["-append", &format!("console=ttyS0 {}", workload.cmdline)]);
        qemu.args(["-serial", &format!("file:{}", console.display()), "-plugin", &self.plugin]);
        let mut child = qemu.stdin(Stdio::null()).spawn().map_err(LabError::io("qemu-system-riscv64"))?;
        counts::wait(&mut child, WATCHDOG)?;
        check("the bare machine", "it ended", std::fs::read_to_string(&console).unwrap_or_default())?;
        Ok(format!("virt, {harts} harts, {} MiB", workload.memory_mib))
    }

    fn mirrorball(&self, trial: &Trial, workload: &Workload) -> Result<(String, String), LabError> {
        let machine = self.rig(trial)?.boot()?;
        let info = machine.client().machine_info()?;
        let harts: u16 = trial.machine.nodes.iter().map(|node| node.harts).sum();
        let spec = VmSpec {
            ports: Vec::new(),
            rng: false,
            balloon: false,
            ..debian_vm("workload", harts, workload.memory_mib, INITRD, &workload.cmdline)?
        };
        machine.start(&spec)?;
        // As long as the marks need; the machine's watchdog is for short things.
        for _ in 0..4 {
            if machine.wait_stopped(&spec.name).is_ok() {
                break;
            }
        }
        let ended = machine.end_of(&spec.name)?;
        check("the VM", &format!("it stopped with {:?}", ended.summary.reason), ended.console)?;
        Ok((describe(&info), commit_of(&info.monitor.version)))
    }

    fn rig(&self, trial: &Trial) -> Result<Rig, LabError> {
        let plugin = ["-plugin".to_owned(), self.plugin.clone()];
        let rig = Rig::of("bench", &trial.machine)?.hardware(|hardware| hardware.qemu_args.extend(plugin));
        rig.module(rig::KERNEL, self.kernel.to_owned())?.module(INITRD, self.initrd.to_owned())
    }
}

/// Did the workload run to its end?
fn check(whose: &str, end: &str, console: String) -> Result<(), LabError> {
    if console.contains("WORKLOAD done") && !console.contains("failed") {
        return Ok(());
    }
    Err(LabError::Guest { experiment: whose.to_owned(), reason: end.to_owned(), console })
}
