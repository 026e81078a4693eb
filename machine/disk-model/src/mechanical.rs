//! A disk with an arm and platters.

use crate::geometry::{Geometry, Position};
use crate::read_ahead::ReadAhead;
use crate::seek::SeekCurve;
use crate::{Operation, PS_PER_US, Request, SECTOR_BYTES};

/// A mechanical disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MechanicalShape {
    /// Where sectors are.
    pub geometry: Geometry,
    /// How long the arm takes.
    pub seek: SeekCurve,
    /// Time of a turn.
    pub turn_ps: u64,
    /// Time to use another surface of the same cylinder.
    pub head_switch_ps: u64,
    /// Time that the controller needs for a request before anything moves.
    pub overhead_ps: u64,
    /// Time of a sector on the bus.
    pub bus_sector_ps: u64,
    /// Sectors of the buffer.
    pub buffer_sectors: u64,
}

/// A mechanical disk and its state.
#[derive(Debug, Clone)]
pub struct Mechanical {
    shape: MechanicalShape,
    /// Divides the time of seeks.
    scale: u64,
    /// The sectors there are.
    sectors: u64,
    /// When it has finished what was asked.
    free_ps: u64,
    /// Where the arm is.
    cylinder: u64,
    head: u64,
    ahead: Option<ReadAhead>,
}

impl MechanicalShape {
    /// HP 97560: 1,962 cylinders of 19 tracks of 72 sectors, 4,002 turns a minute, SCSI of 10 MB/s, a buffer of 128 KiB.
    /// Sources: Ruemmler and Wilkes, "An introduction to disk drive modeling" (1994), Kotz, Toh and Radhakrishnan, "A
    /// detailed simulation model of the HP 97560 disk drive" (1994).
    pub const fn hp97560() -> Self {
        Self {
            geometry: Geometry { cylinders: 1962, heads: 19, track_sectors: 72, track_skew: 8, cylinder_skew: 18 },
            seek: SeekCurve::HP97560,
            // 60 s / 4,002.
            turn_ps: 60 * 1_000_000 * PS_PER_US / 4002,
            head_switch_ps: 1_600 * PS_PER_US,
            overhead_ps: 2_200 * PS_PER_US,
            bus_sector_ps: SECTOR_BYTES * PS_PER_US / 10,
            buffer_sectors: 256,
        }
    }

    const fn sector_ps(&self) -> u64 {
        self.turn_ps / self.geometry.track_sectors
    }
}

impl Mechanical {
    pub const fn new(shape: MechanicalShape, scale: u32, sectors: u64) -> Self {
        Self { shape, scale: scale as u64, sectors, free_ps: 0, cylinder: 0, head: 0, ahead: None }
    }

    /// When the request, which is on the disk, is complete.
    pub fn serve(&mut self, now_ps: u64, request: Request) -> u64 {
        let start = now_ps.max(self.free_ps) + self.shape.overhead_ps;
        let Request { operation, sector, sectors } = request;
        let bus = sectors * self.shape.bus_sector_ps;
        let done = match (operation, self.ahead.filter(|ahead| ahead.covers(sector, sector + sectors))) {
            (Operation::Read, Some(ahead)) => {
                // The platter feeds the buffer on while the bus empties it: the slower of both sets the pace.
                let (_, read) = self.media(ahead.from, sector + sectors, ahead.from_ps);
                self.ahead = Some(self.go_on(&ahead, sector + sectors, read, start));
                (start + bus).max(read + self.shape.bus_sector_ps)
            }
            (Operation::Read, None) => {
                let read = self.access(start, sector, sectors);
                let end = sector + sectors;
                self.ahead = Some(ReadAhead { first: sector, from: end, from_ps: read, end: self.ahead_end(end) });
                // All but the last sector crosses the bus while the platter turns.
                read + self.shape.bus_sector_ps
            }
            (Operation::Write, _) => {
                self.ahead = None;
                // The first sector has to be there before it can be written.
                self.access(start + self.shape.bus_sector_ps, sector, sectors)
            }
        };
        self.free_ps = done;
        done
    }

    /// Reading ahead goes on behind a request that ends at `end`, whose last sector was in the buffer at `read_ps`.
    fn go_on(&self, ahead: &ReadAhead, end: u64, read_ps: u64, now_ps: u64) -> ReadAhead {
        let (_, full_ps) = self.media(ahead.from, ahead.end, ahead.from_ps);
        let (from, from_ps) = if full_ps <= now_ps {
            // The buffer was full and the disk stood by: what is behind comes from now on.
            (ahead.end, now_ps)
        } else if end > ahead.from {
            (end, read_ps)
        } else {
            (ahead.from, ahead.from_ps)
        };
        let new_end = self.ahead_end(end).max(ahead.end);
        let first = ahead.first.max(new_end.saturating_sub(self.shape.buffer_sectors));
        ReadAhead { first, from, from_ps, end: new_end }
    }

    fn ahead_end(&self, from: u64) -> u64 {
        (from + self.shape.buffer_sectors).min(self.sectors)
    }

    /// Moves the arm, waits for the first sector and lets all pass under the heads; when that is over.
    fn access(&mut self, start_ps: u64, sector: u64, sectors: u64) -> u64 {
        // Where reading ahead has taken the arm since the last request.
        if let Some(ahead) = self.ahead {
            let at = self.shape.geometry.position(self.ahead_at(&ahead, start_ps));
            (self.cylinder, self.head) = (at.cylinder, at.head);
        }
        let Position { cylinder, head, .. } = self.shape.geometry.position(sector);
        let settled = start_ps + self.arm_ps(cylinder, head);
        let (last, done) = self.media(sector, sector + sectors, settled);
        (self.cylinder, self.head) = (last.cylinder, last.head);
        done
    }

    fn arm_ps(&self, cylinder: u64, head: u64) -> u64 {
        let switch = if head == self.head { 0 } else { self.shape.head_switch_ps };
        let seek = self.shape.seek.time_ps(self.cylinder.abs_diff(cylinder)) / self.scale;
        // Heads are switched while the arm moves.
        seek.max(switch)
    }

    /// Lets sectors `from..end` pass under the heads, the arm being there at `at_ps`. Where it is afterwards, and when.
    fn media(&self, from: u64, end: u64, at_ps: u64) -> (Position, u64) {
        let geometry = &self.shape.geometry;
        let (mut sector, mut time) = (from, at_ps);
        let mut place = geometry.position(from);
        while sector < end {
            let next = geometry.position(sector);
            if next.cylinder != place.cylinder {
                time += self.shape.seek.time_ps(1) / self.scale;
            } else if next.head != place.head {
                time += self.shape.head_switch_ps;
            }
            place = next;
            let track_end = (geometry.track(sector) + 1) * geometry.track_sectors;
            let piece = track_end.min(end) - sector;
            time = self.under_head(place.slot, time) + piece * self.shape.sector_ps();
            sector += piece;
        }
        (place, time)
    }

    /// When the start of `slot` next comes under the head. All platters turn as one, from time 0 at slot 0.
    fn under_head(&self, slot: u64, time_ps: u64) -> u64 {
        let turn = self.shape.sector_ps() * self.shape.geometry.track_sectors;
        let angle = time_ps % turn;
        let wanted = slot * self.shape.sector_ps();
        time_ps + (wanted + turn - angle) % turn
    }

    /// The sector that reading ahead has reached.
    fn ahead_at(&self, ahead: &ReadAhead, now_ps: u64) -> u64 {
        let (mut low, mut high) = (ahead.from.min(self.sectors - 1), ahead.end.min(self.sectors - 1));
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            let (_, read) = self.media(ahead.from, middle, ahead.from_ps);
            if read <= now_ps { low = middle } else { high = middle - 1 }
        }
        low
    }
}

#[cfg(test)]
mod tests;
