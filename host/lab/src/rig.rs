//! A small emulated machine for one experiment or test: described in code, booted, watched, taken down.

use std::path::{Path, PathBuf};
use std::time::Duration;

use config::{
    Backing, DiskPlan, Firmware, Hardware, ImageFormat, MachineInterrupts, MachinePlan, ModuleFile, NodePlan, OnPanic,
    Reach,
};
use control::{
    Boot, BootConfig, CellSpec, Event, EventKind, Label, MachineStats, Name, StreamData, SubnetSpec, VmSpec, VmState,
    VmStats, VmSummary,
};
use machine::{Client, LaunchOptions, Machine, RunRoot, Stream};
use tempfile::TempDir;

use crate::plan::Trial;
use crate::{LabError, artifacts};

/// The probe guest's module.
pub const PROBE: &str = "probe";
/// The Debian kernel's module.
pub const KERNEL: &str = "kernel";

/// Longest wait for anything that takes a moment: only a watchdog, machines of many harts are slow.
pub const WATCHDOG: Duration = Duration::from_secs(600);

/// A machine to be.
#[derive(Clone, Debug)]
pub struct Rig {
    plan: MachinePlan,
}

impl Rig {
    /// A machine of one node: AIA with seven guest files, the CPU without hardware A/D updates.
    ///
    /// # Errors
    /// [`LabError::BadName`].
    pub fn new(machine: &str, harts: u16, memory_mib: u32) -> Result<Self, LabError> {
        let name = name(machine)?;
        let hardware = Hardware {
            cpu: "rva23s64".into(),
            interrupts: MachineInterrupts::Aia { guest_files: 7 },
            nodes: vec![NodePlan { harts, memory_mib }],
            distances: None,
            disks: Vec::new(),
            uplink: None,
            icount: false,
            model: None,
            firmware: Firmware::OpenSbi,
            qemu: None,
            monitor: None,
            qemu_args: Vec::new(),
        };
        let boot = BootConfig::new(name.clone());
        let file = PathBuf::from(format!("{machine}.toml"));
        Ok(Self {
            plan: MachinePlan {
                name,
                file,
                hardware,
                boot,
                modules: Vec::new(),
                warnings: Vec::new(),
                grants: Vec::new(),
                on_panic: OnPanic::Stop,
            },
        })
    }

    /// The machine of a trial.
    ///
    /// # Errors
    /// [`LabError::BadName`].
    pub fn of(machine: &str, trial: &Trial) -> Result<Self, LabError> {
        Ok(Self::new(machine, 1, 0)?.hardware(|hardware| trial.machine.apply(hardware, trial.seed)))
    }

    /// The emulated machine alone, without the monitor.
    #[must_use]
    pub fn into_hardware(self) -> Hardware {
        self.plan.hardware
    }

    /// Another hardware than usual.
    #[must_use]
    pub fn hardware(mut self, change: impl FnOnce(&mut Hardware)) -> Self {
        change(&mut self.plan.hardware);
        self
    }

    /// The CPU that machine files have by default. With it a guest need not fence when it maps a page: each fence empties the
    /// emulator's whole TLB, and a compiler takes three times as long. For where it counts what guests do, not what it costs.
    #[must_use]
    pub fn sparing_fences(self) -> Self {
        self.hardware(|hardware| hardware.cpu = config::DEFAULT_CPU.into())
    }

    /// Another monitor than usual.
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(&mut control::MonitorOptions)) -> Self {
        change(&mut self.plan.boot.options);
        self
    }

    /// Time counts instructions: repeatable, one host thread for all harts.
    #[must_use]
    pub fn counting(self) -> Self {
        self.hardware(|hardware| hardware.icount = true)
    }

    /// Another node.
    #[must_use]
    pub fn node(self, harts: u16, memory_mib: u32) -> Self {
        self.hardware(|hardware| hardware.nodes.push(NodePlan { harts, memory_mib }))
    }

    /// Cells; without any all nodes are one.
    #[must_use]
    pub fn cells(mut self, cells: Vec<CellSpec>) -> Self {
        self.plan.boot.cells = cells;
        self
    }

    /// A disk behind a raw image that is never written.
    ///
    /// # Errors
    /// [`LabError::BadName`].
    pub fn image(mut self, disk: &str, path: PathBuf) -> Result<Self, LabError> {
        let backing = Backing::File { path, format: ImageFormat::Raw };
        self.plan.hardware.disks.push(DiskPlan { name: name(disk)?, backing, read_only: true, model: None });
        Ok(self)
    }

    /// An empty disk that goes with the machine.
    ///
    /// # Errors
    /// [`LabError::BadName`].
    pub fn scratch(mut self, disk: &str, size_mib: u32) -> Result<Self, LabError> {
        let backing = Backing::Scratch { size_mib };
        self.plan.hardware.disks.push(DiskPlan { name: name(disk)?, backing, read_only: false, model: None });
        Ok(self)
    }

    /// A subnet; with a gateway the machine gets a network card, which leads nowhere unless [`Rig::reach_host`] opens it.
    ///
    /// # Errors
    /// [`LabError::BadName`].
    pub fn subnet(mut self, subnet: &str, gateway: bool) -> Result<Self, LabError> {
        if gateway {
            self.plan.hardware.uplink.get_or_insert_default();
        }
        self.plan.boot.subnets.push(SubnetSpec { name: name(subnet)?, gateway });
        Ok(self)
    }

    /// VMs reach this host and what it reaches, through a subnet with a gateway.
    #[must_use]
    pub fn reach_host(self) -> Self {
        self.hardware(|hardware| hardware.uplink.get_or_insert_default().reach = Reach::Host)
    }

    /// A file that VMs can boot.
    ///
    /// # Errors
    /// [`LabError::BadName`], or the file cannot be read.
    pub fn module(mut self, module: &str, path: PathBuf) -> Result<Self, LabError> {
        let size = std::fs::metadata(&path).map_err(LabError::io(path.display().to_string()))?;
        self.plan.modules.push(ModuleFile { label: label(module)?, path, bytes: size.len() });
        Ok(self)
    }

    /// The probe guest as a module.
    ///
    /// # Errors
    /// As [`Rig::module`]; [`LabError::Missing`].
    pub fn with_probe(self) -> Result<Self, LabError> {
        self.module(PROBE, artifacts::probe()?)
    }

    /// The Debian kernel and one of the initial file systems, under its own name, as modules.
    ///
    /// # Errors
    /// As [`Rig::module`]; [`LabError::Missing`].
    pub fn with_debian(self, initrd: &str) -> Result<Self, LabError> {
        let initrd_file = artifacts::cached(&format!("kernel/{initrd}"))?;
        self.module(KERNEL, artifacts::cached("kernel/Image")?)?.module(initrd, initrd_file)
    }

    /// A VM that the monitor makes when it boots.
    #[must_use]
    pub fn vm(mut self, spec: VmSpec) -> Self {
        self.plan.boot.vms.push(spec);
        self
    }

    /// What the launcher is told.
    #[must_use]
    pub fn into_plan(self) -> MachinePlan {
        self.plan
    }

    /// Boots the machine and waits for its monitor.
    ///
    /// # Errors
    /// [`LabError::Launch`] with the last lines of the machine's log.
    pub fn boot(self) -> Result<Running, LabError> {
        let dir = tempfile::Builder::new().prefix("mb-").tempdir().map_err(LabError::io("a temporary directory"))?;
        let options = launch_options(dir.path())?;
        let machine = Machine::launch(&self.plan, &options, |_| {})?;
        let client = machine.client()?.with_timeout(WATCHDOG);
        Ok(Running { client, machine, _dir: dir })
    }
}

/// How to launch a machine of this tree, with its run directory in `dir`.
///
/// # Errors
/// [`LabError::Missing`] if the monitor has not been built.
pub fn launch_options(dir: &Path) -> Result<LaunchOptions, LabError> {
    Ok(LaunchOptions {
        root: RunRoot::at(dir.join("run")),
        monitor: Some(artifacts::monitor()?),
        plugin: artifacts::numa_plugin().ok(),
        firmware: artifacts::firmware().ok(),
        boot_timeout: WATCHDOG,
    })
}

/// A VM that runs the probe guest, with nothing but an entropy device and a balloon.
///
/// # Errors
/// [`LabError::BadName`].
pub fn probe_vm(vm: &str, vcpus: u16, memory_mib: u32, cmdline: &str) -> Result<VmSpec, LabError> {
    let boot = Boot::Kernel { kernel: label(PROBE)?, initrd: None, cmdline: cmdline.to_owned() };
    let mut spec = VmSpec::new(name(vm)?, vcpus, memory_mib, boot);
    spec.ports = Vec::new();
    spec.autostart = false;
    Ok(spec)
}

/// A VM that runs Debian's kernel with this initial file system.
///
/// # Errors
/// [`LabError::BadName`].
pub fn debian_vm(vm: &str, vcpus: u16, memory_mib: u32, initrd: &str, cmdline: &str) -> Result<VmSpec, LabError> {
    let boot = Boot::Kernel {
        kernel: label(KERNEL)?,
        initrd: Some(label(initrd)?),
        cmdline: format!("console=ttyS0 {cmdline}"),
    };
    let mut spec = VmSpec::new(name(vm)?, vcpus, memory_mib, boot);
    spec.autostart = false;
    // Experiments tell what guests take, on machines that could not keep all that they may take.
    spec.promised_mib = Some(0);
    Ok(spec)
}

/// A name of a VM, disk, subnet or machine.
///
/// # Errors
/// [`LabError::BadName`].
pub fn name(text: &str) -> Result<Name, LabError> {
    Name::new(text).map_err(|_| LabError::BadName { text: text.to_owned() })
}

/// A name of a module or port.
///
/// # Errors
/// [`LabError::BadName`].
pub fn label(text: &str) -> Result<Label, LabError> {
    Label::new(text).map_err(|_| LabError::BadName { text: text.to_owned() })
}

/// A running machine. Dropping it takes its power.
#[derive(Debug)]
pub struct Running {
    client: Client,
    machine: Machine,
    /// Goes last: the machine's files are in it.
    _dir: TempDir,
}

/// A test that fails wants to know what the machine said.
impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log_end());
        }
    }
}

/// What became of a VM that was run to its end.
#[derive(Clone, Debug)]
pub struct Ended {
    /// How it ended.
    pub summary: VmSummary,
    /// Its counters, over its whole life.
    pub stats: VmStats,
    /// What it said.
    pub console: String,
}

impl Running {
    /// A session with the machine.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// The machine itself.
    #[must_use]
    pub const fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The machine's own log.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.machine.dir().monitor_log()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Creates and starts a VM.
    ///
    /// # Errors
    /// [`LabError::Client`].
    pub fn start(&self, spec: &VmSpec) -> Result<(), LabError> {
        self.client.create_vm(spec.clone())?;
        Ok(self.client.start_vm(&spec.name)?)
    }

    /// Waits until a VM has stopped.
    ///
    /// # Errors
    /// [`LabError::Wait`] if it goes on for ever.
    pub fn wait_stopped(&self, vm: &Name) -> Result<VmSummary, LabError> {
        let stopped = |vm: &VmSummary| vm.state == VmState::Stopped && vm.reason.is_some();
        machine::wait_for_vm(&self.client, vm, WATCHDOG, stopped).map_err(|error| self.wait_error(error, vm))
    }

    /// Waits until a VM's console has shown a text; gives all that it has shown.
    ///
    /// # Errors
    /// [`LabError::Wait`] if it does not.
    pub fn wait_text(&self, vm: &Name, text: &str) -> Result<String, LabError> {
        let (_, stream) = self.client.console(vm, 0)?;
        let mut seen = Vec::new();
        machine::wait_for_text(&stream, text, WATCHDOG, &mut seen).map_err(|error| self.wait_error(error, vm))?;
        Ok(String::from_utf8_lossy(&seen).into_owned())
    }

    /// Waits until a VM's console has shown a whole line with this text in it; gives the line from there on, and the console, to
    /// answer.
    ///
    /// # Errors
    /// [`LabError::Wait`] if it does not.
    pub fn wait_line(&self, vm: &Name, text: &str) -> Result<(String, Stream), LabError> {
        let (_, stream) = self.client.console(vm, 0)?;
        let mut seen = Vec::new();
        let found = machine::wait_for_text(&stream, text, WATCHDOG, &mut seen);
        found.map_err(|error| self.wait_error(error, vm))?;
        let at = seen.windows(text.len()).position(|window| window == text.as_bytes()).unwrap_or(0);
        let mut line = seen.split_off(at);
        let found = machine::wait_for_text(&stream, "\n", WATCHDOG, &mut line);
        found.map_err(|error| self.wait_error(error, vm))?;
        let line = String::from_utf8_lossy(&line).lines().next().unwrap_or_default().to_owned();
        Ok((line, stream))
    }

    /// What a VM's console has shown so far, as far as it is kept.
    ///
    /// # Errors
    /// [`LabError::Client`].
    pub fn console(&self, vm: &Name) -> Result<String, LabError> {
        let (range, stream) = self.client.console(vm, 0)?;
        let mut text = Vec::new();
        let mut next = range.first;
        while next < range.end {
            if let StreamData::Console { offset, bytes } = stream.recv()? {
                next = offset + bytes.len() as u64;
                text.extend(bytes);
            }
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Runs a VM to its end.
    ///
    /// # Errors
    /// [`LabError::Client`] or [`LabError::Wait`].
    pub fn run(&self, spec: &VmSpec) -> Result<Ended, LabError> {
        self.start(spec)?;
        self.end_of(&spec.name)
    }

    /// Waits for a VM's end, tells what became of it, and forgets it.
    ///
    /// # Errors
    /// [`LabError::Client`] or [`LabError::Wait`].
    pub fn end_of(&self, vm: &Name) -> Result<Ended, LabError> {
        let summary = self.wait_stopped(vm)?;
        let stats = self.client.vm_stats(vm)?;
        let console = self.console(vm)?;
        self.client.destroy_vm(vm)?;
        Ok(Ended { summary, stats, console })
    }

    /// All events that are kept.
    ///
    /// # Errors
    /// [`LabError::Client`].
    pub fn events(&self) -> Result<Vec<Event>, LabError> {
        let (mut all, mut from) = (Vec::new(), 0);
        loop {
            let batch = self.client.events(from)?;
            if batch.events.is_empty() {
                return Ok(all);
            }
            from = batch.next;
            all.extend(batch.events);
        }
    }

    /// Pages (4 KiB) that did not come back from VMs that ended: a fault of the monitor if not 0.
    ///
    /// # Errors
    /// [`LabError::Client`].
    pub fn lost_pages(&self) -> Result<u64, LabError> {
        let lost = |event: Event| match event.kind {
            EventKind::PagesLost { pages } => pages,
            _ => 0,
        };
        Ok(self.events()?.into_iter().map(lost).sum())
    }

    /// Counters of the machine.
    ///
    /// # Errors
    /// [`LabError::Client`].
    pub fn stats(&self) -> Result<MachineStats, LabError> {
        Ok(self.client.machine_stats()?)
    }

    /// Free memory of all nodes, in bytes.
    ///
    /// # Errors
    /// [`LabError::Client`].
    pub fn free_bytes(&self) -> Result<u64, LabError> {
        Ok(self.stats()?.nodes.iter().map(|node| node.free_bytes).sum())
    }

    fn wait_error(&self, error: machine::WaitError, vm: &Name) -> LabError {
        let console = self.console(vm).unwrap_or_default();
        LabError::Wait { error, log: format!("{}\nthe console of {vm}:\n{console}", self.log_end()) }
    }

    fn log_end(&self) -> String {
        const LINES: usize = 12;
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        format!("the machine's log ends with:\n{}", lines[lines.len().saturating_sub(LINES)..].join("\n"))
    }
}
