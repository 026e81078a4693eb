//! Starting the emulated machine and watching it.

use std::fs::{self, File};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::{Backing, Firmware, Hardware, MachinePlan};
use control::ServerHello;
use thiserror::Error;

use crate::bundle::{BundleError, write_bundle};
use crate::client::{Client, ClientError};
use crate::emulator::tree::{self, Topology, TreeError};
use crate::emulator::{Emulator, EmulatorError, FaultWiring, Payload, Process, Wiring, arguments};
use crate::faults::FaultError;
use crate::logs::{Logs, logs};
use crate::model::{ModelFiles, ModelStartError, check_emulator};
use crate::panics::panic_in;
use crate::ram::SharedRam;
use crate::rundir::{Claim, Phase, RunDir, RunDirError, RunRoot, State};
use crate::supervisor::{Limits, Supervisor, SupervisorError};

/// How a machine is to be started.
#[derive(Clone, Debug)]
pub struct LaunchOptions {
    /// Where its run directory is made.
    pub root: RunRoot,
    /// The monitor's image, where the machine file names none.
    pub monitor: Option<PathBuf>,
    /// The machine model's plugin, for machines with a model.
    pub plugin: Option<PathBuf>,
    /// The fault firmware's image, for machines whose hardware can fail.
    pub firmware: Option<PathBuf>,
    /// How long the monitor may take to answer.
    pub boot_timeout: Duration,
}

impl Default for LaunchOptions {
    fn default() -> Self {
        Self {
            root: RunRoot::from_env(),
            monitor: None,
            plugin: None,
            firmware: None,
            boot_timeout: Duration::from_secs(120),
        }
    }
}

/// A step of the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The emulator was found.
    Emulator {
        /// Its program.
        program: PathBuf,
        /// Its version.
        version: String,
    },
    /// The boot bundle was written.
    Bundle {
        /// Its size in bytes.
        bytes: u64,
    },
    /// The emulator runs.
    Started {
        /// Its process id.
        pid: u32,
    },
    /// The monitor answers.
    Ready {
        /// Who it is.
        hello: ServerHello,
    },
}

/// Why a machine did not start.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// The emulator cannot be used.
    #[error(transparent)]
    Emulator(#[from] EmulatorError),
    /// Its run directory cannot be used.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// The boot bundle cannot be written.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// Nobody named the monitor's image.
    #[error("no monitor image is found: run `./x build` in the source tree of Mirrorball, or name one with --monitor")]
    NoMonitor,
    /// The monitor's image is not there.
    #[error(
        "there is no monitor image {path}: run `./x build` in the source tree of Mirrorball, or name one with --monitor"
    )]
    MissingMonitor {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A file that the machine boots is not there.
    #[error("there is no file {path}")]
    MissingFile {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The fault firmware is not there.
    #[error(
        "the fault firmware firmware.bin is not built: run `./x build` in the source tree of Mirrorball, or leave out firmware = \"faults\""
    )]
    NoFirmware,
    /// The machine model cannot be had.
    #[error(transparent)]
    Model(#[from] ModelStartError),
    /// The emulator's device tree cannot be had or changed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The first faults cannot be told to the firmware.
    #[error(transparent)]
    Faults(#[from] FaultError),
    /// A file or socket operation failed.
    #[error("{path}: {source}")]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The emulator ended before the monitor answered.
    #[error("the emulator ended before the monitor answered ({status}){logs}")]
    Died {
        /// How it ended.
        status: ExitStatus,
        /// What was said last.
        logs: Box<Logs>,
    },
    /// The monitor did not answer as it should.
    #[error("{cause}{logs}")]
    Monitor {
        /// What went wrong.
        cause: SupervisorError,
        /// What was said last.
        logs: Box<Logs>,
    },
}

/// How a machine ended.
#[derive(Debug)]
pub struct Outcome {
    /// How the emulator ended.
    pub status: ExitStatus,
    /// What was said last.
    pub logs: Logs,
    /// How the monitor panicked, if it did.
    pub panic: Option<String>,
}

impl Outcome {
    fn of(status: ExitStatus, dir: &RunDir) -> Self {
        Self { status, logs: logs(dir), panic: panic_in(&dir.monitor_log()) }
    }

    /// Whether the machine was powered off, rather than failed. OpenSBI does not tell the emulator that a power-off is a failure.
    #[must_use]
    pub fn is_orderly(&self) -> bool {
        self.status.success() && self.panic.is_none()
    }
}

/// A running machine, supervised by this process. Dropping it takes its power.
#[derive(Debug)]
pub struct Machine {
    // Dropped in this order: clients are told, the emulator ends, the directory is released.
    supervisor: Supervisor,
    process: Process,
    exit: Receiver<First>,
    /// Holds the machine's RAM where the model reads it.
    _model: Option<ModelFiles>,
    /// The same for faults.
    _faults: Option<FaultFiles>,
    claim: Claim,
}

impl Machine {
    /// Starts the machine and waits until its monitor answers. `on_step` is told how far it is.
    ///
    /// # Errors
    /// Says what is missing, or what emulator and monitor said before they failed.
    pub fn launch(
        plan: &MachinePlan,
        options: &LaunchOptions,
        mut on_step: impl FnMut(Step),
    ) -> Result<Self, LaunchError> {
        // Both are looked for before a directory is made.
        Emulator::find(plan.hardware.qemu.as_deref())?;
        monitor_image(plan, options)?;
        Self::launch_in(options.root.claim(&plan.name)?, plan, options, &mut on_step)
    }

    /// Starts it again, after it has ended: with its disks that last, and the VMs that begin with it. Nobody else gets its run directory
    /// meanwhile; its log so far is [`RunDir::crash_log`] then.
    ///
    /// # Errors
    /// As [`Machine::launch`].
    pub fn restart(
        self,
        plan: &MachinePlan,
        options: &LaunchOptions,
        mut on_step: impl FnMut(Step),
    ) -> Result<Self, LaunchError> {
        let Self { supervisor, process, exit, _model, _faults, claim } = self;
        // In the order in which dropping the whole would.
        drop((supervisor, process, exit, _model, _faults));
        claim.renew()?;
        Self::launch_in(claim, plan, options, &mut on_step)
    }

    fn launch_in(
        claim: Claim,
        plan: &MachinePlan,
        options: &LaunchOptions,
        on_step: &mut dyn FnMut(Step),
    ) -> Result<Self, LaunchError> {
        let emulator = Emulator::find(plan.hardware.qemu.as_deref())?;
        on_step(Step::Emulator { program: emulator.program.clone(), version: emulator.version.to_string() });
        let monitor = monitor_image(plan, options)?;
        let dir = claim.dir().clone();
        let mut model = model_files(&plan.hardware, &emulator, options.plugin.as_deref(), dir.path())?;
        on_step(Step::Bundle { bytes: write_bundle(plan, &dir.bundle())? });
        let faults = fault_files(&plan.hardware, options.firmware.as_deref(), model.as_ref(), dir.path())?;
        let wiring = wiring(monitor, &dir, model.as_ref(), faults.as_ref());
        make_disks(&plan.hardware, &wiring, model.as_mut())?;
        let link_listener = listen(&dir.qemu_socket())?;
        let clients = listen(&dir.control_socket())?;
        let (sender, exit) = channel();
        let exited = sender.clone();
        let on_exit = move |status| drop(exited.send(First::Exited(status)));
        let process = start_emulator(&emulator, &plan.hardware, &wiring, &dir.qemu_log(), on_exit)?;
        on_step(Step::Started { pid: process.pid() });
        let mut state = first_state(plan, process.pid());
        claim.publish(&state)?;
        let link = connect(link_listener, sender, &exit, &dir)?;
        let started = Supervisor::start(link, clients, Limits::default(), options.boot_timeout, || {});
        let supervisor = started.map_err(|cause| failure(cause, &exit, &dir))?;
        state.phase = Phase::Running;
        claim.publish(&state)?;
        on_step(Step::Ready { hello: supervisor.hello().clone() });
        Ok(Self { supervisor, process, exit, _model: model, _faults: faults, claim })
    }

    /// Its run directory.
    #[must_use]
    pub const fn dir(&self) -> &RunDir {
        self.claim.dir()
    }

    /// Who its monitor is.
    #[must_use]
    pub const fn hello(&self) -> &ServerHello {
        self.supervisor.hello()
    }

    /// A session with it, as any other process would have.
    ///
    /// # Errors
    /// As [`Client::connect_to`].
    pub fn client(&self) -> Result<Client, ClientError> {
        Client::connect_to(self.dir())
    }

    /// Waits until the machine has ended.
    #[must_use]
    pub fn wait(self) -> Outcome {
        // The waiting thread always sends before it ends.
        let status = next_exit(&self.exit, None).unwrap_or_default();
        Outcome::of(status, self.dir())
    }

    /// Waits until the machine has ended, at most so long; `None` if it still runs.
    #[must_use]
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Outcome> {
        let status = next_exit(&self.exit, Some(timeout))?;
        Some(Outcome::of(status, self.dir()))
    }

    /// Takes its power at once.
    pub fn kill(&self) {
        self.process.kill();
    }
}

/// What may happen first after the emulator was started.
#[derive(Debug)]
enum First {
    Connected(UnixStream),
    Exited(ExitStatus),
}

fn monitor_image(plan: &MachinePlan, options: &LaunchOptions) -> Result<PathBuf, LaunchError> {
    let path = plan.hardware.monitor.clone().or_else(|| options.monitor.clone()).ok_or(LaunchError::NoMonitor)?;
    if path.is_file() { Ok(path) } else { Err(LaunchError::MissingMonitor { path }) }
}

/// What a machine with the fault firmware is started with. Its RAM lives as long as this, or as the emulator.
#[derive(Debug)]
pub struct FaultFiles {
    /// How the emulator is told.
    pub wiring: FaultWiring,
    /// The machine's RAM, unless its model has it.
    _ram: Option<SharedRam>,
}

/// The fault firmware, if the machine has it, and RAM through which it is reached.
pub fn fault_files(
    hardware: &Hardware,
    firmware: Option<&Path>,
    model: Option<&ModelFiles>,
    dir: &Path,
) -> Result<Option<FaultFiles>, LaunchError> {
    if hardware.firmware != Firmware::Faults {
        return Ok(None);
    }
    let firmware = firmware.filter(|path| path.is_file()).ok_or(LaunchError::NoFirmware)?.to_owned();
    let ram = match model {
        Some(_) => None,
        None => {
            Some(SharedRam::make(hardware, dir).map_err(|source| LaunchError::Io { path: dir.to_owned(), source })?)
        }
    };
    let path = model.map(|model| model.wiring().ram.clone()).or_else(|| Some(ram.as_ref()?.path().to_owned()));
    Ok(path.map(|path| FaultFiles { wiring: FaultWiring { firmware, ram: path }, _ram: ram }))
}

/// The files of the machine's model, if it has one; checked before anything starts.
pub fn model_files(
    hardware: &Hardware,
    emulator: &Emulator,
    plugin: Option<&Path>,
    dir: &Path,
) -> Result<Option<ModelFiles>, LaunchError> {
    let Some(plan) = &hardware.model else {
        return match hardware.disks.iter().find(|disk| disk.model.is_some()) {
            Some(disk) => Err(ModelStartError::DiskAlone { name: disk.name.clone() }.into()),
            None => Ok(None),
        };
    };
    check_emulator(emulator)?;
    Ok(Some(ModelFiles::prepare(plan, hardware, plugin, dir)?))
}

fn wiring(monitor: PathBuf, dir: &RunDir, model: Option<&ModelFiles>, faults: Option<&FaultFiles>) -> Wiring {
    Wiring {
        payload: Payload::Monitor { image: monitor, bundle: dir.bundle(), control: dir.qemu_socket() },
        log: dir.monitor_log(),
        scratch: dir.path().to_owned(),
        model: model.map(|files| files.wiring().clone()),
        faults: faults.map(|files| files.wiring.clone()),
    }
}

/// Makes what the disks need before the emulator looks for it.
pub fn make_disks(hardware: &Hardware, wiring: &Wiring, model: Option<&mut ModelFiles>) -> Result<(), LaunchError> {
    make_scratch_disks(hardware, wiring)?;
    match model {
        Some(files) => Ok(files.serve_disks(hardware, wiring)?),
        None => Ok(()),
    }
}

/// Sparse files: what is never written takes no room.
fn make_scratch_disks(hardware: &Hardware, wiring: &Wiring) -> Result<(), LaunchError> {
    for disk in &hardware.disks {
        if let Backing::Scratch { size_mib } = disk.backing {
            let path = wiring.scratch_disk(disk);
            let made = File::create(&path).and_then(|file| file.set_len(u64::from(size_mib) << 20));
            made.map_err(|source| LaunchError::Io { path, source })?;
        }
    }
    Ok(())
}

fn listen(path: &Path) -> Result<UnixListener, LaunchError> {
    UnixListener::bind(path).map_err(|source| LaunchError::Io { path: path.to_owned(), source })
}

/// Starts the emulator's process, with what it says in `log`.
pub fn start_emulator(
    emulator: &Emulator,
    hardware: &Hardware,
    wiring: &Wiring,
    log: &Path,
    on_exit: impl FnOnce(ExitStatus) + Send + 'static,
) -> Result<Process, LaunchError> {
    let mut arguments = arguments(hardware, wiring);
    if hardware.nodes.len() > tree::MOST_SOCKETS {
        let path = wiring.scratch.join("machine.dtb");
        let blob = Topology::of(hardware).write_into(&tree::of_emulator(emulator, &arguments, &path)?)?;
        fs::write(&path, blob).map_err(|source| LaunchError::Io { path: path.clone(), source })?;
        arguments.extend(["-dtb".into(), path.into()]);
    }
    Process::start(&emulator.program, &arguments, log, on_exit)
        .map_err(|source| LaunchError::Emulator(EmulatorError::Unusable { program: emulator.program.clone(), source }))
}

fn first_state(plan: &MachinePlan, emulator_pid: u32) -> State {
    State {
        name: plan.name.clone(),
        supervisor_pid: std::process::id(),
        emulator_pid: Some(emulator_pid),
        config: plan.file.canonicalize().ok(),
        started_unix: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        phase: Phase::Booting,
        can_fail: plan.hardware.firmware == Firmware::Faults,
        counts_instructions: plan.hardware.icount,
    }
}

/// Waits until the emulator connects the control port, or ends.
fn connect(
    listener: UnixListener,
    sender: Sender<First>,
    first: &Receiver<First>,
    dir: &RunDir,
) -> Result<UnixStream, LaunchError> {
    let accept = move || {
        if let Ok((link, _)) = listener.accept() {
            let _ = sender.send(First::Connected(link));
        }
    };
    let path = dir.qemu_socket();
    thread::Builder::new()
        .name("link-acceptor".into())
        .spawn(accept)
        .map_err(|source| LaunchError::Io { path: path.clone(), source })?;
    let result = match first.recv() {
        Ok(First::Connected(link)) => return Ok(link),
        Ok(First::Exited(status)) => LaunchError::Died { status, logs: Box::new(logs(dir)) },
        Err(_) => LaunchError::Io { path: path.clone(), source: io::Error::other("the emulator was lost") },
    };
    // The acceptor still waits: a connection of our own ends it.
    let _ = UnixStream::connect(path);
    Err(result)
}

/// Why the monitor did not answer: if its emulator has died, that says more.
fn failure(cause: SupervisorError, first: &Receiver<First>, dir: &RunDir) -> LaunchError {
    let wait = match cause {
        // The port closes an instant before the process is gone.
        SupervisorError::Closed => Duration::from_secs(10),
        _ => Duration::ZERO,
    };
    match first.recv_timeout(wait) {
        Ok(First::Exited(status)) => LaunchError::Died { status, logs: Box::new(logs(dir)) },
        _ => LaunchError::Monitor { cause, logs: Box::new(logs(dir)) },
    }
}

/// Waits for the emulator's end; `None` if it still runs after `timeout`, where there is one.
fn next_exit(first: &Receiver<First>, timeout: Option<Duration>) -> Option<ExitStatus> {
    loop {
        let next = match timeout {
            Some(timeout) => first.recv_timeout(timeout).ok()?,
            None => first.recv().ok()?,
        };
        // The connection was used already, or came too late.
        if let First::Exited(status) = next {
            return Some(status);
        }
    }
}
