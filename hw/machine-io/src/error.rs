//! What can go wrong between the monitor and the machine's devices.

use core::fmt;

use crate::counters::CountersError;
use addr::MachineAddr;
use virtio_drivers::{
    Error as TransportError,
    transport::{mmio::MmioError, pci::VirtioPciError},
};

/// A device or its driver cannot do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IoError {
    /// No contiguous memory for queues or buffers.
    OutOfMemory {
        /// Pages that were wanted.
        pages: usize,
    },
    /// Every request slot or descriptor is taken. Try again after the next completion.
    QueueFull,
    /// A request with more pieces than the device takes at once.
    TooManySegments {
        /// Pieces in the request.
        got: usize,
        /// Most pieces.
        limit: usize,
    },
    /// A piece of zero bytes, or a disk request that is not a multiple of 512 bytes.
    WrongLength {
        /// Bytes.
        bytes: u64,
    },
    /// Sectors beyond the end of the disk.
    OutOfRange {
        /// First sector.
        sector: u64,
        /// Sectors in the disk.
        capacity: u64,
    },
    /// A write to a read-only disk.
    ReadOnly,
    /// A frame that does not fit into a buffer.
    FrameTooLong {
        /// Bytes in the frame.
        bytes: usize,
        /// Most bytes.
        limit: usize,
    },
    /// The device is of another kind than the driver.
    WrongKind,
    /// The device did not accept the features that it offered.
    FeaturesRefused,
    /// The device did not come out of reset, or did not answer while it was being set up.
    Timeout,
    /// The device has no such queue, or one too small to be of use.
    NoQueue {
        /// The queue.
        queue: u16,
        /// Its greatest size, according to the device.
        size: u32,
    },
    /// The device broke the rules of its queue and was reset. It is not used again.
    DeviceFailed(DeviceFault),
    /// The configuration space cannot be read.
    Config(TransportError),
    /// Not a usable virtio-mmio slot.
    Mmio(MmioError),
    /// Not a usable virtio function on PCI.
    Pci(VirtioPciError),
    /// No window of the host bridge has room for a BAR.
    NoRoomForBar {
        /// The BAR.
        bar: u8,
        /// Its size.
        bytes: u64,
    },
    /// Shared memory that holds no miss counters.
    Counters(CountersError),
    /// The platform cannot map device registers.
    NotMapped {
        /// First address.
        address: MachineAddr,
    },
}

/// How a device broke the rules of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceFault {
    /// It returned a descriptor that it was never given.
    UnknownDescriptor {
        /// The descriptor.
        id: u32,
    },
    /// It returned more entries than it was given.
    TooManyUsed {
        /// How far its index is ahead.
        ahead: u16,
    },
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory { pages } => write!(f, "no {pages} contiguous pages for a device queue"),
            Self::QueueFull => f.write_str("device queue is full"),
            Self::TooManySegments { got, limit } => write!(f, "request of {got} pieces, the device takes {limit}"),
            Self::WrongLength { bytes } => write!(f, "request of {bytes} bytes"),
            Self::OutOfRange { sector, capacity } => write!(f, "sector {sector} on a disk of {capacity} sectors"),
            Self::ReadOnly => f.write_str("disk is read-only"),
            Self::FrameTooLong { bytes, limit } => write!(f, "frame of {bytes} bytes, at most {limit} fit"),
            Self::WrongKind => f.write_str("device is of another kind"),
            Self::FeaturesRefused => f.write_str("device refused the features it had offered"),
            Self::Timeout => f.write_str("device does not answer"),
            Self::NoQueue { queue, size } => write!(f, "device queue {queue} has room for {size} descriptors only"),
            Self::DeviceFailed(fault) => write!(f, "device failed: {fault}"),
            Self::Config(why) => write!(f, "device configuration: {why}"),
            Self::Mmio(why) => write!(f, "virtio-mmio: {why}"),
            Self::Pci(why) => write!(f, "virtio on PCI: {why}"),
            Self::NoRoomForBar { bar, bytes } => write!(f, "no window has {bytes:#x} bytes for BAR {bar}"),
            Self::Counters(why) => why.fmt(f),
            Self::NotMapped { address } => write!(f, "cannot map device registers at {address:?}"),
        }
    }
}

impl fmt::Display for DeviceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownDescriptor { id } => write!(f, "returned descriptor {id}, which it did not have"),
            Self::TooManyUsed { ahead } => write!(f, "returned {ahead} entries, more than it had"),
        }
    }
}

impl core::error::Error for IoError {}
