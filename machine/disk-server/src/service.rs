//! What a disk does for requests, and when it is done.

use std::io::{self, ErrorKind};

use disk_model::{Disk, Operation, Request};

use crate::image::Image;
use crate::protocol::{Command, Head, WireError, reply};

/// A disk and its image.
#[derive(Debug)]
pub struct Service {
    image: Image,
    disk: Disk,
    /// Arrival of the latest request: those behind it are not earlier.
    last_ps: u64,
}

impl Service {
    /// For these.
    #[must_use]
    pub const fn new(image: Image, disk: Disk) -> Self {
        Self { image, disk, last_ps: 0 }
    }

    /// Does what a request asks; the time at which that will have been done, and the answer.
    pub fn take(&mut self, head: Head, data: &[u8], arrival_ps: u64) -> (u64, Vec<u8>) {
        self.last_ps = self.last_ps.max(arrival_ps);
        match self.perform(head, data) {
            Ok(done) => done,
            // The disk does nothing for a request that it refuses.
            Err(error) => (self.last_ps, reply(head.cookie, error)),
        }
    }

    fn perform(&mut self, head: Head, data: &[u8]) -> Result<(u64, Vec<u8>), WireError> {
        let now = self.last_ps;
        let mut answer = reply(head.cookie, WireError::None);
        let operation = match head.command {
            Command::Flush => {
                self.image.flush().map_err(|error| wire_error(&error))?;
                return Ok((self.disk.flush(now), answer));
            }
            Command::Write if self.image.is_read_only() => return Err(WireError::NotPermitted),
            Command::Write => Operation::Write,
            Command::Read => Operation::Read,
            Command::Disconnect | Command::Other => return Err(WireError::Invalid),
        };
        let (sector, sectors) = head.sectors(self.image.sectors()).ok_or(WireError::Invalid)?;
        match operation {
            Operation::Read => {
                answer.extend(self.image.read(sector, head.bytes as usize).map_err(|error| wire_error(&error))?);
            }
            Operation::Write => self.image.write(sector, data).map_err(|error| wire_error(&error))?,
        }
        // A machine whose clock stands at 0 is being put together, and its emulator looks at the disk: that takes no time.
        if now == 0 {
            return Ok((0, answer));
        }
        let done = self.disk.submit(now, Request { operation, sector, sectors }).map_err(|_| WireError::Invalid)?;
        Ok((done, answer))
    }
}

fn wire_error(error: &io::Error) -> WireError {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => WireError::NoSpace,
        _ => WireError::Io,
    }
}
