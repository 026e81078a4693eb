//! Where a running machine is found: `${XDG_RUNTIME_DIR:-/tmp}/mirrorball-UID/NAME/`, for its owner alone.
//!
//! | file | what |
//! | --- | --- |
//! | `lock` | locked by the supervisor while it lives; nothing else says that a machine runs |
//! | `pid` | the supervisor's process id |
//! | `state.json` | [`State`] |
//! | `control.sock` | clients connect here |
//! | `qemu.sock` | the emulator connects here with the monitor's control port |
//! | `monitor.log` | the machine's own log |
//! | `qemu.log` | what the emulator itself says |
//! | `supervisor.log` | what a detached supervisor says |
//! | `bundle.cpio` | the boot bundle |
//! | `ram` | a link to the machine's RAM, where others look into it |
//! | `model.bin`, `model.json`, `marks.log` | see [`crate::ModelFiles`] |
//! | `disk-*.img` | disks that go with the machine |

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use control::Name;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Overrides the directory that holds all run directories.
pub const RUNTIME_DIR_VARIABLE: &str = "MIRRORBALL_RUNTIME_DIR";

/// The directory that holds the run directories of all machines of this user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRoot(PathBuf);

/// The run directory of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDir {
    name: Name,
    path: PathBuf,
}

/// A run directory that this process supervises: no other can claim it meanwhile.
#[derive(Debug)]
pub struct Claim {
    dir: RunDir,
    /// Holds the lock.
    lock: File,
}

/// What `state.json` says about a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The machine's name.
    pub name: Name,
    /// The supervisor's process id.
    pub supervisor_pid: u32,
    /// The emulator's process id.
    pub emulator_pid: Option<u32>,
    /// The file that describes the machine.
    pub config: Option<PathBuf>,
    /// Seconds since 1970 when it was started.
    pub started_unix: u64,
    /// How far it is.
    pub phase: Phase,
    /// Whether its firmware can make hardware fail.
    #[serde(default)]
    pub can_fail: bool,
    /// Whether its harts count their instructions.
    #[serde(default)]
    pub counts_instructions: bool,
}

/// How far a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The emulator was started, the monitor has not answered yet.
    Booting,
    /// The monitor answers.
    Running,
}

/// Why a run directory cannot be used.
#[derive(Debug, Error)]
pub enum RunDirError {
    /// A file operation failed.
    #[error("{path}: {source}")]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The directory belongs to someone else, or others may enter it.
    #[error("{path} is not a directory of this user alone (mode 0700): remove it or set {RUNTIME_DIR_VARIABLE}")]
    Unsafe {
        /// The directory.
        path: PathBuf,
    },
    /// A machine of this name runs.
    #[error("a machine named {name:?} is running already; stop it with `mirrorball -m {name} shutdown`")]
    Running {
        /// Its name.
        name: Name,
    },
    /// The paths of its sockets would not fit into a socket address.
    #[error("{path} is too long for a Unix socket: set {RUNTIME_DIR_VARIABLE} to a shorter directory")]
    TooLong {
        /// The longest of them.
        path: PathBuf,
    },
}

impl RunRoot {
    /// The usual one: `MIRRORBALL_RUNTIME_DIR`, or `mirrorball-UID` in `XDG_RUNTIME_DIR` or `/tmp`.
    #[must_use]
    pub fn from_env() -> Self {
        if let Some(path) = std::env::var_os(RUNTIME_DIR_VARIABLE).filter(|path| !path.is_empty()) {
            return Self(path.into());
        }
        let base = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| Path::new(path).is_dir());
        let base = base.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
        Self(base.join(format!("mirrorball-{}", rustix::process::getuid().as_raw())))
    }

    /// This directory.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The run directory of the machine `name`, whether it exists or not.
    #[must_use]
    pub fn machine(&self, name: &Name) -> RunDir {
        RunDir { name: name.clone(), path: self.0.join(name.as_str()) }
    }

    /// The machines that run now, by name.
    #[must_use]
    pub fn running(&self) -> Vec<RunDir> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| Name::new(entry.file_name().to_str()?).ok());
        let mut running: Vec<RunDir> = names.map(|name| self.machine(&name)).filter(RunDir::is_running).collect();
        running.sort_by(|a, b| a.name.cmp(&b.name));
        running
    }

    /// Makes the run directory of `name` and takes it for this process. Leftovers of an earlier run are removed.
    ///
    /// # Errors
    /// [`RunDirError::Running`] if a supervisor has it; the others if the directory cannot be used.
    pub fn claim(&self, name: &Name) -> Result<Claim, RunDirError> {
        make_private(&self.0)?;
        let dir = self.machine(name);
        make_private(&dir.path)?;
        // `sockaddr_un.sun_path` has 108 bytes, the last is 0.
        let longest = dir.control_socket();
        if longest.as_os_str().len() > 107 {
            return Err(RunDirError::TooLong { path: longest });
        }
        let path = dir.file("lock");
        let lock = private_file(&path).map_err(|source| RunDirError::Io { path, source })?;
        if !lock_exclusively(&lock) {
            return Err(RunDirError::Running { name: name.clone() });
        }
        dir.remove(|file| !matches!(file, "lock" | "supervisor.log"));
        dir.write("pid", format!("{}\n", std::process::id()).as_bytes())?;
        Ok(Claim { dir, lock })
    }
}

impl RunDir {
    /// The machine's name.
    #[must_use]
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The socket for clients.
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.file("control.sock")
    }

    /// The socket for the emulator.
    #[must_use]
    pub fn qemu_socket(&self) -> PathBuf {
        self.file("qemu.sock")
    }

    /// The machine's own log.
    #[must_use]
    pub fn monitor_log(&self) -> PathBuf {
        self.file("monitor.log")
    }

    /// What the emulator says.
    #[must_use]
    pub fn qemu_log(&self) -> PathBuf {
        self.file("qemu.log")
    }

    /// What a detached supervisor says.
    #[must_use]
    pub fn supervisor_log(&self) -> PathBuf {
        self.file("supervisor.log")
    }

    /// The boot bundle.
    #[must_use]
    pub fn bundle(&self) -> PathBuf {
        self.file("bundle.cpio")
    }

    /// Whether a supervisor holds it now.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let Ok(lock) = File::open(self.file("lock")) else { return false };
        flock(&lock, FlockOperation::NonBlockingLockShared).is_err()
    }

    /// What is known about the machine; `None` if it does not run (or has just begun to).
    #[must_use]
    pub fn state(&self) -> Option<State> {
        if !self.is_running() {
            return None;
        }
        serde_json::from_slice(&fs::read(self.file("state.json")).ok()?).ok()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Removes the files whose names are chosen, scratch disks included.
    fn remove(&self, is_chosen: impl Fn(&str) -> bool) {
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(&is_chosen) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Replaces a file at once: a reader sees the old or the new content.
    fn write(&self, name: &str, content: &[u8]) -> Result<(), RunDirError> {
        let path = self.file(name);
        let fresh = self.file(&format!("{name}.new"));
        let result = fs::write(&fresh, content).and_then(|()| fs::rename(&fresh, &path));
        result.map_err(|source| RunDirError::Io { path, source })
    }
}

impl Claim {
    /// The directory claimed.
    #[must_use]
    pub const fn dir(&self) -> &RunDir {
        &self.dir
    }

    /// Publishes the machine's state.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn publish(&self, state: &State) -> Result<(), RunDirError> {
        let text = serde_json::to_vec_pretty(state).unwrap_or_default();
        self.dir.write("state.json", &text)
    }
}

impl Drop for Claim {
    /// Logs stay for whoever asks what happened; sockets and state go.
    fn drop(&mut self) {
        self.dir.remove(|file| file != "lock" && !file.ends_with(".log"));
        // Closing it is not enough: a child that is just being made by another thread may hold a copy.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

/// Takes the lock. Whoever asks [`RunDir::is_running`] holds a shared one for an instant, so one refusal is no proof.
fn lock_exclusively(lock: &File) -> bool {
    for pause_ms in [1, 5, 20] {
        if flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(pause_ms));
    }
    flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok()
}

fn private_file(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Makes a directory that is ours alone, or checks that it is. In `/tmp` anyone may have been there before.
fn make_private(path: &Path) -> Result<(), RunDirError> {
    let io_error = |source| RunDirError::Io { path: path.to_owned(), source };
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(io_error(error)),
    }
    // Not `metadata`: that would follow someone's symbolic link.
    let found = fs::symlink_metadata(path).map_err(io_error)?;
    let is_ours = found.is_dir() && found.uid() == rustix::process::getuid().as_raw() && found.mode() & 0o077 == 0;
    if is_ours { Ok(()) } else { Err(RunDirError::Unsafe { path: path.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn root() -> (tempfile::TempDir, RunRoot) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let root = RunRoot::at(dir.path().join("run"));
        (dir, root)
    }

    #[test]
    fn a_claim_excludes_others_and_ends_with_its_owner() {
        let (_keep, root) = root();
        let name = Name::new("one").expect("a good name");
        assert!(root.running().is_empty());
        let claim = root.claim(&name).expect("it is free");
        assert_eq!(root.running(), vec![claim.dir().clone()]);
        assert!(matches!(root.claim(&name), Err(RunDirError::Running { .. })));
        assert_eq!(fs::metadata(claim.dir().path()).expect("it is there").mode() & 0o777, 0o700);
        drop(claim);
        assert!(root.running().is_empty());
        assert!(root.claim(&name).is_ok());
    }

    #[test]
    fn state_is_published_while_the_claim_lives() {
        let (_keep, root) = root();
        let name = Name::new("one").expect("a good name");
        let claim = root.claim(&name).expect("it is free");
        assert_eq!(claim.dir().state(), None);
        let state = State {
            name: name.clone(),
            supervisor_pid: 1,
            emulator_pid: None,
            config: None,
            started_unix: 0,
            phase: Phase::Booting,
            can_fail: true,
            counts_instructions: false,
        };
        claim.publish(&state).expect("it can be written");
        assert_eq!(root.machine(&name).state(), Some(state));
    }

    #[test]
    fn directories_of_others_are_refused() {
        let (keep, root) = root();
        let name = Name::new("one").expect("a good name");
        symlink(keep.path(), keep.path().join("run")).expect("a link");
        assert!(matches!(root.claim(&name), Err(RunDirError::Unsafe { .. })));
        fs::remove_file(keep.path().join("run")).expect("it is there");
        fs::create_dir(keep.path().join("run")).expect("a directory");
        fs::set_permissions(keep.path().join("run"), fs::Permissions::from_mode(0o755)).expect("it is ours");
        assert!(matches!(root.claim(&name), Err(RunDirError::Unsafe { .. })));
    }
}
