//! What `storage` and `volumes` are given: machine pages, drivers, guests' memory.

use super::units;
use crate::machine::{
    HOME_NODE, devices, direct, heap_reserve,
    memory::{frames, nearest},
    relief,
};
use addr::{GuestPhysAddr, MachineAddr, Mfn, NodeId};
use core::cell::Cell;
use device::{GuestMemory, PageMap};
use frames::PageUse;
use machine_io::{IoError, Segment};
use storage::{BadGuestMemory, DiskIo, GuestCopy, IoRefused, IoToken, PageStore, Piece};

/// Pages of caches and overlays: shared ones, of which the disk holds the first reference and guests may have more.
pub struct MachinePages;

impl PageStore for MachinePages {
    fn alloc(&self, node: NodeId) -> Option<Mfn> {
        let mut nodes = nearest(node).iter();
        nodes.find_map(|node| frames().alloc(*node, 0, PageUse::Shared)).map(frames::Frame::settle)
    }

    fn free(&self, page: Mfn) {
        if let Err(why) = frames().release_hold(page) {
            log::error!("a page of the disk cache is not one: {why}");
        }
    }

    fn is_mapped(&self, page: Mfn) -> bool {
        !frames().is_held_alone(page)
    }

    fn is_short(&self) -> bool {
        heap_reserve::is_short()
    }

    fn relieve(&self) -> bool {
        // A heap that may not grow is not helped by pages.
        !heap_reserve::is_short() && relief::ask_now(None)
    }

    fn node_of(&self, page: Mfn) -> NodeId {
        frames().map().node_of(page).unwrap_or(HOME_NODE)
    }

    fn zero(&self, at: MachineAddr, len: u64) {
        const ZEROES: [u8; 512] = [0; 512];
        let mut done = 0;
        while done < len {
            let part = (len - done).min(ZEROES.len() as u64);
            direct::write_bytes(MachineAddr::new(at.raw() + done), &ZEROES[..part as usize]);
            done += part;
        }
    }

    fn copy(&self, dst: MachineAddr, src: MachineAddr, len: u64) {
        direct::copy(dst, src, len);
    }
}

/// The driver of disk `index`: this cell's, or for reads the leader's.
pub struct Driver {
    pub index: usize,
}

impl Driver {
    fn with(
        &self,
        pieces: &[Piece],
        start: impl FnOnce(&mut devices::Disk, &[Segment]) -> Result<(), IoError>,
    ) -> Result<(), IoRefused> {
        let segments: heapless::Vec<Segment, { machine_io::MAX_SEGMENTS }> =
            pieces.iter().map(|piece| Segment { address: piece.addr, bytes: piece.bytes }).collect();
        let disk = devices::all().disks.get(self.index).ok_or(IoRefused::Failed)?;
        start(&mut disk.lock(), &segments).map_err(|why| match why {
            IoError::QueueFull => IoRefused::Busy,
            _ => IoRefused::Failed,
        })
    }
}

impl DiskIo for Driver {
    #[expect(unsafe_code)]
    fn submit_read(&mut self, sector: u64, pieces: &[Piece], token: IoToken) -> Result<(), IoRefused> {
        if devices::all().disks.get(self.index).is_none() {
            let unit = units().get(self.index).ok_or(IoRefused::Failed)?;
            return unit.remote.begin(self.index, sector, pieces, token);
        }
        // UNSAFETY and SAFETY: `storage` reads into pages of its cache that nobody looks at until `on_io_complete`;
        // they belong to it since `PageStore::alloc` and are mapped into no guest before that. Another cell's pages are that cell's
        // cache's, which keeps the same rule until it is answered.
        self.with(pieces, |disk, segments| unsafe { disk.submit_read(token.0, sector, segments) })
    }

    fn submit_write(&mut self, sector: u64, pieces: &[Piece], token: IoToken) -> Result<(), IoRefused> {
        self.with(pieces, |disk, segments| disk.submit_write(token.0, sector, segments))
    }

    fn submit_flush(&mut self, token: IoToken) -> Result<(), IoRefused> {
        self.with(&[], |disk, _| disk.submit_flush(token.0))
    }
}

/// A guest's memory as `storage` wants it.
pub struct Guest<'a> {
    memory: &'a dyn GuestMemory,
    /// Pages were mapped that other vCPUs may not see yet.
    is_unsettled: Cell<bool>,
}

impl<'a> Guest<'a> {
    pub const fn new(memory: &'a dyn GuestMemory) -> Self {
        Self { memory, is_unsettled: Cell::new(false) }
    }

    /// Calls vCPUs away from what was there before: without the disk's lock, and before anybody asks whether the guest may hear of it.
    pub fn settle(self) {
        if self.is_unsettled.get() {
            self.memory.settle_maps();
        }
    }
}

impl GuestCopy for Guest<'_> {
    fn copy_from_machine(&self, dst: GuestPhysAddr, src: MachineAddr, len: u64) -> Result<(), BadGuestMemory> {
        self.memory.copy_from_machine(dst, src, len).map_err(|_| BadGuestMemory)
    }

    fn copy_to_machine(&self, dst: MachineAddr, src: GuestPhysAddr, len: u64) -> Result<(), BadGuestMemory> {
        self.memory.copy_to_machine(dst, src, len).map_err(|_| BadGuestMemory)
    }

    fn write(&self, dst: GuestPhysAddr, data: &[u8]) -> Result<(), BadGuestMemory> {
        self.memory.write(dst, data).map_err(|_| BadGuestMemory)
    }

    fn map(&self, dst: GuestPhysAddr, page: Mfn) -> bool {
        let outcome = self.memory.map_page(dst, page);
        if outcome == PageMap::Unsettled {
            self.is_unsettled.set(true);
        }
        outcome != PageMap::Refused
    }
}

/// The memory of a guest that is gone, or that was reset: not to be touched.
pub struct Gone;

impl GuestCopy for Gone {
    fn copy_from_machine(&self, _: GuestPhysAddr, _: MachineAddr, _: u64) -> Result<(), BadGuestMemory> {
        Err(BadGuestMemory)
    }

    fn copy_to_machine(&self, _: MachineAddr, _: GuestPhysAddr, _: u64) -> Result<(), BadGuestMemory> {
        Err(BadGuestMemory)
    }

    fn write(&self, _: GuestPhysAddr, _: &[u8]) -> Result<(), BadGuestMemory> {
        Err(BadGuestMemory)
    }

    fn map(&self, _: GuestPhysAddr, _: Mfn) -> bool {
        false
    }
}

/// Bytes of the monitor that are written to a disk, as the memory of a guest that begins at address 0.
pub struct OwnBytes<'a>(pub &'a [u8]);

impl GuestCopy for OwnBytes<'_> {
    fn copy_from_machine(&self, _: GuestPhysAddr, _: MachineAddr, _: u64) -> Result<(), BadGuestMemory> {
        Err(BadGuestMemory)
    }

    fn copy_to_machine(&self, dst: MachineAddr, src: GuestPhysAddr, len: u64) -> Result<(), BadGuestMemory> {
        let start = src.raw() as usize;
        let bytes = start.checked_add(len as usize).and_then(|end| self.0.get(start..end));
        bytes.map(|bytes| direct::write_bytes(dst, bytes)).ok_or(BadGuestMemory)
    }

    fn write(&self, _: GuestPhysAddr, _: &[u8]) -> Result<(), BadGuestMemory> {
        Err(BadGuestMemory)
    }

    fn map(&self, _: GuestPhysAddr, _: Mfn) -> bool {
        false
    }
}
