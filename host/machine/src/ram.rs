//! RAM of a machine that others look into while it runs: the model's plugin, and whoever makes its hardware fail.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use config::Hardware;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

/// RAM without a name: no file system can be too full for it, and nothing is left behind however the machine ends.
#[derive(Debug)]
pub struct SharedRam {
    _file: OwnedFd,
    path: PathBuf,
    link: PathBuf,
}

impl SharedRam {
    /// A link to it in a machine's directory.
    #[must_use]
    pub fn link_in(dir: &Path) -> PathBuf {
        dir.join("ram")
    }

    /// Makes the RAM of this machine, with a link to it in `dir`.
    ///
    /// # Errors
    /// The system has no memory for it, or the link cannot be made.
    pub fn make(hardware: &Hardware, dir: &Path) -> io::Result<Self> {
        let ram = memfd_create("mirrorball-ram", MemfdFlags::CLOEXEC)?;
        ftruncate(&ram, hardware.memory_mib() << 20)?;
        let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), ram.as_raw_fd()));
        let link = Self::link_in(dir);
        let _ = fs::remove_file(&link);
        symlink(&path, &link)?;
        Ok(Self { _file: ram, path, link })
    }

    /// Where others open it as long as this process lives.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SharedRam {
    /// Takes the link away before the file is closed: its number may be another file's a moment later, and the link
    /// would lead there.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.link);
    }
}
