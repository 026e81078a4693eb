//! What a guest can get wrong, by kind of answer.

use device::{GuestFault, MemoryFault};

/// A virtqueue that no correct driver would build. Stops the guest: its memory is already corrupt, and going on
/// would only hide the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingError {
    /// Queue size zero, not a power of two or above the maximum.
    QueueSize(u32),
    /// A ring address breaks the alignment of "Split Virtqueues" (2.7).
    RingMisaligned(u64),
    /// A ring does not lie wholly in guest RAM.
    RingOutsideRam(u64),
    /// The available index claims more chains than the queue has descriptors.
    AvailJump(u16),
    /// An available ring entry names a descriptor that does not exist.
    HeadOutOfRange(u16),
    /// The same head was made available again while the device still has it.
    HeadInFlight(u16),
    /// `next` names a descriptor that does not exist.
    NextOutOfRange(u16),
    /// More descriptors than the queue (or the indirect table) has: a loop, or beyond [`crate::MAX_SEGMENTS`].
    ChainTooLong(u32),
    /// An indirect descriptor without `VIRTIO_F_INDIRECT_DESC`.
    IndirectNotNegotiated(u16),
    /// An indirect descriptor with `NEXT`, or inside an indirect table.
    IndirectNested(u16),
    /// An indirect table whose length is zero, no multiple of 16 or beyond the bound.
    IndirectSize(u32),
    /// An indirect table that does not lie wholly in guest RAM.
    IndirectOutsideRam(u64),
    /// A device-readable descriptor after a device-writable one.
    ReadableAfterWritable(u16),
    /// A buffer of no bytes.
    EmptyBuffer(u16),
    /// A buffer that does not lie wholly in guest RAM.
    BufferOutsideRam(u64),
    /// A chain of 4 GiB or more.
    TotalTooLong(u64),
    /// Guest RAM refused an access that was validated before.
    Memory(u64),
}

impl RingError {
    /// The reason, in words for the owner of the guest.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::QueueSize(_) => "virtqueue size is not a power of two within the maximum",
            Self::RingMisaligned(_) => "virtqueue ring is misaligned",
            Self::RingOutsideRam(_) => "virtqueue ring lies outside RAM",
            Self::AvailJump(_) => "available index runs ahead of the queue",
            Self::HeadOutOfRange(_) => "available entry names no descriptor",
            Self::HeadInFlight(_) => "descriptor chain made available twice",
            Self::NextOutOfRange(_) => "descriptor link names no descriptor",
            Self::ChainTooLong(_) => "descriptor chain loops or is too long",
            Self::IndirectNotNegotiated(_) => "indirect descriptor without the feature",
            Self::IndirectNested(_) => "indirect descriptor is nested or chained",
            Self::IndirectSize(_) => "indirect table has a bad length",
            Self::IndirectOutsideRam(_) => "indirect table lies outside RAM",
            Self::ReadableAfterWritable(_) => "readable descriptor follows a writable one",
            Self::EmptyBuffer(_) => "descriptor of zero length",
            Self::BufferOutsideRam(_) => "buffer lies outside RAM",
            Self::TotalTooLong(_) => "descriptor chain of 4 GiB or more",
            Self::Memory(_) => "guest memory could not be accessed",
        }
    }

    /// The offending number.
    #[must_use]
    pub const fn value(self) -> u64 {
        match self {
            Self::AvailJump(v)
            | Self::HeadOutOfRange(v)
            | Self::HeadInFlight(v)
            | Self::NextOutOfRange(v)
            | Self::IndirectNotNegotiated(v)
            | Self::IndirectNested(v)
            | Self::ReadableAfterWritable(v)
            | Self::EmptyBuffer(v) => v as u64,
            Self::QueueSize(v) | Self::ChainTooLong(v) | Self::IndirectSize(v) => v as u64,
            Self::RingMisaligned(v)
            | Self::RingOutsideRam(v)
            | Self::IndirectOutsideRam(v)
            | Self::BufferOutsideRam(v)
            | Self::TotalTooLong(v)
            | Self::Memory(v) => v,
        }
    }

    /// The fault that stops the guest of `device`.
    #[must_use]
    pub const fn into_fault(self, device: &'static str) -> GuestFault {
        GuestFault { device, reason: self.reason(), value: self.value() }
    }
}

impl From<MemoryFault> for RingError {
    fn from(fault: MemoryFault) -> Self {
        Self::Memory(fault.addr.raw())
    }
}

/// A well-formed chain that the device cannot even answer with an error. The device asks for a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The device-readable part is shorter than the request's header.
    HeaderTooShort,
    /// There is no device-writable byte for the answer.
    NoRoomForAnswer,
}

impl ProtocolError {
    /// The reason, in words for the owner of the guest.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::HeaderTooShort => "request is shorter than its header",
            Self::NoRoomForAnswer => "request has no room for an answer",
        }
    }
}

/// Why a model stops serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// Stops the guest.
    Ring(RingError),
    /// Sets `DEVICE_NEEDS_RESET`.
    Protocol(ProtocolError),
}

impl From<RingError> for DeviceError {
    fn from(error: RingError) -> Self {
        Self::Ring(error)
    }
}

impl From<ProtocolError> for DeviceError {
    fn from(error: ProtocolError) -> Self {
        Self::Protocol(error)
    }
}

impl From<MemoryFault> for DeviceError {
    fn from(fault: MemoryFault) -> Self {
        Self::Ring(fault.into())
    }
}
