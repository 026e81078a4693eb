//! A machine without the monitor: a kernel runs on it directly. What it says on its console goes to a file.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use config::Hardware;
use faults::Request;

use crate::emulator::{Emulator, Payload, Process, Wiring};
use crate::faults::{FaultError, FaultPort};
use crate::launch::{self, FaultFiles, LaunchError, Outcome};
use crate::logs::{self, Logs};
use crate::model::ModelFiles;

/// What a bare machine boots, and where its files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BareBoot {
    /// The kernel's image.
    pub kernel: PathBuf,
    /// Its initial file system.
    pub initrd: Option<PathBuf>,
    /// Its command line.
    pub cmdline: String,
    /// An existing directory for the console's log, the emulator's log, scratch disks and the model's files. They stay.
    pub dir: PathBuf,
    /// The machine model's plugin, for machines with a model.
    pub plugin: Option<PathBuf>,
    /// The fault firmware's image, for machines whose hardware can fail.
    pub firmware: Option<PathBuf>,
    /// What is to fail: the firmware finds it when it starts.
    pub faults: Vec<Request>,
}

/// A running machine without the monitor. Dropping it takes its power.
#[derive(Debug)]
pub struct BareMachine {
    process: Process,
    exit: Receiver<ExitStatus>,
    dir: PathBuf,
    /// Holds the machine's RAM where the model reads it.
    _model: Option<ModelFiles>,
    faults: Option<FaultFiles>,
}

impl BareMachine {
    /// Starts the machine. The kernel has not been looked at when this returns.
    ///
    /// # Errors
    /// Says what is missing.
    pub fn launch(hardware: &Hardware, boot: &BareBoot) -> Result<Self, LaunchError> {
        let emulator = Emulator::find(hardware.qemu.as_deref())?;
        for path in [Some(&boot.kernel), boot.initrd.as_ref()].into_iter().flatten() {
            if !path.is_file() {
                return Err(LaunchError::MissingFile { path: path.clone() });
            }
        }
        let mut model = launch::model_files(hardware, &emulator, boot.plugin.as_deref(), &boot.dir)?;
        let faults = launch::fault_files(hardware, boot.firmware.as_deref(), model.as_ref(), &boot.dir)?;
        if let Some(files) = &faults {
            FaultPort::open(&files.wiring.ram)?.prepare(&boot.faults)?;
        }
        let (kernel, initrd, cmdline) = (boot.kernel.clone(), boot.initrd.clone(), boot.cmdline.clone());
        let wiring = Wiring {
            payload: Payload::Linux { kernel, initrd, cmdline },
            log: Self::console_in(&boot.dir),
            scratch: boot.dir.clone(),
            model: model.as_ref().map(|files| files.wiring().clone()),
            faults: faults.as_ref().map(|files| files.wiring.clone()),
        };
        launch::make_disks(hardware, &wiring, model.as_mut())?;
        let (sender, exit) = channel();
        let on_exit = move |status| _ = sender.send(status);
        let process = launch::start_emulator(&emulator, hardware, &wiring, &Self::log_in(&boot.dir), on_exit)?;
        Ok(Self { process, exit, dir: boot.dir.clone(), _model: model, faults })
    }

    /// What it has said on its console so far.
    #[must_use]
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(Self::console_in(&self.dir)).unwrap_or_default()).into_owned()
    }

    /// The file that plugin and tools share, where the machine has a model.
    #[must_use]
    pub fn shared_file(&self) -> PathBuf {
        ModelFiles::shared_file(&self.dir)
    }

    /// The lines that marks have left, where the machine has a model.
    #[must_use]
    pub fn marks(&self) -> PathBuf {
        ModelFiles::marks(&self.dir)
    }

    /// The way to its firmware, where that can make hardware fail.
    ///
    /// # Errors
    /// [`FaultError::NoMailbox`] where it cannot.
    pub fn fault_port(&self) -> Result<FaultPort, FaultError> {
        FaultPort::open(&self.faults.as_ref().ok_or(FaultError::NoMailbox)?.wiring.ram)
    }

    /// Waits until the machine has ended, at most so long; `None` if it still runs.
    #[must_use]
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Outcome> {
        let status = self.exit.recv_timeout(timeout).ok()?;
        let path = Self::console_in(&self.dir);
        let logs = Logs { monitor: logs::tail(&path), emulator: logs::tail(&Self::log_in(&self.dir)), path };
        Some(Outcome { status, logs, panic: None })
    }

    /// Takes its power at once.
    pub fn kill(&self) {
        self.process.kill();
    }

    fn console_in(dir: &Path) -> PathBuf {
        dir.join("console.log")
    }

    fn log_in(dir: &Path) -> PathBuf {
        dir.join("qemu.log")
    }
}
