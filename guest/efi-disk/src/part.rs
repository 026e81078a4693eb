//! A partition, read as if it were a device of its own.

use std::io::{self, Read, Seek, SeekFrom, Write};

/// A part of a device. It cannot be written: whoever inspects a disk leaves it as it is.
#[derive(Debug)]
pub struct Part<D> {
    device: D,
    start: u64,
    bytes: u64,
    place: u64,
    /// What may still be read, so that a volume whose chains never end does not keep its reader.
    budget: u64,
}

impl<D: Read + Seek> Part<D> {
    /// The `bytes` from `start` on, of which `budget` may be read in all.
    pub const fn new(device: D, start: u64, bytes: u64, budget: u64) -> Self {
        Self { device, start, bytes, place: 0, budget }
    }
}

impl<D: Read + Seek> Read for Part<D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.bytes.saturating_sub(self.place).min(self.budget);
        if self.budget == 0 && !buffer.is_empty() {
            return Err(io::Error::other("its file system leads in circles"));
        }
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        self.device.seek(SeekFrom::Start(self.start.saturating_add(self.place)))?;
        let got = self.device.read(&mut buffer[..want])?;
        self.place += got as u64;
        // At least one: an empty read is work, too.
        self.budget = self.budget.saturating_sub((got as u64).max(1));
        Ok(got)
    }
}

impl<D> Write for Part<D> {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<D> Seek for Part<D> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match to {
            SeekFrom::Start(place) => Some(place),
            SeekFrom::End(by) => self.bytes.checked_add_signed(by),
            SeekFrom::Current(by) => self.place.checked_add_signed(by),
        };
        self.place = place.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.place)
    }
}
