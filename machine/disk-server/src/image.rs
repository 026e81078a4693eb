//! The file behind a disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use disk_model::SECTOR_BYTES;

/// A raw image: the bytes of the disk as they are.
#[derive(Debug)]
pub struct Image {
    file: File,
    sectors: u64,
    is_read_only: bool,
}

impl Image {
    /// Opens an image. Bytes after the last whole sector are not part of the disk.
    ///
    /// # Errors
    /// The file cannot be opened, or has no sector.
    pub fn open(path: &Path, is_read_only: bool) -> io::Result<Self> {
        Self::of(OpenOptions::new().read(true).write(!is_read_only).open(path)?, is_read_only)
    }

    /// The image in a file that is open.
    ///
    /// # Errors
    /// It has no sector.
    pub fn of(file: File, is_read_only: bool) -> io::Result<Self> {
        let sectors = file.metadata()?.len() / SECTOR_BYTES;
        if sectors == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the image has no sector"));
        }
        Ok(Self { file, sectors, is_read_only })
    }

    /// Its size.
    #[must_use]
    pub const fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Whether writes are refused.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    pub(crate) fn read(&self, sector: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let mut data = vec![0; bytes];
        self.file.read_exact_at(&mut data, sector * SECTOR_BYTES)?;
        Ok(data)
    }

    pub(crate) fn write(&self, sector: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, sector * SECTOR_BYTES)
    }

    pub(crate) fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
