//! A VM's disk: the adapter from virtio-blk to the machine's shared disks.

use super::Traffic;
use crate::io::disks::{self, View};
use addr::GuestPhysAddr;
use alloc::{sync::Arc, vec::Vec};
use device::GuestMemory;
use storage::{Kind, Outcome as StorageOutcome, Request, Segments};
use virtio::{
    GuestSegment,
    block::{BlockBackend, BlockKind, BlockRequest, BlockStatus, BlockTag, Outcome, QUEUE_SIZE},
};

/// The host's side of a virtio-blk device.
pub struct DiskPort {
    view: Arc<View>,
    sectors: u64,
    is_read_only: bool,
    serial: [u8; 20],
    traffic: Traffic,
    /// The disk has requests that can go on, of this VM or of others.
    is_pump_due: bool,
    /// Requests that have ended, of which the guest hears when no vCPU sees its memory as it was before.
    late: Vec<(BlockTag, BlockStatus)>,
}

impl DiskPort {
    /// A disk called `name` in the guest.
    #[must_use]
    pub fn new(view: Arc<View>, name: &str) -> Self {
        let mut serial = [0; 20];
        for (place, byte) in serial.iter_mut().zip(name.bytes()) {
            *place = byte;
        }
        let (sectors, is_read_only) = (view.sectors(), view.is_read_only());
        Self {
            view,
            sectors,
            is_read_only,
            serial,
            traffic: Traffic::default(),
            is_pump_due: false,
            late: Vec::with_capacity(usize::from(QUEUE_SIZE)),
        }
    }

    /// What went through.
    #[must_use]
    pub const fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// What goes on once the device's lock is free, if anything can. Asked once.
    #[must_use]
    pub fn take_pump_due(&mut self) -> Option<disks::Due> {
        core::mem::take(&mut self.is_pump_due).then(|| self.view.due())
    }

    /// What a request that could not be finished at once has come to, for the guest. `None` if it hears of it later.
    #[must_use]
    pub fn end_status(
        &mut self,
        tag: BlockTag,
        status: storage::Status,
        memory: &dyn GuestMemory,
    ) -> Option<BlockStatus> {
        self.view.note(status);
        let status = disks::block_status(status);
        self.tell_now(tag, status, memory).then_some(status)
    }

    /// Whether the guest may hear of this request now. If not, it is kept: there are no more than the queue has places.
    fn tell_now(&mut self, tag: BlockTag, status: BlockStatus, memory: &dyn GuestMemory) -> bool {
        let is_settled = memory.is_settled();
        if !is_settled {
            self.late.push((tag, status));
        }
        is_settled
    }

    /// Whether there is anything that the guest has not heard of.
    #[must_use]
    pub fn is_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// The next request that the guest is to hear of now.
    pub fn next_late(&mut self) -> Option<(BlockTag, BlockStatus)> {
        self.late.pop()
    }
}

struct List<'a>(&'a [GuestSegment]);

impl Segments for List<'_> {
    fn segment(&self, index: usize) -> Option<(GuestPhysAddr, u32)> {
        self.0.get(index).map(|segment| (segment.addr, segment.len))
    }
}

impl BlockBackend for DiskPort {
    fn capacity_sectors(&self) -> u64 {
        self.sectors
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn can_discard(&self) -> bool {
        !self.is_read_only
    }

    fn id(&self) -> [u8; 20] {
        self.serial
    }

    fn submit(&mut self, tag: BlockTag, request: BlockRequest<'_>, memory: &dyn GuestMemory) -> Outcome {
        let kind = match request.kind {
            BlockKind::Read => Kind::Read,
            BlockKind::Write => Kind::Write,
            BlockKind::Flush => Kind::Flush,
            BlockKind::Discard => Kind::Discard,
            BlockKind::WriteZeroes { .. } => Kind::WriteZeroes,
        };
        match kind {
            Kind::Read => self.traffic.disk_read_sectors += request.sectors,
            Kind::Write => self.traffic.disk_written_sectors += request.sectors,
            Kind::Flush | Kind::Discard | Kind::WriteZeroes => {}
        }
        let segments = List(request.segments);
        let wanted = Request { kind, sector: request.sector, sectors: request.sectors, segments: &segments };
        let (outcome, is_pump_due) = self.view.submit(tag, wanted, memory);
        self.is_pump_due |= is_pump_due;
        match outcome {
            StorageOutcome::Done(status) => {
                let status = disks::block_status(status);
                if self.tell_now(tag, status, memory) { Outcome::Done(status) } else { Outcome::Pending }
            }
            StorageOutcome::Pending => Outcome::Pending,
        }
    }

    fn cancel_all(&mut self) {
        self.late.clear();
        self.is_pump_due |= self.view.cancel();
    }
}
