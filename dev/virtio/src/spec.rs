//! Names and numbers that all virtio devices share.

use bitflags::bitflags;

/// Virtio device types, "Device Types" (5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DeviceId {
    /// Network card.
    Net = 1,
    /// Block device.
    Block = 2,
    /// Console.
    Console = 3,
    /// Entropy source.
    Entropy = 4,
    /// Traditional memory balloon.
    Balloon = 5,
}

bitflags! {
    /// The device status field, "Device Status Field" (2.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Status: u32 {
        /// The guest has noticed the device.
        const ACKNOWLEDGE = 1;
        /// The guest knows how to drive the device.
        const DRIVER = 2;
        /// The driver is set up; the device is live.
        const DRIVER_OK = 4;
        /// Feature negotiation is complete.
        const FEATURES_OK = 8;
        /// The device cannot go on without a reset.
        const DEVICE_NEEDS_RESET = 64;
        /// The driver has given the device up.
        const FAILED = 128;
    }
}

/// `VIRTIO_F_INDIRECT_DESC`: a descriptor may name a table of descriptors.
pub const F_INDIRECT_DESC: u64 = 1 << 28;
/// `VIRTIO_F_EVENT_IDX`: notifications are suppressed by index instead of by flag.
pub const F_EVENT_IDX: u64 = 1 << 29;
/// `VIRTIO_F_VERSION_1`: the device follows the specification, not its legacy draft.
pub const F_VERSION_1: u64 = 1 << 32;

/// The features that the transport and the queues give to every device.
pub const TRANSPORT_FEATURES: u64 = F_INDIRECT_DESC | F_EVENT_IDX | F_VERSION_1;
