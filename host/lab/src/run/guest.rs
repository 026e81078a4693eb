//! A workload under a system: the machine booted, the workload run to its end, the meter read.

use std::path::{Path, PathBuf};

use control::VmSpec;
use machine::{BareBoot, BareMachine, ModelFiles};

use super::counts::Counts;
use super::kvm;
use super::marks::Marks;
use crate::plan::{Artifact, Meter, System, Trial, Workload};
use crate::report::{commit_of, describe};
use crate::rig::{self, Rig, WATCHDOG, debian_vm};
use crate::store::{Measured, Value};
use crate::{LabError, artifacts};

/// The workload's kernel.
pub const KERNEL: Artifact = Artifact::Cached("kernel/Image");
/// The initial file system's module.
const INITRD: &str = "workload.cpio";
/// Longest run of a workload: a modelled machine of many harts is slow.
const PATIENCE: u32 = 6;

/// Runs a workload, and gives what was measured in each phase.
///
/// # Errors
/// [`LabError::Guest`] if it does not run to its end; [`LabError::Unsupported`] for what this machine cannot measure.
pub fn measure(trial: &Trial, workload: &Workload, initrd: &Path, scratch: &Path) -> Result<Measured, LabError> {
    let dir = tempfile::Builder::new().prefix("run-").tempdir_in(scratch).map_err(LabError::io("a directory"))?;
    let run = Run { trial, workload, kernel: KERNEL.path()?, initrd, dir: dir.path() };
    match trial.system {
        System::Bare => run.on_linux(&workload.cmdline),
        System::Mirrorball => run.mirrorball(),
        System::Kvm => run.on_linux(&kvm::cmdline(trial, workload)?),
    }
}

struct Run<'a> {
    trial: &'a Trial,
    workload: &'a Workload,
    kernel: PathBuf,
    initrd: &'a Path,
    dir: &'a Path,
}

impl Run<'_> {
    /// On a kernel that runs on the machine itself: the workload's own, or the KVM host's.
    fn on_linux(&self, cmdline: &str) -> Result<Measured, LabError> {
        let hardware = self.rig()?.into_hardware();
        let boot = BareBoot {
            kernel: self.kernel.clone(),
            initrd: Some(self.initrd.to_owned()),
            cmdline: format!("console=ttyS0 {cmdline}"),
            dir: self.dir.to_owned(),
            plugin: artifacts::numa_plugin().ok(),
            firmware: None,
            faults: Vec::new(),
        };
        let machine = BareMachine::launch(&hardware, &boot)?;
        let ended = (0..PATIENCE).any(|_| machine.wait_timeout(WATCHDOG).is_some());
        machine.kill();
        let (spec, console) = (&self.trial.machine, machine.console());
        let mut text = format!("virt: {} nodes, {} harts, {} MiB", spec.nodes.len(), spec.harts(), spec.memory_mib());
        if let Some(settings) = kvm::settings(&console) {
            text.push_str(&format!(", KVM: {settings}"));
        }
        self.check(if ended { "it ended" } else { "it still ran when time was up" }, console)?;
        Ok(Measured { machine: text, commit: String::new(), values: self.values(&machine.marks())? })
    }

    fn mirrorball(&self) -> Result<Measured, LabError> {
        let rig = self.rig()?.module(rig::KERNEL, self.kernel.clone())?.module(INITRD, self.initrd.to_owned())?;
        let machine = rig.boot()?;
        let info = machine.client().machine_info()?;
        let (vcpus, memory) = (self.trial.machine.harts(), self.workload.memory_mib);
        let spec = VmSpec {
            ports: Vec::new(),
            rng: false,
            balloon: false,
            placement: self.workload.placement,
            ..debian_vm("workload", vcpus, memory, INITRD, &self.workload.cmdline)?
        };
        machine.start(&spec)?;
        // As long as the workload needs; the machine's watchdog is for short things.
        for _ in 0..PATIENCE {
            if machine.wait_stopped(&spec.name).is_ok() {
                break;
            }
        }
        let ended = machine.end_of(&spec.name)?;
        self.check(&format!("it stopped with {:?}", ended.summary.reason), ended.console)?;
        let values = self.values(&ModelFiles::marks(machine.machine().dir().path()))?;
        Ok(Measured { machine: describe(&info), commit: commit_of(&info.monitor.version), values })
    }

    /// The trial's machine with the meter in it.
    fn rig(&self) -> Result<Rig, LabError> {
        let rig = Rig::of("bench", self.trial)?;
        match self.trial.meter {
            Meter::Instructions => {
                let plugin = format!("{},out={}", artifacts::counter()?.display(), self.counts().display());
                Ok(rig.hardware(|hardware| hardware.qemu_args.extend(["-plugin".to_owned(), plugin])))
            }
            Meter::Model => Ok(rig),
            Meter::Own => Err(self.unsupported()),
        }
    }

    fn counts(&self) -> PathBuf {
        self.dir.join("counts")
    }

    /// What the meter says of every phase.
    fn values(&self, marks: &Path) -> Result<Vec<Value>, LabError> {
        let (phases, system) = (&self.workload.phases, self.trial.system);
        Ok(match self.trial.meter {
            Meter::Instructions => {
                let counts = Counts::read(&self.counts())?;
                phases.iter().flat_map(|phase| counts.values(phase, system)).collect()
            }
            Meter::Model => {
                let marks = Marks::read(marks)?;
                phases.iter().flat_map(|phase| marks.values(phase, system)).collect()
            }
            Meter::Own => return Err(self.unsupported()),
        })
    }

    /// Did the workload run to its end?
    fn check(&self, end: &str, console: String) -> Result<(), LabError> {
        let mut said = console.lines().filter_map(|line| line.split_once("WORKLOAD ").map(|(_, words)| words));
        if console.contains("WORKLOAD done") && !said.any(|words| words.contains("failed")) {
            return Ok(());
        }
        let experiment = format!("{} of {}", self.workload.name, self.trial.label());
        Err(LabError::Guest { experiment, reason: end.to_owned(), console })
    }

    fn unsupported(&self) -> LabError {
        let Trial { name, system, meter, .. } = self.trial;
        LabError::Unsupported { trial: name.clone(), system: *system, meter: *meter }
    }
}
