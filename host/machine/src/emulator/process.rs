//! The emulator's process.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Ends the emulator when its parent thread is gone, however that went (part of util-linux, essential in Debian).
const WITH_PARENT: [&str; 4] = ["setpriv", "--pdeathsig", "KILL", "--"];

/// A running emulator. It is ended when this is dropped.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    /// Names the process even after it has ended, when its number may belong to another.
    handle: OwnedFd,
    waiter: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts `program`; what it says goes to `log`. `on_exit` is called on another thread when it ends.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(
        program: &Path,
        arguments: &[OsString],
        log: &Path,
        on_exit: impl FnOnce(ExitStatus) + Send + 'static,
    ) -> io::Result<Self> {
        let log = File::create(log)?;
        let mut command = command(program);
        command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let (started, start) = channel();
        // The thread that starts the process also waits for it: "parent" means the thread, and this one lives as
        // long as the child.
        let body = move || run(command, &started, on_exit);
        let waiter = thread::Builder::new().name("emulator".into()).spawn(body)?;
        let (pid, handle) = start.recv().map_err(|_| io::Error::other("the thread is gone"))??;
        Ok(Self { pid, handle, waiter: Some(waiter) })
    }

    /// Its process id.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Takes its power. Does nothing if it has ended.
    pub fn kill(&self) {
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if let Some(waiter) = self.waiter.take() {
            let _ = waiter.join();
        }
    }
}

type Started = io::Result<(u32, OwnedFd)>;

fn run(mut command: Command, started: &Sender<Started>, on_exit: impl FnOnce(ExitStatus)) {
    let spawned = command.spawn().and_then(|child| {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        // The child is not waited for yet, so the number is still its own.
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        Ok((child, handle))
    });
    match spawned {
        Err(error) => drop(started.send(Err(error))),
        Ok((mut child, handle)) => {
            let _ = started.send(Ok((child.id(), handle)));
            if let Ok(status) = child.wait() {
                on_exit(status);
            }
        }
    }
}

fn command(program: &Path) -> Command {
    let [wrapper, arguments @ ..] = WITH_PARENT;
    let has_wrapper = Command::new(wrapper)
        .args(["--pdeathsig", "KILL", "true"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !has_wrapper {
        return Command::new(program);
    }
    let mut command = Command::new(wrapper);
    command.args(arguments).arg(program);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(script: &str, on_exit: impl FnOnce(ExitStatus) + Send + 'static) -> (tempfile::TempDir, Process) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let arguments = ["-c".into(), script.into()];
        let process = Process::start(Path::new("/bin/sh"), &arguments, &dir.path().join("log"), on_exit);
        (dir, process.expect("there is a shell"))
    }

    #[test]
    fn its_end_is_told() {
        let (sender, exit) = channel();
        let (dir, _process) = start("echo hello; exit 3", move |status| _ = sender.send(status.code()));
        assert_eq!(exit.recv(), Ok(Some(3)));
        assert_eq!(std::fs::read_to_string(dir.path().join("log")).expect("it is there"), "hello\n");
    }

    #[test]
    fn dropping_it_ends_it() {
        let (sender, exit) = channel();
        let (_dir, process) = start("exec sleep 1000", move |status| _ = sender.send(status.code()));
        drop(process);
        assert_eq!(exit.recv(), Ok(None));
    }

    #[test]
    fn what_does_not_exist_is_an_error_or_ends_at_once() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (sender, exit) = channel();
        let told = move |status: ExitStatus| _ = sender.send(status.success());
        match Process::start(Path::new("/no/program"), &[], &dir.path().join("log"), told) {
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound),
            Ok(_process) => assert_eq!(exit.recv(), Ok(false)),
        }
    }
}
