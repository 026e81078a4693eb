//! What a store needs of the world.

use storage::{GuestCopy, Outcome, Request};

/// Where a part of a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The disk or partition below the volume.
    Base(crate::VolumeId),
    /// The store's own partition.
    Store,
}

/// The disks that a store works on. What it starts ends at once or by [`crate::Store::on_done`], in any order, never from
/// inside these calls.
pub trait Backend {
    /// Starts a part of a guest's request.
    fn submit(&mut self, to: Target, op: u64, request: Request<'_>, guest: &dyn GuestCopy) -> Outcome;

    /// Starts to write `bytes` of the store's own, whole blocks, to its partition from `sector` on. They can be had again
    /// from [`crate::Store::own_bytes`] until the end.
    fn write(&mut self, op: u64, sector: u64, bytes: &[u8]) -> Outcome;

    /// Starts to make durable what has been written to the store's partition.
    fn flush(&mut self, op: u64) -> Outcome;
}
