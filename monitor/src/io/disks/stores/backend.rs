//! The machine's disks, as a store sees them.

use super::{
    super::{
        access::{Driver, MachinePages, OwnBytes},
        units,
    },
    StoreUnit,
};
use addr::{GuestPhysAddr, NodeId};
use storage::{BLOCKS_PER_CALL, Context, GuestCopy, Kind, MountId, Outcome, Request, SECTOR, Status};
use volumes::{Backend, Target};

/// The disks as a store sees them.
pub(super) struct Disks<'a> {
    pub(super) store: &'a StoreUnit,
    pub(super) node: NodeId,
}

impl Disks<'_> {
    fn submit_to(&self, unit: usize, mount: MountId, op: u64, request: Request<'_>, guest: &dyn GuestCopy) -> Outcome {
        let mut driver = Driver { index: unit };
        let mut context = Context { pages: &MachinePages, io: &mut driver, node: self.node, budget: BLOCKS_PER_CALL };
        units()[unit].shared.lock().submit(mount, op, request, guest, &mut context)
    }

    fn submit_own(&self, op: u64, kind: Kind, sector: u64, bytes: &[u8]) -> Outcome {
        // At most MAX_OP_BLOCKS blocks.
        let segments = [(GuestPhysAddr::new(0), bytes.len() as u32)];
        let request = Request { kind, sector, sectors: bytes.len() as u64 / SECTOR, segments: &segments };
        self.submit_to(self.store.unit, self.store.mount, op, request, &OwnBytes(bytes))
    }
}

impl Backend for Disks<'_> {
    fn submit(&mut self, to: Target, op: u64, request: Request<'_>, guest: &dyn GuestCopy) -> Outcome {
        let place = match to {
            Target::Store => Some((self.store.unit, self.store.mount)),
            Target::Base(volume) => {
                let users = self.store.users.lock();
                users.iter().find(|user| user.volume == volume).map(|user| (user.base_unit, user.base))
            }
        };
        match place {
            Some((unit, mount)) => self.submit_to(unit, mount, op, request, guest),
            None => Outcome::Done(Status::IoError),
        }
    }

    fn write(&mut self, op: u64, sector: u64, bytes: &[u8]) -> Outcome {
        self.submit_own(op, Kind::Write, sector, bytes)
    }

    fn flush(&mut self, op: u64) -> Outcome {
        self.submit_own(op, Kind::Flush, 0, &[])
    }
}
