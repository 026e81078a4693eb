//! The door to machine memory.

use addr::{MachineAddr, Mfn};

/// Access to the contents of machine memory.
///
/// Implemented by the monitor over its direct map. The mechanisms pass only addresses of frames that they own, so an
/// implementation may treat any other address as a bug of the monitor.
pub trait MachineMemory {
    /// Reads the naturally aligned word at `addr`, single-copy atomic.
    fn read_u64(&self, addr: MachineAddr) -> u64;

    /// Writes the naturally aligned word at `addr`, single-copy atomic, after all earlier writes of this hart as other
    /// harts (and their page-table walkers) see it: a pointer never becomes visible before the table it points to.
    fn write_u64(&self, addr: MachineAddr, value: u64);

    /// Fills `pages` frames from `first` with zeros.
    fn zero_pages(&self, first: Mfn, pages: u64);

    /// Copies one frame.
    fn copy_page(&self, from: Mfn, to: Mfn);
}
