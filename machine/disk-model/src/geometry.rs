//! Where a sector is.

/// Surfaces, tracks and sectors of a disk without zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Tracks of a surface.
    pub cylinders: u64,
    /// Tracks of a cylinder.
    pub heads: u64,
    /// Sectors of a track.
    pub track_sectors: u64,
    /// How far the first sector of a track is behind that of the track before, so that a head switch loses no turn.
    pub track_skew: u64,
    /// The same between the last track of a cylinder and the first of the next.
    pub cylinder_skew: u64,
}

/// Where a sector is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Its cylinder.
    pub cylinder: u64,
    /// Its surface.
    pub head: u64,
    /// Its place on the track by angle, from 0 to `track_sectors` - 1.
    pub slot: u64,
}

impl Geometry {
    /// Sectors of the disk.
    pub const fn sectors(&self) -> u64 {
        self.cylinders * self.heads * self.track_sectors
    }

    /// Number of the track of a sector.
    pub const fn track(&self, sector: u64) -> u64 {
        sector / self.track_sectors
    }

    /// Where a sector is.
    pub const fn position(&self, sector: u64) -> Position {
        let track = self.track(sector);
        let (cylinder, head) = (track / self.heads, track % self.heads);
        let skew = (track - cylinder) * self.track_skew + cylinder * self.cylinder_skew;
        Position { cylinder, head, slot: (sector % self.track_sectors + skew) % self.track_sectors }
    }
}
