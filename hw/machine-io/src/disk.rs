//! The machine's disks (virtio-blk).
//
// UNSAFETY: a read makes the device write memory that only the caller knows to be free for it, so `submit_read` is an
// unsafe function. Nothing unsafe is done here.
#![expect(unsafe_code)]

use alloc::{format, string::String};

use addr::MachineAddr;
use machine_tree::InterruptSource;
use virtio_drivers::transport::{DeviceType, SomeTransport, Transport};

use crate::{
    Found, Place,
    device::{Device, wait},
    dma::DmaArea,
    error::{DeviceFault, IoError},
    platform::Platform,
    ring::{Alert, Piece, Ring},
};

/// Bytes of a sector, whatever the medium's own block is.
pub const SECTOR_BYTES: u64 = 512;
/// Most pieces of one request.
pub const MAX_SEGMENTS: usize = 64;

const QUEUE: u16 = 0;
/// Requests in flight, at most.
const SLOTS: usize = 64;
const FEATURE_SEG_MAX: u64 = 1 << 2;
const FEATURE_READ_ONLY: u64 = 1 << 5;
const FEATURE_FLUSH: u64 = 1 << 9;
/// Offsets of configuration fields.
const CONFIG_CAPACITY: usize = 0;
const CONFIG_SEG_MAX: usize = 12;
/// Request types.
const TYPE_IN: u32 = 0;
const TYPE_OUT: u32 = 1;
const TYPE_FLUSH: u32 = 4;
const TYPE_GET_ID: u32 = 8;
/// Bytes of a request's header: type, reserved, sector.
const HEADER_BYTES: usize = 16;
/// Status bytes follow the headers in the shared area, then the answer to `GET_ID`.
const STATUS_AT: usize = SLOTS * HEADER_BYTES;
const ID_AT: usize = STATUS_AT + SLOTS;
const ID_BYTES: usize = 20;
/// What a status byte holds until the device writes it.
const STATUS_UNSET: u8 = 0xff;

/// A contiguous piece of memory that a request reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First byte.
    pub address: MachineAddr,
    /// Length; not zero.
    pub bytes: u32,
}

/// A request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What the request was submitted with.
    pub token: u64,
    /// How it ended.
    pub outcome: Result<(), DiskFault>,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// The medium or the device reports an error.
    Io,
    /// The device does not know this kind of request.
    Unsupported,
    /// The device says that all is well but wrote less than it should have.
    Short {
        /// Bytes expected.
        want: u64,
        /// Bytes written.
        got: u64,
    },
    /// A status that the specification does not have, or none at all.
    Status(u8),
    /// The device broke the rules and was given up with the request in flight.
    Abandoned,
}

/// A disk of the machine.
///
/// Requests are asynchronous: submit, then [`MachineDisk::poll`] until it says `None`, after an interrupt or at any
/// other time. They end in any order.
pub struct MachineDisk<P: Platform, T: Transport = SomeTransport<'static>> {
    device: Device<T>,
    ring: Ring<P>,
    /// Headers and status bytes of all slots.
    area: DmaArea<P>,
    slots: [Slot; SLOTS],
    name: String,
    place: Place,
    interrupt: Option<InterruptSource>,
    capacity_sectors: u64,
    max_segments: usize,
    failed: Option<DeviceFault>,
}

#[derive(Clone, Copy)]
enum Slot {
    Free,
    /// With the device; `want` bytes are to be written by it, status byte included.
    InFlight {
        token: u64,
        want: u64,
    },
    /// Ended, not yet reported.
    Ended {
        token: u64,
        outcome: Result<(), DiskFault>,
    },
}

impl<P: Platform, T: Transport> MachineDisk<P, T> {
    /// Takes a disk into use.
    pub fn new(found: Found<T>) -> Result<Self, IoError> {
        if found.kind() != Some(DeviceType::Block) {
            return Err(IoError::WrongKind);
        }
        let (transport, place, interrupt) = found.into_parts();
        let mut device = Device::begin(transport, FEATURE_SEG_MAX | FEATURE_READ_ONLY | FEATURE_FLUSH)?;
        let ring = device.queue(QUEUE)?;
        let area = DmaArea::new(ID_AT + ID_BYTES)?;
        let capacity_sectors = device.config_u64(CONFIG_CAPACITY)?;
        let limit =
            if device.has(FEATURE_SEG_MAX) { device.config_u32(CONFIG_SEG_MAX)? as usize } else { MAX_SEGMENTS };
        device.go();
        let mut disk = Self {
            // Two descriptors are for header and status.
            max_segments: limit.min(MAX_SEGMENTS).min(ring.size() - 2).max(1),
            device,
            ring,
            area,
            slots: [Slot::Free; SLOTS],
            name: String::new(),
            place,
            interrupt,
            capacity_sectors,
            failed: None,
        };
        disk.name = disk.read_serial()?.unwrap_or_else(|| format!("disk@{}", disk.place));
        Ok(disk)
    }

    /// The serial number that the disk was given (`serial=` in QEMU), or where it sits.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it sits.
    #[must_use]
    pub const fn place(&self) -> Place {
        self.place
    }

    /// Its interrupt.
    #[must_use]
    pub const fn interrupt(&self) -> Option<InterruptSource> {
        self.interrupt
    }

    /// Sectors of [`SECTOR_BYTES`] bytes.
    #[must_use]
    pub const fn capacity_sectors(&self) -> u64 {
        self.capacity_sectors
    }

    /// Writes are refused.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.device.has(FEATURE_READ_ONLY)
    }

    /// Most pieces of one request.
    #[must_use]
    pub const fn max_segments(&self) -> usize {
        self.max_segments
    }

    /// Requests that are with the device or not yet reported.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.slots.iter().filter(|slot| !matches!(slot, Slot::Free)).count()
    }

    /// Reads from `sector` on into `segments`, one after the other. On an error nothing was submitted.
    ///
    /// # Safety
    /// The segments are memory that nobody reads or writes until the request has been reported by
    /// [`MachineDisk::poll`].
    pub unsafe fn submit_read(&mut self, token: u64, sector: u64, segments: &[Segment]) -> Result<(), IoError> {
        let bytes = self.check(sector, segments)?;
        self.submit(token, TYPE_IN, sector, segments, bytes + 1)
    }

    /// Writes `segments`, one after the other, from `sector` on. On an error nothing was submitted. What is written, if
    /// the memory changes before the request has been reported, is undetermined.
    pub fn submit_write(&mut self, token: u64, sector: u64, segments: &[Segment]) -> Result<(), IoError> {
        if self.is_read_only() {
            return Err(IoError::ReadOnly);
        }
        self.check(sector, segments)?;
        self.submit(token, TYPE_OUT, sector, segments, 1)
    }

    /// Makes everything durable that was reported as written before. Ends at once on a disk without a volatile cache.
    pub fn submit_flush(&mut self, token: u64) -> Result<(), IoError> {
        if self.device.has(FEATURE_FLUSH) {
            return self.submit(token, TYPE_FLUSH, 0, &[], 1);
        }
        let slot = self.free_slot()?;
        self.slots[slot] = Slot::Ended { token, outcome: Ok(()) };
        Ok(())
    }

    /// Takes the interrupt back: call when it arrives, before polling. True if the device
    /// asked for it.
    pub fn acknowledge(&mut self) -> bool {
        self.device.acknowledge()
    }

    /// The next request that has ended, if any. When it says `None`, the disk will interrupt for the next one.
    pub fn poll(&mut self) -> Option<Completion> {
        if let Some(completion) = self.take_ended() {
            return Some(completion);
        }
        if self.failed.is_some() {
            return None;
        }
        match self.ring.pop(Alert::Yes) {
            Ok(used) => {
                let used = used?;
                self.end(usize::from(used.cookie), u64::from(used.written));
            }
            Err(fault) => self.give_up(fault),
        }
        self.take_ended()
    }

    fn check(&self, sector: u64, segments: &[Segment]) -> Result<u64, IoError> {
        if segments.len() > self.max_segments {
            return Err(IoError::TooManySegments { got: segments.len(), limit: self.max_segments });
        }
        let bytes = segments.iter().map(|segment| u64::from(segment.bytes)).sum::<u64>();
        if bytes == 0 || !bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(IoError::WrongLength { bytes });
        }
        let end = sector.checked_add(bytes / SECTOR_BYTES);
        if end.is_none_or(|end| end > self.capacity_sectors) {
            return Err(IoError::OutOfRange { sector, capacity: self.capacity_sectors });
        }
        Ok(bytes)
    }

    fn submit(&mut self, token: u64, kind: u32, sector: u64, segments: &[Segment], want: u64) -> Result<(), IoError> {
        if let Some(fault) = self.failed {
            return Err(IoError::DeviceFailed(fault));
        }
        let slot = self.free_slot()?;
        self.area.write_u32(HEADER_BYTES * slot, kind);
        self.area.write_u32(HEADER_BYTES * slot + 4, 0);
        self.area.write_u64(HEADER_BYTES * slot + 8, sector);
        self.area.write_u8(STATUS_AT + slot, STATUS_UNSET);
        let is_read = kind == TYPE_IN || kind == TYPE_GET_ID;
        let header = self.area.address(HEADER_BYTES * slot);
        let mut pieces = [Piece { address: header, bytes: HEADER_BYTES as u32, is_written: false }; MAX_SEGMENTS + 2];
        for (piece, segment) in pieces[1..].iter_mut().zip(segments) {
            *piece = Piece { address: segment.address, bytes: segment.bytes, is_written: is_read };
        }
        let status = self.area.address(STATUS_AT + slot);
        pieces[segments.len() + 1] = Piece { address: status, bytes: 1, is_written: true };
        // At most SLOTS, which fits.
        self.ring.add(pieces[..segments.len() + 2].iter().copied(), slot as u16)?;
        self.slots[slot] = Slot::InFlight { token, want };
        self.device.notify(&mut self.ring);
        Ok(())
    }

    fn free_slot(&self) -> Result<usize, IoError> {
        self.slots.iter().position(|slot| matches!(slot, Slot::Free)).ok_or(IoError::QueueFull)
    }

    fn end(&mut self, slot: usize, written: u64) {
        let Slot::InFlight { token, want } = self.slots[slot] else { return };
        let outcome = match self.area.read_u8(STATUS_AT + slot) {
            0 if written < want => Err(DiskFault::Short { want: want - 1, got: written.saturating_sub(1) }),
            0 => Ok(()),
            1 => Err(DiskFault::Io),
            2 => Err(DiskFault::Unsupported),
            status => Err(DiskFault::Status(status)),
        };
        self.slots[slot] = Slot::Ended { token, outcome };
    }

    fn take_ended(&mut self) -> Option<Completion> {
        for slot in &mut self.slots {
            if let Slot::Ended { token, outcome } = *slot {
                *slot = Slot::Free;
                return Some(Completion { token, outcome });
            }
        }
        None
    }

    /// The device can no longer be trusted with memory: it is reset, and whatever it had is reported as lost.
    fn give_up(&mut self, fault: DeviceFault) {
        self.failed = Some(fault);
        self.device.reset();
        for slot in &mut self.slots {
            if let Slot::InFlight { token, .. } = *slot {
                *slot = Slot::Ended { token, outcome: Err(DiskFault::Abandoned) };
            }
        }
    }

    /// The serial number; `None` if the disk has none.
    fn read_serial(&mut self) -> Result<Option<String>, IoError> {
        let id = Segment { address: self.area.address(ID_AT), bytes: ID_BYTES as u32 };
        self.submit(0, TYPE_GET_ID, 0, &[id], 1)?;
        let mut completion = None;
        wait(|| {
            completion = self.poll();
            completion.is_some()
        })?;
        match completion {
            Some(Completion { outcome: Ok(()), .. }) => {
                let mut id = [0; ID_BYTES];
                self.area.read_bytes(ID_AT, &mut id);
                let text = id.split(|&byte| byte == 0).next().unwrap_or_default();
                Ok(core::str::from_utf8(text).ok().filter(|text| !text.is_empty()).map(String::from))
            }
            // Disks need not have one.
            _ => match self.failed {
                Some(fault) => Err(IoError::DeviceFailed(fault)),
                None => Ok(None),
            },
        }
    }
}
