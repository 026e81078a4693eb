//! How long a disk takes for a request, in virtual time: a mechanical disk with positions, and a flash disk.
//!
//! Key types: [`Preset`] names a disk; [`Disk`] is one, with the state that its times depend on; [`Disk::submit`] takes
//! a request at a moment and says when it is complete. Times are picoseconds of the machine's clock.
//!
//! Requests are served in the order of their arrival: which request comes next is the decision of the operating system
//! under test, not of the disk. A mechanical disk serves one at a time; a flash disk works on all its channels.
//!
//! What is not modelled: zones, defects and thermal recalibration, a write cache (a write is complete when it is on the
//! disk), the bus as a resource that several disks share, garbage collection.
//!
//! It refuses requests outside the disk and disks that cannot be ([`DiskError`]). No floating point: the same requests
//! at the same moments give the same times on any host. No locks, no I/O, no `unsafe`. Tests compare it with sums by
//! hand, and random requests with what must hold for all.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod flash;
mod geometry;
mod mechanical;
mod read_ahead;
mod seek;

use serde::{Deserialize, Serialize};

use flash::Flash;
pub use flash::FlashShape;
pub use geometry::{Geometry, Position};
use mechanical::Mechanical;
pub use mechanical::MechanicalShape;
pub use seek::SeekCurve;

/// Bytes of a sector.
pub const SECTOR_BYTES: u64 = 512;

/// Picoseconds in a microsecond.
pub(crate) const PS_PER_US: u64 = 1_000_000;

/// A disk by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// HP 97560, the disk of SimOS and of the papers' experiments.
    #[serde(rename = "hp97560")]
    Hp97560,
    /// A present-day flash disk. Typical figures of the class, measured on no particular disk.
    Ssd,
}

/// What is asked of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Sectors to memory.
    Read,
    /// Sectors from memory.
    Write,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What is asked.
    pub operation: Operation,
    /// First sector.
    pub sector: u64,
    /// Number of sectors.
    pub sectors: u64,
}

/// What is wrong with a request or a disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields hold")]
pub enum DiskError {
    #[error("sectors {sector} to {last} are not on a disk of {capacity} sectors")]
    OutOfRange { sector: u64, last: u64, capacity: u64 },
    #[error("a request of no sectors")]
    Empty,
    #[error("a disk of {sectors} sectors is too large, at most {max} are possible")]
    TooLarge { sectors: u64, max: u64 },
    #[error("a scale of {scale} is not possible, 1 to 100 is")]
    Scale { scale: u32 },
}

/// Most sectors of a disk: 16 TiB.
pub const MAX_SECTORS: u64 = 1 << 35;

/// A disk and its state.
#[derive(Debug, Clone)]
pub struct Disk {
    kind: Kind,
    sectors: u64,
    /// When the last request is complete.
    quiet_ps: u64,
}

#[derive(Debug, Clone)]
enum Kind {
    Mechanical(Mechanical),
    Flash(Flash),
}

impl Disk {
    /// A disk that holds `sectors`. `scale` divides the time of seeks (paper 004, section 4.5, takes 2), on a flash disk
    /// that of its cells. A mechanical disk that is larger than the preset has more cylinders.
    ///
    /// # Errors
    /// [`DiskError::TooLarge`] and [`DiskError::Scale`].
    pub fn new(preset: Preset, sectors: u64, scale: u32) -> Result<Self, DiskError> {
        if sectors > MAX_SECTORS {
            return Err(DiskError::TooLarge { sectors, max: MAX_SECTORS });
        }
        if !(1..=100).contains(&scale) {
            return Err(DiskError::Scale { scale });
        }
        let kind = match preset {
            Preset::Hp97560 => Kind::Mechanical(Mechanical::new(MechanicalShape::hp97560(), scale, sectors)),
            Preset::Ssd => Kind::Flash(Flash::new(FlashShape::ssd(), scale)),
        };
        Ok(Self { kind, sectors, quiet_ps: 0 })
    }

    /// Its size.
    pub const fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Takes a request at `now_ps` and says when it is complete. Requests come in the order of their times; one that
    /// says to be earlier than another before it is taken as if it came with that.
    ///
    /// # Errors
    /// A request that is not on the disk; the disk's state is as before.
    pub fn submit(&mut self, now_ps: u64, request: Request) -> Result<u64, DiskError> {
        let Request { sector, sectors, .. } = request;
        if sectors == 0 {
            return Err(DiskError::Empty);
        }
        let end = sector.checked_add(sectors).filter(|end| *end <= self.sectors);
        end.ok_or(DiskError::OutOfRange { sector, last: sector.saturating_add(sectors - 1), capacity: self.sectors })?;
        let done = match &mut self.kind {
            Kind::Mechanical(disk) => disk.serve(now_ps, request),
            Kind::Flash(disk) => disk.serve(now_ps, request),
        };
        self.quiet_ps = self.quiet_ps.max(done);
        Ok(done)
    }

    /// When everything that was asked before is complete: the time of a flush at `now_ps`.
    pub fn flush(&self, now_ps: u64) -> u64 {
        self.quiet_ps.max(now_ps)
    }
}

impl Preset {
    /// Sectors of the disk as it was sold; `None` where that says nothing.
    pub fn capacity(self) -> Option<u64> {
        match self {
            Self::Hp97560 => Some(MechanicalShape::hp97560().geometry.sectors()),
            Self::Ssd => None,
        }
    }
}
