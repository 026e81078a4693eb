//! Counters.

/// What a block device has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockMetrics {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards and write-zeroes.
    pub discards: u64,
    /// Bytes of read requests.
    pub bytes_read: u64,
    /// Bytes of write requests.
    pub bytes_written: u64,
    /// Requests that did not finish within their submission.
    pub pending: u64,
    /// Requests that ended with an error, or were refused.
    pub errors: u64,
}
