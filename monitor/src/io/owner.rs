//! A VM as disks and networks see it.

use addr::{Gfn, Mfn, VmId};
use device::GuestMemory;
use virtio::block::BlockTag;

/// Whoever owns a device that waits for a disk or a network. Devices are named by their slot.
pub trait DeviceOwner: Send + Sync {
    /// Its identity.
    fn id(&self) -> VmId;

    /// Whether its memory may be going. Whoever is about to touch it asks with a lock held that its end takes, too
    /// ([`super::disks::let_go`]).
    fn is_ending(&self) -> bool;

    /// Its memory.
    fn memory(&self) -> &dyn GuestMemory;

    /// A request of the disk in `slot` has ended. No disk may be locked.
    fn complete_block(&self, slot: usize, tag: BlockTag, status: storage::Status);

    /// Frames wait for the network interface in `slot`: takes some. `None` if there is no such interface (yet), else whether there
    /// may be more that it could take.
    fn receive(&self, slot: usize) -> Option<bool>;

    /// Calls `each` with the machine page of each of so many of its pages that is in memory.
    fn machine_pages(&self, first: Gfn, pages: u64, each: &mut dyn FnMut(Mfn));
}
