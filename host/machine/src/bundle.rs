//! The boot bundle: a cpio archive in "newc" format with the boot configuration and the modules.
//!
//! It is written piece by piece: modules are copied, never held in memory.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use config::MachinePlan;
use control::{BOOT_CONFIG_NAME, BootConfigError};
use thiserror::Error;

/// Mode of a regular file, readable by all.
const MODE: u32 = 0o100_444;
/// What ends an archive.
const TRAILER: &str = "TRAILER!!!";

/// Why there is no bundle.
#[derive(Debug, Error)]
pub enum BundleError {
    /// A file operation failed.
    #[error("{path}: {source}")]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A module is larger than the format can say.
    #[error("{path} has {bytes} bytes, a boot bundle holds files up to 4 GiB")]
    TooLarge {
        /// The module.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// The configuration does not validate.
    #[error(transparent)]
    Config(#[from] BootConfigError),
}

/// Writes the bundle of `plan` to `path`; gives its size in bytes.
///
/// # Errors
/// If a module cannot be read, or the bundle cannot be written.
pub fn write_bundle(plan: &MachinePlan, path: &Path) -> Result<u64, BundleError> {
    let here = |source| BundleError::Io { path: path.to_owned(), source };
    let file = File::create(path).map_err(here)?;
    let mut archive = Archive::new(BufWriter::new(file));
    let config = plan.boot.to_bytes()?;
    archive.entry(BOOT_CONFIG_NAME, config.len() as u64, config.as_slice()).map_err(here)?;
    for module in &plan.modules {
        let there = |source| BundleError::Io { path: module.path.clone(), source };
        let mut content = File::open(&module.path).map_err(there)?;
        let bytes = content.metadata().map_err(there)?.len();
        if u32::try_from(bytes).is_err() {
            return Err(BundleError::TooLarge { path: module.path.clone(), bytes });
        }
        archive.entry(module.label.as_str(), bytes, &mut content).map_err(there)?;
    }
    archive.finish().map_err(here)
}

/// An archive being written.
struct Archive<W> {
    out: W,
    written: u64,
    files: u32,
}

impl<W: Write> Archive<W> {
    const fn new(out: W) -> Self {
        Self { out, written: 0, files: 0 }
    }

    /// Adds a file of `bytes` bytes.
    fn entry(&mut self, name: &str, bytes: u64, content: impl Read) -> io::Result<()> {
        // Inode numbers must differ: equal ones are hard links.
        self.files += 1;
        self.header(name, self.files, MODE, bytes)?;
        let copied = io::copy(&mut content.take(bytes), &mut self.out)?;
        if copied != bytes {
            return Err(io::Error::other("the file became shorter while it was read"));
        }
        self.written += copied;
        self.pad()
    }

    /// Ends the archive; gives its size.
    fn finish(mut self) -> io::Result<u64> {
        self.header(TRAILER, 0, 0, 0)?;
        self.out.flush()?;
        Ok(self.written)
    }

    /// The header: a magic and 13 numbers of eight hex digits; then the name, ended by a NUL.
    fn header(&mut self, name: &str, inode: u32, mode: u32, bytes: u64) -> io::Result<()> {
        let links = 1;
        let name_bytes = name.len() as u64 + 1;
        // ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check
        let fields = [inode.into(), mode.into(), 0, 0, links, 0, bytes, 0, 0, 0, 0, name_bytes, 0];
        let mut header = String::from("070701");
        for field in fields {
            header.push_str(&format!("{field:08X}"));
        }
        header.push_str(name);
        header.push('\0');
        self.out.write_all(header.as_bytes())?;
        self.written += header.len() as u64;
        self.pad()
    }

    /// Headers and contents begin at multiples of four.
    fn pad(&mut self) -> io::Result<()> {
        let gap = usize::try_from(self.written.next_multiple_of(4) - self.written).unwrap_or(0);
        self.out.write_all(&[0; 4][..gap])?;
        self.written += gap as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        for (name, content) in files {
            archive.entry(name, content.len() as u64, *content).expect("memory takes it");
        }
        let size = archive.finish().expect("memory takes it");
        assert_eq!(size, bytes.len() as u64);
        bytes
    }

    #[test]
    fn an_empty_archive_is_its_trailer() {
        let expected = "070701".to_owned()
            + "00000000000000000000000000000000" // ino, mode, uid, gid
            + "00000001000000000000000000000000" // nlink, mtime, filesize, devmajor
            + "0000000000000000000000000000000B00000000" // devminor, rdev, namesize, check
            + "TRAILER!!!\0\0\0\0";
        assert_eq!(String::from_utf8(archive(&[])), Ok(expected));
    }

    #[test]
    fn every_part_begins_at_a_multiple_of_four() {
        let bytes = archive(&[("boot.cfg", b"12345"), ("a", b"")]);
        let find = |what: &[u8]| bytes.windows(what.len()).position(|window| window == what).expect("it is there");
        assert_eq!(find(b"12345") % 4, 0);
        let starts: Vec<usize> =
            (0..bytes.len()).filter(|at| bytes.get(*at..).is_some_and(|rest| rest.starts_with(b"070701"))).collect();
        assert_eq!(starts.len(), 3);
        assert!(starts.iter().all(|start| start % 4 == 0));
    }

    #[test]
    fn a_file_that_shrinks_is_noticed() {
        let mut bytes = Vec::new();
        let error = Archive::new(&mut bytes).entry("a", 3, b"12".as_slice()).expect_err("a byte is missing");
        assert_eq!(error.to_string(), "the file became shorter while it was read");
    }
}
