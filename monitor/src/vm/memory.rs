//! A VM's memory: the pmap (the truth), one G-stage table per node (its caches), and the door for devices.
//!
//! One lock guards pmap and tables of a VM. It is never held while waiting for other harts: what must wait for a
//! shootdown leaves the lock as a [`PendingShootdown`] first.

mod fault;

use crate::machine::{
    self, direct,
    memory::{DirectMemory, frames, nearest},
};
use addr::{BASE_PAGE, Gfn, GuestPhysAddr, MachineAddr, Mfn, NodeId, PageSize, SpuId, VmId};
use alloc::{boxed::Box, vec::Vec};
use control::{EventKind, Pages, VmMemory};
use core::sync::atomic::{AtomicU64, Ordering};
use device::{GuestMemory, MemoryFault};
use frames::{DyingList, PendingShootdown, Pool};
use gstage::NodeTable;
use pmap::Pmap;
use rv_pte::PteFlags;
use spin::Mutex;
use tlb::ShootdownTracker;

/// First byte of guest RAM, as on QEMU's `virt` machine.
pub const RAM_START: u64 = 0x8000_0000;

/// How the guest touched memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Load.
    Read,
    /// Store or AMO.
    Write,
    /// Instruction fetch.
    Execute,
}

/// What came of a touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// There is a leaf now: try again.
    Mapped,
    /// There was a leaf: the hart remembers that there was none, or a weaker one, and has to forget it.
    Repeated,
    /// The machine has no memory left; the VM has been told to stop.
    OutOfMemory,
}

/// A VM's memory.
pub struct GuestRam {
    vm: VmId,
    base: Gfn,
    pages: u64,
    large_allowed: bool,
    inner: Mutex<Inner>,
    tlb: ShootdownTracker,
    roots: Box<[u64]>,
    /// Pages that the guest gave back.
    returned: AtomicU64,
    /// Pages that came back and are in no event yet.
    untold: AtomicU64,
}

/// Bytes that a single access can fill, so that a value at an aligned address is never torn.
#[repr(align(8))]
struct Aligned<const N: usize>([u8; N]);

struct Inner {
    pmap: Pmap,
    tables: Box<[NodeTable]>,
    teardown_at: Option<Gfn>,
}

impl GuestRam {
    fn pool<'a>(&self, nodes: &'a [NodeId]) -> Pool<'a, DirectMemory> {
        Pool { frames: frames(), memory: &DirectMemory, nodes, vm: self.vm, spu: SpuId(0) }
    }

    /// Who may hold translations of this memory.
    #[inline]
    #[must_use]
    pub const fn tlb(&self) -> &ShootdownTracker {
        &self.tlb
    }

    /// Is `addr` RAM?
    #[inline]
    #[must_use]
    pub const fn is_ram(&self, addr: GuestPhysAddr) -> bool {
        addr.gfn().raw().wrapping_sub(self.base.raw()) < self.pages
    }

    /// Bytes of RAM.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.pages * BASE_PAGE
    }

    /// The G-stage root for harts of `node`, with the mode, as in `hgatp`.
    #[must_use]
    pub fn root(&self, node: NodeId) -> u64 {
        self.roots[node.index()]
    }

    /// Memory returned by the guest so far, in pages.
    #[must_use]
    pub fn pages_returned(&self) -> u64 {
        self.returned.load(Ordering::Relaxed)
    }
}

/// Pages that a guest gives back before an event tells: 16 MiB.
const PAGES_PER_EVENT: u64 = 4096;
/// Bytes copied with the memory's lock held.
const LONGEST_PIECE: u64 = 64 << 10;
/// Guest pages that one teardown step gives back: bounded work.
const TEARDOWN_BLOCKS: u64 = 4 * addr::PAGES_PER_LARGE;

impl GuestRam {
    /// RAM of `bytes` bytes, all absent. `None` when there is no memory for the tables.
    #[must_use]
    pub fn new(vm: VmId, bytes: u64, pages: Pages) -> Option<Self> {
        let base = GuestPhysAddr::new(RAM_START).gfn();
        let count = bytes / BASE_PAGE;
        let mode = machine::capabilities().gstage_mode;
        let mut tables = Vec::new();
        for node in machine::description().nodes.ids() {
            let nodes = nearest(node);
            let pool = Pool { frames: frames(), memory: &DirectMemory, nodes, vm, spu: SpuId(0) };
            tables.push(NodeTable::new(&pool, mode)?);
        }
        let roots: Option<Vec<u64>> = tables.iter().map(|table| table.hgatp().ok()).collect();
        Some(Self {
            vm,
            base,
            pages: count,
            large_allowed: pages == Pages::Large,
            roots: roots?.into_boxed_slice(),
            inner: Mutex::new(Inner {
                pmap: Pmap::new(vm, base, count).ok()?,
                tables: tables.into_boxed_slice(),
                teardown_at: Some(base),
            }),
            tlb: ShootdownTracker::new(crate::hart::all().len()),
            returned: AtomicU64::new(0),
            untold: AtomicU64::new(0),
        })
    }

    /// One access to `size` bytes of naturally aligned RAM, see [`GuestRam::quick_run`].
    #[inline(always)]
    fn quick<T>(&self, addr: GuestPhysAddr, size: u64, access: impl FnOnce(MachineAddr) -> T) -> Option<T> {
        self.quick_run(addr, size, size, access)
    }

    /// One access to `len` bytes of RAM, aligned to `align`: what rings and indices need, in a few dozen instructions.
    /// `None` where it takes the long way: misaligned, more than one page, no RAM, or no plain private page there (yet).
    ///
    /// The lock is held during the access, so the page cannot be taken away under it.
    #[inline(always)]
    fn quick_run<T>(
        &self,
        addr: GuestPhysAddr,
        align: u64,
        len: u64,
        access: impl FnOnce(MachineAddr) -> T,
    ) -> Option<T> {
        if !addr.raw().is_multiple_of(align) || (len > align && addr.page_offset() > BASE_PAGE - len) {
            return None;
        }
        let inner = self.inner.lock();
        let (page, _) = inner.pmap.private_run(&DirectMemory, addr.gfn())?;
        Some(access(MachineAddr::new(page.addr().raw() | addr.page_offset())))
    }

    /// Calls `each` with the machine address and length of every piece of `[addr, addr + len)`, populating on the way.
    /// The memory's lock is held during each call, so that the page cannot be taken away under the copy.
    #[inline]
    fn for_each_piece(
        &self,
        addr: GuestPhysAddr,
        len: u64,
        mut each: impl FnMut(MachineAddr, u64, u64),
    ) -> Result<(), MemoryFault> {
        let mut done = 0;
        while done < len {
            let at = addr.checked_add(done).ok_or(MemoryFault { addr })?;
            let mut inner = self.inner.lock();
            let (page, pages) = match inner.pmap.private_run(&DirectMemory, at.gfn()) {
                Some(run) => run,
                None => self.populate_for_device(&mut inner, at).ok_or(MemoryFault { addr: at })?,
            };
            let room = pages * BASE_PAGE - at.page_offset();
            let piece = room.min(len - done).min(LONGEST_PIECE);
            each(MachineAddr::new(page.addr().raw() | at.page_offset()), done, piece);
            done += piece;
        }
        Ok(())
    }

    /// The machine page behind `addr`, and how many follow, after giving the guest one if need be.
    #[cold]
    fn populate_for_device(&self, inner: &mut Inner, addr: GuestPhysAddr) -> Option<(Mfn, u64)> {
        let node = crate::boot::this_hart().map_or(NodeId(0), |hart| hart.node);
        let gfn = Some(addr.gfn()).filter(|_| self.is_ram(addr))?;
        let mapping = inner.populated(&self.pool(nearest(node)), gfn, self.large_allowed)?;
        let index = gfn.raw() - mapping.gfn.raw();
        Some((mapping.machine_page(gfn)?, mapping.size.base_pages() - index))
    }

    /// The long way to a small value.
    #[cold]
    fn bytes_at<const N: usize>(&self, addr: GuestPhysAddr) -> Result<[u8; N], MemoryFault> {
        let mut bytes = Aligned([0; N]);
        self.read(addr, &mut bytes.0)?;
        Ok(bytes.0)
    }

    /// Maps the interrupt file `page` of a hart as vCPU `vcpu`'s file, in all nodes' tables.
    #[must_use]
    pub fn map_file(&self, vcpu: addr::VcpuIndex, page: Mfn) -> bool {
        let gfn = file_gfn(vcpu);
        let mut inner = self.inner.lock();
        let mut all = true;
        for (node, table) in inner.tables.iter_mut().enumerate() {
            let pool = self.pool(nearest(NodeId(node as u8)));
            all &= table.install(&pool, gfn, page, PageSize::Base, PteFlags::RW).is_ok();
        }
        all
    }

    /// Takes vCPU `vcpu`'s file out of the tables, for good when it returns.
    pub fn unmap_file(&self, vcpu: addr::VcpuIndex) {
        let token = {
            let mut inner = self.inner.lock();
            inner.remove_leaves(file_gfn(vcpu), 1);
            self.tlb.retire()
        };
        self.finish(PendingShootdown::new(token, DyingList::new()));
    }

    /// The guest does not need `[start, start + len)` any more: its machine pages are free when this returns.
    pub fn give_back(&self, start: GuestPhysAddr, len: u64) {
        let node = crate::boot::this_hart().map_or(NodeId(0), |hart| hart.node);
        let pool = self.pool(nearest(node));
        let mut next = Some(start.gfn());
        let end = start.gfn().raw() + len / BASE_PAGE;
        let mut returned = 0;
        while let Some(at) = next {
            let mut dying = DyingList::new();
            let token = {
                let mut inner = self.inner.lock();
                let pages = end.saturating_sub(at.raw());
                let outcome = inner.pmap.release(&pool, at, pages, &mut dying);
                next = outcome.as_ref().ok().and_then(|released| released.next);
                returned += outcome.map_or(0, |released| released.pages);
                let covered = next.map_or(pages, |next| next.raw() - at.raw());
                inner.remove_leaves(at, covered);
                self.tlb.retire()
            };
            self.finish(PendingShootdown::new(token, dying));
        }
        self.returned.fetch_add(returned, Ordering::Relaxed);
        self.tell_returned(returned, PAGES_PER_EVENT);
    }

    /// So many pages came back; an event says so when there are `enough`.
    fn tell_returned(&self, pages: u64, enough: u64) {
        if self.untold.fetch_add(pages, Ordering::Relaxed) + pages < enough {
            return;
        }
        let untold = self.untold.swap(0, Ordering::Relaxed);
        if untold != 0 {
            crate::trace::record(Some(self.vm), EventKind::PagesReturned { pages: untold });
        }
    }

    /// Waits until no hart can use what `pending` removed, then frees its frames. Never called with a lock held that a
    /// hart inside the VM could wait for.
    fn finish(&self, pending: PendingShootdown) {
        for cpu in pending.targets(&self.tlb).iter() {
            if let Some(hart) = crate::hart::all().get(cpu.index()) {
                hart.kick();
            }
        }
        let mut pending = pending;
        loop {
            match pending.redeem(&self.tlb) {
                Ok(freeable) => {
                    freeable.free_all(frames());
                    return;
                }
                Err(again) => pending = again,
            }
            core::hint::spin_loop();
        }
    }

    /// One bounded step of giving everything back; no vCPU is left. `true` while there is more.
    pub fn tear_down_step(&self) -> bool {
        let pool = self.pool(nearest(NodeId(0)));
        let mut dying = DyingList::new();
        let mut inner = self.inner.lock();
        let more = match inner.teardown_at {
            Some(at) => {
                let end = self.base.raw() + self.pages;
                let pages = TEARDOWN_BLOCKS.min(end - at.raw());
                let released = inner.pmap.release(&pool, at, pages, &mut dying).ok();
                self.untold.fetch_add(released.map_or(0, |released| released.pages), Ordering::Relaxed);
                let next = released.and_then(|released| released.next);
                let next = next.unwrap_or(Gfn::new(at.raw() + pages));
                inner.teardown_at = (next.raw() < end).then_some(next);
                true
            }
            None if !inner.tables.is_empty() => {
                for table in core::mem::take(&mut inner.tables) {
                    if let Err(why) = table.dismantle(&pool, &mut dying) {
                        log::error!("G-stage table of VM {:?}: {why:?}", self.vm);
                    }
                }
                true
            }
            None => false,
        };
        drop(inner);
        if !more {
            self.tell_returned(0, 0);
        }
        self.finish(PendingShootdown::new(self.tlb.retire(), dying));
        more
    }

    /// Its pages by node.
    #[must_use]
    pub fn resident(&self) -> Vec<VmMemory> {
        let inner = self.inner.lock();
        let counts = inner.pmap.counts();
        let large = counts.large_blocks() * addr::PAGES_PER_LARGE;
        let mut left = large;
        machine::description()
            .nodes
            .ids()
            .map(|node| {
                let on_node = counts.on(node);
                // The pmap counts large blocks for the whole VM; they are shown where there is room for them.
                let large_pages = left.min(on_node & !(addr::PAGES_PER_LARGE - 1));
                left -= large_pages;
                VmMemory {
                    node,
                    large_pages,
                    private_pages: on_node - large_pages,
                    table_pages: inner.tables.get(node.index()).map_or(0, NodeTable::pages),
                    // Where they lie is not counted: on the nodes of those who touched first.
                    monitor_pages: if node == NodeId(0) { counts.table_pages() } else { 0 },
                    ..VmMemory::default()
                }
            })
            .collect()
    }
}

fn file_gfn(vcpu: addr::VcpuIndex) -> Gfn {
    GuestPhysAddr::new(::platform::map::IMSIC.base + u64::from(vcpu.0) * BASE_PAGE).gfn()
}

/// The word after the first one of `bytes` bytes, in the same page.
const fn second(first: MachineAddr, bytes: u64) -> MachineAddr {
    MachineAddr::new(first.raw() + bytes)
}

impl GuestMemory for GuestRam {
    #[inline]
    fn read_u16(&self, addr: GuestPhysAddr) -> Result<u16, MemoryFault> {
        self.quick(addr, 2, direct::read_u16).map_or_else(|| self.bytes_at(addr).map(u16::from_le_bytes), Ok)
    }

    #[inline]
    fn read_u32(&self, addr: GuestPhysAddr) -> Result<u32, MemoryFault> {
        self.quick(addr, 4, direct::read_u32).map_or_else(|| self.bytes_at(addr).map(u32::from_le_bytes), Ok)
    }

    #[inline]
    fn read_u64(&self, addr: GuestPhysAddr) -> Result<u64, MemoryFault> {
        self.quick(addr, 8, direct::read_u64).map_or_else(|| self.bytes_at(addr).map(u64::from_le_bytes), Ok)
    }

    #[inline]
    fn write_u16(&self, addr: GuestPhysAddr, value: u16) -> Result<(), MemoryFault> {
        let quick = self.quick(addr, 2, |at| direct::write_u16(at, value));
        quick.map_or_else(|| self.write(addr, &Aligned(value.to_le_bytes()).0), Ok)
    }

    #[inline]
    fn write_u32(&self, addr: GuestPhysAddr, value: u32) -> Result<(), MemoryFault> {
        let quick = self.quick(addr, 4, |at| direct::write_u32(at, value));
        quick.map_or_else(|| self.write(addr, &Aligned(value.to_le_bytes()).0), Ok)
    }

    #[inline]
    fn write_u64(&self, addr: GuestPhysAddr, value: u64) -> Result<(), MemoryFault> {
        let quick = self.quick(addr, 8, |at| direct::write_u64(at, value));
        quick.map_or_else(|| self.write(addr, &Aligned(value.to_le_bytes()).0), Ok)
    }

    #[inline]
    fn read_u64_pair(&self, addr: GuestPhysAddr) -> Result<[u64; 2], MemoryFault> {
        let quick = self.quick_run(addr, 8, 16, |at| [direct::read_u64(at), direct::read_u64(second(at, 8))]);
        let words = |bytes| {
            let value = u128::from_le_bytes(bytes);
            [value as u64, (value >> 64) as u64]
        };
        quick.map_or_else(|| self.bytes_at(addr).map(words), Ok)
    }

    #[inline]
    fn write_u32_pair(&self, addr: GuestPhysAddr, values: [u32; 2]) -> Result<(), MemoryFault> {
        let [low, high] = values;
        let quick = self.quick_run(addr, 4, 8, |at| {
            direct::write_u32(at, low);
            direct::write_u32(second(at, 4), high);
        });
        quick.map_or_else(|| self.write(addr, &(u64::from(high) << 32 | u64::from(low)).to_le_bytes()), Ok)
    }

    #[inline]
    fn write_u8(&self, addr: GuestPhysAddr, value: u8) -> Result<(), MemoryFault> {
        let quick = self.quick(addr, 1, |at| direct::write_bytes(at, &[value]));
        quick.map_or_else(|| self.write(addr, &[value]), Ok)
    }

    fn read(&self, addr: GuestPhysAddr, buf: &mut [u8]) -> Result<(), MemoryFault> {
        self.for_each_piece(addr, buf.len() as u64, |at, done, len| {
            direct::read_bytes(at, &mut buf[done as usize..(done + len) as usize]);
        })
    }

    fn write(&self, addr: GuestPhysAddr, data: &[u8]) -> Result<(), MemoryFault> {
        self.for_each_piece(addr, data.len() as u64, |at, done, len| {
            direct::write_bytes(at, &data[done as usize..(done + len) as usize]);
        })
    }

    fn copy_from_machine(&self, dst: GuestPhysAddr, src: MachineAddr, len: u64) -> Result<(), MemoryFault> {
        self.for_each_piece(dst, len, |at, done, len| direct::copy(at, MachineAddr::new(src.raw() + done), len))
    }

    fn copy_to_machine(&self, dst: MachineAddr, src: GuestPhysAddr, len: u64) -> Result<(), MemoryFault> {
        self.for_each_piece(src, len, |at, done, len| direct::copy(MachineAddr::new(dst.raw() + done), at, len))
    }

    #[inline]
    fn contains(&self, addr: GuestPhysAddr, len: u64) -> bool {
        let size = self.pages * BASE_PAGE;
        let offset = addr.raw().wrapping_sub(self.base.addr().raw());
        offset < size && len <= size - offset
    }

    fn fence(&self) {
        core::sync::atomic::fence(Ordering::SeqCst);
    }
}
