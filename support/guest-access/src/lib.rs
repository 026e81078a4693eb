//! Access to a guest's physical memory: the trait between devices, which use it, and whoever keeps the memory.
//!
//! # What it promises
//! Addresses are the guest's, so they are hostile: an access that leaves the guest's RAM is a [`MemoryFault`] and touches nothing else.
//! Nothing ever hands out a reference to memory that a guest writes.
//!
//! # Locking
//! Whoever keeps the memory takes its lock in each call. Nothing here calls back.
#![no_std]
#![forbid(unsafe_code)]

use addr::{GuestPhysAddr, MachineAddr, Mfn};

/// The guest named memory that it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryFault {
    /// First address that could not be accessed.
    pub addr: GuestPhysAddr,
}

/// What came of [`GuestMemory::map_page`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageMap {
    /// Done.
    Mapped,
    /// Done; other vCPUs see it for sure when memory [is settled](GuestMemory::is_settled).
    Unsettled,
    /// It cannot be: copy.
    Refused,
}

/// A guest's physical memory as the monitor sees it.
///
/// The guest's vCPUs read and write the same memory at the same time, so nothing here ever hands out a
/// reference: bytes are copied with volatile semantics, and a value read twice may differ. Accesses may span
/// pages; memory that the guest never touched is populated (zeroed) on the way.
pub trait GuestMemory {
    /// Copies guest memory into `buf`.
    ///
    /// # Errors
    /// [`MemoryFault`] when any byte lies outside the guest's RAM; `buf` may be partly written then.
    fn read(&self, addr: GuestPhysAddr, buf: &mut [u8]) -> Result<(), MemoryFault>;

    /// Copies `data` into guest memory.
    ///
    /// # Errors
    /// [`MemoryFault`] when any byte lies outside the guest's RAM; a prefix may have been written then.
    fn write(&self, addr: GuestPhysAddr, data: &[u8]) -> Result<(), MemoryFault>;

    /// Copies `len` bytes from machine memory that the monitor owns into guest memory.
    ///
    /// # Errors
    /// As for [`GuestMemory::write`].
    fn copy_from_machine(&self, dst: GuestPhysAddr, src: MachineAddr, len: u64) -> Result<(), MemoryFault>;

    /// Copies `len` bytes of guest memory into machine memory that the monitor owns.
    ///
    /// # Errors
    /// As for [`GuestMemory::read`].
    fn copy_to_machine(&self, dst: MachineAddr, src: GuestPhysAddr, len: u64) -> Result<(), MemoryFault>;

    /// Lets `page`, which nobody writes any more, stand for the guest page that begins at `dst`, until the guest or a device
    /// writes there. Whoever has `page` holds it as shared.
    fn map_page(&self, dst: GuestPhysAddr, page: Mfn) -> PageMap {
        let _ = (dst, page);
        PageMap::Refused
    }

    /// Calls vCPUs away from what [`GuestMemory::map_page`] has replaced. Nobody waits for them.
    fn settle_maps(&self) {}

    /// Whether no vCPU can see any more what was replaced before the last [`GuestMemory::settle_maps`]. Only then may
    /// the guest hear of what is in the pages.
    fn is_settled(&self) -> bool {
        true
    }

    /// Whether `[addr, addr + len)` is wholly guest RAM. Nothing is populated.
    fn contains(&self, addr: GuestPhysAddr, len: u64) -> bool;

    /// Reads a little-endian `u16`; naturally aligned accesses are single-copy atomic.
    ///
    /// # Errors
    /// As for [`GuestMemory::read`].
    fn read_u16(&self, addr: GuestPhysAddr) -> Result<u16, MemoryFault> {
        let mut b = [0; 2];
        self.read(addr, &mut b)?;
        Ok(u16::from_le_bytes(b))
    }

    /// Reads a little-endian `u32`; naturally aligned accesses are single-copy atomic.
    ///
    /// # Errors
    /// As for [`GuestMemory::read`].
    fn read_u32(&self, addr: GuestPhysAddr) -> Result<u32, MemoryFault> {
        let mut b = [0; 4];
        self.read(addr, &mut b)?;
        Ok(u32::from_le_bytes(b))
    }

    /// Reads a little-endian `u64`; naturally aligned accesses are single-copy atomic.
    ///
    /// # Errors
    /// As for [`GuestMemory::read`].
    fn read_u64(&self, addr: GuestPhysAddr) -> Result<u64, MemoryFault> {
        let mut b = [0; 8];
        self.read(addr, &mut b)?;
        Ok(u64::from_le_bytes(b))
    }

    /// Reads two neighbouring little-endian `u64`s; where `addr` is a multiple of 8, each is single-copy atomic.
    ///
    /// # Errors
    /// As for [`GuestMemory::read`].
    fn read_u64_pair(&self, addr: GuestPhysAddr) -> Result<[u64; 2], MemoryFault> {
        let mut b = [0; 16];
        self.read(addr, &mut b)?;
        let value = u128::from_le_bytes(b);
        Ok([value as u64, (value >> 64) as u64])
    }

    /// Writes a byte.
    ///
    /// # Errors
    /// As for [`GuestMemory::write`].
    fn write_u8(&self, addr: GuestPhysAddr, value: u8) -> Result<(), MemoryFault> {
        self.write(addr, &[value])
    }

    /// Writes a little-endian `u16`; naturally aligned accesses are single-copy atomic.
    ///
    /// # Errors
    /// As for [`GuestMemory::write`].
    fn write_u16(&self, addr: GuestPhysAddr, value: u16) -> Result<(), MemoryFault> {
        self.write(addr, &value.to_le_bytes())
    }

    /// Writes a little-endian `u32`; naturally aligned accesses are single-copy atomic.
    ///
    /// # Errors
    /// As for [`GuestMemory::write`].
    fn write_u32(&self, addr: GuestPhysAddr, value: u32) -> Result<(), MemoryFault> {
        self.write(addr, &value.to_le_bytes())
    }

    /// Writes a little-endian `u64`; naturally aligned accesses are single-copy atomic.
    ///
    /// # Errors
    /// As for [`GuestMemory::write`].
    fn write_u64(&self, addr: GuestPhysAddr, value: u64) -> Result<(), MemoryFault> {
        self.write(addr, &value.to_le_bytes())
    }

    /// Writes two neighbouring little-endian `u32`s; where `addr` is a multiple of 4, each is single-copy atomic.
    ///
    /// # Errors
    /// As for [`GuestMemory::write`].
    fn write_u32_pair(&self, addr: GuestPhysAddr, values: [u32; 2]) -> Result<(), MemoryFault> {
        let [low, high] = values;
        self.write(addr, &(u64::from(high) << 32 | u64::from(low)).to_le_bytes())
    }

    /// Orders all earlier accesses before all later ones as the guest's harts and devices see them.
    fn fence(&self);
}
