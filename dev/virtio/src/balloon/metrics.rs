//! Counters.

/// What a balloon has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalloonMetrics {
    /// Chains of reported free blocks.
    pub reports: u64,
    /// Bytes released because they were reported.
    pub bytes_reported: u64,
    /// Bytes released because they were put into the balloon.
    pub bytes_inflated: u64,
    /// Page numbers that are not RAM.
    pub pages_refused: u64,
}
