//! Counters.

/// What went through a UART since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UartMetrics {
    /// Bytes that the guest has sent and that were kept.
    pub bytes_out: u64,
    /// Bytes that the guest has read.
    pub bytes_in: u64,
    /// Bytes that the guest has sent while the device said that it was not ready: lost.
    pub dropped: u64,
}
