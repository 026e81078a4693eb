//! What a mechanical disk reads into its buffer after a request, in case that the next one goes on there.

/// Sectors in the buffer or on their way there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadAhead {
    /// First sector that the buffer holds.
    pub first: u64,
    /// The sector at which reading ahead began.
    pub from: u64,
    /// When that was.
    pub from_ps: u64,
    /// End of what will be read, if nothing interrupts.
    pub end: u64,
}

impl ReadAhead {
    /// Whether a request for these sectors can be answered from here.
    pub const fn covers(&self, sector: u64, end: u64) -> bool {
        self.first <= sector && end <= self.end
    }
}
