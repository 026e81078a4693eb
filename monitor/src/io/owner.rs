//! A VM as disks and networks see it.

use addr::{Gfn, Mfn, VmId};
use device::GuestMemory;
use rv::csr;
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

    /// It owes so many ticks of a hart, for work that was done for it outside the turns of its vCPUs.
    fn owe(&self, ticks: u64);

    /// Calls `each` with the machine page of each of so many of its pages that is in memory.
    fn machine_pages(&self, first: Gfn, pages: u64, each: &mut dyn FnMut(Mfn));
}

/// Does some work for a VM. With a `payer` it is outside the turns of that one's vCPUs, and it owes the time.
pub fn at_cost_of<T>(payer: Option<&dyn DeviceOwner>, work: impl FnOnce() -> T) -> T {
    let Some(vm) = payer else { return work() };
    let begin = csr::time::read();
    let result = work();
    vm.owe(csr::time::read().wrapping_sub(begin));
    result
}
