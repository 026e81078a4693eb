//! Files that are mapped: their room is taken before anybody writes, since a full disk shows there as a deadly signal.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use thiserror::Error;

/// Why a file was not made.
#[derive(Debug, Error)]
pub enum RoomError {
    /// The file system is full.
    #[error(
        "{path} needs {} MiB, and its file system has {} MiB left: make room, or set {} to a directory elsewhere",
        .needed >> 20, .free >> 20, crate::RUNTIME_DIR_VARIABLE
    )]
    Full {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        needed: u64,
        /// What is left, in bytes.
        free: u64,
    },
    /// Something else.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Makes an empty file of `bytes` zeroes that has its room.
pub fn reserve(path: &Path, bytes: u64) -> Result<(), RoomError> {
    let failed = |source| RoomError::Io { path: path.to_owned(), source };
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).map_err(failed)?;
    let free = free_bytes(&file).map_err(failed)?;
    let full = || RoomError::Full { path: path.to_owned(), needed: bytes, free };
    if free < bytes {
        return Err(full());
    }
    match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::NOSPC) => Err(full()),
        // Some file systems reserve nothing; then a sparse file has to do.
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes).map_err(failed),
        Err(error) => Err(failed(error.into())),
    }
}

fn free_bytes(file: &File) -> io::Result<u64> {
    let state = fstatvfs(file)?;
    Ok(state.f_bavail.saturating_mul(state.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_taken_at_once() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("file");
        std::fs::write(&path, "old").expect("it is writable");
        reserve(&path, 1 << 20).expect("there is room");
        let made = std::fs::metadata(&path).expect("it was made");
        assert_eq!((made.len(), made.blocks() * 512 >= 1 << 20), (1 << 20, true));
        assert_eq!(std::fs::read(&path).expect("it was made")[..4], [0; 4]);
    }

    #[test]
    fn a_full_disk_is_told_in_words() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("file");
        let error = reserve(&path, 1 << 60).expect_err("no disk is so large").to_string();
        assert!(error.starts_with(&format!("{} needs 1099511627776 MiB, and its file system has", path.display())));
        assert!(error.ends_with("make room, or set MIRRORBALL_RUNTIME_DIR to a directory elsewhere"), "{error}");
        assert_eq!(std::fs::metadata(&path).expect("it was made").len(), 0, "nothing was taken");
        let nowhere = reserve(Path::new("/no/file"), 1).expect_err("there is no such directory").to_string();
        assert_eq!(nowhere, "/no/file: No such file or directory (os error 2)");
    }
}
