//! A disk of flash: pages on channels that work side by side.

use crate::{Operation, PS_PER_US, Request, SECTOR_BYTES};

/// Most channels of a disk.
const MAX_CHANNELS: usize = 16;

/// A flash disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlashShape {
    /// Channels; pages lie on them in turn.
    pub channels: usize,
    /// Sectors of a page.
    pub page_sectors: u64,
    /// Time to read a page from the cells.
    pub read_ps: u64,
    /// Time until a written page is safe.
    pub write_ps: u64,
    /// Time that the controller needs for a request; requests pass it one after the other.
    pub overhead_ps: u64,
    /// Time of a sector on the bus.
    pub bus_sector_ps: u64,
}

/// A flash disk and its state.
#[derive(Debug, Clone)]
pub struct Flash {
    shape: FlashShape,
    scale: u64,
    controller_ps: u64,
    bus_ps: u64,
    channels: [u64; MAX_CHANNELS],
}

impl FlashShape {
    /// Eight channels of 4 KiB pages, 60 us to read and 20 us to write one, 5 us a request, a bus of 3.2 GB/s.
    pub const fn ssd() -> Self {
        Self {
            channels: 8,
            page_sectors: 8,
            read_ps: 60 * PS_PER_US,
            write_ps: 20 * PS_PER_US,
            overhead_ps: 5 * PS_PER_US,
            bus_sector_ps: SECTOR_BYTES * PS_PER_US / 3200,
        }
    }
}

impl Flash {
    pub const fn new(shape: FlashShape, scale: u32) -> Self {
        Self { shape, scale: scale as u64, controller_ps: 0, bus_ps: 0, channels: [0; MAX_CHANNELS] }
    }

    /// When the request, which is on the disk, is complete.
    pub fn serve(&mut self, now_ps: u64, request: Request) -> u64 {
        let Request { operation, sector, sectors } = request;
        self.controller_ps = now_ps.max(self.controller_ps) + self.shape.overhead_ps;
        let bus = sectors * self.shape.bus_sector_ps;
        match operation {
            Operation::Read => {
                let read = self.pages(self.controller_ps, sector, sectors, self.shape.read_ps);
                self.bus_ps = self.bus_ps.max(read) + bus;
                self.bus_ps
            }
            Operation::Write => {
                self.bus_ps = self.bus_ps.max(self.controller_ps) + bus;
                self.pages(self.bus_ps, sector, sectors, self.shape.write_ps)
            }
        }
    }

    /// Works on all pages of the request, each on its channel; when the last is done.
    fn pages(&mut self, start_ps: u64, sector: u64, sectors: u64, page_ps: u64) -> u64 {
        let (first, last) = (sector / self.shape.page_sectors, (sector + sectors - 1) / self.shape.page_sectors);
        let channels = self.shape.channels as u64;
        let page_ps = page_ps / self.scale;
        let mut done = start_ps;
        for lane in 0..channels.min(last - first + 1) {
            let pages = (last - first - lane) / channels + 1;
            let channel = &mut self.channels[((first + lane) % channels) as usize];
            *channel = start_ps.max(*channel) + pages * page_ps;
            done = done.max(*channel);
        }
        done
    }
}
