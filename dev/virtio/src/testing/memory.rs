//! Guest RAM in a vector.

use addr::{GuestPhysAddr, MachineAddr};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::Range;

use device::{GuestMemory, MemoryFault};

/// Guest RAM in a vector, with a second vector as the machine memory of [`GuestMemory::copy_from_machine`].
pub struct TestMemory {
    base: u64,
    ram: RefCell<Vec<u8>>,
    machine: RefCell<Vec<u8>>,
    accesses: Cell<u64>,
}

impl TestMemory {
    /// `bytes` bytes of zeroed RAM at `base`.
    #[must_use]
    pub fn new(base: u64, bytes: usize) -> Self {
        Self { base, ram: RefCell::new(vec![0; bytes]), machine: RefCell::new(Vec::new()), accesses: Cell::new(0) }
    }

    /// Accesses of any kind but `contains` since the last call: the dear part of a device's hot path.
    pub fn take_accesses(&self) -> u64 {
        self.accesses.take()
    }

    /// Replaces the machine memory, which starts at machine address 0.
    pub fn set_machine(&self, content: Vec<u8>) {
        *self.machine.borrow_mut() = content;
    }

    /// A copy of the machine memory.
    pub fn machine(&self) -> Vec<u8> {
        self.machine.borrow().clone()
    }

    /// `len` bytes at `addr`, which must be RAM.
    ///
    /// # Panics
    /// When they are not RAM.
    pub fn bytes(&self, addr: GuestPhysAddr, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.read(addr, &mut out).expect("the test reads RAM");
        out
    }

    fn range(&self, addr: GuestPhysAddr, len: u64) -> Result<Range<usize>, MemoryFault> {
        let fault = MemoryFault { addr };
        let start = addr.raw().checked_sub(self.base).ok_or(fault)?;
        let end = start.checked_add(len).ok_or(fault)?;
        if end > self.ram.borrow().len() as u64 {
            return Err(fault);
        }
        Ok(start as usize..end as usize)
    }

    fn count(&self) {
        self.accesses.set(self.accesses.get() + 1);
    }
}

impl GuestMemory for TestMemory {
    fn read(&self, addr: GuestPhysAddr, buf: &mut [u8]) -> Result<(), MemoryFault> {
        self.count();
        let range = self.range(addr, buf.len() as u64)?;
        buf.copy_from_slice(&self.ram.borrow()[range]);
        Ok(())
    }

    fn write(&self, addr: GuestPhysAddr, data: &[u8]) -> Result<(), MemoryFault> {
        self.count();
        let range = self.range(addr, data.len() as u64)?;
        self.ram.borrow_mut()[range].copy_from_slice(data);
        Ok(())
    }

    fn copy_from_machine(&self, dst: GuestPhysAddr, src: MachineAddr, len: u64) -> Result<(), MemoryFault> {
        let start = src.raw() as usize;
        let data = self.machine.borrow()[start..start + len as usize].to_vec();
        self.write(dst, &data)
    }

    fn copy_to_machine(&self, dst: MachineAddr, src: GuestPhysAddr, len: u64) -> Result<(), MemoryFault> {
        let start = dst.raw() as usize;
        let mut machine = self.machine.borrow_mut();
        self.read(src, &mut machine[start..start + len as usize])
    }

    fn contains(&self, addr: GuestPhysAddr, len: u64) -> bool {
        self.range(addr, len).is_ok()
    }

    fn fence(&self) {}
}
