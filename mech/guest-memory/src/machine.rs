//! The machine around a VM's memory, as far as that needs it.

use crate::GuestRam;
use addr::{CpuIndex, MachineAddr, NodeId, VmId};
use control::EventKind;
use frames::{Frames, MachineMemory};

/// Machine memory by the byte, for what devices read and write.
///
/// Guests write the same bytes at the same time: bytes are copied, and no reference is ever made. A load or store of a naturally
/// aligned value is single-copy atomic. As for [`MachineMemory`], an implementation may take any address that the caller does not own
/// for a bug.
pub trait ByteMemory: MachineMemory {
    /// Loads the aligned half-word at `addr`.
    fn load_u16(&self, addr: MachineAddr) -> u16;
    /// Loads the aligned word at `addr`.
    fn load_u32(&self, addr: MachineAddr) -> u32;
    /// Stores an aligned half-word at `addr`.
    fn store_u16(&self, addr: MachineAddr, value: u16);
    /// Stores an aligned word at `addr`.
    fn store_u32(&self, addr: MachineAddr, value: u32);
    /// Stores an aligned double word at `addr`; nothing is ordered by it, unlike by [`MachineMemory::write_u64`].
    fn store_u64(&self, addr: MachineAddr, value: u64);
    /// Copies memory from `addr` on into `buf`. Where both are aligned to a length of 1, 2, 4 or 8 bytes it is one load.
    fn read_bytes(&self, addr: MachineAddr, buf: &mut [u8]);
    /// Copies `data` to memory from `addr` on. Where both are aligned to a length of 1, 2, 4 or 8 bytes it is one store.
    fn write_bytes(&self, addr: MachineAddr, data: &[u8]);
    /// Copies `len` bytes; the two ranges do not overlap.
    fn copy_bytes(&self, to: MachineAddr, from: MachineAddr, len: u64);
}

/// The machine around a VM's memory: a handle that costs nothing to clone.
///
/// Nothing here blocks, but for [`Machine::relieve`], which is called with no memory of a VM locked.
pub trait Machine: Clone + Sized {
    /// Its memory.
    type Memory: ByteMemory;

    /// What is in its pages.
    fn memory(&self) -> &Self::Memory;

    /// Who has its pages.
    fn frames(&self) -> &Frames;

    /// All nodes, the nearest to `node` first. Nodes are numbered from 0 on.
    fn nearest(&self, node: NodeId) -> &[NodeId];

    /// The node of the calling hart; node 0 while harts have not begun.
    fn here(&self) -> NodeId;

    /// How many harts there are.
    fn harts(&self) -> usize;

    /// Interrupts a hart, so that it leaves the guest that it runs soon.
    fn kick(&self, cpu: CpuIndex);

    /// The time, in ticks.
    fn now(&self) -> u64;

    /// Ticks of a second.
    fn ticks_per_second(&self) -> u64;

    /// What the owner of the VM may want to know.
    fn tell(&self, vm: VmId, what: EventKind);

    /// Frames of some VM wait for harts from now on: somebody calls [`GuestRam::free_deferred`] until none do.
    fn note_deferred(&self);

    /// A device of the VM with this memory needs a page and there is none: gives something up. `false` if nothing is left. Bounded, but
    /// it may take long.
    fn relieve(&self, asking: &GuestRam<Self>) -> bool;
}

/// No copies are made on a node with less than this part of its memory free: one of so many.
const RESERVE: u64 = 16;

/// Whether the node has enough free memory for copies of pages: a sixteenth of what it has.
#[must_use]
pub fn has_reserve(frames: &Frames, node: NodeId) -> bool {
    let counts = frames.counts(node);
    counts.get(frames::PageState::Free) >= counts.total() / RESERVE
}
