//! Where a running machine is found: `${XDG_STATE_HOME:-~/.local/state}/mirrorball/run/NAME/`, for its owner alone.
//!
//! Not in `XDG_RUNTIME_DIR`: the system removes that when its user logs out, and detached machines go on. Machines that run
//! there since an earlier version are found all the same.
//!
//! | file | what |
//! | --- | --- |
//! | `lock` | locked by the supervisor while it lives; nothing else says that a machine runs |
//! | `pid` | the supervisor's process id |
//! | `state.json` | [`State`] |
//! | `control.sock` | clients connect here |
//! | `qemu.sock` | the emulator connects here with the monitor's control port |
//! | `monitor.log` | the machine's own log |
//! | `crash.log` | the log that ended with the latest panic before a restart |
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

use control::{MAX_NAME, Name};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Overrides the directory that holds all run directories.
pub const RUNTIME_DIR_VARIABLE: &str = "MIRRORBALL_RUNTIME_DIR";

/// Longest path of a socket: `sockaddr_un.sun_path` has 108 bytes, the last is 0.
const MOST_SOCKET: usize = 107;
/// Longest directory of run directories: behind it come a name and the longest socket.
const MOST_ROOT: usize = MOST_SOCKET - "/".len() - MAX_NAME - "/control.sock".len();

/// The directory that holds the run directories of all machines of this user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRoot {
    path: PathBuf,
    /// Where earlier versions had it: machines may still run there.
    earlier: Vec<PathBuf>,
}

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
    /// The usual one: `MIRRORBALL_RUNTIME_DIR`, or `mirrorball/run` in `XDG_STATE_HOME` or `~/.local/state`, or where that is
    /// too long for sockets, `/tmp/mirrorball-UID`.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
    }

    fn from_variables(set: impl Fn(&str) -> Option<PathBuf>) -> Self {
        if let Some(path) = set(RUNTIME_DIR_VARIABLE) {
            return Self::at(path);
        }
        let own = format!("mirrorball-{}", rustix::process::getuid().as_raw());
        let temporary = Path::new("/tmp").join(&own);
        let states = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
        let usual = states.map(|states| states.join("mirrorball/run"));
        let usual = usual.filter(|path| path.is_absolute() && path.as_os_str().len() <= MOST_ROOT);
        let earlier = set("XDG_RUNTIME_DIR").map(|path| path.join(&own)).into_iter().chain([temporary.clone()]);
        let path = usual.unwrap_or(temporary);
        let earlier = earlier.filter(|earlier| *earlier != path).collect();
        Self { path, earlier }
    }

    /// This directory.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), earlier: Vec::new() }
    }

    /// The run directory of the machine `name`, whether it exists or not.
    #[must_use]
    pub fn machine(&self, name: &Name) -> RunDir {
        let earlier = self.earlier.iter().filter(|path| is_private(path)).map(|path| RunDir::inside(path, name));
        earlier.into_iter().find(RunDir::is_running).unwrap_or_else(|| RunDir::inside(&self.path, name))
    }

    /// The machines whose run directories exist, running or not, by name.
    #[must_use]
    pub fn known(&self) -> Vec<RunDir> {
        let roots = std::iter::once(&self.path).chain(self.earlier.iter().filter(|path| is_private(path)));
        let entries = roots.flat_map(|root| fs::read_dir(root).into_iter().flatten().flatten());
        let names = entries.filter_map(|entry| Name::new(entry.file_name().to_str()?).ok());
        let mut known: Vec<RunDir> = names.map(|name| self.machine(&name)).collect();
        known.sort_by(|a, b| a.name.cmp(&b.name));
        known.dedup();
        known
    }

    /// The machines that run now, by name.
    #[must_use]
    pub fn running(&self) -> Vec<RunDir> {
        self.known().into_iter().filter(RunDir::is_running).collect()
    }

    /// Makes the run directory of `name` and takes it for this process. Leftovers of an earlier run are removed.
    ///
    /// # Errors
    /// [`RunDirError::Running`] if a supervisor has it; the others if the directory cannot be used.
    pub fn claim(&self, name: &Name) -> Result<Claim, RunDirError> {
        if let Some(parent) = self.path.parent() {
            let io_error = |source| RunDirError::Io { path: parent.to_owned(), source };
            DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(io_error)?;
        }
        make_private(&self.path)?;
        if self.machine(name).is_running() {
            return Err(RunDirError::Running { name: name.clone() });
        }
        let dir = RunDir::inside(&self.path, name);
        make_private(&dir.path)?;
        let longest = dir.control_socket();
        if longest.as_os_str().len() > MOST_SOCKET {
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
    fn inside(root: &Path, name: &Name) -> Self {
        Self { name: name.clone(), path: root.join(name.as_str()) }
    }

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

    /// The machine's log up to the panic that it was started again after.
    #[must_use]
    pub fn crash_log(&self) -> PathBuf {
        self.file("crash.log")
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

    /// Makes the directory ready for the machine to be started again, with the log so far as `crash.log`. Nobody else gets it
    /// meanwhile.
    ///
    /// # Errors
    /// If that cannot be kept.
    pub fn renew(&self) -> Result<(), RunDirError> {
        let (from, path) = (self.dir.monitor_log(), self.dir.crash_log());
        fs::rename(from, &path).map_err(|source| RunDirError::Io { path, source })?;
        self.dir.remove(|file| !matches!(file, "lock" | "pid" | "released") && !file.ends_with(".log"));
        Ok(())
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
    fs::symlink_metadata(path).map_err(io_error)?;
    if is_private(path) { Ok(()) } else { Err(RunDirError::Unsafe { path: path.to_owned() }) }
}

/// Whether it is a directory that only this user may enter.
fn is_private(path: &Path) -> bool {
    // Not `metadata`: that would follow someone's symbolic link.
    fs::symlink_metadata(path).is_ok_and(|found| {
        found.is_dir() && found.uid() == rustix::process::getuid().as_raw() && found.mode() & 0o077 == 0
    })
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
    fn a_machine_that_starts_again_keeps_its_name_and_its_last_log() {
        let (_keep, root) = root();
        let name = Name::new("one").expect("a good name");
        let claim = root.claim(&name).expect("it is free");
        let dir = claim.dir();
        for (file, text) in [("monitor.log", "first"), ("released", ""), ("bundle.cpio", "x"), ("disk-a.img", "x")] {
            fs::write(dir.file(file), text).expect("it can be written");
        }
        claim.renew().expect("there is a log");
        assert!(matches!(root.claim(&name), Err(RunDirError::Running { .. })));
        assert_eq!(fs::read_to_string(dir.crash_log()).expect("it is kept"), "first");
        assert!(dir.file("released").exists() && !dir.bundle().exists() && !dir.file("disk-a.img").exists());
        assert!(claim.renew().is_err(), "there is no log");
        drop(claim);
        assert!(root.machine(&name).crash_log().exists(), "after the end, too");
        assert_eq!(root.known(), vec![root.machine(&name)]);
        let _claim = root.claim(&name).expect("it is free");
        assert!(!root.machine(&name).crash_log().exists(), "that was another run");
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

    fn with_variables(set: &[(&str, &Path)]) -> RunRoot {
        let find = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, path)| path.to_path_buf());
        RunRoot::from_variables(find)
    }

    #[test]
    fn machines_are_not_kept_where_a_logout_removes_them() {
        let (home, run) = (Path::new("/home/me"), Path::new("/run/user/1"));
        let root = with_variables(&[("HOME", home), ("XDG_RUNTIME_DIR", run)]);
        assert_eq!(root.path, Path::new("/home/me/.local/state/mirrorball/run"));
        let states = with_variables(&[("HOME", home), ("XDG_STATE_HOME", Path::new("/s"))]);
        assert_eq!(states.path, Path::new("/s/mirrorball/run"));
        let chosen = with_variables(&[("HOME", home), (RUNTIME_DIR_VARIABLE, Path::new("/r"))]);
        assert_eq!(chosen, RunRoot::at("/r"));
        // No home, or one whose sockets would have too long names.
        let long = PathBuf::from(format!("/home/{}", "x".repeat(60)));
        for root in [with_variables(&[("HOME", &long)]), with_variables(&[])] {
            assert!(root.path.starts_with("/tmp/") && root.earlier.is_empty(), "{root:?}");
        }
        let name = Name::new("n".repeat(MAX_NAME)).expect("a good name");
        let longest = PathBuf::from(format!("/{}", "x".repeat(MOST_ROOT - 1)));
        assert_eq!(RunDir::inside(&longest, &name).control_socket().as_os_str().len(), MOST_SOCKET);
    }

    #[test]
    fn machines_of_an_earlier_version_are_found() {
        let keep = tempfile::tempdir().expect("a temporary directory");
        let run = keep.path().join("run-user");
        fs::create_dir(&run).expect("a directory");
        let old = RunRoot::at(run.join(format!("mirrorball-{}", rustix::process::getuid().as_raw())));
        let root = with_variables(&[("HOME", keep.path()), ("XDG_RUNTIME_DIR", &run)]);
        let (one, two) = (Name::new("one").expect("a good name"), Name::new("two").expect("a good name"));
        let earlier = old.claim(&one).expect("it is free");
        let now = root.claim(&two).expect("it is free");
        assert_eq!(root.running(), [earlier.dir().clone(), now.dir().clone()]);
        assert_eq!(root.machine(&one), *earlier.dir());
        assert!(matches!(root.claim(&one), Err(RunDirError::Running { .. })), "one name, one machine");
        drop(earlier);
        assert_eq!(root.running(), [now.dir().clone()]);
        assert!(root.claim(&one).is_ok());
    }
}
