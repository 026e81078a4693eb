//! A workload under a system: the machine booted, the workload run to its end, the meter read.

use std::path::Path;
use std::process::{Command, Stdio};

use control::VmSpec;

use super::counts::{self, Counts};
use super::kvm;
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
        System::Kvm => (files.kvm(trial, workload)?, String::new()),
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
        let console = self.linux(trial, workload.memory_mib, self.initrd, &workload.cmdline)?;
        check("the bare machine", "it ended", console)?;
        Ok(format!("virt, {} harts, {} MiB", trial.machine.harts(), workload.memory_mib))
    }

    fn kvm(&self, trial: &Trial, workload: &Workload) -> Result<String, LabError> {
        let host = kvm::Host::of(trial, workload, self.initrd, self.dir)?;
        let console = self.linux(trial, host.memory_mib, &host.initrd, &host.cmdline)?;
        let settings = kvm::settings(&console);
        check("the KVM host", "it ended", console)?;
        Ok(format!("virt, {} harts, {} MiB, KVM: {settings}", trial.machine.harts(), host.memory_mib))
    }

    /// Runs the workload's kernel on the machine itself until it powers off; what it said.
    fn linux(&self, trial: &Trial, memory_mib: u32, initrd: &Path, cmdline: &str) -> Result<String, LabError> {
        let console = self.dir.join("console");
        let mut qemu = Command::new("qemu-system-riscv64");
        qemu.args(["-nodefaults", "-display", "none", "-no-reboot"]);
        qemu.args(["-M", "virt,aia=aplic-imsic,aia-guests=7,aclint=on"]);
        qemu.args(["-cpu", "rva23s64", "-smp", &trial.machine.harts().to_string()]);
        if trial.machine.counting {
            qemu.args(["-icount", "shift=0"]);
        }
        qemu.args(["-m", &format!("{memory_mib}M")]);
        qemu.arg("-kernel").arg(self.kernel).arg("-initrd").arg(initrd);
        qemu.args(["-append", &format!("console=ttyS0 {cmdline}")]);
        qemu.args(["-serial", &format!("file:{}", console.display()), "-plugin", &self.plugin]);
        let mut child = qemu.stdin(Stdio::null()).spawn().map_err(LabError::io("qemu-system-riscv64"))?;
        counts::wait(&mut child, WATCHDOG)?;
        Ok(std::fs::read_to_string(&console).unwrap_or_default())
    }

    fn mirrorball(&self, trial: &Trial, workload: &Workload) -> Result<(String, String), LabError> {
        let machine = self.rig(trial)?.boot()?;
        let info = machine.client().machine_info()?;
        let spec = VmSpec {
            ports: Vec::new(),
            rng: false,
            balloon: false,
            ..debian_vm("workload", trial.machine.harts(), workload.memory_mib, INITRD, &workload.cmdline)?
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
