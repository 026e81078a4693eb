//! A workload under a system: the machine booted, the workload run to its end, the meter read.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use control::{DEFAULT_MTU, MachineInfo, NetSpec, VmSpec};
use machine::{BareBoot, BareMachine, ModelFiles, SharedModel};

use super::counts::Counts;
use super::kvm;
use super::marks::Marks;
use crate::plan::{Meter, System, Trial, Workload};
use crate::report::{commit_of, describe};
use crate::rig::{self, Rig, Running, WATCHDOG, debian_vm};
use crate::store::{Measured, Value};
use crate::{LabError, artifacts};

/// The initial file system's module.
const INITRD: &str = "workload.cpio";
/// What connects several VMs.
const SUBNET: &str = "lan";
/// Longest run of a workload: a modelled machine of many harts is slow.
const PATIENCE: u32 = 6;
/// How long the last hart of a machine may take to come, and how often that is looked at.
const HARTS_PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Guests that begin together are told so long before, by the machine's clock: what the host needs to tell them all.
const UNTIL_BEGIN: Duration = Duration::from_secs(20);

/// Runs a workload, and gives what was measured in each phase.
///
/// # Errors
/// [`LabError::Guest`] if it does not run to its end; [`LabError::Unsupported`] for what this machine cannot measure.
pub fn measure(trial: &Trial, workload: &Workload, initrd: &Path, scratch: &Path) -> Result<Measured, LabError> {
    let dir = tempfile::Builder::new().prefix("run-").tempdir_in(scratch).map_err(LabError::io("a directory"))?;
    let run = Run { trial, workload, kernel: workload.kernel.path()?, initrd, dir: dir.path() };
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
            firmware: artifacts::firmware().ok(),
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
        let mut rig = self.rig()?.module(rig::KERNEL, self.kernel.clone())?.module(INITRD, self.initrd.to_owned())?;
        if self.workload.subnet {
            rig = rig.subnet(SUBNET, false)?;
        }
        let machine = rig.boot()?;
        let info = self.with_all_harts(&machine)?;
        let specs = self.specs()?;
        specs.iter().try_for_each(|spec| machine.start(spec))?;
        if specs.len() > 1 {
            self.begin_together(&machine, &specs, info.timebase_hz)?;
        }
        let ends = specs.iter().map(|spec| self.end(&machine, spec)).collect::<Result<Vec<_>, _>>()?;
        if let Some(results) = ends.windows(2).find(|pair| pair[0] != pair[1]) {
            let results = results.join(" and ");
            return Err(self.failed(format!("its VMs have different results: {results}"), String::new()));
        }
        let values = self.values(&ModelFiles::marks(machine.machine().dir().path()))?;
        Ok(Measured { machine: describe(&info), commit: commit_of(&info.monitor.version), values })
    }

    /// The machine once all its harts are there: on a busy host they come late. A firmware that could not start all says nothing
    /// about it, and the work of those would be done by the others.
    fn with_all_harts(&self, machine: &Running) -> Result<MachineInfo, LabError> {
        let begin = Instant::now();
        loop {
            let info = machine.client().machine_info()?;
            let (wanted, online) =
                (usize::from(self.trial.machine.harts()), info.harts.iter().filter(|hart| hart.online).count());
            if online == wanted {
                return Ok(info);
            }
            if begin.elapsed() > HARTS_PATIENCE {
                return Err(self.failed(format!("of the machine's {wanted} harts {online} are online"), String::new()));
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// The VMs: each an equal part of the machine's harts.
    fn specs(&self) -> Result<Vec<VmSpec>, LabError> {
        let Workload { vms, memory_mib, placement, subnet, ref cmdline, .. } = *self.workload;
        let net = NetSpec { subnet: rig::name(SUBNET)?, mac: None, mtu: DEFAULT_MTU };
        let vcpus = self.trial.machine.harts() / vms.max(1);
        let spec = |number: u16| {
            let name = if vms == 1 { "workload".to_owned() } else { format!("workload-{number}") };
            let (nets, cmdline) = match subnet {
                true => (vec![net.clone()], format!("{cmdline} vm={number}")),
                false => (Vec::new(), cmdline.clone()),
            };
            let spec = debian_vm(&name, vcpus, memory_mib, INITRD, &cmdline)?;
            Ok(VmSpec { ports: Vec::new(), rng: false, balloon: false, placement, nets, ..spec })
        };
        (1..=vms).map(spec).collect()
    }

    /// Tells several VMs, when all of them are ready, at which moment of the machine's clock they are to begin.
    fn begin_together(&self, machine: &Running, specs: &[VmSpec], timebase_hz: u64) -> Result<(), LabError> {
        let mut streams = Vec::new();
        for spec in specs {
            let look = || machine.wait_line(&spec.name, "WORKLOAD ");
            let (line, stream) = (1..PATIENCE).find_map(|_| look().ok()).map_or_else(look, Ok)?;
            if line.trim_end() != "WORKLOAD ready" {
                return Err(self.failed(format!("{} was not ready", spec.name), machine.console(&spec.name)?));
            }
            streams.push(stream);
        }
        let look = || SharedModel::of(machine.machine().dir())?.state();
        let now = look().map_err(|error| self.failed(error.to_string(), String::new()))?;
        let ticks = u128::from(now.now_ps) * u128::from(timebase_hz) / 1_000_000_000_000;
        let begin = ticks + u128::from(timebase_hz) * u128::from(UNTIL_BEGIN.as_secs());
        let line = format!("begin {begin}\n");
        Ok(streams.iter().try_for_each(|stream| stream.send_all(line.as_bytes(), WATCHDOG))?)
    }

    /// Waits until a VM has ended well; gives its result.
    fn end(&self, machine: &Running, spec: &VmSpec) -> Result<String, LabError> {
        // As long as the workload needs; the machine's watchdog is for short things.
        for _ in 0..PATIENCE {
            if machine.wait_stopped(&spec.name).is_ok() {
                break;
            }
        }
        let ended = machine.end_of(&spec.name)?;
        let why = ended.summary.reason.as_ref().map_or_else(|| "for no known reason".into(), ToString::to_string);
        self.check(&format!("it stopped: {why}"), ended.console.clone())?;
        let result = ended.console.split_whitespace().find_map(|word| word.strip_prefix("result="));
        Ok(result.unwrap_or_default().to_owned())
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
                phases.iter().flat_map(|phase| marks.values(phase, system, self.workload.vms)).collect()
            }
            Meter::Own => return Err(self.unsupported()),
        })
    }

    /// Refuses a console without `WORKLOAD done`, and one with a `WORKLOAD` line that tells of a failure.
    fn check(&self, end: &str, console: String) -> Result<(), LabError> {
        let mut said = console.lines().filter_map(|line| line.split_once("WORKLOAD ").map(|(_, words)| words));
        if console.contains("WORKLOAD done") && !said.any(|words| words.contains("failed")) {
            return Ok(());
        }
        Err(self.failed(end.to_owned(), console))
    }

    fn failed(&self, reason: String, console: String) -> LabError {
        LabError::Guest { experiment: format!("{} of {}", self.workload.name, self.trial.label()), reason, console }
    }

    fn unsupported(&self) -> LabError {
        let Trial { name, system, meter, .. } = self.trial;
        LabError::Unsupported { trial: name.clone(), system: *system, meter: *meter }
    }
}
