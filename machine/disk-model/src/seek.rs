//! How long the arm takes.

/// A seek curve of two parts: `near_base + near_root * sqrt(d)` below `knee` cylinders, `far_base + far_step * d` from
/// there on; a seek of no distance takes no time. Times in picoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeekCurve {
    /// Constant part of a short seek.
    pub near_base_ps: u64,
    /// Times the root of the distance.
    pub near_root_ps: u64,
    /// First distance of a long seek.
    pub knee: u64,
    /// Constant part of a long seek.
    pub far_base_ps: u64,
    /// Times the distance.
    pub far_step_ps: u64,
}

impl SeekCurve {
    /// Ruemmler and Wilkes, "An introduction to disk drive modeling", for the HP 97560; Kotz, Toh and Radhakrishnan use
    /// the same: 3.24 + 0.400 sqrt(d) ms below 383 cylinders, 8.00 + 0.008 d ms from there on.
    pub const HP97560: Self = Self {
        near_base_ps: 3_240_000_000,
        near_root_ps: 400_000_000,
        knee: 383,
        far_base_ps: 8_000_000_000,
        far_step_ps: 8_000_000,
    };

    /// Time of a seek over so many cylinders.
    pub fn time_ps(&self, distance: u64) -> u64 {
        if distance == 0 {
            return 0;
        }
        if distance >= self.knee {
            return self.far_base_ps + self.far_step_ps * distance;
        }
        // The root of a number of nanoseconds squared: exact to a nanosecond, and the same everywhere.
        let root_ns = self.near_root_ps / 1000;
        self.near_base_ps + (root_ns * root_ns * distance).isqrt() * 1000
    }
}
