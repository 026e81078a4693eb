//! Counters.

/// What a network device has done since it was made. "Transmit" and "receive" are the guest's directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetMetrics {
    /// Frames taken from the guest.
    pub transmitted: u64,
    /// Their bytes.
    pub bytes_transmitted: u64,
    /// Frames of the guest that made no sense (size, header).
    pub transmit_refused: u64,
    /// Frames given to the guest.
    pub received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// Frames for which the guest had no buffer yet.
    pub receive_full: u64,
    /// Frames that could not be given to the guest.
    pub receive_dropped: u64,
    /// Frames whose checksum or segmentation was done here because the guest cannot take them as they are.
    pub software_offloads: u64,
}
