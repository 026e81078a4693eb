//! A VM's memory on this machine: the crate `guest-memory` over the direct map, the allocator and the harts.

mod facts;

pub use facts::{Facts, one_more};
pub use guest_memory::{
    Access, BLOCK_MOVES, Candidates, CopyStep, Migration, MoveStep, PORTION, PlacedCounts, RAM_START, Replication,
    Touch, Watched, Wish, ZeroPages, equal_places,
};

use crate::{
    hart,
    machine::{
        self, agenda, direct,
        memory::{DirectMemory, frames, nearest},
        relief::{self, Asking},
    },
    trace,
};
use addr::{CpuIndex, Gfn, GuestPhysAddr, MachineAddr, NodeId, PageSize, VcpuIndex, VmId};
use control::{EventKind, Pages, VmSpec};
use frames::Frames;
use guest_memory::{ByteMemory, Machine, Spec};
use rv::csr;

/// The memory of a VM.
pub type GuestRam = guest_memory::GuestRam<ThisMachine>;
/// Pages of two VMs that are on their way to become one.
pub type Merge = guest_memory::Merge<ThisMachine>;

/// RAM of `bytes` bytes for `vm`, all absent. `None` when there is no memory for the tables.
#[must_use]
pub fn new(vm: VmId, bytes: u64, spec: &VmSpec) -> Option<GuestRam> {
    let mode = machine::capabilities().gstage_mode;
    let spec = Spec { bytes, mode, large_pages: spec.pages == Pages::Large, may_share: spec.sharing };
    GuestRam::new(ThisMachine, vm, &spec)
}

/// Where vCPU `vcpu` of a VM with AIA has its interrupt file.
#[must_use]
pub fn file_gfn(vcpu: VcpuIndex) -> Gfn {
    GuestPhysAddr::new(::platform::map::IMSIC.base + u64::from(vcpu.0) * addr::BASE_PAGE).gfn()
}

/// The machine that the monitor runs on.
#[derive(Clone, Copy, Debug)]
pub struct ThisMachine;

impl Machine for ThisMachine {
    type Memory = DirectMemory;

    #[inline(always)]
    fn memory(&self) -> &DirectMemory {
        &DirectMemory
    }

    #[inline(always)]
    fn frames(&self) -> &Frames {
        frames()
    }

    #[inline(always)]
    fn nearest(&self, node: NodeId) -> &[NodeId] {
        nearest(node)
    }

    #[inline(always)]
    fn here(&self) -> NodeId {
        hart::this_hart().map_or(NodeId(0), |hart| hart.node)
    }

    fn harts(&self) -> usize {
        hart::all().len()
    }

    #[inline(always)]
    fn kick(&self, cpu: CpuIndex) {
        if let Some(hart) = hart::all().get(cpu.index()) {
            hart.kick();
        }
    }

    #[inline(always)]
    fn now(&self) -> u64 {
        csr::time::read()
    }

    fn ticks_per_second(&self) -> u64 {
        machine::capabilities().timebase_hz
    }

    fn tell(&self, vm: VmId, what: EventKind) {
        trace::record(Some(vm), what);
    }

    fn note_deferred(&self) {
        agenda::defer();
    }

    fn relieve(&self, asking: &GuestRam) -> bool {
        relief::ask_now(Some(asking))
    }
}

impl Asking for GuestRam {
    fn give_up_copies(&self, pages: usize) -> u64 {
        self.give_up_copies(pages)
    }

    fn free_deferred(&self) -> bool {
        self.free_deferred()
    }
}

impl ByteMemory for DirectMemory {
    #[inline(always)]
    fn load_u16(&self, addr: MachineAddr) -> u16 {
        direct::read_u16(addr)
    }

    #[inline(always)]
    fn load_u32(&self, addr: MachineAddr) -> u32 {
        direct::read_u32(addr)
    }

    #[inline(always)]
    fn store_u16(&self, addr: MachineAddr, value: u16) {
        direct::write_u16(addr, value);
    }

    #[inline(always)]
    fn store_u32(&self, addr: MachineAddr, value: u32) {
        direct::write_u32(addr, value);
    }

    #[inline(always)]
    fn store_u64(&self, addr: MachineAddr, value: u64) {
        direct::write_u64(addr, value);
    }

    #[inline(always)]
    fn read_bytes(&self, addr: MachineAddr, buf: &mut [u8]) {
        direct::read_bytes(addr, buf);
    }

    #[inline(always)]
    fn write_bytes(&self, addr: MachineAddr, data: &[u8]) {
        direct::write_bytes(addr, data);
    }

    #[inline(always)]
    fn copy_bytes(&self, to: MachineAddr, from: MachineAddr, len: u64) {
        direct::copy(to, from, len);
    }
}

/// A few words of a page in one: equal pages have the same, and few others do.
#[must_use]
pub fn fingerprint(page: addr::Mfn) -> u64 {
    guest_memory::fingerprint(&DirectMemory, page)
}

const _: () = assert!(PageSize::Base.bytes() == storage::BLOCK, "a block of the disk cache is a page");
const _: () = assert!(RAM_START == control::RAM_START, "descriptions are checked against it");
const _: () = assert!(machine_tree::MAX_NODES == guest_memory::NODES, "copies are told apart on all nodes");
const _: () = assert!(merging::PORTION == PORTION as u64, "a portion that is proposed is merged at a time");
