//! Counters.

/// What a console has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsoleMetrics {
    /// Bytes from the guest, all ports.
    pub bytes_out: u64,
    /// Bytes from the guest that nobody listened to.
    pub bytes_discarded: u64,
    /// Bytes to the guest.
    pub bytes_in: u64,
    /// Control messages from the guest that made no sense.
    pub control_refused: u64,
}
