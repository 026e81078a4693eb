//! The door for devices: a VM's memory by guest-physical address.

use crate::{Access, ByteMemory as _, GuestRam, Machine, share::Found};
use addr::{BASE_PAGE, GuestPhysAddr, MachineAddr, Mfn};
use core::sync::atomic::Ordering;
use frames::MachineMemory as _;
use guest_access::{GuestMemory, MemoryFault, PageMap};
use tlb::TlbGeneration;

/// Bytes copied with the memory's lock held.
const LONGEST_PIECE: u64 = 64 << 10;
/// Times that a device's write starts again because the page was shared anew before it: only a guest that asks for that
/// makes it happen more than once.
const MOST_BREAKS: u32 = 64;

/// Times that the machine is asked for a page: others may take what it gives back.
const MOST_RELIEFS: u32 = 8;

/// Seconds after which a hart that was called and does not leave the guest is taken for dead.
const PATIENCE_S: u64 = 2;

/// Bytes that a single access can fill, so that a value at an aligned address is never torn.
#[repr(align(8))]
struct Aligned<const N: usize>([u8; N]);

impl<M: Machine> GuestRam<M> {
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
        let mut inner = self.inner.lock();
        let page = inner.pmap.private_page(self.memory(), addr.gfn())?;
        Some(access(MachineAddr::new(page.addr().raw() | addr.page_offset())))
    }

    /// Calls `each` with the machine address and length of every piece of `[addr, addr + len)`, populating on the way, and
    /// breaking the sharing of what is to be written. The memory's lock is held during each call, so that the page cannot be
    /// taken away under the copy.
    #[inline]
    fn for_each_piece(
        &self,
        addr: GuestPhysAddr,
        len: u64,
        access: Access,
        mut each: impl FnMut(MachineAddr, u64, u64),
    ) -> Result<(), MemoryFault> {
        let (mut done, mut breaks, mut reliefs) = (0, 0, 0);
        while done < len {
            let at = addr.checked_add(done).ok_or(MemoryFault { addr })?;
            let mut inner = self.inner.lock();
            let (page, pages) = match inner.pmap.private_run(self.memory(), at.gfn()) {
                Some(run) => run,
                None => match self.find_for_device(&mut inner, at, access) {
                    Found::Run(page, pages) => (page, pages),
                    Found::Waits(generation) => {
                        drop(inner);
                        breaks += 1;
                        if breaks > MOST_BREAKS || !self.wait_briefly(generation) {
                            return Err(MemoryFault { addr: at });
                        }
                        continue;
                    }
                    Found::NoMemory if reliefs < MOST_RELIEFS => {
                        drop(inner);
                        // After the last page that others give up there is one more try.
                        reliefs = if self.machine.relieve(self) { reliefs + 1 } else { MOST_RELIEFS };
                        continue;
                    }
                    Found::NoMemory | Found::Nothing => return Err(MemoryFault { addr: at }),
                },
            };
            let room = pages * BASE_PAGE - at.page_offset();
            let piece = room.min(len - done).min(LONGEST_PIECE);
            each(MachineAddr::new(page.addr().raw() | at.page_offset()), done, piece);
            done += piece;
        }
        Ok(())
    }

    /// Copies what the guest has from `addr` on into `buf`, for whoever looks at it from outside: pages that it does not have read as zeroes,
    /// and it does not get them. The lock is held for a page at a time.
    ///
    /// # Errors
    /// [`MemoryFault`] when any byte lies outside the guest's RAM; `buf` may be partly written then.
    pub fn peek(&self, addr: GuestPhysAddr, buf: &mut [u8]) -> Result<(), MemoryFault> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = addr.checked_add(done as u64).ok_or(MemoryFault { addr })?;
            if !self.is_ram(at) {
                return Err(MemoryFault { addr: at });
            }
            let room = (BASE_PAGE - at.page_offset()).min(rest.len() as u64) as usize;
            let piece = &mut rest[..room];
            let inner = self.inner.lock();
            let found = inner.pmap.lookup(self.memory(), at.gfn());
            match found.ok().filter(|_| !inner.is_closed).and_then(|mapping| mapping.machine_page(at.gfn())) {
                Some(page) => self.memory().read_bytes(MachineAddr::new(page.addr().raw() | at.page_offset()), piece),
                None => piece.fill(0),
            }
            done += room;
        }
        Ok(())
    }

    /// A device is about to write to a copy of a page that vCPUs on other harts may still see. Those were called, and leave the
    /// guest as soon as they take an interrupt. `false` if one does not for so long that its hart must be dead.
    #[cold]
    fn wait_briefly(&self, generation: TlbGeneration) -> bool {
        let patience = PATIENCE_S * self.machine.ticks_per_second();
        let begin = self.machine.now();
        while !self.tlb.all_passed(generation) {
            if self.machine.now().wrapping_sub(begin) > patience {
                return false;
            }
            core::hint::spin_loop();
        }
        true
    }

    /// The long way to a small value.
    #[cold]
    fn bytes_at<const N: usize>(&self, addr: GuestPhysAddr) -> Result<[u8; N], MemoryFault> {
        let mut bytes = Aligned([0; N]);
        self.read(addr, &mut bytes.0)?;
        Ok(bytes.0)
    }
}

/// The word after the first one of `bytes` bytes, in the same page.
const fn second(first: MachineAddr, bytes: u64) -> MachineAddr {
    MachineAddr::new(first.raw() + bytes)
}

impl<M: Machine> GuestMemory for GuestRam<M> {
    #[inline]
    fn read_u16(&self, addr: GuestPhysAddr) -> Result<u16, MemoryFault> {
        self.quick(addr, 2, |at| self.memory().load_u16(at))
            .map_or_else(|| self.bytes_at(addr).map(u16::from_le_bytes), Ok)
    }

    #[inline]
    fn read_u32(&self, addr: GuestPhysAddr) -> Result<u32, MemoryFault> {
        self.quick(addr, 4, |at| self.memory().load_u32(at))
            .map_or_else(|| self.bytes_at(addr).map(u32::from_le_bytes), Ok)
    }

    #[inline]
    fn read_u64(&self, addr: GuestPhysAddr) -> Result<u64, MemoryFault> {
        self.quick(addr, 8, |at| self.memory().read_u64(at))
            .map_or_else(|| self.bytes_at(addr).map(u64::from_le_bytes), Ok)
    }

    #[inline]
    fn write_u16(&self, addr: GuestPhysAddr, value: u16) -> Result<(), MemoryFault> {
        let quick = self.quick(addr, 2, |at| self.memory().store_u16(at, value));
        quick.map_or_else(|| self.write(addr, &Aligned(value.to_le_bytes()).0), Ok)
    }

    #[inline]
    fn write_u32(&self, addr: GuestPhysAddr, value: u32) -> Result<(), MemoryFault> {
        let quick = self.quick(addr, 4, |at| self.memory().store_u32(at, value));
        quick.map_or_else(|| self.write(addr, &Aligned(value.to_le_bytes()).0), Ok)
    }

    #[inline]
    fn write_u64(&self, addr: GuestPhysAddr, value: u64) -> Result<(), MemoryFault> {
        let quick = self.quick(addr, 8, |at| self.memory().store_u64(at, value));
        quick.map_or_else(|| self.write(addr, &Aligned(value.to_le_bytes()).0), Ok)
    }

    #[inline]
    fn read_u64_pair(&self, addr: GuestPhysAddr) -> Result<[u64; 2], MemoryFault> {
        let quick =
            self.quick_run(addr, 8, 16, |at| [self.memory().read_u64(at), self.memory().read_u64(second(at, 8))]);
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
            self.memory().store_u32(at, low);
            self.memory().store_u32(second(at, 4), high);
        });
        quick.map_or_else(|| self.write(addr, &(u64::from(high) << 32 | u64::from(low)).to_le_bytes()), Ok)
    }

    #[inline]
    fn write_u8(&self, addr: GuestPhysAddr, value: u8) -> Result<(), MemoryFault> {
        let quick = self.quick(addr, 1, |at| self.memory().write_bytes(at, &[value]));
        quick.map_or_else(|| self.write(addr, &[value]), Ok)
    }

    fn read(&self, addr: GuestPhysAddr, buf: &mut [u8]) -> Result<(), MemoryFault> {
        self.for_each_piece(addr, buf.len() as u64, Access::Read, |at, done, len| {
            self.memory().read_bytes(at, &mut buf[done as usize..(done + len) as usize]);
        })
    }

    fn write(&self, addr: GuestPhysAddr, data: &[u8]) -> Result<(), MemoryFault> {
        self.for_each_piece(addr, data.len() as u64, Access::Write, |at, done, len| {
            self.memory().write_bytes(at, &data[done as usize..(done + len) as usize]);
        })
    }

    fn copy_from_machine(&self, dst: GuestPhysAddr, src: MachineAddr, len: u64) -> Result<(), MemoryFault> {
        self.for_each_piece(dst, len, Access::Write, |at, done, len| {
            self.memory().copy_bytes(at, MachineAddr::new(src.raw() + done), len);
        })
    }

    fn copy_to_machine(&self, dst: MachineAddr, src: GuestPhysAddr, len: u64) -> Result<(), MemoryFault> {
        self.for_each_piece(src, len, Access::Read, |at, done, len| {
            self.memory().copy_bytes(MachineAddr::new(dst.raw() + done), at, len);
        })
    }

    fn map_page(&self, dst: GuestPhysAddr, page: Mfn) -> PageMap {
        if self.may_share { self.share(dst.gfn(), page) } else { PageMap::Refused }
    }

    fn settle_maps(&self) {
        self.settle_shares();
    }

    fn is_settled(&self) -> bool {
        let mut inner = self.inner.lock();
        if inner.unsettled != TlbGeneration::NONE && self.tlb.all_passed(inner.unsettled) {
            inner.unsettled = TlbGeneration::NONE;
        }
        inner.unsettled == TlbGeneration::NONE
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
